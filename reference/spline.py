# SPDX-License-Identifier: MIT
"""Layers of Kolmogorov-Arnold networks (KAN), which torch.nn has none of.

Source: Z. Liu et al., KAN: Kolmogorov-Arnold Networks, https://arxiv.org/abs/2404.19756, equations 2.10 to 2.12;
C. de Boor, A Practical Guide to Splines, chapter IX, equation (14).
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional


class Spline(nn.Module):
    """Of each feature its SiLU and a spline, for each output with its own factors, summed over the features.

    Parameters
    ----------
    in_features, out_features : of the last axis, before and behind
    grid : intervals from `low` to `high`; the knots go on by `order` intervals on each side
    order : degree of the polynomials, 2 to 5
    low, high : the grid's ends
    scale_spline : whether each spline has a factor besides its coefficients

    Attributes
    ----------
    coefficient : (out_features, in_features, grid + order), of the B-splines
    scale_base : (out_features, in_features), of the SiLUs
    scale_spline : (out_features, in_features), of the splines, or None

    Examples
    --------
    >>> layer = Spline(2, 3, grid=4, order=2)
    >>> layer(torch.zeros(5, 2)).shape, layer.coefficient.shape
    (torch.Size([5, 3]), torch.Size([3, 2, 6]))
    """

    scale_spline: nn.Parameter | None

    def __init__(self, in_features: int, out_features: int, grid: int = 5, order: int = 3, low: float = -1.0,
                 high: float = 1.0, scale_spline: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.grid, self.order, self.low, self.high = grid, order, low, high
        self.coefficient = nn.Parameter(torch.empty(out_features, in_features, grid + order))
        self.scale_base = nn.Parameter(torch.empty(out_features, in_features))
        self.register_parameter("scale_spline",
                                nn.Parameter(torch.empty(out_features, in_features)) if scale_spline else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw coefficients and `scale_base` as torch's layers draw weights; `scale_spline` is 1."""
        for weight in (self.coefficient, self.scale_base):
            bound = 1 / math.sqrt(weight[0].numel())
            nn.init.uniform_(weight, -bound, bound)
        if self.scale_spline is not None:
            nn.init.ones_(self.scale_spline)

    def b_splines(self, x: torch.Tensor) -> torch.Tensor:
        """Return all B-splines at each number, in a last axis of `grid` + `order`, by the recursion of Cox and de Boor.

        Each interval has its first knot and not its last.
        """
        steps = torch.arange(-self.order, self.grid + self.order + 1, dtype=x.dtype, device=x.device)
        t = steps * ((self.high - self.low) / self.grid) + self.low
        x = x[..., None]
        found = ((x >= t[:-1]) & (x < t[1:])).to(x.dtype)
        for q in range(1, self.order + 1):
            before = (x - t[: -q - 1]) / (t[q:-1] - t[: -q - 1])
            behind = (t[q + 1 :] - x) / (t[q + 1 :] - t[1:-q])
            found = before * found[..., :-1] + behind * found[..., 1:]
        return found

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factors = self.coefficient if self.scale_spline is None else self.coefficient * self.scale_spline[..., None]
        splines = functional.linear(self.b_splines(x).flatten(-2), factors.flatten(1))
        return functional.linear(functional.silu(x), self.scale_base) + splines

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, out_features={self.out_features}, grid={self.grid}, "
                f"order={self.order}, low={self.low:g}, high={self.high:g}, "
                f"scale_spline={self.scale_spline is not None}")
