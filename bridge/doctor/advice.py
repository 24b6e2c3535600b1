# SPDX-License-Identifier: MIT
"""What stands between this machine and the device cuda, and the one thing to do about each."""

from __future__ import annotations

import os
import re
import sys

from bridge.doctor import cuda
from bridge.doctor.cuda import CudaFacts
from bridge.doctor.isolated import ProbeAnswer
from bridge.doctor.machine import Machine, driver_command, first_file, major
from bridge.doctor.records import Problem
from bridge.doctor.software import torch_build, version

#: Distributions of NVIDIA by CUDA's major version
WHEELS = {
    13: {"cudnn": "nvidia-cudnn-cu13", "cudart": "nvidia-cuda-runtime", "cublas": "nvidia-cublas"},
    12: {"cudnn": "nvidia-cudnn-cu12", "cudart": "nvidia-cuda-runtime-cu12", "cublas": "nvidia-cublas-cu12"},
}
CUDNN = cuda.LIBRARIES["cudnn"][1]
#: Failures of the driver that have one cure (CUDA driver API reference, CUresult)
CURES = {
    "CUresult 34": ("it is the stub of a CUDA toolkit, not a driver", "take its folder out of the loader's path"),
    "CUresult 802": ("the GPUs are not ready yet", "sudo systemctl start nvidia-fabricmanager"),
    "CUresult 803": ("the kernel's driver and libcuda.so.1 have different versions", "sudo reboot"),
    "CUresult 999": ("the kernel's driver does not answer", "sudo modprobe nvidia_uvm   (else: sudo reboot)"),
}


def problems(found: CudaFacts, machine: Machine) -> list[Problem]:
    """Return what stands against using the device cuda, in the order in which it must be solved."""
    if not sys.platform.startswith("linux"):
        return [Problem(f"{sys.platform} is not supported", "use Linux, or WSL on Windows")]
    result = [_library_problem(found, part, machine) for part in cuda.LIBRARIES if part in found.errors]
    if not result and "devices" in found.errors:
        result.append(_devices_problem(found, machine))
    elif not result and found.count == 0:
        result.append(_none_problem(machine))
    if not result and not any(cuda.usable(found, number) for number in range(found.count)):
        result += [_probe_problem(found, number) for number in range(found.count)]
    return result


def advice(found: CudaFacts) -> list[Problem]:
    """Return what could be better where the device works, or would work with a GPU."""
    result = []
    if any(cuda.usable(found, number) for number in range(found.count)):
        result += [_probe_problem(found, number) for number in range(found.count) if not cuda.usable(found, number)]
    ours, theirs = found.facts.get("cudnn library", ""), first_file(os.environ.get("CNN_CUDA_WHEELS", ""), CUDNN)
    if ours and theirs and torch_build().startswith("built for CUDA") and not _same(ours, theirs):
        result.append(Problem(f"PyTorch loads another cuDNN ({theirs}) than this library ({ours}), and one process "
                              "cannot use both", "unset CNN_CUDA_PATH"))
    return result


def _same(path: str, other: str) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)


def _library_problem(found: CudaFacts, part: str, machine: Machine) -> Problem:
    name, files = cuda.LIBRARIES[part]
    error = cuda.short(found.errors[part])
    if cuda.is_missing(error):
        what = f"no {name} ({files[0]} not found)" if part == "driver" else f"{name} not found ({' or '.join(files)})"
        return Problem(what, driver_command(machine) if part == "driver" else pip_install(found))
    for number, (what, fix) in CURES.items() if part == "driver" else ():
        if re.search(rf"{number}\b", error):
            return Problem(f"{name}: {what} ({number})", fix)
    return Problem(f"{name}: {error}", _repair(found, part, machine))


def wheels(found: CudaFacts) -> dict[str, str]:
    """Return the distributions that fit the driver; the newest where there is none."""
    return WHEELS[12 if major(found.facts.get("driver version", "")) == 12 else 13]


def pip_install(found: CudaFacts) -> str:
    """Return all three, which must fit together."""
    return f"pip install {' '.join(wheels(found).values())}"


def _repair(found: CudaFacts, part: str, machine: Machine) -> str:
    """Put a broken library right: by the way that it came."""
    path = found.facts.get(f"{part} library") or cuda.path_of(part)
    folder = os.path.dirname(path)
    if "needs libcublasLt" in found.errors[part]:
        return pip_install(found)
    if folder and folder in os.environ.get("CNN_CUDA_PATH", "").split(":"):
        return f"take {folder} out of CNN_CUDA_PATH, or repair what is in it"
    if part == "driver":
        return driver_command(machine)
    if folder in os.environ.get("CNN_CUDA_WHEELS", "").split(":"):
        installed = [name for names in WHEELS.values() for key, name in names.items() if key == part and version(name)]
        if installed:
            return f"pip install --force-reinstall --no-deps {installed[0]}=={version(installed[0])}"
    return pip_install(found)


def _devices_problem(found: CudaFacts, machine: Machine) -> Problem:
    error = found.errors["devices"]
    serves, needs = found.facts.get("driver version", ""), found.facts.get("cudart version", "")
    if "cudaErrorInsufficientDriver" in error:
        fix = pip_install(found) if major(serves) == 12 else driver_command(machine)
        return Problem(f"the GPU driver serves CUDA {serves or '?'}, the runtime is CUDA {needs or '?'}", fix)
    if "cudaErrorNoDevice" in error or cuda.NO_DEVICE in error:
        return _none_problem(machine)
    return Problem(error, "nvidia-smi   (does it see the GPU?)")


def _none_problem(machine: Machine) -> Problem:
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        return Problem(f"no GPU is visible: CUDA_VISIBLE_DEVICES is '{shown}'", "unset CUDA_VISIBLE_DEVICES")
    return Problem("the driver sees no GPU", driver_command(machine))


def _probe_problem(found: CudaFacts, number: int) -> Problem:
    answer = found.probes.get(f"probe:cuda:{number}", ProbeAnswer(error="not tried"))
    fix = f"python -m bridge.validate --probe --device cuda:{number}   (which tensor is wrong?)"
    if _is_too_old(found, number):
        fix = "take a newer GPU   (our kernels are for compute capability 7.5 and newer)"
    return Problem(f"cuda:{number}: {answer.why('at the probe')}", fix)


def _is_too_old(found: CudaFacts, number: int) -> bool:
    """The kernels are compiled for a newer architecture: "7.0" is before "sm_75"."""
    capability = found.device(number, "compute capability").replace(".", "")
    target = found.facts.get("kernels target", "").removeprefix("sm_")
    return capability.isdecimal() and target.isdecimal() and int(capability) < int(target)
