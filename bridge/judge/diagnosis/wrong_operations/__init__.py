# SPDX-License-Identifier: MIT
"""What operations may do instead that no alteration of their formula comes to (`bridge.judge.diagnosis.altered`).

They are operations with the same parameters and a wrong formula, and are computed by the same numbers as the right
ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.judge.diagnosis.wrong_operations.change import Wrong
from bridge.judge.diagnosis.wrong_operations.matrices import attention, complex_linear
from bridge.judge.diagnosis.wrong_operations.normalization import batch_norm, group_norm, layer_norm
from bridge.judge.diagnosis.wrong_operations.pointwise import add, gelu, sigmoid, softmax, tanh
from bridge.judge.diagnosis.wrong_operations.pooling import adaptive_max, avg_pool, global_avg_pool, max_pool
from bridge.judge.diagnosis.wrong_operations.products import conv_transpose
from bridge.judge.diagnosis.wrong_operations.resizing import adaptive, padding, upsample
from bridge.judge.diagnosis.wrong_operations.spline import spline
from bridge.judge.diagnosis.wrong_operations.volumes import convolution, pooling
from bridge.judge.diagnosis.wrong_operations.volumes import upsample as upsample3d
from bridge.operations.operation import Operation

#: By the type of the operation in an exchange file
_WRONG: dict[str, Callable[[Any], Wrong]] = {
    "adaptive_avg_pool2d": adaptive, "adaptive_max_pool2d": adaptive_max, "add": add,
    "attention": attention, "avg_pool2d": avg_pool, "complex_linear": complex_linear,
    "batch_norm2d": batch_norm, "conv_transpose2d": conv_transpose, "gelu": gelu, "gelu_tanh": gelu,
    "global_avg_pool2d": global_avg_pool, "group_norm": group_norm, "layer_norm": layer_norm, "max_pool2d": max_pool,
    "reflection_pad2d": padding, "replication_pad2d": padding,
    **dict.fromkeys(("conv3d", "conv_transpose3d"), convolution),
    **dict.fromkeys(("avg_pool3d", "max_pool3d"), pooling),
    **dict.fromkeys(("upsample_nearest3d", "upsample_trilinear3d"), upsample3d),
    "sigmoid": sigmoid, "softmax": softmax, "spline": spline, "tanh": tanh, "upsample_bilinear2d": upsample,
    "upsample_nearest2d": upsample, "zero_pad2d": padding,
}


def wrong_operations(node: Operation) -> Wrong:
    """Yield the kind of a fault (`bridge.judge.diagnosis.catalogue`), what exactly, and the operation that has it."""
    if node.kind in _WRONG:
        yield from _WRONG[node.kind](node)
