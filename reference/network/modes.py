# SPDX-License-Identifier: MIT
"""Modes of torch in which a module and its layers are run side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

#: torch's functions of recurrent layers
RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}


class _InFloat64(TorchFunctionMode):
    """What a module of float32 makes float32 of stays float64, as all that it computes is: it changes nothing there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.Tensor.float, torch.Tensor.to, torch.Tensor.type) and not args[0].is_complex():
            if func is torch.Tensor.float:
                return args[0].double()
            args, kwargs = tree_map(lambda one: torch.float64 if one is torch.float32 else one, (args, kwargs))
        if kwargs.get("dtype") is torch.float32:
            # A softmax or a sum, and what is made
            kwargs = {**kwargs, "dtype": torch.float64}
        if torch.complex64 in tree_leaves((args, kwargs)):
            args, kwargs = tree_map(lambda one: torch.complex128 if one is torch.complex64 else one, (args, kwargs))
        if getattr(func, "__name__", "") == "rms_norm" and (args[3] if len(args) > 3 else kwargs.get("eps")) is None:
            # What is added to the square depends on the type
            args, kwargs = args[:3], {**kwargs, "eps": torch.finfo(torch.float32).eps}
        if getattr(func, "__name__", "") in RECURRENT:
            # Which take no first state of torch.zeros beside them
            args = tree_map(lambda one: one.double() if isinstance(one, torch.Tensor) else one, args)
        return func(*args, **kwargs)


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """Tensors that a forward makes are of float64, too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _InFloat64():
            yield
    finally:
        torch.set_default_dtype(before)


class AlongTheLast(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dropouts that draw along the last dimension of several numbers, alike for all others.

    Else masks depend on the order in memory: torch's attention drops numbers of (length, n, features), whose layers
    have (n, length, features).
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func is not torch.ops.aten.bernoulli_.float:
            return func(*args, **(kwargs or {}))
        mask = args[0]
        side = max((i for i, extent in enumerate(mask.shape) if extent > 1), default=0)
        drawn = torch.empty(mask.shape[side:side + 1], dtype=mask.dtype).bernoulli_(*args[1:], **(kwargs or {}))
        return mask.copy_(drawn.view([-1, *[1] * (mask.dim() - side - 1)]) if mask.dim() else drawn)
