# SPDX-License-Identifier: MIT
"""The Fortran sources as a debug build: warnings are errors, bounds are checked, sanitizers watch."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from bridge.exchange.model import Conv2d, Operation, Relu
from bridge.judge.judge import judge
from bridge.judge.verdict import Outcome
from bridge.operations.hyperparameters import numbers
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.built_once import built_once
from tests.helpers.cpu.fused_sequences import SEQUENCES, conv, sequence
from tests.helpers.instruction_sets import GROUPS, LANES_VARIABLE, LEVELS, UNFOLDED, choose

# Builds everything once more
pytestmark = [pytest.mark.deep, pytest.mark.together]


@pytest.fixture(scope="module")
def debug_step(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``cnn_step`` with -Werror, -fcheck=all, the address and the undefined-behaviour sanitizer."""
    scripts = sysconfig.get_path("scripts")
    search = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    meson = shutil.which("meson", path=search)
    if meson is None:
        pytest.skip("meson is neither in this environment nor on the search path")
    options = ["-Dpython=false", "-Dbuildtype=debug", "-Db_sanitize=address,undefined", "-Db_lundef=false",
               "-Dwerror=true"]
    # Half of the time is theirs, and they see nothing here that the address sanitizer does not
    environment = {"PATH": search, "FFLAGS": "-fno-sanitize=alignment,null,object-size,pointer-overflow"}

    def build(folder: Path) -> None:
        for command in ([meson, "setup", str(folder), str(root), *options], [meson, "compile", "-C", str(folder)]):
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
            assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]

    return built_once(tmp_path_factory, "debug", build) / "fortran" / "cnn_step"


@pytest.mark.parametrize("device", ["cpu", "naive"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_right_run_is_clean(debug_step: Path, small_fixture: Path, tmp_path: Path, device: str,
                              precision: str) -> None:
    """No report of a sanitizer (leaks included), and the verdict is the same."""
    result = tmp_path / "r.h5"
    done = subprocess.run([debug_step, small_fixture, result, "--device", device, "--precision", precision],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert judge(small_fixture, result, diagnosing=False)[1].outcome is Outcome.ROUNDING


def test_awkward_geometry_is_clean(debug_step: Path, root: Path, tmp_path: Path,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Strides, dilations, groups and paddings are where an index could leave its array."""
    monkeypatch.syspath_prepend(str(root))
    fixture, result = tmp_path / "f.h5", tmp_path / "r.h5"
    export(fixture, ExportSettings(height=13, width=17, steps=2, momentum=0.5, model="tests.helpers.models:awkward"))
    done = subprocess.run([debug_step, fixture, result], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert judge(fixture, result, diagnosing=False)[1].outcome is Outcome.ROUNDING


@pytest.fixture(scope="module")
def kernels_program(debug_step: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``kernels_program``, compiled and linked as ``cnn_step`` was."""
    build = debug_step.parents[1]
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    (how,) = (shlex.split(one["command"]) for one in commands if one["output"].endswith("app_cnn_step.f90.o"))
    modules = [word for word in how[1:how.index("-o")] if not word.startswith("-J")]
    ninja = shutil.which("ninja", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}")
    if ninja is None:
        pytest.skip("ninja is neither in this environment nor on the search path")
    done = subprocess.run([ninja, "-C", build, "-t", "commands", "fortran/cnn_step"], capture_output=True, text=True,
                          check=True)
    link = shlex.split(done.stdout.splitlines()[-1])
    assert link[1:3] == ["-o", "fortran/cnn_step"]
    libraries = [word for word in link[3:] if "cnn_step.p" not in word]
    source = root / "tests/helpers/programs/kernels_program.f90"
    program = tmp_path_factory.mktemp("kernels") / "kernels_program"
    command = [how[0], *modules, source, "-o", program, *libraries]
    made = subprocess.run(command, cwd=build, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return program


def _networks() -> str:
    """What `kernels_program` reads: a 1x1 convolution, a ReLU, each odd convolution, another ReLU; longer sequences."""
    lines = []
    few = [case for name, group in GROUPS.items() if name != "many pixels" for case in group[1::6]]
    for case in (*few, GROUPS["many pixels"][0], *UNFOLDED[:2]):
        c, k = case.x[1], case.w[0]
        layers = (Conv2d("a", c, c, (1, 1)), Relu("r"),
                  Conv2d("b", c, k, case.w[2:], case.stride, case.padding, case.dilation, case.groups), Relu("s"))
        lines += [" ".join(map(str, (*case.x[::-1], len(layers)))), *map(_line, layers)]
    # Depth first, in several chunks of each image; and, rows of many channels being long, in several windows
    wide = sequence(conv("a", 1, 2, padding=(1, 1)), conv("b", 2, 48, (1, 1)), conv("c", 48, 1, (1, 1)),
                    conv("d", 1, 1))
    for extent, layers in (*(("21 70 3 2", one) for one in SEQUENCES.values()), ("200 40 1 1", wide)):
        lines += [f"{extent} {len(layers)}", *map(_line, layers)]
    return "\n".join(lines) + "\n"


def _line(layer: Operation) -> str:
    """A layer as `kernels_program` reads it: type and name, and the numbers of a convolution."""
    return " ".join(map(str, (layer.kind, layer.name, *(int(n) for one in numbers(layer).values() for n in one))))


@pytest.mark.parametrize("way", ["", "channels"])
@pytest.mark.parametrize("level", LEVELS)
def test_no_index_leaves_its_array(level: str, way: str, kernels_program: Path,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Every path of the kernels, in place too, with each instruction set; and the plain loops' gradients."""
    choose(level, monkeypatch)
    monkeypatch.setenv(LANES_VARIABLE, way)
    networks = _networks()
    # Threads that wait for others on busy cores must not keep these from working
    done = subprocess.run([kernels_program], input=networks, capture_output=True, text=True, check=False,
                          env=os.environ | {"OMP_WAIT_POLICY": "passive"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{networks.count(chr(10) + 'conv2d a ')} networks\n"


def test_bad_files_are_refused_cleanly(debug_step: Path, small_fixture: Path, tmp_path: Path) -> None:
    """One line and 2, whatever part of the file is missing; no crash, no leak."""
    whole = small_fixture.read_bytes()
    for keep in (0, 7, 100, 2000, len(whole) // 3, len(whole) - 100):
        (tmp_path / "cut.h5").write_bytes(whole[:keep])
        done = subprocess.run([debug_step, tmp_path / "cut.h5", tmp_path / "r.h5"], capture_output=True, text=True,
                              check=False)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("cnn_step: ")
        assert not (tmp_path / "r.h5").exists()
