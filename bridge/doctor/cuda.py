# SPDX-License-Identifier: MIT
"""The CUDA side: what the Fortran library found, and what the probes gave."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.doctor import machine as machines
from bridge.doctor.isolated import ProbeAnswer, ask
from bridge.doctor.records import Row, Section, State

#: Parts of `cuda_facts`, in this order, because each needs those before it
PARTS = ("build", "kernels", "driver", "cudart", "cudnn", "devices")
#: Name in words, and the files that are looked for
LIBRARIES = {
    "driver": ("GPU driver", ["libcuda.so.1"]),
    "cudart": ("CUDA runtime", ["libcudart.so.13", "libcudart.so.12"]),
    "cudnn": ("cuDNN", ["libcudnn.so.9"]),
}
FULL = "fp32"
#: What the driver gives when it has started but sees no device, CUDA_ERROR_NO_DEVICE
NO_DEVICE = "CUresult 100"


@dataclass(frozen=True)
class CudaFacts:
    """Facts by name, errors by part, and what the probes gave by device text."""

    facts: dict[str, str]
    errors: dict[str, str]
    probes: dict[str, ProbeAnswer] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Return the number of devices."""
        return int(self.facts.get("devices", "0"))

    def math(self, number: int) -> list[str]:
        """Return the values of math= that a device can be opened with."""
        return self.device(number, "math").split() or [FULL]

    def device(self, number: int, what: str) -> str:
        """Return a fact of a device; "" if it is not known."""
        return self.facts.get(f"device {number} {what}", "")


def find(limit: float) -> CudaFacts:
    """Ask the library for everything, in child processes."""
    answers = ask([f"facts:{part}" for part in PARTS], limit)
    facts: dict[str, str] = {}
    errors: dict[str, str] = {}
    for part in PARTS:
        answer = answers[f"facts:{part}"]
        facts |= answer.value or {}
        if answer.error:
            errors[part] = answer.why(_doing(part))
    # What the library says as a value
    errors |= {name.removesuffix(" error"): value for name, value in facts.items() if name.endswith(" error")}
    if NO_DEVICE in errors.get("driver", ""):
        why = errors.pop("driver")
        errors.setdefault("devices", why)
    found = CudaFacts(facts, errors)
    return CudaFacts(facts, errors, ask([f"probe:{text}" for text in _texts(found)], limit) if found.count else {})


def _doing(part: str) -> str:
    if part not in LIBRARIES:
        return "at the number of devices" if part == "devices" else ""
    return f"while loading {path_of(part)}"


def path_of(part: str) -> str:
    """Return where the library looks first and finds the file; its bare name where only the loader knows."""
    names = LIBRARIES[part][1]
    for variable in ("CNN_CUDA_PATH", "CNN_CUDA_WHEELS"):
        found = machines.first_file(os.environ.get(variable, ""), names)
        if found:
            return found
    return names[0]


def _texts(found: CudaFacts) -> list[str]:
    """Each device in each of its math modes."""
    return [f"cuda:{number}" + ("" if mode == FULL else f",math={mode}")
            for number in range(found.count) for mode in found.math(number)]


def section(found: CudaFacts) -> Section:
    """Return the section of the report."""
    rows = [_library_row(found, part) for part in LIBRARIES]
    if "devices" in found.errors and is_missing(found.errors.get("driver", "")):
        rows.append(Row("devices", "none without a driver", State.ABSENT))
    elif "devices" in found.errors:
        rows.append(Row("devices", found.errors["devices"], State.BAD))
    elif found.count == 0:
        rows.append(Row("devices", "none", State.ABSENT))
    rows += [_device_row(found, number) for number in range(found.count)]
    rows.append(_kernels_row(found))
    return Section("CUDA", rows)


def _library_row(found: CudaFacts, part: str) -> Row:
    name = LIBRARIES[part][0]
    path, number = found.facts.get(f"{part} library", ""), found.facts.get(f"{part} version", "")
    if part in found.errors:
        if is_missing(found.errors[part]):
            return Row(name, f"{' or '.join(LIBRARIES[part][1])} not found", State.ABSENT, _where())
        return Row(name, "broken", State.BAD, short(found.errors[part]))
    about = {"driver": f"serves CUDA up to {number}", "cudnn": f"{number}, made with CUDA "
             f"{found.facts.get('cudnn CUDA', '?')}"}.get(part, number)
    return Row(name, about or "found", State.GOOD, path)


def _where() -> str:
    """Where the library has looked."""
    path = os.environ.get("CNN_CUDA_PATH") or "not set"
    folders = len(list(filter(None, os.environ.get("CNN_CUDA_WHEELS", "").split(":"))))
    return f"looked in CNN_CUDA_PATH ({path}), in {folders} folders of NVIDIA's packages, and where the loader looks"


def short(error: str) -> str:
    """Return the message without what the row says already."""
    return error.removeprefix("device cuda: ")


def is_missing(error: str) -> bool:
    """Return whether it was not there, as opposed to broken."""
    return " not found" in error and "looked in" in error


def _device_row(found: CudaFacts, number: int) -> Row:
    name = f"cuda:{number}"
    if f"device {number}" in found.errors:
        return Row(name, found.errors[f"device {number}"], State.BAD)
    capability = found.device(number, "compute capability")
    value = (f"{found.device(number, 'name') or 'GPU'}, compute capability {capability}, "
             f"{found.device(number, 'multiprocessors')} multiprocessors, "
             f"{_gib(found.device(number, 'memory free'))} of {_gib(found.device(number, 'memory total'))} GiB free")
    return Row(name, value, State.GOOD, f"math: {', '.join(found.math(number))}")


def _gib(text: str) -> str:
    return f"{int(text) / 2**30:.1f}" if text.isdecimal() else "?"


def _kernels_row(found: CudaFacts) -> Row:
    if "kernels" in found.errors:
        return Row("our kernels", found.errors["kernels"], State.BAD)
    count, target = len(found.facts.get("kernels entries", "").split()), found.facts.get("kernels target", "?")
    return Row("our kernels", f"built in: {count} kernels, PTX for {target} and newer", State.GOOD)


def usable(found: CudaFacts, number: int) -> bool:
    """Return whether its probe in full precision was exact."""
    answer = found.probes.get(f"probe:cuda:{number}")
    return answer is not None and not answer.error


def probe_rows(probes: Mapping[str, ProbeAnswer]) -> list[Row]:
    """Return the self-check of every device."""
    return [Row(name.removeprefix("probe:"), answer.why("at the probe") if answer.error else str(answer.value),
                State.BAD if answer.error else State.GOOD) for name, answer in probes.items()]
