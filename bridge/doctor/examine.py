# SPDX-License-Identifier: MIT
"""The whole examination."""

from __future__ import annotations

import os
from typing import Any

from bridge.doctor import advice, cpu, cuda, machine
from bridge.doctor.isolated import ProbeAnswer, ask
from bridge.doctor.records import Examination, Problem, Readiness, Row, Section, State
from bridge.doctor.software import compilers_section, python_section, variables_section
from bridge.engine.library.nvidia_wheels import name_wheels


def examine(limit: float) -> Examination:
    """Look at everything; `limit` in seconds is for each child process."""
    # As the user has set them, before the engine names NVIDIA's wheels for itself
    variables = variables_section()
    name_wheels()
    answers = ask(["library", "cpu", "probe:cpu"], limit)
    library, level, probe = answers["library"], answers["cpu"], answers["probe:cpu"]
    seen = machine.look(limit)
    found = cuda.CudaFacts({}, {}) if library.error else cuda.find(limit)
    against = advice.problems(found, seen)
    if library.error:
        against = [Problem("the Fortran library cannot be used", "make setup")]
    checks = cuda.probe_rows({"cpu": probe} | found.probes)
    if not found.probes:
        checks.append(Row("cuda", "not tried, because it is not usable", State.ABSENT))
    sections = [python_section(), _library_section(library, found), cpu.section(level), compilers_section(), variables,
                machine.section(seen), cuda.section(found), Section("Self-check, with integers", checks)]
    cards = [f"cuda:{number} {found.device(number, 'name')}" for number in range(found.count)
             if cuda.usable(found, number)]
    better = cpu.advice(level) + ([] if library.error else advice.advice(found))
    return Examination(sections, _cpu(library, level, probe), Readiness("cuda", against, ", ".join(cards)), better,
                       found.facts, level.value or {})


def cuda_path() -> str:
    """Return the value of CNN_CUDA_PATH for programs without Python: the folders that Python uses; "" where there are
    none.
    """
    name_wheels()
    values = (os.environ.get(name, "") for name in ("CNN_CUDA_PATH", "CNN_CUDA_WHEELS"))
    return ":".join(filter(None, values))


def _cpu(library: ProbeAnswer, level: ProbeAnswer, probe: ProbeAnswer) -> Readiness:
    if library.error:
        return Readiness("cpu", [Problem(f"the Fortran library: {library.why('while it was loaded')}", "make setup")])
    if cpu.problems(level):
        return Readiness("cpu", cpu.problems(level))
    if probe.error:
        return Readiness("cpu", [Problem(f"the probe: {probe.why()}", "make test   (which part is wrong?)")])
    return Readiness("cpu")


def _library_section(library: ProbeAnswer, found: cuda.CudaFacts) -> Section:
    """The extension and what it was linked with."""
    if library.error:
        return Section("Fortran library", [Row("cnn_fortran", library.why("while it was loaded"), State.BAD)])
    value: dict[str, Any] = library.value
    rows = [Row("cnn_fortran", value["version"], State.GOOD, value["path"]),
            Row("built by", found.facts.get("compiler", "unknown"))]
    # Ours first
    for pool in sorted(value["threads"], key=lambda one: (one["user_api"], "'s own" in _whose(one["filepath"]))):
        name = {"openmp": "OpenMP", "blas": "BLAS"}.get(pool["user_api"], str(pool["user_api"]))
        words = " ".join(filter(None, ["" if name == "OpenMP" else pool["internal_api"], pool["version"]]))
        rows.append(Row(name, f"{words}, {pool['num_threads']} threads".removeprefix(", "), State.FACT,
                        _whose(pool["filepath"])))
    rows += [Row("HDF5", number, State.FACT, _whose(path)) for path, number in value["hdf5"].items()]
    return Section("Fortran library", rows)


def _whose(path: str) -> str:
    """A library that a Python package brings for itself is not the one that Fortran uses."""
    for package in ("numpy", "scipy", "h5py", "torch"):
        if f"/{package}.libs/" in path or f"/{package}/lib/" in path:
            return f"{package}'s own"
    return path
