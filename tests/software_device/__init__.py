# SPDX-License-Identifier: MIT
"""A CUDA device in software, for tests without a GPU. It is slow, and stricter than a GPU.

What it is
----------
One C library (tests/software_device/sources/) that answers to the names of the CUDA runtime, the driver and
cuDNN, as far as this project calls them. It computes on the host, in plain loops. It is no simulator of speed, and
what passes here has not run on a GPU. It calls itself "strict software device (no GPU)".

How to run a program on it
--------------------------
The program finds its CUDA libraries in the folder that ``CNN_CUDA_PATH`` names::

    CNN_CUDA_PATH=$(python -m tests.software_device) STRICT_AT_EXIT=1 build/cnn_step fixture.h5 out.h5 --device cuda

The first call compiles it (a few seconds); later calls find it in the cache folder.

What it checks that a GPU does not
----------------------------------
- Device memory is closed to the host: a touch ends the process, with a message. So does a use after a free.
- Fresh device memory is NaN. Workspaces are overwritten with NaN by every algorithm that asks for one.
- Streams are lazy: nothing runs until the host waits. A forgotten wait gives NaN or old values, always. Two
  streams that touch the same bytes without an event between them are reported.
- Work of a capturing stream is recorded by value, and what would break the capture invalidates it. A CUDA graph that
  is replayed has every array looked at again, and what it was made with; captures stay in one stream.
- Every pointer, size, descriptor and handle of every call is checked; so are leaks and double frees.
- cuDNN's graph API takes no descriptor whose types, modes, paddings or names cuDNN would fill in silently, and offers
  first what a caller may not want: TF32, an engine that never becomes a plan, jitter, transforms.
- Kernels run from the PTX that the project ships, translated to C. No flang is needed. Their arguments are those that
  the PTX declares. Every access is looked at: it lies in an allocation that an argument points into, at a multiple of
  its size, and no two threads touch one number that one of them writes.

What it complains of goes to stderr ("strict device: ...") and into `SoftwareDevice.report`.

Settings, all by environment variables
--------------------------------------
``STRICT_AT_EXIT=1``            complaints, or work never waited for, end the process with status 99; 2: leaks as well
``STRICT_FAIL=NAME:N:STATUS``   the N-th call (0: each) of the function NAME returns STATUS; several with commas
``STRICT_DEVICES=N``            number of devices, 0 to 4 (1)
``STRICT_MEMORY=BYTES``         memory of each device (1 GiB)
``STRICT_GRAPHS=0``             cuDNN's graph API offers no engine for any graph
``STRICT_GRAPH_FUSION=0``       it offers engines for graphs of a single operation only
``STRICT_HEURISTICS=0``         of its two lists of engines the first fails, with an internal error
``STRICT_COMPILED=0``           it has no engine that is compiled later, as without a driver; 2: it has a second one
``STRICT_SLOW_ENGINES=BITS``    engines, 1 for the first and 64 for number 6, whose plans take 3 ms longer
``STRICT_PLANS=0``              none of them becomes a plan, as where cuDNN cannot compile
``STRICT_CAPTURE=0``            a call of cuDNN fails while its stream captures, and invalidates the capture; 2: it only
                                invalidates it, and the end of the capture is the first to say so
``STRICT_MULTIPROCESSORS=N``, ``STRICT_CAPABILITY=XY``
                                what the device says of itself (2 and 90)
``STRICT_CUDART_VERSION``, ``STRICT_DRIVER_VERSION``, ``STRICT_CUDNN_VERSION``, ``STRICT_CUDNN_CUDART_VERSION``
                                the versions it claims (13000, 13000, 91900, 13000)
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.software_device import host_kernels, ptx_as_c

SOURCES = Path(__file__).with_name("sources")
LIBRARY = "libstrict_device.so"
#: The names under which programs look for the libraries; all are one file
NAMES = (
    "libcudart.so.13", "libcuda.so.1", "libcublasLt.so.13", "libcudnn.so.9",
    *(f"libcudnn_{part}.so.9" for part in ("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled",
                                           "engines_runtime_compiled")),
)  # fmt: skip
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-ffp-contract=off", "-Wall",
         "-Wextra", "-Werror")  # fmt: skip
#: Of the kernels, whose time is that of looking at every access: to optimise them more takes longer than all tests win
KERNEL_FLAGS = ("-O1",)


class SoftwareDevice:
    """The library as seen from a test: counters, planted failures and the report.

    Parameters
    ----------
    folder : what `build` gave. Loading it twice, here and in the code under test, gives one and the same library.

    Examples
    --------
    >>> device = SoftwareDevice(build())
    >>> device.counter("cudaMalloc") >= 0
    True
    """

    def __init__(self, folder: Path) -> None:
        self.api = ctypes.CDLL(str(folder / LIBRARY))
        self.api.strict_counter.restype = ctypes.c_int64
        self.api.strict_report.restype = ctypes.c_int64

    def counter(self, name: str) -> int:
        """Calls of the function `name` so far, or one of the counters listed in sources/cuda/strict.h."""
        return int(self.api.strict_counter(name.encode()))

    def fail(self, name: str, status: int, *, call: int = 1) -> None:
        """Plant a failure: the `call`-th call from now (0: every call) of `name` returns `status`."""
        self.api.strict_fail(name.encode(), ctypes.c_int64(call), status)

    def fail_no_more(self) -> None:
        """Forget all planted failures."""
        self.api.strict_fail(None, ctypes.c_int64(0), 0)

    def report(self) -> str:
        """What is alive, was never waited for, or was complained of; empty if nothing."""
        text = ctypes.create_string_buffer(16384)
        self.api.strict_report(text, ctypes.c_int64(len(text)))
        return text.value.decode()

    def forget(self) -> None:
        """Forget the complaints (not what is alive)."""
        self.api.strict_forget()


def source(name: str) -> Path:
    """A source file of the library by its name."""
    return next(SOURCES.rglob(name))


def includes(sources: Path = SOURCES) -> list[str]:
    """The compiler's options that let it find the headers."""
    return [f"-I{folder}" for folder in sorted(sources.iterdir()) if folder.is_dir()]


def _inputs(sources: Path) -> list[Path]:
    """Every file that the library is made of."""
    files = sorted(file for kind in ("c", "h", "map") for file in sources.rglob(f"*.{kind}"))
    return [*files, host_kernels.LAUNCHER, Path(ptx_as_c.__file__), host_kernels.PTX]


def _compile(folder: Path, sources: Path) -> None:
    """Library and its names in `folder`."""
    exports = next(sources.rglob("exports.map"))
    others = [*sorted(sources.rglob("*.c")), host_kernels.LAUNCHER, host_kernels.table(folder)]
    jobs = [*(((*KERNEL_FLAGS, "-c", part), part.with_suffix(".o"))
              for part in host_kernels.translate(folder, "touch.h", parts=3)),
            (("-r", *others), folder / "others.o")]

    def compiled(job: tuple[tuple[str | Path, ...], Path]) -> Path:
        subprocess.run(["gcc", *FLAGS, *includes(sources), *job[0], "-o", job[1]], check=True)
        return job[1]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, jobs))
    subprocess.run(["gcc", "-shared", *FLAGS, "-Wl,-Bsymbolic", "-Wl,--no-undefined",
                    f"-Wl,--version-script={exports}", "-o", folder / LIBRARY, *objects,
                    "-lm", "-lpthread"], check=True)  # fmt: skip
    for name in NAMES:
        (folder / name).symlink_to(LIBRARY)


def build(*, sources: Path = SOURCES, cache: Path | None = None) -> Path:
    """The folder for ``CNN_CUDA_PATH``; compiles the library unless the same sources were compiled before.

    Parameters
    ----------
    sources : the C files; another folder only to test these tests
    cache : where the folders lie; one per user in the system's temporary folder by default

    Raises
    ------
    subprocess.CalledProcessError
        If a compiler fails.
    FileNotFoundError
        If gcc is missing.
    """
    digest = hashlib.sha256(repr((FLAGS, KERNEL_FLAGS, NAMES)).encode())
    for file in _inputs(sources):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    cache = cache or Path(tempfile.gettempdir()) / f"strict_software_device_{os.getuid()}"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = cache / digest.hexdigest()[:16]
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes start at once
        if not folder.is_dir():
            unfinished = Path(tempfile.mkdtemp(dir=cache))
            try:
                _compile(unfinished, sources)
                unfinished.rename(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return folder
