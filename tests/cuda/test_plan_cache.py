# SPDX-License-Identifier: MIT
"""Choices that are measured once, and kept for the next process, on the strict software device.

It counts what runs: a second process measures nothing. What is in the file may choose another of the plans that the
options allow, which is how it is seen here, and nothing else. Each step is a process of its own.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.doctor import cuda, isolated_child
from bridge.doctor.__main__ import main
from bridge.doctor.cuda import Cuda
from tests import ROOT, software_device
from tests.helpers.cuda.children import environment, skip_without_kernels
from tests.helpers.cuda.one_step import GRAPHS, PROGRAM
from tests.helpers.cuda.plan_files import HEADER, choices, entry, fnv

MEASURED, MEASURED_CALLS = "cuda,algorithm=measured", "cuda,algorithm=measured,graphs=no,workspace=1"
FINDS = tuple(f"cudnnFindConvolution{name}AlgorithmEx" for name in ("Forward", "BackwardData", "BackwardFilter"))
#: Convolutions of a step, each with a choice of its own
CHOICES = 9


def start(fixture: Path, device: str, path: Path | str, room: int = -1, **settings: str) -> subprocess.Popen[str]:
    """A step with this CNN_PLAN_CACHE, where files can have `room` bytes."""
    skip_without_kernels("new")

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    child = subprocess.Popen([sys.executable, "-c", PROGRAM, fixture, device, "", ""], text=True, cwd=ROOT,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=environment("new", CNN_PLAN_CACHE=os.fspath(path), **settings),
                             preexec_fn=little_room if room >= 0 else None)
    assert child.stdin
    child.stdin.write(json.dumps([GRAPHS, *FINDS, "plans made", *(f"graph engine {i}" for i in range(8))]))
    child.stdin.close()
    child.stdin = None
    return child


def end(child: subprocess.Popen[str]) -> dict[str, Any]:
    """What it found; it must end in order, without a complaint."""
    said, complaint = child.communicate(timeout=120)
    assert (child.returncode, complaint) == (0, "")
    found: dict[str, Any] = json.loads(said)
    found["result"] = [found["loss"], *found["weights"]]
    found["measured"] = found["counts"][GRAPHS] > CHOICES or any(found["counts"][name] for name in FINDS)
    found["engines"] = {i for i in range(8) if found["counts"][f"graph engine {i}"]}
    return found


def step(fixture: Path, device: str, path: Path | str, room: int = -1, **settings: str) -> dict[str, Any]:
    return end(start(fixture, device, path, room, **settings))


def close(found: dict[str, Any], right: dict[str, Any]) -> bool:
    """Sums in another order at most."""
    pairs = zip(found["weights"], right["weights"], strict=True)
    return found["loss"] == pytest.approx(right["loss"], rel=1e-5) and all(
        one == pytest.approx(other, rel=1e-5, abs=1e-5) for one, other in pairs)


def rewrite(path: Path, *wanted: str) -> None:
    """These choices for the keys, in their order, and again from the first."""
    keys = [key for _, key in choices(path)]
    path.write_bytes(HEADER + b"".join(entry(*pair) for pair in zip(itertools.cycle(wanted), keys, strict=False)))


def name_of(engine: int) -> str:
    """Of a plan of the software device."""
    return "graph:" + fnv(f'"engine": {{"engineId": {engine}}}'.encode()).decode()


@pytest.fixture(scope="module")
def right(fixture: Path) -> dict[str, Any]:
    """A step that measures nothing."""
    return step(fixture, "cuda", "")


@pytest.fixture(scope="module")
def on_file(fixture: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a measured step leaves."""
    path = tmp_path_factory.mktemp("choices") / "choices"
    step(fixture, MEASURED, path)
    return path.read_bytes()


@pytest.mark.parametrize("device", [MEASURED, MEASURED_CALLS])
def test_the_second_process_measures_nothing(device: str, fixture: Path, right: dict[str, Any],
                                             tmp_path: Path) -> None:
    """And has the same bits; the file is written once. Without a file each process measures."""
    path = tmp_path / "folder" / "choices"
    first = step(fixture, device, path)
    assert first["measured"] and len(choices(path)) == len({key for _, key in choices(path)}) == CHOICES
    before = path.read_bytes(), path.stat().st_mtime_ns
    again = step(fixture, device, path)
    assert not again["measured"] and again["result"] == first["result"] and close(first, right)
    assert before == (path.read_bytes(), path.stat().st_mtime_ns)
    assert [one.name for one in path.parent.iterdir()] == ["choices"]
    assert all(step(fixture, device, "")["measured"] for _ in range(2))


@pytest.mark.parametrize(("chosen", "made"), [(5, 1), (4, 2)])
def test_the_choice_on_file_is_taken(chosen: int, made: int, fixture: Path, right: dict[str, Any], on_file: bytes,
                                     tmp_path: Path) -> None:
    """Whichever of the allowed engines it names; plans are made until it is found, in the order of cuDNN's offers."""
    path = tmp_path / "choices"
    path.write_bytes(on_file)
    rewrite(path, name_of(chosen))
    found = step(fixture, MEASURED, path)
    assert found["engines"] == {chosen} and found["counts"][GRAPHS] == CHOICES and close(found, right)
    assert found["counts"]["plans made"] == made * CHOICES


def test_choices_that_are_not_offered(fixture: Path, right: dict[str, Any], on_file: bytes, tmp_path: Path) -> None:
    """Or that the options do not allow, in lines that are right otherwise: measured again, and put right."""
    path = tmp_path / "choices"
    wrong = [*(name_of(engine) for engine in (0, 1, 2, 3, 7, 8)), "graph:", "graph:0", "x" * 200, "call:1:3", "%s%n",
             "\x7f\x01", name_of(4).lower(), name_of(4)[:-1]]
    for some in (wrong[:CHOICES], wrong[-CHOICES:]):
        path.write_bytes(on_file)
        rewrite(path, *some)
        found = step(fixture, MEASURED, path)
        assert found["counts"][GRAPHS] > 6 * CHOICES and found["engines"] <= {4, 5, 6} and close(found, right)
        assert {choice for choice, _ in choices(path)} <= {name_of(engine) for engine in (4, 5, 6)}
    assert not step(fixture, MEASURED, path)["measured"]


def test_choices_of_calls(fixture: Path, right: dict[str, Any], tmp_path: Path) -> None:
    """An algorithm that is offered and allowed: 1 of each kind, without tensor cores. 0 of a gradient is not
    deterministic."""
    path = tmp_path / "choices"
    step(fixture, MEASURED_CALLS, path)
    rewrite(path, "call:1:3")
    assert not step(fixture, MEASURED_CALLS, path)["measured"]
    assert {choice for choice, _ in choices(path)} == {"call:1:3"}
    # In the order of a step: three forward convolutions, then the gradients
    rewrite(path, "call:1:1", name_of(4), "call:-1:3", "call:0:3", "call:0:3", "call:1:2", "call:2147483648:3",
            "call:1:3:1", "call:1:3")
    found = step(fixture, MEASURED_CALLS, path)
    assert sum(found["counts"][name] for name in FINDS) == CHOICES - 1 and close(found, right)
    assert len(choices(path)) == CHOICES and not step(fixture, MEASURED_CALLS, path)["measured"]


def test_all_that_a_choice_depends_on(fixture: Path, on_file: bytes, tmp_path: Path) -> None:
    """Another option, library, driver or GPU: measured anew, and all are on file then."""
    path = tmp_path / "choices"
    path.write_bytes(on_file)
    others: list[tuple[str, dict[str, str]]] = [
        (",deterministic=no", {}), (",workspace=255", {}), (",transforms=yes", {}), (",math=tf32", {}),
        ("", {"STRICT_CUDNN_VERSION": "91901"}), ("", {"STRICT_CUDART_VERSION": "13010"}),
        ("", {"STRICT_DRIVER_VERSION": "13010"}), ("", {"STRICT_CAPABILITY": "91"}),
        ("", {"STRICT_MULTIPROCESSORS": "3"}), ("", {"STRICT_MEMORY": str(2**29)})]
    for number, (option, settings) in enumerate(others, 2):
        assert step(fixture, MEASURED + option, path, **settings)["measured"], (option, settings)
        assert len(choices(path)) == number * CHOICES
    for option, settings in ("", {}), others[0], others[-1]:
        assert not step(fixture, MEASURED + option, path, **settings)["measured"]


@pytest.mark.parametrize("name", ["cudaDriverGetVersion", "cudaDeviceGetAttribute", "cudaMemGetInfo", "cuInit",
                                  "cuDeviceGet", "cuDeviceGetName"])
def test_a_device_that_does_not_tell(name: str, fixture: Path, right: dict[str, Any], tmp_path: Path) -> None:
    """What it is: nothing is kept. Without its name alone the rest is enough."""
    path = tmp_path / "choices"
    for _ in range(2):
        found = step(fixture, MEASURED, path, STRICT_FAIL=f"{name}:0:999", STRICT_AT_EXIT="2")
        assert close(found, right)
    assert found["measured"] == name.startswith("cuda") == (not path.exists())


def test_plans_that_cannot_be_named(fixture: Path, right: dict[str, Any], tmp_path: Path) -> None:
    """Reading an attribute fails once, at any place: some choices are not kept, and no more comes of it."""
    for call in (13, 77, 120, 121):
        path = tmp_path / str(call)
        found = step(fixture, MEASURED, path, STRICT_FAIL=f"cudnnBackendGetAttribute:{call}:3000", STRICT_AT_EXIT="2")
        assert close(found, right) and CHOICES - 1 <= len(choices(path)) <= CHOICES


@pytest.mark.parametrize("room", [0, 100, 500])
def test_a_full_disk(room: int, fixture: Path, right: dict[str, Any], tmp_path: Path) -> None:
    """The file is the old one, or has some choices more; no part of a new one is left."""
    path = tmp_path / "choices"
    path.write_bytes(HEADER)
    found = step(fixture, MEASURED, path, room)
    assert close(found, right) and found["measured"] and path.stat().st_size <= max(room, len(HEADER))
    assert len(choices(path)) <= 2 and [one.name for one in tmp_path.iterdir()] == ["choices"]


def test_no_place_to_write(fixture: Path, right: dict[str, Any], tmp_path: Path) -> None:
    """A folder in the file's place, a file in the folder's, a pipe: measured each time."""
    (tmp_path / "file").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "file" / "choices", tmp_path / "pipe"):
        found = step(fixture, MEASURED, path)
        assert found["measured"] and close(found, right)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "pipe"]


def test_two_processes_at_once(fixture: Path, right: dict[str, Any], tmp_path: Path) -> None:
    """Both compute what is right; what each has on file, the next process takes."""
    path = tmp_path / "choices"
    devices = [MEASURED, f"{MEASURED},deterministic=no", MEASURED]
    for one in [start(fixture, device, path) for device in devices]:
        assert close(end(one), right)
    assert CHOICES <= len(choices(path)) <= 2 * CHOICES
    for device in devices:
        step(fixture, device, path)
        assert not step(fixture, device, path)["measured"]
    assert len(choices(path)) == 2 * CHOICES


#: Of a convolution by each content of the file, in processes that are forked before any library is opened
MANY = """
import json, os, sys, traceback
import numpy as np
from pathlib import Path
from tests.helpers.cuda.stream_checks import DeviceArray, strict
import bridge
device, path, contents = sys.argv[1], Path(os.environ["CNN_PLAN_CACHE"]), json.load(sys.stdin)
draw = np.random.default_rng(3).integers
x, w = (draw(-4, 5, shape).astype(np.float32) for shape in ((2, 3, 6, 7), (4, 3, 3, 3)))
windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
right = np.einsum("nchwrs,kcrs->nkhw", windows, w)
counts, wrong = [], []
for content in contents:
    path.write_bytes(bytes.fromhex(content))
    ends, starts = os.pipe()
    child = os.fork()
    if not child:
        try:
            y = bridge.conv2d(DeviceArray.from_numpy(x), DeviceArray.from_numpy(w), padding=1, device=device)
            assert np.array_equal(y.numpy(), right)
            os.write(starts, str(strict.counter("cudnnBackendExecute")).encode())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(starts)
    counts.append(os.read(ends, 20).decode())
    os.close(ends)
    if os.waitpid(child, 0)[1]:
        wrong.append(content)
print(json.dumps({"counts": counts, "wrong": wrong}))
"""


def test_a_hostile_file(fixture: Path, tmp_path: Path) -> None:
    """Edits of a file that was written, with and without right checksums: every result is right, to the bit."""
    path, rng = tmp_path / "choices", random.Random(5)
    command = [sys.executable, "-c", MANY, MEASURED]

    def run(contents: list[bytes]) -> list[str]:
        done = subprocess.run(command, input=json.dumps([one.hex() for one in contents]), text=True, check=False,
                              capture_output=True, timeout=300, cwd=ROOT,
                              env=environment("new", CNN_PLAN_CACHE=str(path)))
        assert (done.returncode, done.stderr) == (0, "")
        said = json.loads(done.stdout)
        assert said["wrong"] == []
        return list(said["counts"])

    skip_without_kernels("new")
    run([HEADER])
    good = path.read_bytes()
    ((choice, key),) = choices(path)
    assert run([good]) == ["1"]
    edits = []
    for _ in range(100):
        text = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            text[at:at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
        edits.append(bytes(text))
        hostile = "".join(chr(rng.randint(33, 126)) for _ in range(rng.randint(1, 40)))
        edits.append(HEADER + entry(rng.choice([hostile, choice[:rng.randint(1, 21)], choice + hostile]), key))
    counts = run([*edits, good])
    assert counts[-1] == "1"
    # An edit that changes nothing is possible; nearly all of them cost a measurement
    assert sum(int(count) > 1 for count in counts) > 190


def test_the_doctor_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                   monkeypatch: pytest.MonkeyPatch, on_file: bytes) -> None:
    """How many choices are in it; or why there is none."""

    path = tmp_path / "choices"
    path.write_bytes(on_file)
    monkeypatch.setenv("CNN_PLAN_CACHE", str(path))
    main(["--json", "-"])
    document = json.loads(capsys.readouterr().out)
    rows = next(one["rows"] for one in document["sections"] if one["title"] == "CUDA")
    row = next(one for one in rows if one["name"] == "measured plans")
    assert (row["value"], row["note"]) == (f"{CHOICES} choices on file", str(path))

    def said() -> tuple[str, str]:
        (found,) = (one for one in cuda.section(Cuda(isolated_child.ANSWERS["facts"]("choices"), {})).rows
                    if one.name == "measured plans")
        return found.value, found.note

    path.write_bytes(b"garbage")
    assert said() == ("0 choices on file", str(path))
    monkeypatch.setenv("CNN_PLAN_CACHE", "")
    assert said() == ("not kept: CNN_PLAN_CACHE is empty", "")
    monkeypatch.setenv("CNN_PLAN_CACHE", str(tmp_path))
    assert said() == (f"not kept: {tmp_path} is no file", "")


def test_the_plans_on_file(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                           monkeypatch: pytest.MonkeyPatch) -> None:
    """``--plans`` with algorithm=measured says which plans another process has measured."""
    path = tmp_path / "choices"
    monkeypatch.setenv("CNN_PLAN_CACHE", str(path))
    monkeypatch.setenv("CNN_CUDA_PATH", str(software_device.build()))

    def said() -> dict[str, str]:
        assert main(["--plans", MEASURED, "--size", "16", "--json", "-"]) == 0
        plans = json.loads(capsys.readouterr().out)["plans"]
        return {f"{one['layer']} {one['operation']}": one["plans"]["NCHW"] for one in plans}

    first = said()
    assert not path.exists() and "measured" not in str(first) and first["conv2 data gradient"].startswith("engine 5,")
    done = subprocess.run([sys.executable, "-c", LAYER, MEASURED], capture_output=True, text=True, check=False,
                          timeout=120, env=environment("new", CNN_PLAN_CACHE=str(path)), cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    rewrite(path, name_of(4))
    found = said()
    assert found.pop("conv2 data gradient") == "engine 4, workspace 0 bytes, measured before"
    assert found.pop("conv2 filter gradient") == "engine 4, workspace 0 bytes, measured before"
    assert "measured" not in str(found)


#: The gradients of the second layer of ``--plans``
LAYER = """
import sys
import numpy as np
import bridge
from bridge import DeviceArray
x, w, dy = (DeviceArray.from_numpy(np.zeros(shape, np.float32)) for shape in (
    (2, 16, 16, 16), (16, 16, 3, 3), (2, 16, 16, 16)))
bridge.conv2d_backward(dy, x, w, padding=1, device=sys.argv[1])
"""
