# SPDX-License-Identifier: MIT
"""PyTorch's functions of each number written out, with all that is in between rounded at random.

PyTorch computes a function such as GELU in one go, and its float32 run shows the roundings of this one way alone: a
compiler's ``1 + erf(x)`` loses more near -1. So the function is also run in float64 by the definition that PyTorch's
compilers use (`torch._decomp`), in which all that is computed on the way is off by a rounding, up or down by chance.
Operations that find places, or whose derivative takes more than is known here, are not written out.

Source: D. S. Parker, Monte Carlo arithmetic, Technical report CSD-970002, University of California (1997).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

#: Functions of each number, of which libraries and compilers have their own, and the roundings that these are off;
#: sums, products, quotients and roots are off by one
FUNCTIONS = {"acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "digamma", "erf", "erfc",
             "erfinv", "exp", "exp2", "expm1", "lgamma", "log", "log10", "log1p", "log2", "pow", "sigmoid", "sin",
             "sinh", "tan", "tanh"}
FUNCTION = 4


class RoundedByChance(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, tensors of real numbers that PyTorch computes are off by a relative `u`, or a few where it calls a
    function, with signs drawn by a seed.

    >>> with RoundedByChance(2.0**-24, 0):
    ...     found = torch.nn.functional.gelu(torch.tensor([-5.0], dtype=torch.float64))
    >>> 0.1 < abs(found.item() / -1.4332579e-06 - 1) < 0.6
    True
    """

    def __init__(self, u: float, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._u, self._signs = u, torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        written_out: Callable[..., Any] | None = decomposition_table.get(func)
        if written_out is not None and torch.Tag.pointwise in func.tags:
            with self:
                found = written_out(*args, **(kwargs or {}))
            if found is not NotImplemented:
                return found
        found = func(*args, **(kwargs or {}))
        if func.is_view or func._schema.is_mutable:
            return found
        u = self._u * (FUNCTION if func._schema.name.partition("::")[2] in FUNCTIONS else 1)
        return [self._off(one, u) for one in found] if isinstance(found, (list, tuple)) else self._off(found, u)

    def _off(self, found: Any, u: float) -> Any:
        if not isinstance(found, torch.Tensor) or not found.is_floating_point():
            return found
        drawn = torch.randint(0, 2, found.shape, generator=self._signs, dtype=found.dtype)
        return found * (1 + u * (2 * drawn - 1))
