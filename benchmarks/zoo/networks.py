# SPDX-License-Identifier: MIT
"""The networks, each a class or function of a package with its arguments, small ones on small images.

Nothing random is left in them: dropouts keep all, and layers are not skipped by chance.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from reference.network.outputs import of_output

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """A network of a package.

    Attributes
    ----------
    package : the module that is imported
    call : name of its class or function, perhaps behind dots
    args, named : of the call; an entry among the latter is the network that it makes
    shape : of an input, or of several
    output : which one is trained, where it gives several
    below : of inputs that are whole numbers, one more than the largest; 0 of real numbers; one for each of several
    config : the class of the package that makes of `named` the call's only argument; "" takes them as they are
    adamw : the step is one of AdamW, else of SGD
    then : a method that is called before it is trained
    label : what it is called in place of its class
    """

    package: str
    call: str
    args: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    shape: Shape | list[Shape] = (2, 3, 64, 64)
    output: int | str | None = None
    below: int | tuple[int, ...] = 0
    config: str = ""
    adamw: bool = False
    then: str = ""
    label: str = ""

    @property
    def name(self) -> str:
        """Return the package, the network, and whether it takes volumes."""
        what = self.label or (self.args[0] if self.call == "create_model" else self.call.rpartition(".")[2])
        return f"{self.package.partition('.')[0]} {what}" + " 3-D" * (self.named.get("spatial_dims") == 3)

    @property
    def installed(self) -> bool:
        """Return whether its package is there."""
        return importlib.util.find_spec(self.package.partition(".")[0]) is not None

    def make(self) -> nn.Module:
        """Return a new module, in training, always with the same weights."""
        if self.package.startswith(("torchvision", "timm", "segmentation", "deepinv", "spandrel", "vit_pytorch",
                                    "transformers")):
            _declare_detection()
        package: Any = importlib.import_module(self.package)
        found = package
        for part in self.call.split("."):
            found = getattr(found, part)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            named = {key: one.make() if isinstance(one, Entry) else one for key, one in self.named.items()}
            module: nn.Module = (found(getattr(package, self.config)(**named)) if self.config else
                                 found(*self.args, **named))
        if self.then:
            getattr(module, self.then)()
        for one in module.modules():
            if isinstance(one, nn.modules.dropout._DropoutNd):
                one.p = 0.0
        return module.train() if self.output is None else of_output(module.train(), self.output)


def _declare_detection() -> None:
    """A torchvision made for another PyTorch lacks its part in C++, which only detection needs, and asks for it."""
    if importlib.util.find_spec("torchvision") is None or hasattr(_declare_detection, "library"):
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
        _declare_detection.library = library  # type: ignore[attr-defined]


def _timm() -> Iterator[Entry]:
    plain = """
        resnet10t resnetv2_18 regnetx_002 regnety_002 efficientnet_lite0 mnasnet_050 semnasnet_050
        mobilenetv2_050 mobilenetv3_small_050 mobilenetv4_conv_small_050 lcnet_050 tinynet_e ghostnet_050
        repghostnet_050 hardcorenas_a fbnetc_100 spnasnet_100 mixnet_s dla46_c convnext_atto convnextv2_atto
        convnext_atto_rms inception_next_atto starnet_s050 mambaout_femto edgenext_xx_small mobilevit_xxs
        mobilevitv2_050 rexnetr_100 res2net50_14w_8s skresnet18 ecaresnet26t gernet_s repvgg_a0 mobileone_s0
        fastvit_t8 poolformer_s12 selecsls42 cspresnet50 darknet17 vovnet39a densenet121
        nf_resnet26 hgnetv2_b0 pvt_v2_b0 shvit_s1 efficientvit_b0 efficientvit_m0 repvit_m0_9 lambda_resnet26t"""
    for name in plain.split():
        more: dict[str, Any] = {"drop_rate": 0.0} if "ghostnet" in name else {}
        # Normalisations of two numbers at the end make everything of the last digits
        images = 4 if name in ("mobilenetv4_conv_small_050", "mobileone_s0", "selecsls42") else 2
        yield Entry("timm", "create_model", (name,), {"num_classes": 4, **more}, (images, 3, 64, 64))
    sized = {
        "vit_tiny_patch16_224": 32, "deit_tiny_patch16_224": 32, "xcit_nano_12_p16_224": 32, "mixer_s32_224": 32,
        "beit_base_patch16_224": 32, "resmlp_12_224": 32, "gmixer_12_224": 32, "gmlp_ti16_224": 32,
        "cait_xxs24_224": 32, "swin_tiny_patch4_window7_224": 56, "visformer_tiny": 64,
        "eva02_tiny_patch14_224": 28, "efficientformerv2_s0": 64}
    for name, size in sized.items():
        more = {"img_size": size}
        more |= {"drop_path_rate": 0.0} if name.startswith(("swin", "efficientformer")) else {}
        depth: dict[str, Any] = {"depth": 2} if name.startswith(("vit", "deit", "beit", "cait", "xcit", "eva")) else {}
        depth |= {"embed_dim": 48, "num_heads": 3} if name.startswith("beit") else {}
        depth |= {"embed_dim": 24, "depths": (2, 2, 1, 1), "num_heads": (2, 2, 4, 4)} if name.startswith("swin") else {}
        yield Entry("timm", "create_model", (name,), {"num_classes": 4, **more, **depth}, (2, 3, size, size))
    yield Entry("timm.models.convmixer", "ConvMixer", (32, 4), {"num_classes": 4}, (2, 3, 28, 28))


def _torchvision() -> Iterator[Entry]:
    some: dict[str, dict[str, Any]] = {
        "resnet18": {}, "resnext50_32x4d": {}, "squeezenet1_0": {}, "squeezenet1_1": {}, "mobilenet_v2": {},
        "mobilenet_v3_small": {}, "shufflenet_v2_x0_5": {}, "shufflenet_v2_x1_0": {}, "mnasnet0_5": {},
        "regnet_y_400mf": {}, "densenet121": {},
        "efficientnet_b0": {"stochastic_depth_prob": 0.0}, "convnext_tiny": {"stochastic_depth_prob": 0.0},
        "googlenet": {"aux_logits": False, "init_weights": False}}
    for name, named in some.items():
        yield Entry("torchvision", f"models.{name}", (), {"num_classes": 4, **named})
    yield Entry("torchvision", "models.vision_transformer.VisionTransformer", (32, 8, 2, 2, 16, 32), {"num_classes": 4},
                (2, 3, 32, 32))
    yield Entry("torchvision", "models.swin_transformer.SwinTransformer", ([4, 4], 24, [2, 2], [2, 4], [4, 4]),
                {"num_classes": 4, "stochastic_depth_prob": 0.0})
    for name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
        yield Entry("torchvision", f"models.segmentation.{name}", (), {"num_classes": 2, "weights_backbone": None},
                    output="out")


def _segmentation() -> Iterator[Entry]:
    for name in ("Unet", "UnetPlusPlus", "MAnet", "Linknet", "FPN", "PSPNet", "PAN", "DeepLabV3", "DeepLabV3Plus",
                 "UPerNet", "Segformer"):
        size = 128 if name == "PAN" else 64
        yield Entry("segmentation_models_pytorch", name, ("resnet18",), {"encoder_weights": None, "classes": 2},
                    (2, 3, size, size))


def _medical() -> Iterator[Entry]:
    nets, plane = "monai.networks.nets", (2, 1, 32, 32)
    two = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
    yield Entry(nets, "BasicUNet", (), {**two, "features": (8, 8, 16, 16, 16, 8)}, plane)
    yield Entry(nets, "BasicUNetPlusPlus", (), {**two, "features": (8, 8, 16, 16, 16, 8)}, plane, 0)
    yield Entry(nets, "UNet", (), {**two, "channels": (8, 16, 32), "strides": (2, 2), "num_res_units": 1}, plane)
    yield Entry(nets, "AttentionUnet", (), {**two, "channels": (8, 16, 32), "strides": (2, 2)}, plane)
    yield Entry(nets, "SegResNet", (), {**two, "init_filters": 8}, plane)
    yield Entry(nets, "HighResNet", (), two, plane)
    yield Entry(nets, "DynUNet", (), {**two, "kernel_size": [3, 3, 3], "strides": [1, 2, 2],
                                      "upsample_kernel_size": [2, 2]}, plane)
    yield Entry(nets, "VNet", (), {**two, "dropout_prob_down": 0.0, "dropout_prob_up": (0.0, 0.0)}, plane)
    yield Entry(nets, "UNet", (), {**two, "spatial_dims": 3, "channels": (4, 8), "strides": (2,)}, (2, 1, 8, 8, 8))
    yield Entry(nets, "SegResNet", (), {**two, "spatial_dims": 3, "init_filters": 8}, (2, 1, 8, 8, 8))
    yield Entry(nets, "DenseNet121", (), {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}, (4, 1, 64, 64))
    yield Entry(nets, "UNETR", (), {**two, "img_size": 32, "feature_size": 4, "hidden_size": 16, "mlp_dim": 32,
                                    "num_heads": 2}, plane)
    yield Entry(nets, "ViT", (1, 32, 8), {"hidden_size": 16, "mlp_dim": 32, "num_layers": 2, "num_heads": 2,
                                          "spatial_dims": 2}, plane, 0)


def _restoration() -> Iterator[Entry]:
    gray = {"in_channels": 1, "out_channels": 1, "pretrained": None}
    yield Entry("deepinv.models", "DnCNN", (), {**gray, "depth": 5, "nf": 16}, (2, 1, 32, 32))
    yield Entry("deepinv.models", "UNet", (), {"in_channels": 1, "out_channels": 1, "scales": 2}, (2, 1, 32, 32))
    yield Entry("deepinv.models", "DRUNet", (), {**gray, "nc": [8, 8, 16, 16], "nb": 1}, [(2, 1, 32, 32), (2,)])
    yield Entry("deepinv.models", "SwinIR", (), {"img_size": 16, "in_chans": 1, "embed_dim": 12, "depths": (2,),
                                                 "num_heads": (2,), "window_size": 8, "upscale": 1, "upsampler": "",
                                                 "pretrained": None, "drop_path_rate": 0.0}, (2, 1, 16, 16))
    yield Entry("deepinv.models", "Restormer", (), {**gray, "dim": 8, "num_blocks": [1, 1, 1, 1], "heads": [1, 1, 1, 1],
                                                    "num_refinement_blocks": 1}, (2, 1, 32, 32))
    yield Entry("vit_pytorch", "ViT", (), {"image_size": 32, "patch_size": 8, "num_classes": 4, "dim": 16, "depth": 2,
                                           "heads": 2, "mlp_dim": 32}, (2, 3, 32, 32))
    yield Entry("vit_pytorch.simple_vit", "SimpleViT", (), {
        "image_size": 32, "patch_size": 8, "num_classes": 4, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32},
        (2, 3, 32, 32))
    yield Entry("vit_pytorch.cct", "CCT", (), {"img_size": 32, "embedding_dim": 16, "n_conv_layers": 1, "num_layers": 2,
                                               "num_heads": 2, "num_classes": 4, "mlp_ratio": 2,
                                               "stochastic_depth_rate": 0.0}, (2, 3, 32, 32))


#: Networks of images
NETWORKS: tuple[Entry, ...] = (*_timm(), *_torchvision(), *_segmentation(), *_medical(), *_restoration())
