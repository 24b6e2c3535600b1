# SPDX-License-Identifier: MIT
"""What becomes of one network: is it read, trained by the library beside PyTorch, and judged right?"""

from __future__ import annotations

import copy
import re
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import nn

from benchmarks.zoo.networks import Entry
from bridge import Network
from bridge.common.errors import BridgeError
from bridge.exchange.optimizers import AdamW, Sgd
from bridge.judge.judge import judge
from reference.errors import InputError
from reference.export import export
from reference.inputs import of_example
from reference.network.layers import Layers, as_pairs, to_type
from reference.network.modes import in_float64
from reference.network.program import Aten
from reference.network.reading import read
from reference.settings import ExportSettings
from reference.training import double_twin, parameters, run_step

Array = np.ndarray
#: Of outputs from PyTorch's, as a share of the largest number, and of parameters, as a share of that or of the largest
#: step of any parameter; a power of two as a learning rate
CLOSE, LR = 1e-4, 2.0**-6


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes
    ----------
    name : of the network
    judged : the verdict of a right program is RIGHT; else what is missing
    trained : outputs in training and evaluation and the parameters after a step are PyTorch's; else what is missing
    estimated : operations without proven bounds that the judge needed
    """

    name: str
    judged: str
    trained: str
    estimated: tuple[str, ...] = ()


def ask(entry: Entry) -> Found:
    """Return what becomes of a network; whatever it raises is said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained = _said(lambda: _trained(entry))
        foreign: list[str] = []
        judged = _said(lambda: _judged(entry, foreign))
    return Found(entry.name, judged, trained, tuple(foreign))


def without_folders(text: str) -> str:
    """Return a message that names files of Python without their folders, which are this machine's.

    >>> without_folders("add: no rule (/opt/package/part.py, line 3)")
    'add: no rule (part.py, line 3)'
    """
    return re.sub(r"/[^\s\"'()]*/([^/\s\"'()]+\.py)", r"\1", text)


def _said(call: object) -> str:
    try:
        return str(call())  # type: ignore[operator]
    except (BridgeError, InputError) as error:
        return without_folders(" ".join(str(error).split()))
    except Exception as error:  # somebody else's network may raise anything
        return without_folders(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


def _batch(entry: Entry, module: nn.Module) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Inputs and a target."""
    draw = torch.Generator().manual_seed(1)
    shapes = entry.shape if isinstance(entry.shape, list) else [entry.shape]
    below = entry.below if isinstance(entry.below, tuple) else (entry.below,) * len(shapes)
    x = [torch.randint(most, one, generator=draw) if most else torch.randn(one, generator=draw)
         for one, most in zip(shapes, below, strict=True)]
    with torch.no_grad():
        y = copy.deepcopy(module)(*x)
    if not isinstance(y, torch.Tensor):
        raise InputError(f"it gives {type(y).__name__}, supported is one tensor")
    return x, (y + 0.1 * torch.randn(y.shape, generator=draw)).contiguous()


def _example(entry: Entry, x: list[torch.Tensor]) -> Any:
    """The shape of an input; of several the arrays, which say which ones are whole numbers."""
    return [one.numpy() for one in x] if isinstance(entry.shape, list) else entry.shape


def _given(x: list[torch.Tensor]) -> Any:
    """As a network takes them."""
    return x[0].numpy() if len(x) == 1 else [one.numpy() for one in x]


def _trained(entry: Entry) -> str:
    """Outputs in float32, before a step; the step in float64, as deep networks make much of the last digits."""
    away = _outputs(entry) | _step(entry)
    worst = max(away, key=lambda name: away[name])
    return "yes" if away[worst] <= CLOSE else f"{worst} is {away[worst]:.1e} of its largest number away"


def _outputs(entry: Entry) -> dict[str, float]:
    module = entry.make()
    x, _ = _batch(entry, module)
    network = Network.from_torch(copy.deepcopy(module), example=_example(entry, x))
    found = {"the output in training": _away(network.forward(_given(x)), module(*x))}
    network.eval()
    with torch.no_grad():
        found["the output in evaluation"] = _away(network.forward(_given(x)), module.eval()(*x))
    return found


def _step(entry: Entry) -> dict[str, float]:
    module = entry.make()
    given, target = _batch(entry, module)
    x, target = [one.double() if one.is_floating_point() else one for one in given], target.double()
    network = Network.from_torch(copy.deepcopy(module), example=_example(entry, given), dtype="float64")
    module = to_type(module, torch.float64)
    kinds = (torch.optim.AdamW, AdamW) if entry.adamw else (torch.optim.SGD, Sgd)
    optimizer = kinds[0](module.parameters(), LR)
    with in_float64():
        torch.nn.functional.mse_loss(module(*x), target).backward()
    optimizer.step()
    network.step(_given(x), target.numpy(), kinds[1](LR))
    after = network.to_torch().state_dict()
    least = LR * max(float(one.grad.abs().max()) for one in module.parameters() if one.grad is not None)
    found = {name: _away(as_pairs(after[name]).numpy(), as_pairs(value), least)
             for name, value in module.state_dict().items()
             if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())}
    network.eval()
    with torch.no_grad(), in_float64():
        found["the output in evaluation after a step"] = _away(network.forward(_given(x)), module.eval()(*x))
    return found


def _away(found: Array, right: torch.Tensor, least: float = 1e-30) -> float:
    value = right.detach().numpy()
    return float(np.abs(found - value).max() / max(float(np.abs(value).max()), least))


def _judged(entry: Entry, foreign: list[str]) -> str:
    module = entry.make()
    x, target = _batch(entry, module)
    inputs, count = of_example(module.forward, _given(x)) if isinstance(entry.shape, list) else (None, len(x[0]))
    given: Any = x[0].numpy() if inputs is None else dict(zip(inputs.names, _given(x), strict=True))
    example = x[0].shape if inputs is None else (count, inputs.numbers)
    with tempfile.TemporaryDirectory() as folder:
        fixture, result = Path(folder, "fixture.h5"), Path(folder, "result.h5")
        export(fixture, ExportSettings(model=entry.make, input=given, target=target.numpy(), steps=1, lr=LR,
                                       threads=1, oracle_steps=0))
        layers = read(module, lambda _: [example], tuple(example), foreign=True, inputs=inputs,
                      integers=entry.below if isinstance(entry.below, int) else 0)
        foreign += dict.fromkeys(str(call) for _, layer in layers if isinstance(layer, Aten)
                                 for call, *_ in layer.calls)
        _by_float64(layers, fixture, result)
        verdict = judge(fixture, result, adequacy=False, diagnosing=False).verdict
    return "yes" if verdict.exit_code == 0 else verdict.words


def _by_float64(layers: Layers, fixture: Path, result: Path) -> None:
    """A step by PyTorch in float64, of which float32 is written."""
    net = double_twin(layers)
    with h5py.File(fixture) as given, h5py.File(result, "w") as file:
        file.attrs.update({"format": "cnn-exchange", "format_version": 2, "role": "candidate", "producer": "float64"})
        with torch.no_grad():
            for name, part, one in parameters(net):
                weights = f"steps/0/weights/{name}/{part}"
                one.copy_(torch.from_numpy(given[weights][()]))
                file[weights] = given[weights][()]

        known = {"input", *given["model/layers"]}

        def sink(name: str, tensor: torch.Tensor) -> None:
            # A layer that asks for one size of images is not everybody's
            if name != "loss" and name.split("/")[1] not in known:
                return
            file[f"steps/0/{name}"] = tensor.detach().numpy().astype(np.float32)

        batch = (torch.from_numpy(given[f"batches/0/{name}"][()]).double() for name in ("input", "target"))
        run_step(net, *batch, "mean", sink)
        for name, part, one in parameters(net):
            assert one.grad is not None
            frozen = given[f"steps/0/weights/{name}/{part}"].attrs.get("frozen")
            after = one if frozen else one - LR * one.grad
            file[f"steps/1/weights/{name}/{part}"] = after.detach().float().numpy()
