# SPDX-License-Identifier: MIT
"""What is asked of cuDNN's graph API: the passes of convolutions, with types and layouts."""

from __future__ import annotations

from dataclasses import dataclass

from tests import ROOT
from tests.helpers.cases import Case

#: What cuDNN says of an H200 when it is asked for its description
DEVICE = ROOT / "bridge" / "doctor" / "h200.json"
OPERATIONS = {"forward": 1, "data": 2, "filter": 3, "bias": 4}
LAYOUTS = {"nchw": 1, "nhwc": 2}
DTYPES = {"float32": 1, "float64": 2, "float16": 3, "bfloat16": 4}
MATHS = {"fp32": 1, "tf32": 2, "fp16": 3, "bf16": 4}
#: The three layers of the mission's net at its size
LAYERS = [Case(f"{c}->{k}", (2, c, 1024, 1024), (k, c, 3, 3), padding=(1, 1)) for c, k in ((1, 16), (16, 16), (16, 1))]


@dataclass(frozen=True)
class Request:
    """One graph: an operation on a convolution, what is fused with it, and the device's options."""

    operation: str
    case: Case
    layout: str = "nchw"
    dtype: str = "float32"
    math: str = "fp32"
    bias: bool = False
    relu: bool = False
    mask: bool = False

    @property
    def line(self) -> str:
        """As graph_program reads it."""
        case = self.case
        return " ".join(map(str, (
            OPERATIONS[self.operation], LAYOUTS[self.layout], DTYPES[self.dtype], MATHS[self.math],
            *("FT"[flag] for flag in (self.bias, self.relu, self.mask)), *case.x, case.w[0], *case.w[2:], *case.stride,
            *case.padding, *case.dilation, case.groups)))


def all_passes(case: Case, **options: str) -> list[Request]:
    """What a step asks for: forward alone, with bias, with bias and ReLU, and both gradients."""
    return [Request("forward", case, **options), Request("forward", case, bias=True, **options),
            Request("forward", case, bias=True, relu=True, **options), Request("data", case, **options),
            Request("filter", case, **options)]
