# SPDX-License-Identifier: MIT
"""The operations that networks are made of, by their type in an exchange file; each stands in one class."""

from __future__ import annotations

from bridge.operations.arithmetic import Add, Divide, Multiply, Prelu, Subtract
from bridge.operations.joins import Concat, Flatten
from bridge.operations.normalization import BatchNorm2d
from bridge.operations.operation import Operation as Operation
from bridge.operations.pointwise import (
    Abs,
    Clip,
    Dropout,
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
from bridge.operations.resizing import (
    ReflectionPad2d,
    ReplicationPad2d,
    UpsampleBilinear2d,
    UpsampleNearest2d,
    ZeroPad2d,
)
from bridge.operations.softmax import LogSoftmax, Softmax

OPERATIONS: dict[str, type[Operation]] = {one.kind: one for one in (
    Abs, Add, AvgPool2d, BatchNorm2d, Clip, Concat, Conv2d, ConvTranspose2d, Divide, Dropout, Elu, Exp, Flatten, Gelu,
    GeluTanh, GlobalAvgPool2d, LeakyRelu, Linear, Log, Log10, Log2, LogSoftmax, Matmul, MaxPool2d, Mish, Multiply,
    Prelu, ReflectionPad2d, Relu, ReplicationPad2d, Sigmoid, Silu, Softmax, Softplus, Sqrt, Subtract, Tanh,
    UpsampleBilinear2d, UpsampleNearest2d, ZeroPad2d,
)}
