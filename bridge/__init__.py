# SPDX-License-Identifier: MIT
"""Convolutional networks in Fortran, beside PyTorch, and a validator that says whether they are right.

>>> import numpy as np, bridge
>>> bridge.conv2d(np.ones((1, 1, 2, 2), np.float32), np.ones((1, 1, 2, 2), np.float32)).item()
4.0
"""
# ruff: noqa: E402  What is missing is said before it is imported

from bridge.common.signals import interrupt_ends_imports

interrupt_ends_imports()

from bridge.common.requirements import check_requirements

check_requirements()

from typing import TYPE_CHECKING, Any

from bridge.common.errors import ArgumentError, ArgumentTypeError, BridgeError, DivergenceError, EngineError, FileError
from bridge.common.version import version
from bridge.engine.arrays.device_array import DeviceArray
from bridge.engine.network.functional import conv2d, conv2d_backward
from bridge.engine.network.functional_spline import spline, spline_backward
from bridge.engine.network.network import Network
from bridge.exchange.model import Conv2d, Model, Relu
from bridge.exchange.optimizers import Adam, AdamW, Sgd
from bridge.gradcheck import gradcheck

if TYPE_CHECKING:
    from bridge.train import Trainer

__all__ = [
    "Adam",
    "AdamW",
    "ArgumentError",
    "ArgumentTypeError",
    "BridgeError",
    "Conv2d",
    "DeviceArray",
    "DivergenceError",
    "EngineError",
    "FileError",
    "Model",
    "Network",
    "Relu",
    "Sgd",
    "Trainer",
    "__version__",
    "conv2d",
    "conv2d_backward",
    "gradcheck",
    "spline",
    "spline_backward",
]

__version__ = version()


def __getattr__(name: str) -> Any:
    """Return what takes as long to import as all the rest, and few need."""
    if name == "Trainer":
        from bridge.train import Trainer

        return Trainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names that are for users; subpackages can be imported nevertheless."""
    return sorted(__all__)
