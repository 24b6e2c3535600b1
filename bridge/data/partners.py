# SPDX-License-Identifier: MIT
"""Which target belongs to which input, by the names of their files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from bridge.data.bad_file import BadFile
from bridge.data.find import file_and_dataset
from bridge.data.sources.stack import Stack

Found = Stack | BadFile
#: Numbers, words, and what is between them
TOKEN = re.compile(r"[0-9]+|[^\W0-9_]+|[\W_]+")


def matched(inputs: Sequence[Found], targets: Sequence[Found]) -> tuple[list[Found], list[Found]] | None:
    """Return inputs and targets in the order of inputs, each with its partner at the same place.

    Partners have the same name, without what is common to the names of a side: ``noisy_3.mrc`` and ``3_clean.mrc``.
    What has no partner comes last, as a bad file. None where names say nothing: no two are the same, a side has one
    twice, or files of the same name have other numbers of images, so that the sides are divided differently.
    """
    found = _by_names([one.name for one in inputs], [one.name for one in targets])
    if found is None:
        return None
    pairs = [(inputs[k], targets[j]) for k, j in sorted(found.items())]
    if any(isinstance(a, Stack) and isinstance(b, Stack) and a.count != b.count for a, b in pairs):
        return None
    return ([*(one for one, _ in pairs), *_alone(inputs, set(found), "targets")],
            [*(one for _, one in pairs), *_alone(targets, set(found.values()), "inputs")])


def _alone(side: Sequence[Found], taken: set[int], others: str) -> list[Found]:
    left = [one for number, one in enumerate(side) if number not in taken]
    return [one if isinstance(one, BadFile) else BadFile(one.name, f"{one.name}: has no partner among the {others}")
            for one in left]


def _by_names(inputs: Sequence[str], targets: Sequence[str]) -> dict[int, int] | None:
    """The number of each input's target, by the reading of names that finds most partners.

    >>> _by_names(["a/x_3.mrc", "a/x_4.mrc"], ["b/4_y.mrc", "b/5_y.mrc"]), _by_names(["a.npy", "b.npy"], ["c.npy"])
    ({1: 0}, None)
    """
    best = dict[int, int]()
    sides = [_stems(side) for side in (inputs, targets)]
    for read in (list, _without_words, _without_common):
        mine, others = (read(side) for side in sides)
        if len(set(mine)) == len(mine) and len(set(others)) == len(others):
            places = {name: number for number, name in enumerate(others)}
            found = {number: places[name] for number, name in enumerate(mine) if name in places}
            best = max(best, found, key=len)
    return best or None


def _stems(names: Sequence[str]) -> list[str]:
    """Without folders and endings; where some are the same then, with the folders in which they differ.

    >>> _stems(["r/a/n/1.mrc", "r/b/n/1.mrc"])
    ['a/1', 'b/1']
    """
    files = [file_and_dataset(name) for name in names]
    stems = [os.path.splitext(os.path.basename(path))[0] + (dataset or "") for path, dataset in files]
    if len(set(stems)) == len(stems):
        return stems
    folders = [os.path.dirname(path).split(os.sep) for path, _ in files]
    common = set.intersection(*map(set, folders))
    return ["/".join([*(one for one in some if one not in common), stem])
            for some, stem in zip(folders, stems, strict=True)]


def _without_words(stems: Sequence[str]) -> list[str]:
    """Without words that all begin or end with, up to the first number: it may be the same by accident.

    >>> _without_words(["mic_10_a", "mic_11_a"]), _without_common(["mic_10_a", "mic_11_a"])
    (['10', '11'], ['10', '11'])
    >>> _without_words(["half1_3", "half1_4"]), _without_common(["half1_3", "half1_4"])
    (['1_3', '1_4'], ['3', '4'])
    """
    return _shortened(stems, numbers=False)


def _without_common(stems: Sequence[str]) -> list[str]:
    """Without what all begin or end with, numbers too."""
    return _shortened(stems, numbers=True)


def _shortened(stems: Sequence[str], *, numbers: bool) -> list[str]:
    words = [[one.lstrip("0") or "0" if one.isdecimal() else one for one in TOKEN.findall(stem)] for stem in stems]
    head = _common(words, numbers)
    words = [one[head:] for one in words]
    tail = _common([one[::-1] for one in words], numbers)
    return ["".join(one[:len(one) - tail]) for one in words]


def _common(words: Sequence[Sequence[str]], numbers: bool) -> int:
    """How many first words all have."""
    for count, some in enumerate(zip(*words, strict=False)):
        if len(set(some)) > 1 or (some[0].isdecimal() and not numbers):
            return count
    return min(map(len, words))
