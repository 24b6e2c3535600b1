# SPDX-License-Identifier: MIT
"""Recognise a program that rounds toward zero, up or down instead of to nearest, by the sign of its errors.

Directed rounding loses up to a whole unit in the last place where rounding to nearest loses half of one. It is named
where the errors of all convolutions, computed again from the candidate's own inputs, mostly point the same way, and
everything is inside the bounds of twice the unit roundoff.

Source: IEEE 754-2019, 4.3.2 (directed rounding).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.common.number_format import short
from bridge.exchange.model import Conv2d
from bridge.judge.arithmetic.recognised import Recognised
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle import convolution
from bridge.operations.graph import INPUT

Array = np.ndarray

#: Errors that must point the same way, of at least so many
SHARE, ENOUGH = 0.75, 64
#: No T is larger: twice the unit roundoff makes twice the error
MOST = 2.0


def recognise(pair: FilePair, comparison: Comparison) -> Recognised | None:
    """Return that a failing result rounds in one direction; None where that does not explain it.

    Parameters
    ----------
    pair, comparison : the two files, and what was found
    """
    if not comparison.failures or not all(one.t <= MOST for one in comparison.failures):
        return None
    found = {_direction(*both) for both in _convolutions(pair)}
    direction = found.pop() if len(found) == 1 else None
    if direction is None:
        return None
    twice = pair.judged_with(u=2 * pair.u)
    compared = compare(twice)
    if compared.failures:
        return None
    worst = max(comparison.failures, key=lambda one: one.t)
    words = (
        f"LOWER PRECISION than declared: it rounds {direction}, and not to nearest. At least {100 * SHARE:.0f} % of "
        f"the errors of every convolution point that way; {worst.name} of step {worst.step} has "
        f"T = {short(worst.t)}, and everything is inside the bounds of twice the unit roundoff."
    )
    hint = "Look at the rounding mode of the processor or of the compiler."
    return Recognised(Outcome.PRECISION, words, twice, compared, (hint,))


def _convolutions(pair: FilePair) -> Iterator[tuple[Array, Array]]:
    """Errors and right values of each convolution of step 0 from the candidate's own input; of the first image.

    All of a program's sums are rounded alike: one layer that is a little too small is a bug.
    """
    for layer in pair.model.graph.nodes:
        name, source = f"forward/{layer.name}", f"forward/{layer.inputs[0]}"
        first = layer.inputs[0] == INPUT
        if isinstance(layer, Conv2d) and all(
                pair.candidate.has(f"steps/0/{one}") for one in ((name,) if first else (name, source))):
            x = pair.batch(0, "input", 0) if first else _image(pair, source)
            right = convolution.forward(x, [pair.start[f"{layer.name}/weight"].astype(np.float64)], layer)[0]
            if layer.bias:
                right = right + pair.start[f"{layer.name}/bias"][:, None, None]
            yield _image(pair, name) - right, right


def _image(pair: FilePair, name: str) -> Array:
    """The first image of a tensor of step 0."""
    return pair.candidate.read(f"steps/0/{name}", pair.shapes[name], 0).astype(np.float64)


def _direction(error: Array, right: Array) -> str | None:
    """
    >>> right = np.tile([1.0, -1.0], 50)
    >>> _direction(-0.1 * right, right), _direction(0.1 * abs(right), right), _direction(0.1 * right, right)
    ('toward zero', 'up', None)
    """
    here = error != 0
    e, v = np.sign(error[here]), np.sign(right[here])
    if e.size < ENOUGH or not np.isfinite(e).all():
        return None
    for name, sign in (("toward zero", -e * v), ("up", e), ("down", -e)):
        if np.count_nonzero(sign > 0) >= SHARE * e.size:
            return name
    return None
