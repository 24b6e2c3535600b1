# SPDX-License-Identifier: MIT
"""Every integer of a hyperparameter at its largest: an error, or a result, never the end of the program."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from bridge import BridgeError, Model, Network
from bridge.common.errors import FileError
from bridge.gradcheck.cases import CASES, Setup
from bridge.operations.graph import INPUT
from bridge.operations.hyperparameters import LARGEST, check_value, fields
from tests import ROOT

#: Numbers of outputs and parameters that are computed
FEW = 2**22
#: Above what is allowed, so that the message is right, and the largest that is
SIZES = (2**31, LARGEST + 1, LARGEST, 65537, 65536)


def changed() -> Iterator[tuple[str, Setup]]:
    """Each case's first setup with one hyperparameter at a size, as often as there are integers in it."""
    for kind, (case, *_) in CASES.items():
        for one in fields(type(case.node)):
            value = getattr(case.node, one.name)
            listed = value if isinstance(value, tuple) else (value,)
            if listed and all(type(n) is int for n in listed):
                for size in SIZES:
                    large: Any = (size,) * len(listed) if isinstance(value, tuple) else size
                    node = dataclasses.replace(case.node, **{one.name: large}, inputs=(INPUT,) * len(case.shapes))
                    yield f"{kind} {one.name} {size}", dataclasses.replace(case, node=node)


def compute(case: Setup) -> str:
    """What becomes of it."""
    try:
        for one in fields(type(case.node)):
            check_value("it", one, getattr(case.node, one.name))
    except FileError:
        return "refused"
    wanted = 0
    # Fortran has to refuse by itself what does not fit: programs in Fortran ask nobody else
    with contextlib.suppress(FileError):
        wanted = math.prod(case.node.output_shape(*[case.shapes[0]] * len(case.shapes)))
    if max(wanted, *map(math.prod, case.node.parameter_shapes().values()), 0) > FEW:
        return "large"
    try:
        y = Network(Model((case.node,))).forward(np.ones(case.shapes[0], np.float32))
    except BridgeError as error:
        return type(error).__name__
    assert y.size == wanted
    return "computed"


def test_none_ends_the_program() -> None:
    """In a process of its own, which says before each what it tries."""
    done = subprocess.run([sys.executable, "-m", __name__], cwd=ROOT, capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (lines[-1:], done.stderr[-500:])
    assert len(lines) == len(list(changed())) > 300
    # What is larger than allowed is refused before anything is built
    assert all(line.endswith(" refused") for line in lines if line.split()[2] == str(SIZES[0])), lines


if __name__ == "__main__":
    for name, one in changed():
        print(name, end=" ", flush=True)
        print(compute(one), flush=True)
