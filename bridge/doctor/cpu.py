# SPDX-License-Identifier: MIT
"""The device cpu: its instruction set and threads, and how it computes the layers of the default model."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bridge.doctor.isolated import ProbeAnswer
from bridge.doctor.records import Problem, Row, Section, State
from bridge.engine.arrays.operand import extent_of
from bridge.engine.library import extension
from bridge.engine.network.network import Network
from bridge.exchange.model import Conv2d, Model, Relu

VARIABLE = "CNN_CPU_LEVEL"
#: The highest level that the processor is said to have, for tests
CAP_VARIABLE = "CNN_CPU_CAP"
#: As fortran/cpu/instruction_sets.f90 names them, the lowest first
LEVELS = ("baseline", "avx2", "avx512")
LANES_VARIABLE = "CNN_CPU_LANES"
#: As fortran/cpu/plan/choice.f90 names them
LANES_WAYS = ("pixels", "channels")
#: Channels in and out of the default model's layers; 3 x 3 filters with padding 1
LAYERS = {"conv1": (1, 16), "conv2": (16, 16), "conv3": (16, 1)}
BATCH, SIZE = 2, 1024
PASSES = ("output", "data gradient", "filter gradient")


def facts(_: str = "") -> dict[str, str]:
    """Return what the Fortran library says of itself: "level", "best", "threads", a way for each pass of each layer,
    and one for the training step of a memory-efficient network of them.

    Called in the doctor's child process.

    Raises
    ------
    EngineError
        If CNN_CPU_LEVEL or CNN_CPU_CAP asks for a level that is not there, or CNN_CPU_LANES for a way.

    Examples
    --------
    >>> facts()["best"] in LEVELS
    True
    >>> facts()["conv2 filter gradient"].startswith("direct, in bands of ")
    True
    """
    found = dict(word.partition("=")[::2] for word in _text(extension.call("cpu_facts")).split())
    for name, (channels, filters) in LAYERS.items():
        found |= {f"{name} {one}": way for one, way in zip(PASSES, _ways(channels, filters), strict=True)}
    found["training"] = "; ".join(Network(_model(), keep_activations=False).plan((BATCH, 1, SIZE, SIZE)))
    return found


def _model() -> Model:
    first, second, last = (Conv2d(name, *channels, (3, 3), padding=(1, 1)) for name, channels in LAYERS.items())
    return Model((first, Relu("relu1"), second, Relu("relu2"), last))


def _ways(channels: int, filters: int) -> list[str]:
    settings = np.array([1, 1, 1, 1, 1, 1, 1], np.int32)
    x, w = map(extent_of, ((BATCH, channels, SIZE, SIZE), (filters, channels, 3, 3)))
    return _text(extension.call("conv2d_algorithms", extension.DTYPES["float32"], settings, x, w)).split("; ")


def _text(value: Any) -> str:
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)).strip()


def section(answer: ProbeAnswer) -> Section:
    """Return the section of the report."""
    if answer.error:
        return Section("CPU", [Row("instruction set", answer.why("at the instruction set"), State.BAD)])
    known: dict[str, str] = answer.value
    level, best = known["level"], known["best"]
    rows = [Row("instruction set", level, State.GOOD, _about(level, best)),
            Row("threads", known["threads"])]
    for name, (channels, filters) in LAYERS.items():
        found = {one: known[f"{name} {one}"] for one in PASSES}
        value = "; ".join(f"{one}: {way}" for one, way in found.items())
        if len(set(found.values())) == 1:
            value = found[PASSES[0]]
        note = f"{channels} to {filters} channels, {BATCH} x {SIZE} x {SIZE}, float32"
        rows.append(Row(name, value, State.FACT, note))
    rows.append(Row("training", known["training"], State.FACT,
                    "the three layers as one network with keep_activations=False"))
    return Section("CPU", rows)


def _about(level: str, best: str) -> str:
    capped = f", of which {CAP_VARIABLE} allows no more" if os.environ.get(CAP_VARIABLE) else ""
    if level != best:
        return f"chosen by {VARIABLE}; this machine has {best}{capped}"
    return f"chosen by {VARIABLE}" if os.environ.get(VARIABLE) else f"the best of this processor and this build{capped}"


def problems(answer: ProbeAnswer) -> list[Problem]:
    """Return a level or a way that cannot be used."""
    return [Problem(answer.error, f"unset {name}") for name in (VARIABLE, CAP_VARIABLE, LANES_VARIABLE)
            if name in answer.error]


def advice(answer: ProbeAnswer) -> list[Problem]:
    """Return a level below the best."""
    if answer.error or answer.value["level"] == answer.value["best"]:
        return []
    level, best = answer.value["level"], answer.value["best"]
    return [Problem(f"{VARIABLE} is {level}: the cpu is slower than with {best}", f"unset {VARIABLE}")]
