# SPDX-License-Identifier: MIT
"""What a user asked of `bridge.validate`: the command line, once it is read."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from bridge.report.outputs import Judging, OutputFiles

#: Options that are handed on to ``reference.export`` as they are
EXPORT_OPTIONS = ("size", "shape", "batch", "steps", "seed", "lr", "momentum", "dampening", "weight_decay", "reduction",
                  "image", "model", "output", "loss", "optimizer", "schedule")
#: What a device with transforms=yes may compute
TRANSFORMS = ("fft", "winograd")
#: Where they are not asked for
DEFAULTS = {"size": "1024", "batch": 2, "steps": 3, "seed": 0}


@dataclass(frozen=True)
class Options:
    """The options by their names; None where one was not given.

    Attributes
    ----------
    size ... nesterov : as of ``python -m reference.export``
    device, precision : of the Fortran side
    keep : folder for the files
    sizes, probe, checks, self_test, quick, plot : the experiments
    every_step : print every tensor of every step
    judging : how a result is judged
    files : what is written
    """

    size: str | None = None
    shape: str | None = None
    batch: int | None = None
    steps: int | None = None
    seed: int | None = None
    lr: float | None = None
    momentum: float | None = None
    dampening: float | None = None
    weight_decay: float | None = None
    reduction: str | None = None
    image: str | None = None
    model: str | None = None
    output: str | None = None
    loss: str | None = None
    optimizer: str | None = None
    schedule: str | None = None
    nesterov: bool = False
    device: str = "cpu"
    precision: str = "float32"
    keep: str | None = None
    sizes: tuple[str, ...] = ()
    probe: bool = False
    checks: bool = False
    self_test: bool = False
    quick: bool = False
    plot: str | None = None
    every_step: bool = False
    judging: Judging = field(default_factory=Judging)
    files: OutputFiles = field(default_factory=OutputFiles)

    @classmethod
    def of(cls, a: argparse.Namespace) -> Options:
        """Return what the parser of `bridge.validate` read."""
        given = {one.name: getattr(a, one.name) for one in fields(cls) if hasattr(a, one.name)}
        given |= {"sizes": tuple(a.sizes or ()), "every_step": a.all}
        judging = Judging.of(a)
        if "transforms=yes" in a.device.split(","):
            judging = replace(judging, allow=tuple(sorted({*judging.allow, *TRANSFORMS})))
        return cls(**given, judging=judging, files=OutputFiles.of(a))

    def filled(self, **defaults: Any) -> Options:
        """Return the same with values for those options that were not given: `defaults`, then `DEFAULTS`.

        >>> filled = Options(batch=4).filled(steps=1)
        >>> filled.size, filled.batch, filled.steps
        ('1024', 4, 1)
        """
        wanted: dict[str, Any] = DEFAULTS | defaults
        if self.shape is not None:
            del wanted["size"]
        missing = {name: value for name, value in wanted.items() if getattr(self, name) is None}
        return replace(self, **missing)

    def for_export(self) -> list[str]:
        """Return the options that are reference.export's, as a command line."""
        found = [f"--{name}" for name in ("nesterov", "probe") if getattr(self, name)]
        if not (self.keep or self.probe):
            # Nobody else will read the fixture, and the comparison reads no more of it
            found += ["--whole-steps", "1"]
        for name in EXPORT_OPTIONS:
            value = getattr(self, name)
            if value is not None:
                found += [f"--{name.replace('_', '-')}", str(value)]
        return found

    def bytes_needed(self) -> int:
        """Return the room for both files of a run, computed for the default model: 66 channels of outputs and of
        gradients.
        """
        assert self.batch is not None and self.steps is not None
        try:
            sides = [int(n) for n in (self.shape.split(",")[1:] if self.shape else str(self.size).lower().split("x"))]
        except ValueError:
            sides = []
        if not sides:
            return 0  # reference.export says what is wrong with it
        pixels = sides[0] * sides[-1] * self.batch
        width = 8 + 4 if self.precision == "float64" else 4  # float64 runs float32 too
        steps = pixels * 136 * self.steps
        fixture = pixels * 4 * (136 * (self.steps if self.keep else 1) + 2 * self.steps)
        twins = pixels * 136 * 8 * (self.steps if pixels <= 2**17 else 1)
        return fixture + steps * width + twins + 2**20

    def kept_files(self) -> list[tuple[str, Path]]:
        """Return files that --keep would make or replace in a folder that is there, as `check_files` takes them."""
        if self.keep is None or not Path(self.keep).is_dir():
            return []
        names = [f"-{size}" for size in self.sizes] or [f"-probe{n}" for n in (1, 2, 3) if self.probe] or [""]
        runs = [Files.of(Path(self.keep), name) for name in names]
        return [("--keep", path) for one in runs for path in (one.fixture, one.result, one.in_float32)]


@dataclass(frozen=True)
class Files:
    """Fixture and result of one run, in a folder."""

    fixture: Path
    result: Path

    @classmethod
    def of(cls, folder: Path, name: str = "") -> Files:
        """``fixture.h5`` and ``result.h5``, with a name between where a folder holds several."""
        return cls(folder / f"fixture{name}.h5", folder / f"result{name}.h5")

    @property
    def in_float32(self) -> Path:
        """Return the result that a run in float64 has in float32 too."""
        return self.result.with_name("result-float32.h5")

    def remove(self) -> None:
        """The room is needed for the next run."""
        self.fixture.unlink(missing_ok=True)
        self.result.unlink(missing_ok=True)
