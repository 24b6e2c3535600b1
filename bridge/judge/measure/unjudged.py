# SPDX-License-Identifier: MIT
"""What a candidate's file holds and nobody judged: misspelt names, and tensors whose inputs are missing.

Neither may go unseen: a tensor that could not be judged must at least be finite, and without it nothing is right. Nor
is anything right beside data of a step that nobody knows the name of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from difflib import get_close_matches

import numpy as np

from bridge.judge.measure.error_statistics import Statistic
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import NO_STEP, Comparison, Judged

#: Further unknown names are counted, not listed; and not all are compared with all that is known
MOST_LISTED, MOST_COMPARED = 50, 8
#: Part of a name that is the same in another which may be meant
ALIKE = 0.7


def list_unknown(pair: FilePair, comparison: Comparison) -> None:
    """Put every dataset that belongs to no tensor of the model on the list of what was not judged.

    Batches, float64 twins and the state before the first step are the fixture's business; copies of them in a result
    are not read.
    """
    known = {f"steps/{k}/{name}" for k in range(pair.steps) for name in pair.shapes}
    known |= {f"steps/{k}/weights/{name}" for k in range(pair.steps + 1) for name in pair.start}
    known |= {f"steps/{k}/masks/{name}" for k in range(pair.steps) for name in pair.model.graph.masked()}
    known |= {f"steps/{k}/applied/{name}" for k in range(pair.steps) for name in pair.start}
    known |= {pair.candidate.memory_path(k, name, kind) for k in range(pair.steps + 1) for name in pair.start
              for kind in pair.optimizer.memory}
    unknown = [
        name
        for name in pair.candidate.datasets()
        if name not in known and name != "model" and not name.startswith(("batches/", "oracle/", "state/"))
    ]
    steps = {name.split("/")[1] for name in pair.candidate.datasets() if name.startswith("steps/")}
    misnamed = {name for name in unknown
                if _may_be_a_tensor(name, known) and not _of_a_later_step(name, pair.steps, known, steps)}
    listed = sorted(unknown, key=lambda name: name not in misnamed)
    for i, name in enumerate(listed[:MOST_LISTED]):
        near = _nearest(name, pair, known) if name in misnamed and i < MOST_COMPARED else ()
        reason = f"unknown name{f', expected perhaps {near[0]}' if near else ''}"
        comparison.skip(name, NO_STEP, reason, unknown=True, misnamed=name in misnamed, nearest=near)
    if rest := listed[MOST_LISTED:]:
        comparison.skip(f"{len(rest)} more", NO_STEP, "unknown name", unknown=True, misnamed=rest[0] in misnamed)


def _may_be_a_tensor(name: str, known: set[str]) -> bool:
    """Whether it stands under steps, or ends as a tensor's name does: in another group, or without its step.

    >>> known = {"steps/0/loss", "steps/0/forward/conv1"}
    >>> [_may_be_a_tensor(one, known) for one in ("steps/0/x", "step/0/forward/conv1", "forward/conv1", "x/loss")]
    [True, True, True, False]
    """
    parts = name.split("/")
    tails = ("/".join(parts[i:]) for i in range(len(parts) - 1))
    return parts[0] == "steps" or any(tail in known or f"steps/{tail}" in known or f"steps/0/{tail}" in known
                                      for tail in tails)


def _of_a_later_step(name: str, steps: int, known: set[str], there: set[str]) -> bool:
    """Whether it is a tensor of a step that follows on those of the fixture: programs may take its batches again.

    >>> known = {"steps/0/loss"}
    >>> [_of_a_later_step(one, 1, known, {"0", "1", "2", "7"}) for one in ("steps/2/loss", "steps/7/loss", "steps/1/x")]
    [True, False, False]
    """
    first, _, rest = name.partition("/")
    step, _, tensor = rest.partition("/")
    return (first == "steps" and step.isdecimal() and int(step) >= steps
            and all(str(k) in there for k in range(steps, int(step)))
            and any(f"steps/{k}/{tensor}" in known for k in range(steps + 1)))


def _nearest(name: str, pair: FilePair, known: set[str]) -> tuple[str, ...]:
    """Names of the same step that are like it and not in the file."""
    step = next((part for part in name.split("/") if part.isdecimal()), "0")
    same = [one for one in known if one.split("/")[1] == step and not pair.candidate.has(one)]
    return tuple(get_close_matches(name, sorted(same), cutoff=ALIKE))


def list_unjudged(pair: FilePair, comparison: Comparison) -> None:
    """Put every dataset that is there, known and not judged on the list; NaN and infinity in it are failures."""
    reasons = {(skipped.name, skipped.step): skipped.reason for skipped in comparison.not_judged}
    for name, step, shape, why in list(_unjudged(pair, comparison)):
        statistic = _nonfinite(pair, f"steps/{step}/{name}", shape)
        if statistic.nonfinite:
            comparison.judged.append(Judged(name, step, statistic))
            continue
        reason = next((reasons[one] for one in why if one in reasons), "what it follows from is not in the file")
        comparison.skip(name, step, f"in the file, but could not be judged: {reason}", hidden=True)


def _unjudged(
    pair: FilePair, comparison: Comparison
) -> Iterator[tuple[str, int, tuple[int, ...], list[tuple[str, int]]]]:
    """Name, step and shape of what was not judged, and where the reason for it stands."""
    seen = {(judged.name, judged.step) for judged in comparison.judged}
    seen |= {(skipped.name, skipped.step) for skipped in comparison.not_judged if skipped.measured}
    for k in range(pair.steps + 1):
        for name, w in pair.start.items():
            own, oracle = (f"optimizer/{name}", k - 1), (f"update/{name}", k - 1)
            known = {own, oracle} & seen if k else True
            if not known and pair.candidate.has(f"steps/{k}/weights/{name}"):
                yield f"weights/{name}", k, w.shape, [("all tensors", k - 1), oracle, own]
        for name, shape in pair.shapes.items():
            if k < pair.steps and (name, k) not in seen and pair.candidate.has(f"steps/{k}/{name}"):
                yield name, k, shape, [("all tensors", k)]


def _nonfinite(pair: FilePair, path: str, shape: tuple[int, ...]) -> Statistic:
    """What is NaN or infinite in a tensor, read along its first axis one part at a time."""
    total = Statistic()
    for part in range(shape[0]) if shape else [None]:
        found = pair.candidate.read(path, shape, part)
        bad = np.argwhere(~np.isfinite(found))
        if len(bad):
            at = (() if part is None else (part,)) + tuple(int(i) for i in bad[0])
            value = float(found[tuple(bad[0])])
            total.merge(Statistic(math.inf, math.nan, at, value, math.nan, math.nan, found.size, len(bad)))
        else:
            total.merge(Statistic(elements=found.size))
    return total
