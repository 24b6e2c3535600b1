# SPDX-License-Identifier: MIT
"""`gradcheck`: is ``backward`` the gradient of ``forward``?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from bridge.common.errors import ArgumentError, ArgumentTypeError
from bridge.gradcheck.differences import Forward, Functional, Probe, choose_steps, on_grid
from bridge.gradcheck.gradient_noise import gradient_noise
from bridge.gradcheck.results import GradcheckReport, InputReport
from bridge.judge.oracle.error_model import UNIT_ROUNDOFF

Array = np.ndarray
Backward = Callable[..., "Array | Sequence[Array | None] | None"]

#: Parts of a step that are tried until none crosses a kink
SHORTER = (1.0, 2.0**-2, 2.0**-4, 2.0**-6)


def gradcheck(forward: Forward, backward: Backward, inputs: Sequence[Array], *, seed: int = 0,
              eps: float | None = None, points: int = 32, directions: int = 4, names: Sequence[str] | None = None,
              kinks: Forward | None = None, linear: bool | Sequence[str] = False,
              bounds: tuple[Forward, Backward] | None = None, title: str = "gradients") -> GradcheckReport:
    """Compare a gradient with central differences of the function, within a bound that is measured, or derived.

    The functional is L = sum(dy * forward(*inputs)), dy random: an upstream gradient of ones cannot see a transposed
    one. Along single elements, and along random directions (all elements by one step, random signs), the difference
    (L(x + v) - L(x - v)) / 2 must be the product of v and the gradient.

    The bound of an error is ``rounding + curvature``. Rounding: 9 standard deviations of the noise of `forward` over
    the step and of the gradient (both measured along a short path), and s(n)*c of the gradient's sum over outputs.
    Curvature: from the same differences with twice the step; it also bounds the error of a kink within the steps.
    With `bounds` rounding is what these allow. None of it comes from the size of the gradient that is judged: a wrong
    one does not widen its own bound.

    Parameters
    ----------
    forward : ``forward(*inputs) -> y``, an array or a number (a loss)
    backward : ``backward(dy, *inputs)`` -> gradient of each input, None where an input has none
    inputs : float32 or float64 arrays of any shape, finite; close over anything else
    seed : of dy, points and directions
    eps : step of every element, rounded to a power of two. None: cbrt(u) * max(abs(x), scale), where rounding
        (u/eps) and curvature (eps**2) balance: 4e-6 in float64, 4e-3 in float32 for numbers of size 1
    points : elements of each input to check; all of them where there are no more
    directions : random directions of each input
    names : of the inputs, for the report
    kinks : ``kinks(*inputs)`` -> array whose signs must not change along a step, such as the inputs of all ReLUs;
        a step that changes one is shortened, at most to 1/64, and else left out and counted
    linear : names of inputs in which `forward` is linear, each by itself (True: all). Differences have no
        curvature there, and the step is that of the numbers themselves (1 for numbers of size 1)
    bounds : ``(forward, backward)``, functions of the same arguments that give bounds on the rounding of each element
        of what these give. None: it is measured
    title : of the report

    Returns
    -------
    GradcheckReport
        ``report.verdict`` is RIGHT, WRONG or CANNOT_TELL (the precision does not resolve the gradient; what would is
        in ``report.warnings``).

    Raises
    ------
    ArgumentTypeError, ArgumentError
        If an argument, or what the functions give back, has a wrong type, shape or is not finite.

    Examples
    --------
    >>> x = np.array([0.5, 1.0, 2.0])
    >>> print(gradcheck(np.sin, lambda dy, x: dy * np.cos(x), [x], names=["x"]).verdict.label)
    right
    >>> print(gradcheck(np.sin, lambda dy, x: -dy * np.cos(x), [x], names=["x"]).verdict.label)
    wrong
    """
    arrays, labels = _checked_inputs(inputs, names)
    straight = _linear_names(linear, labels)
    check_counts(seed, eps, points, directions)
    rng = np.random.default_rng(seed)
    steps = [choose_steps(name, x, eps, name in straight) for name, x in zip(labels, arrays, strict=True)]
    point = tuple(on_grid(x, h) for x, h in zip(arrays, steps, strict=True))
    functional, dy = _functional(forward, kinks, None if bounds is None else bounds[0], point, rng)
    # Twice, and both are judged: a buffer that accumulates is right only once
    gradients = list(zip(*(_gradients(backward, dy, point, labels) for _ in range(2)), strict=True))
    own = (gradient_noise(lambda moved: _gradients(backward, dy, moved, labels), functional, rng) if bounds is None else
           _gradients(bounds[1], dy, point, labels))
    found = [
        _check_input(functional, number, name, steps[number], gradients[number], noise, name in straight, points,
                     directions, rng)
        for number, (name, noise) in enumerate(zip(labels, own, strict=True))
        if gradients[number][0] is not None and noise is not None
    ]
    missing = tuple(name for name, g in zip(labels, gradients, strict=True) if g[0] is None)
    return GradcheckReport(title, seed, tuple(found), missing)


def _functional(forward: Forward, kinks: Forward | None, bound: Forward | None, point: tuple[Array, ...],
                rng: np.random.Generator) -> tuple[Functional, Array]:
    """The functional, and dy in the output's shape and type: random, neither 0 nor all alike."""
    y = np.array(forward(*(x.copy() for x in point)))
    if y.dtype.name not in UNIT_ROUNDOFF or not y.size:
        raise ArgumentTypeError(f"forward: {y.dtype} of shape {y.shape}, expected float32 or float64, not empty")
    if not np.isfinite(y).all():
        raise ArgumentError("forward: NaN or infinity at the given point, expected finite values")
    dy = (rng.uniform(0.5, 1.5, y.shape) * rng.choice([-1.0, 1.0], y.shape)).astype(y.dtype)
    u = UNIT_ROUNDOFF[y.dtype.name]
    return Functional(forward, kinks, point, dy.astype(np.float64).ravel(), u, bound), dy


def _gradients(backward: Backward, dy: Array, point: tuple[Array, ...], names: list[str]) -> list[Array | None]:
    given = backward(dy, *(x.copy() for x in point))
    if isinstance(given, np.ndarray) and len(point) == 1:
        given = (given,)
    if not isinstance(given, (tuple, list)) or len(given) != len(point):
        found = f"{len(given)} values" if isinstance(given, (tuple, list)) else type(given).__name__
        raise ArgumentError(f"backward: {found}, expected one gradient, or None, for each of {', '.join(names)}")
    return [None if g is None else _gradient(name, g, x) for name, g, x in zip(names, given, point, strict=True)]


def _gradient(name: str, gradient: object, x: Array) -> Array:
    g = np.array(gradient)
    if g.shape != x.shape or g.dtype.name not in UNIT_ROUNDOFF:
        raise ArgumentError(f"backward: the gradient of {name} is {g.dtype} of shape {g.shape}, "
                            f"expected {x.dtype} of shape {x.shape}")
    return g


def _check_input(functional: Functional, number: int, name: str, steps: Array, gradients: Sequence[Array], own: Array,
                 linear: bool, points: int, directions: int, rng: np.random.Generator) -> InputReport:
    x = functional.inputs[number]
    eps = float(np.min(steps))
    bad = max(int(np.count_nonzero(~np.isfinite(g))) for g in gradients)
    if bad:
        return InputReport(name, x.shape, x.dtype.name, eps, linear, (), bad)
    # With a bound it is not asked for, but by what is to be linear
    sigma = np.zeros(functional.y.size) if functional.bound and not linear else functional.noise(number, steps, rng)
    if linear and not functional.is_linear(number, steps * rng.choice([-1.0, 1.0], x.shape), sigma):
        raise ArgumentError(f"linear: forward is not linear in {name}")
    probe = partial(_shortened, functional, number, gradients=gradients, sigma=sigma, own=own,
                    linear=linear)
    probes = []
    for flat in np.sort(rng.choice(x.size, min(points, x.size), replace=False)):
        at = tuple(int(i) for i in np.unravel_index(flat, x.shape))
        step = np.zeros(x.shape)
        step[at] = steps[at]
        probes.append(probe(step, unit=float(steps[at]), at=at))
    # The sum over all elements: independent errors, none larger than that of the worst element seen
    each = max(p.own_rounding for p in probes)
    for _ in range(directions):
        step = steps * rng.choice([-1.0, 1.0], x.shape)
        probes.append(probe(step, unit=eps, at=None, own_rounding=each * float(np.linalg.norm(step)) / eps))
    return InputReport(name, x.shape, x.dtype.name, eps, linear, tuple(probes))


def _shortened(functional: Functional, number: int, step: Array, *, unit: float, **given: Any) -> Probe:
    """A probe along `step`; where that crosses a kink, along shorter ones, at the price of more rounding."""
    x = functional.inputs[number]
    for shorter in SHORTER:
        part = step * shorter
        if shorter < 1 and not np.array_equal((x + part).astype(x.dtype).astype(np.float64) - x, part):
            break
        probe = functional.probe(number, part, unit=unit * shorter, **given)
        if probe.left_out != "kink":
            break
    return probe


def _checked_inputs(inputs: Sequence[Array], names: Sequence[str] | None) -> tuple[list[Array], list[str]]:
    if not isinstance(inputs, (tuple, list)) or not inputs:
        raise ArgumentTypeError(f"inputs: {type(inputs).__name__}, expected a tuple or list of one or more arrays")
    labels = [f"input {i}" for i in range(len(inputs))] if names is None else [str(name) for name in names]
    if len(set(labels)) != len(inputs):
        raise ArgumentError(f"names: {labels}, expected {len(inputs)} different names")
    for name, x in zip(labels, inputs, strict=True):
        if not isinstance(x, np.ndarray) or x.dtype.name not in UNIT_ROUNDOFF or not x.dtype.isnative:
            raise ArgumentTypeError(f"{name}: {getattr(x, 'dtype', type(x).__name__)}, expected a numpy array of "
                                    "float32 or float64")
        if not x.size or not np.isfinite(x).all():
            raise ArgumentError(f"{name}: {'not finite' if x.size else 'empty'}, shape {x.shape}, expected finite "
                                "values")
    return list(inputs), labels


def _linear_names(linear: bool | Sequence[str], labels: list[str]) -> set[str]:
    if isinstance(linear, bool):
        return set(labels) if linear else set()
    unknown = sorted(set(linear) - set(labels))
    if unknown:
        raise ArgumentError(f"linear: {unknown[0]!r}, expected one of {', '.join(labels)}")
    return set(linear)


def check_counts(seed: int, eps: float | None, points: int, directions: int) -> None:
    """Refuse what numpy would refuse with a traceback."""
    for name, value, lowest in (("seed", seed, 0), ("points", points, 1), ("directions", directions, 0)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < lowest:
            raise ArgumentError(f"{name}: {value!r}, expected an integer of {lowest} or more")
    if eps is not None and not (isinstance(eps, (int, float)) and np.isfinite(eps) and eps > 0):
        raise ArgumentError(f"eps: {eps!r}, expected a number above 0")
