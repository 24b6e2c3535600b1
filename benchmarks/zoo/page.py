# SPDX-License-Identifier: MIT
"""docs/zoo.md: what was found of networks of images and of sequences."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from benchmarks.zoo.ask import Found
from benchmarks.zoo.series import SEQUENCES


@dataclass(frozen=True)
class Answers:
    """What was found of one group of networks.

    Attributes
    ----------
    found : of each that was asked
    versions : of its packages
    all : how many there are
    """

    found: list[Found]
    versions: dict[str, str]
    all: int


def counts(found: list[Found]) -> dict[str, int]:
    """Return how many there are, are judged, and are trained.

    >>> counts([Found("a", "yes", "yes"), Found("b", "yes", "it lacks roll")])
    {'networks': 2, 'judged': 2, 'trained': 1}
    """
    return {"networks": len(found), "judged": sum(one.judged == "yes" for one in found),
            "trained": sum(one.trained == "yes" for one in found)}


def document(images: Answers, sequences: Answers) -> str:
    """Return docs/zoo.md."""
    total = counts(images.found)
    text = f"""# Networks of other packages

`python -m benchmarks.zoo` asks of {total['networks']} networks of public packages, small ones on small images,
whether they are read, judged and trained. Weights are drawn by a seed, and nothing else is random. A network is
*judged* where a right program, PyTorch's in float64 written as float32, is RIGHT. It is *trained* where the
library's outputs in training and evaluation in float32, and parameters, buffers and outputs after a step in float64,
are PyTorch's to 1e-4 of the largest number. Operations that the table lacks have
[estimated bounds](numerics.md#operations-that-the-table-lacks). Networks of sequences and functions have
[their own table](#sequences-and-functions).{_left(images, "--again")}

"""
    return text + _summary(images) + _rows(images.found) + _of_sequences(sequences)


def _of_sequences(sequences: Answers) -> str:
    """The section of networks of sequences."""
    kinds = []
    for kind, entries in SEQUENCES.items():
        names = {one.name for one in entries}
        some = counts([one for one in sequences.found if one.name in names])
        kinds.append(f"| {kind} | {some['networks']} | {some['judged']} | {some['trained']} |")
    return f"""
## Sequences and functions

`python -m benchmarks.zoo --sequences` asks the same of transformers, recurrent networks, networks of time series and
sound, and neural operators: small ones, from configurations without a download. Inputs are whole numbers where the
network takes words. The step is one of AdamW, beside PyTorch's. A network that is not trained is refused with the
reason that the table has; nothing is guessed.{_left(sequences, "--sequences --again")}

""" + _summary(sequences) + "\n".join(["| kind | networks | judged | trained |", "| --- | ---: | ---: | ---: |", *kinds]
                                      ) + "\n\n" + _rows(sequences.found)


def _left(answers: Answers, option: str) -> str:
    left = answers.all - len(answers.found)
    return f" {left} networks more were not asked yet (`{option}` asks them)." if left > 0 else ""


def _summary(answers: Answers) -> str:
    """Counts, what was estimated, versions."""
    total = counts(answers.found)
    missing = Counter(call for one in answers.found for call in one.estimated)
    often = ", ".join(f"`{name}` ({n})" for name, n in missing.most_common(12))
    return f"""Judged: {total['judged']} of {total['networks']}. Trained: {total['trained']} of {total['networks']}.

Most often estimated: {often or 'none'}.

Versions: {', '.join(f'{name} {one}' for name, one in answers.versions.items())}.

"""


def _rows(found: list[Found]) -> str:
    rows = [f"| {one.name} | {_cell(one.judged)} | {_cell(one.trained)} | {', '.join(one.estimated)} |"
            for one in found]
    return "\n".join(["| network | judged | trained | estimated |", "| --- | --- | --- | --- |", *rows]) + "\n"


def _cell(said: str) -> str:
    """What is missing, short, without paths of files."""
    text = re.sub(r"\([^\s()]+\.py, line", "(line", said).replace("|", "/")
    return text if len(text) <= 160 else text[:157] + "..."
