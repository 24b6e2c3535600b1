# SPDX-License-Identifier: MIT
"""PyTorch's own samples of every operation and loss: what docs/opinfo.md says has become of each.

``python -m tests.operations.test_opinfo`` prints its table anew.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from bridge.operations import OPERATIONS
from bridge.operations.losses import LOSSES
from tests import ROOT
from tests.helpers.opinfo import REASONS, judge_samples, op_db
from tests.helpers.tiers import few

#: What torch calls for our operations and losses
NAMES = (
    "abs", "add", "amax", "amin", "bmm", "cat", "clamp", "cos", "div floor_rounding", "div no_rounding_mode",
    "div trunc_rounding", "exp", "expand", "flatten", "flip", "index_select", "log", "log10", "log2", "log_softmax",
    "log_softmax with_dtype", "matmul",
    "max binary", "max reduction_no_dim", "max reduction_with_dim", "mean", "min binary", "min reduction_no_dim",
    "min reduction_with_dim", "mm", "mul", "narrow", "neg", "pow", "reciprocal", "rsqrt", "square",
    *(f"nn.functional.{name}" for name in (
        "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool2d", "avg_pool2d", "avg_pool3d", "batch_norm",
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "conv2d", "conv3d", "conv_transpose2d",
        "conv_transpose3d", "cross_entropy", "dropout", "dropout2d", "elu", "embedding", "gelu", "group_norm",
        "hardsigmoid", "hardswish", "huber_loss", "interpolate bicubic", "interpolate bilinear", "interpolate nearest",
        "interpolate nearest-exact", "interpolate trilinear", "l1_loss", "layer_norm", "leaky_relu", "linear",
        "max_pool2d", "max_pool3d", "mish", "mse_loss", "pad circular", "pad constant", "pad reflect",
        "pad replicate", "pad replicate_negative", "pixel_shuffle", "pixel_unshuffle", "prelu", "relu", "silu",
        "smooth_l1_loss", "softplus")),
    "permute", "reshape", "roll", "sigmoid", "sin", "softmax", "softmax with_dtype", "sqrt", "sub", "sum", "tanh",
    "transpose", "true_divide", "unflatten", "view",
)
#: Of these PyTorch has no sample that we take: it has no spline, every clip is by tensors, no pooling to one pixel, no
#: image is enlarged by an integer, every shape is another first dimension, too, every index is an input, complex
#: numbers are pairs (tests/parity/test_fourier.py), recurrent layers are modules (tests/reference/test_recurrence.py),
#: and an attention is one of three operands (tests/parity/test_attention.py)
UNSAMPLED = {"attention", "clip", "complex_linear", "gather_rows", "global_avg_pool2d", "gru", "index_select", "lstm",
             "parameter", "reshape", "rnn", "spline",
             "upsample_bilinear2d", "upsample_nearest2d", "upsample_nearest3d", "upsample_trilinear3d"}
#: Of one image without a batch PyTorch warns
pytestmark = pytest.mark.filterwarnings("ignore:dropout2d")
DOCUMENT = ROOT / "docs" / "opinfo.md"


@pytest.fixture(scope="module")
def samples() -> dict[str, Any]:
    pytest.importorskip("expecttest", reason="PyTorch's samples need the package expecttest")
    return op_db()


def row_of(name: str, info: Any) -> str:
    """Every sample agrees or is refused for a known reason, in both precisions alike."""
    single, double = (judge_samples(info, dtype).row(name) for dtype in (torch.float32, torch.float64))
    assert single == double
    return single


@pytest.mark.parametrize("name", few(NAMES, 12))
def test_samples_agree_or_are_refused(name: str, samples: dict[str, Any]) -> None:
    if name not in samples:
        pytest.skip(f"this PyTorch has no samples of {name}")
    row, document = row_of(name, samples[name]), DOCUMENT.read_text(encoding="utf-8")
    if torch.__version__.partition("+")[0] in document:
        assert row in document.splitlines()


@pytest.mark.deep
@pytest.mark.parametrize("name", [name for name in NAMES if name != "nn.functional.max_pool2d"])
def test_other_devices_agree(name: str, samples: dict[str, Any], cuda: str) -> None:
    if name not in samples:
        pytest.skip(f"this PyTorch has no samples of {name}")
    here = judge_samples(samples[name], torch.float32, "cpu")
    for device in ("naive", cuda):
        there = judge_samples(samples[name], torch.float32, device)
        missing = there.refused.pop("device", 0)
        assert missing == 2 * (device == "cuda" and "conv_transpose" in name)
        assert here.refused == there.refused and here.agreed.total() == there.agreed.total() + missing


def test_the_document_is_whole() -> None:
    """A row for each, every operation and loss among them, and every reason explained."""
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+?)` \| \d+ \| (.*?) \| (.*?) \|$", text, re.M)
    assert [name for name, *_ in rows] == list(NAMES)
    agreed, refused = ({part.rpartition(" ")[0] for *_, agreed, refused in rows for part in (agreed, refused)[which]
                        .split(", ") if part} for which in (0, 1))
    assert agreed == {*OPERATIONS, *LOSSES} - UNSAMPLED and refused == REASONS.keys() - {"device"}
    for reason, (words, _) in REASONS.items():
        assert f"- **{reason}**: {words}" in " ".join(text.split()), reason


if __name__ == "__main__":
    db = op_db()
    print("\n".join(row_of(name, db[name]) for name in NAMES))
