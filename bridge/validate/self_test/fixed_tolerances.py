# SPDX-License-Identifier: MIT
"""What fixed tolerances would have said, beside a verdict by bounds.

All tensors of step 0 that both files hold (outputs of layers, loss, all gradients) are compared with the float32
tensors of the fixture, PyTorch's; "new weights" compares only the weights after the first step, as is often done.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import torch

Array = np.ndarray


def close(found: Array, expected: Array) -> bool:
    """Return whether `torch.testing.assert_close` accepts it with its defaults: rtol 1.3e-6 and atol 1e-5 for float32.
    """
    try:
        torch.testing.assert_close(torch.from_numpy(found), torch.from_numpy(expected))
    except AssertionError:
        return False
    return True


def all_close(found: Array, expected: Array) -> bool:
    """Return whether `numpy.allclose` accepts it with tolerances that are often chosen.

    >>> all_close(np.float32([1e-6]), np.float32([-1e-6])), all_close(np.float32([1.0]), np.float32([1.01]))
    (True, False)
    """
    return bool(np.allclose(found, expected, rtol=1e-3, atol=1e-5))


def same_direction(found: Array, expected: Array) -> bool:
    """Return whether the cosine is above 0.99; two zeros agree."""
    a, b = (x.astype(np.float64).ravel() for x in (found, expected))
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return bool(np.array_equal(a, b)) if norms == 0 else bool(a @ b > 0.99 * norms)


#: Name, rule for one tensor, and whether it sees only the new weights
RULES: tuple[tuple[str, Callable[[Array, Array], bool], bool], ...] = (
    ("assert_close", close, False),
    ("allclose 1e-3, 1e-5", all_close, False),
    ("cosine > 0.99", same_direction, False),
    ("allclose of new weights", all_close, True),
)


def verdicts(fixture: Path, result: Path) -> dict[str, bool]:
    """Return by rule whether everything is right; an unreadable file or another shape is not."""
    with h5py.File(fixture) as reference, h5py.File(result) as candidate, np.errstate(all="ignore"):
        tensors = [name for part in ("forward", "grads") for name in _datasets(reference, f"steps/0/{part}")]
        tensors.append("steps/0/loss")
        weights = list(_datasets(reference, "steps/1/weights"))
        found: dict[str, bool] = {}
        for name, rule, only_weights in RULES:
            chosen = weights if only_weights else tensors
            found[name] = all(_agrees(rule, candidate, reference, one) for one in chosen
                              if one in candidate and one in reference)
    return found


def _datasets(file: h5py.File, group: str) -> list[str]:
    names: list[str] = []
    if group in file:
        file[group].visititems(lambda name, node: names.append(f"{group}/{name}") if hasattr(node, "shape") else None)
    return names


def _agrees(rule: Callable[[Array, Array], bool], candidate: h5py.File, reference: h5py.File, name: str) -> bool:
    found, expected = (np.atleast_1d(file[name][()].astype(np.float32)) for file in (candidate, reference))
    return found.shape == expected.shape and rule(np.ascontiguousarray(found), expected)
