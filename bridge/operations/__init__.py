# SPDX-License-Identifier: MIT
"""The operations that networks are made of, by their type in an exchange file; each stands in one class."""

from __future__ import annotations

from bridge.operations.arithmetic import Add, Divide, Multiply, Prelu, Subtract
from bridge.operations.joins import Concat, Flatten
from bridge.operations.normalization import BatchNorm2d, GroupNorm, LayerNorm
from bridge.operations.operation import Operation as Operation
from bridge.operations.pointwise import (
    Abs,
    Clip,
    Dropout,
    Dropout2d,
    Elu,
    Exp,
    Gelu,
    GeluTanh,
    LeakyRelu,
    Log,
    Log2,
    Log10,
    Mish,
    Relu,
    Sigmoid,
    Silu,
    Softplus,
    Sqrt,
    Tanh,
)
from bridge.operations.pooling import AvgPool2d, GlobalAvgPool2d, MaxPool2d
from bridge.operations.products import Conv2d, ConvTranspose2d, Linear, Matmul
from bridge.operations.rearrangement import Reshape, Transpose
from bridge.operations.reductions import Amax, Amin, Max, Mean, Min, Sum
from bridge.operations.resizing import (
    AdaptiveAvgPool2d,
    ReflectionPad2d,
    ReplicationPad2d,
    UpsampleBilinear2d,
    UpsampleNearest2d,
    ZeroPad2d,
)
from bridge.operations.softmax import LogSoftmax, Softmax
from bridge.operations.spline import Spline

OPERATIONS: dict[str, type[Operation]] = {one.kind: one for one in (
    Abs, AdaptiveAvgPool2d, Add, Amax, Amin, AvgPool2d, BatchNorm2d, Clip, Concat, Conv2d, ConvTranspose2d, Divide,
    Dropout, Dropout2d, Elu, Exp, Flatten, Gelu, GeluTanh, GlobalAvgPool2d, GroupNorm, LayerNorm, LeakyRelu, Linear,
    Log, Log10, Log2, LogSoftmax, Matmul, Max, MaxPool2d, Mean, Min, Mish, Multiply, Prelu, ReflectionPad2d, Relu,
    ReplicationPad2d, Reshape, Sigmoid, Silu, Softmax, Softplus, Spline, Sqrt, Subtract, Sum, Tanh,
    Transpose, UpsampleBilinear2d, UpsampleNearest2d, ZeroPad2d,
)}
