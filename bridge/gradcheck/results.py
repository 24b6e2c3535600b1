# SPDX-License-Identifier: MIT
"""What the differences say: of each input, and of the gradient as a whole."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from bridge.common.number_format import short
from bridge.gradcheck.differences import Probe

#: A difference informs when its bound is below this part of the gradients of its kind
INFORMS = 0.1
#: A resolution worse than this is warned of
COARSE = 0.01


class Verdict(Enum):
    """The verdicts; the value is the exit code."""

    RIGHT = 0
    WRONG = 1
    CANNOT_TELL = 4

    @property
    def label(self) -> str:
        """Return the name in words and in JSON."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True)
class InputReport:
    """The gradient with respect to one input.

    Attributes
    ----------
    name, shape, dtype : of the input
    eps : the step of an element of typical size
    linear : declared linear; then the differences have no curvature
    probes : every difference that was taken
    nonfinite : elements of the gradient that are NaN or infinite
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    eps: float
    linear: bool
    probes: tuple[Probe, ...]
    nonfinite: int = 0

    @cached_property
    def kept(self) -> list[Probe]:
        """Return the differences that say something."""
        return [p for p in self.probes if not p.left_out and not self._rough(p)]

    @property
    def left_out(self) -> int:
        """Return the differences across a kink, or where `forward` is not finite."""
        return len(self.probes) - len(self.kept)

    def count(self, direction: bool) -> int:
        """Return the number of directions, or of single elements, that were kept."""
        return sum((p.at is None) == direction for p in self.kept)

    @cached_property
    def worst(self) -> Probe | None:
        """Return the kept difference with the largest ratio of error to bound."""
        return max(self.kept, key=lambda p: (_ratio(p), p.error), default=None)

    @property
    def t(self) -> float:
        """Return the largest ratio of an error to its bound."""
        return math.nan if self.worst is None else _ratio(self.worst)

    @cached_property
    def resolution(self) -> float:
        """Return the error, as a part of a typical gradient, below which half of the differences see nothing."""
        ratios = [p.bound / size if (size := self._size(p)) > 0 else math.inf for p in self.kept]
        return float(np.median(ratios)) if ratios else math.inf

    @property
    def verdict(self) -> Verdict:
        """Return the verdict: wrong when one error is beyond all that rounding, curvature and hidden digits explain."""
        if self.nonfinite or not all(p.error <= p.bound + p.hidden for p in self.kept):
            return Verdict.WRONG
        if self.resolution <= INFORMS and all(p.error <= p.bound for p in self.kept):
            return Verdict.RIGHT
        return Verdict.CANNOT_TELL

    @property
    def words(self) -> str:
        """Return it in one line."""
        return _wrong(self) if self.verdict is Verdict.WRONG else _line(self)

    def _size(self, probe: Probe) -> float:
        """Typical gradient among the elements, or among the directions."""
        return self._sizes[probe.at is None]

    @cached_property
    def _sizes(self) -> dict[bool, float]:
        """Root of the mean square of what the gradient, or the differences, say: by "is a direction"."""
        found = {}
        for direction in (False, True):
            alike = [p for p in self.probes if not p.left_out and (p.at is None) == direction]
            found[direction] = max(_rms([p.found for p in alike]), _rms([p.expected for p in alike]))
        return found

    def _rough(self, probe: Probe) -> bool:
        """Curvature that rounding does not explain and that hides the gradient: a kink that nobody declared."""
        return (probe.curvature > INFORMS * self._size(probe) and probe.curvature > 10 * probe.rounding
                and probe.error <= probe.bound)


@dataclass(frozen=True)
class GradcheckReport:
    """What `gradcheck` found. ``print(report)`` tells it, the conclusion first.

    Attributes
    ----------
    title : what was checked
    seed : repeats the check
    inputs : one `InputReport` for each input that has a gradient
    not_checked : inputs for which `backward` gave None
    oracle : the largest error in units of its bound, by the float64 oracle, of what forward gave ("output" or "loss"),
        then of the gradients by the names of the inputs; empty where there is no oracle
    """

    title: str
    seed: int
    inputs: tuple[InputReport, ...]
    not_checked: tuple[str, ...] = ()
    oracle: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "warnings", tuple(_warnings(self)))

    @property
    def t_oracle(self) -> float:
        """Return the largest error in units of its bound beside the oracle; NaN without one."""
        return max(self.oracle.values(), default=math.nan)

    @property
    def t(self) -> float:
        """Return the largest ratio of the error of a difference to its bound."""
        return max((one.t for one in self.inputs if one.kept), default=math.nan)

    @property
    def beyond(self) -> list[str]:
        """Return what is outside the oracle's bounds, in words; NaN is."""
        names = dict.fromkeys(self.oracle, "the gradient of ") | dict.fromkeys(list(self.oracle)[:1], "")
        return [f"{names[name]}{name} is {short(t)} times its bound away from the float64 oracle"
                for name, t in self.oracle.items() if not t <= 1]

    @property
    def verdict(self) -> Verdict:
        """Return the verdict: wrong if one input is, or what the oracle has judged, right if all are."""
        found = {one.verdict for one in self.inputs}
        if Verdict.WRONG in found or self.beyond:
            return Verdict.WRONG
        return Verdict.RIGHT if found == {Verdict.RIGHT} else Verdict.CANNOT_TELL

    @property
    def exit_code(self) -> int:
        """Return 0 for right, 1 for wrong, 4 for cannot tell."""
        return self.verdict.value

    @property
    def words(self) -> str:
        """Return the conclusion in one sentence."""
        if self.verdict is Verdict.WRONG:
            wrong = [_wrong(i) for i in self.inputs if i.verdict is Verdict.WRONG]
            return f"WRONG: {self.title}: " + "; ".join([*wrong, *self.beyond])
        if self.verdict is Verdict.RIGHT:
            count = sum(len(i.kept) for i in self.inputs)
            beside = f", beside the oracle {short(self.t_oracle)}" if self.oracle else ""
            return (f"RIGHT: {self.title}: {count} differences agree with the gradients of "
                    f"{', '.join(i.name for i in self.inputs)}; largest error / bound {short(self.t)}{beside}")
        unclear = [i.name for i in self.inputs if i.verdict is not Verdict.RIGHT]
        return f"CANNOT TELL: {self.title}: the differences do not show {', '.join(unclear) or 'anything'}"

    def __str__(self) -> str:
        return "\n".join([self.words, *(f"  {_line(one)}" for one in self.inputs),
                          *(f"  {text}" for text in self.warnings)])

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object; infinite and undefined numbers are null."""
        return {"title": self.title, "verdict": self.verdict.label, "exit_code": self.exit_code, "words": self.words,
                "seed": self.seed, "warnings": list(self.warnings), "not_checked": list(self.not_checked),
                "oracle": {name: _number(t) for name, t in self.oracle.items()},
                "inputs": [_to_dict(one) for one in self.inputs]}


def place(probe: Probe) -> str:
    """Return where a difference was taken.

    >>> place(Probe((1, 2), 0.0)), place(Probe(None, 0.0))
    ('at (1, 2)', 'along a random direction')
    """
    return "along a random direction" if probe.at is None else f"at ({', '.join(map(str, probe.at))})"


def _wrong(one: InputReport) -> str:
    if one.nonfinite:
        return f"the gradient of {one.name} has {one.nonfinite} elements that are not finite"
    p = one.worst
    assert p is not None
    return (f"the gradient of {one.name} {place(p)} is {p.found:.9g}, the difference says {p.expected:.9g} "
            f"with at most {p.bound + p.hidden:.2g} of error")


def _line(one: InputReport) -> str:
    p = one.worst
    head = f"{one.name} {one.shape} {one.dtype}, eps {one.eps:.2g}: {one.verdict.label}, {len(one.kept)} differences"
    head += f", {one.left_out} left out at kinks" if one.left_out else ""
    return head if p is None else (f"{head}, error {p.error:.2g} of at most {p.bound:.2g} (rounding {p.rounding:.2g} + "
                                   f"curvature {p.curvature:.2g}), sees {one.resolution:.1g} of the gradient")


def _warnings(report: GradcheckReport) -> list[str]:
    found = [f"{name}: backward gives no gradient; not checked" for name in report.not_checked]
    for one in report.inputs:
        if one.verdict is Verdict.WRONG:
            continue
        # A mean in place of a sum scales noise and gradient alike: only fewer terms in one rounded number help
        mend = ("check in float64, or let forward return the terms of its sum" if one.dtype == "float32" else
                "let forward return the terms of its sum, or take another point")
        if not one.kept:
            found.append(f"{one.name}: all {len(one.probes)} differences cross a kink; take another point, or float64")
        elif all(p.found == p.expected == 0 for p in one.kept):
            found.append(f"{one.name}: gradient and differences are all 0, which shows nothing; take another point")
        elif one.verdict is Verdict.CANNOT_TELL:
            found.append(f"{one.name}: {one.dtype} cannot resolve it, an error below {_part(one.resolution)} of the "
                         f"gradient does not show; {mend}")
        elif one.resolution > COARSE:
            found.append(f"{one.name}: in {one.dtype} an error below {_part(one.resolution)} of the gradient does not "
                         f"show; {mend}")
    return found


def _part(value: float) -> str:
    return f"{value:.0%}" if value >= 0.01 else f"{value:.1g}"


def _to_dict(one: InputReport) -> dict[str, Any]:
    p = one.worst
    worst = None if p is None else {
        "at": None if p.at is None else list(p.at), "found": _number(p.found), "expected": _number(p.expected),
        "error": _number(p.error), "rounding": _number(p.rounding), "curvature": _number(p.curvature),
        "hidden": _number(p.hidden)}
    return {"name": one.name, "shape": list(one.shape), "dtype": one.dtype, "eps": one.eps, "linear": one.linear,
            "verdict": one.verdict.label, "differences": len(one.kept), "left_out": one.left_out,
            "nonfinite": one.nonfinite, "T": _number(one.t), "resolution": _number(one.resolution), "worst": worst}


def _ratio(p: Probe) -> float:
    """NaN counts as infinite: it never passes."""
    if p.error == 0:
        return 0.0
    ratio = p.error / p.bound if p.bound > 0 else math.inf
    return math.inf if math.isnan(ratio) else ratio


def _rms(values: list[float]) -> float:
    finite = [v for v in values if math.isfinite(v)]
    return math.sqrt(math.fsum(v * v for v in finite) / len(finite)) if finite else 0.0


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
