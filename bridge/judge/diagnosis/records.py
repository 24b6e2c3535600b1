# SPDX-License-Identifier: MIT
"""What a diagnosis says: plain records, for the terminal, JSON and HTML alike."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kind:
    """A way to be wrong; the registry is `bridge.judge.diagnosis.catalogue.KINDS`.

    Attributes
    ----------
    number : from 1 on, see docs/faults.md
    key : stable name for JSON, ``kernel_flipped``
    title : in words, "kernel flipped"
    look_at : what a user should look at in their code
    """

    number: int
    key: str
    title: str
    look_at: str


@dataclass(frozen=True)
class Explanation:
    """One or two faults whose predicted tensor agrees with the candidate's.

    Attributes
    ----------
    kinds : the faults; two where they compose
    detail : what exactly, "flipped in h and w", "times 1/2"
    t : T of the candidate against the prediction, largest |candidate - prediction| / E; at most 1 where accepted
    by_place : only where the error lives betrays it. Nothing was predicted: it says where, not why, and its T is 0
    rest : what it leaves of the error, |candidate - prediction| / |candidate - right| in the Euclidean norm (of a large
        tensor over a sample). Explanations are compared by it: each has a bound E of its own, and so a T that is no
        measure of another's
    """

    kinds: tuple[Kind, ...]
    detail: str
    t: float
    by_place: bool = False
    rest: float = 0.0


@dataclass(frozen=True)
class Seen:
    """A description of an error.

    Attributes
    ----------
    said : in words, a sentence without its point
    look_at : where to look in the code
    rest : share of the error that it leaves, on elements that nothing was fitted to
    numbers : that were fitted; of descriptions that leave as little, the one with the fewest is the best
    """

    said: str
    look_at: str
    rest: float
    numbers: int = 0

    @property
    def exact(self) -> bool:
        """Return whether it holds to rounding."""
        return self.rest <= EXACT


@dataclass(frozen=True)
class Finding:
    """One faulty operation.

    Attributes
    ----------
    name, step : the tensor that it makes, as in `bridge.judge.measure.findings.Judged`
    operation : in words, "the filter gradient of conv2"
    t : T of the tensor, as the comparison has it
    explanations : faults that explain it to rounding, the simplest first; more than one: these data cannot tell them
        apart. Empty: the structure of the error is unknown.
    runner_up : the one that leaves the least of the error among those that were rejected; where nothing explains it to
        rounding, only one that leaves little, see `MOSTLY`
    seen : what is seen of an error that no fault explains
    where : where the error lives: "one image of the batch (1)", "the border", "spread over the whole tensor", ...
    share : of its elements that are wrong; 1 where that is not known
    cut : time was up before all known faults were tried
    extent : how large the error is, and where most of it is, in a sentence; where nothing explains it to rounding
    """

    name: str
    step: int
    operation: str
    t: float
    explanations: tuple[Explanation, ...] = ()
    runner_up: Explanation | None = None
    where: str = ""
    share: float = 1.0
    seen: Seen | None = None
    cut: bool = False
    extent: str = ""


@dataclass
class Diagnosis:
    """All faulty operations, in the order of computation.

    Attributes
    ----------
    findings : one for each operation that is itself wrong, not for what follows from it
    pattern : what they have in common, "the same fault in every convolution"; empty where there is nothing
    hypotheses : number of predictions that were tried
    seconds : time that the search took
    complete : it ended before its time was up
    not_searched : wrong tensors that nobody looked at, because time was up
    missing : what failed in the search, a line each
    """

    findings: list[Finding] = field(default_factory=list)
    pattern: str = ""
    hypotheses: int = 0
    seconds: float = 0.0
    complete: bool = True
    not_searched: int = 0
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Sight:
    """Whether these data can show one fault in one tensor.

    Attributes
    ----------
    kind : the fault
    detail : which variant
    tensor : "grads/conv2/weight"
    ratio : largest predicted deviation / E; below 3 these data cannot see it
    """

    kind: Kind
    detail: str
    tensor: str
    ratio: float


@dataclass
class Adequacy:
    """What the data can show, see `bridge.judge.diagnosis.adequacy`.

    Attributes
    ----------
    sights : fault by tensor
    remarks : why faults are invisible, "one input channel: ...", and what was not computed
    """

    sights: list[Sight] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def blind(self) -> list[Sight]:
        """Return the faults that no tensor shows; of each the best chance."""
        best: dict[tuple[int, str], Sight] = {}
        for sight in self.sights:
            key = (sight.kind.number, sight.detail)
            if key not in best or sight.ratio > best[key].ratio:
                best[key] = sight
        return [sight for sight in best.values() if not sight.ratio >= VISIBLE]


#: What may be left of an error by something that is said to explain it mostly
MOSTLY = 0.1
#: And only from here on is it said, as roughly so: what leaves more is a fit, and may be no cause
NEARLY = 0.01
#: What a description leaves that holds to rounding
EXACT = 3e-4
#: Predicted deviation / E from which on a fault is seen whatever rounding does
VISIBLE = 3.0
