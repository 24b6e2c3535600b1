# SPDX-License-Identifier: MIT
"""What operations of `bridge.operations` may do instead: operations with the same parameters and a wrong formula.

They are computed by the same numbers as the right ones. The folder mirrors `bridge.operations`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.judge.diagnosis.wrong_operations.arithmetic import add, divide, multiply, prelu, subtract
from bridge.judge.diagnosis.wrong_operations.change import Wrong
from bridge.judge.diagnosis.wrong_operations.joins import concat, flatten
from bridge.judge.diagnosis.wrong_operations.normalization import batch_norm, group_norm, layer_norm
from bridge.judge.diagnosis.wrong_operations.pointwise import (
    clip,
    dropout,
    elu,
    gelu,
    leaky_relu,
    pointwise,
    sigmoid,
    silu,
    softplus,
    tanh,
)
from bridge.judge.diagnosis.wrong_operations.pooling import avg_pool, max_pool
from bridge.judge.diagnosis.wrong_operations.products import conv_transpose, linear, matmul
from bridge.judge.diagnosis.wrong_operations.rearrangement import reshape, transpose
from bridge.judge.diagnosis.wrong_operations.reductions import extreme, of_channels, total
from bridge.judge.diagnosis.wrong_operations.resizing import adaptive, padding, upsample
from bridge.judge.diagnosis.wrong_operations.softmax import over_channels
from bridge.judge.diagnosis.wrong_operations.spline import spline
from bridge.operations import OPERATIONS
from bridge.operations.operation import Operation
from bridge.operations.pointwise import Pointwise

#: By the type of the operation in an exchange file
_WRONG: dict[str, Callable[[Any], Wrong]] = {
    **{kind: pointwise for kind, one in OPERATIONS.items() if issubclass(one, Pointwise) and kind != "relu"},
    **dict.fromkeys(("amax", "amin", "max", "min"), extreme), "mean": total, "sum": total,
    "adaptive_avg_pool2d": adaptive, "dropout2d": dropout,
    "add": add, "avg_pool2d": avg_pool, "batch_norm2d": batch_norm, "clip": clip,
    "concat": concat, "gelu": gelu, "gelu_tanh": gelu,
    "conv_transpose2d": conv_transpose, "divide": divide, "dropout": dropout, "elu": elu, "flatten": flatten,
    "global_avg_pool2d": of_channels, "group_norm": group_norm, "layer_norm": layer_norm, "leaky_relu": leaky_relu,
    "linear": linear, "log_softmax": over_channels, "matmul": matmul, "max_pool2d": max_pool, "multiply": multiply,
    "prelu": prelu, "reflection_pad2d": padding, "replication_pad2d": padding, "reshape": reshape, "sigmoid": sigmoid,
    "silu": silu, "softmax": over_channels, "softplus": softplus, "spline": spline, "subtract": subtract,
    "tanh": tanh, "transpose": transpose, "upsample_bilinear2d": upsample, "upsample_nearest2d": upsample,
    "zero_pad2d": padding,
}


def wrong_operations(node: Operation) -> Wrong:
    """Yield the kind of a fault (`bridge.judge.diagnosis.catalogue`), what exactly, and the operation that has it."""
    if node.kind in _WRONG:
        yield from _WRONG[node.kind](node)
