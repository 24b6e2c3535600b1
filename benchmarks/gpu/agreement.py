# SPDX-License-Identifier: MIT
"""Whether two frameworks do the same work: losses, and how far every parameter moves.

A loss alone says little: it hardly depends on the gradients of the steps before. The distance that a parameter moves is
its gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

#: Largest relative difference of a loss, and of the movement of a parameter tensor (in the 2-norm), from PyTorch's in
#: float32. Seen on a CPU, with operands rounded as each precision does, at 64 x 64 to 512 x 512: rounding moves updates
#: by 3e-4, 0.01 and 0.04 (on the few pixels of a pretended run 5e-5, 0.05 and 0.1); a flipped filter gradient of one
#: layer moves them by 0.56 to 1.3, and losses by 4e-5, which rounding to bfloat16 does as well
LIMITS = {"fp32": (1e-5, 0.01), "tf32": (1e-3, 0.1), "bf16": (5e-3, 0.25)}
#: A tensor that moves by less than this share of all is measured by that share: sums that cancel are all rounding
SHARE = 0.05


def differences(found: Mapping[str, Any], reference: Mapping[str, Any]) -> tuple[float, float]:
    """The largest of the losses and of the movements; infinite where something is missing or no number.

    Examples
    --------
    >>> one = {"losses": [2.0, 1.0], "moved": [[3.0, 4.0]]}
    >>> differences({"losses": [2.0, 1.5], "moved": [[3.0, 5.0]]}, one)
    (0.5, 0.2)
    """
    losses, wanted = (np.array(one["losses"], float) for one in (found, reference))
    moved, right = ([np.array(part, float) for part in one["moved"]] for one in (found, reference))
    if [losses.shape, *(one.shape for one in moved)] != [wanted.shape, *(one.shape for one in right)]:
        return float("inf"), float("inf")
    whole = np.sqrt(sum(float(one @ one) for one in right))
    apart = [float(np.linalg.norm(a - b) / max(np.linalg.norm(b), SHARE * whole, 1e-300))
             for a, b in zip(moved, right, strict=True)]
    # numpy's maximum of a NaN and a number is NaN; Python's is whichever comes first
    pair = float(np.max(np.abs(losses / wanted - 1))), float(np.max(apart))
    return tuple(one if np.isfinite(one) else float("inf") for one in pair)


def verdict(found: Mapping[str, Any], reference: Mapping[str, Any], precision: str) -> dict[str, Any]:
    """The differences, with ``disqualified``, the reason, where they are too large.

    >>> one = {"losses": [2.0], "moved": [[3.0, 4.0]]}
    >>> verdict(one, one, "fp32")
    {'loss_difference': 0.0, 'update_difference': 0.0}
    """
    loss, update = differences(found, reference)
    said = {"loss_difference": _number(loss), "update_difference": _number(update)}
    most = LIMITS[precision]
    if loss <= most[0] and update <= most[1]:
        return said
    return said | {"disqualified": f"not the same work: losses differ by {loss:.2g} (at most {most[0]:g}), updates by "
                                   f"{update:.2g} (at most {most[1]:g})"}


def _number(value: float) -> float | None:
    """JSON has no infinity."""
    return value if np.isfinite(value) else None
