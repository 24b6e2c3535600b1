# SPDX-License-Identifier: MIT
"""One build holds the kernels of every instruction set; the processor chooses, or the environment does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import bridge
from bridge.common.errors import EngineError
from bridge.engine.library import extension
from bridge.engine.library.programs import cnn_step
from tests.helpers.instruction_sets import CAP_VARIABLE, LEVELS, VARIABLE, X86, best, choose, facts

ONES = np.ones((1, 1, 3, 3), np.float32)


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device cpu uses this instruction set."""
    choose(request.param, monkeypatch)
    return str(request.param)


def test_a_level_that_is_asked_for_is_used(level: str) -> None:
    assert facts()["level"] == level
    assert bridge.conv2d(ONES, ONES).item() == 9


def test_the_best_level_is_that_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the operating system names its features; an empty variable is none."""
    monkeypatch.setenv(CAP_VARIABLE, "")
    highest = best(monkeypatch)
    assert facts() == {"level": highest, "best": highest, "threads": facts()["threads"]}
    monkeypatch.setenv(VARIABLE, "")
    assert facts()["level"] == highest
    cpuinfo = Path("/proc/cpuinfo")
    if not X86 or not cpuinfo.is_file():
        pytest.skip("flags as Linux names them on x86-64")
    flags = set(re.search(r"^flags\s*:(.*)", cpuinfo.read_text(encoding="utf-8"), re.MULTILINE)[1].split())
    right = "baseline"
    if {"avx2", "fma", "bmi1", "bmi2"} <= flags:
        right = "avx512" if {f"avx512{part}" for part in ("f", "bw", "cd", "dq", "vl")} <= flags else "avx2"
    assert highest == right


@pytest.mark.parametrize("name", ["avx", "AVX2", "sse2", "3", "avx512f", "baseline avx2", "x" * 40])
@pytest.mark.parametrize("variable", [VARIABLE, CAP_VARIABLE])
def test_an_unknown_level_is_refused(variable: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By everything that opens the device, in one sentence; the plain loops ask no more of it than others."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv(variable, name)
    for use in (lambda: bridge.conv2d(ONES, ONES), lambda: bridge.Network(bridge.Model((bridge.Relu("r"),))),
                lambda: extension.check_device("cpu"), lambda: extension.call("cpu_facts")):
        with pytest.raises(EngineError, match=f'^{variable} is "{name[:32]}", expected baseline, avx2 or avx512$'):
            use()


def test_a_level_that_the_machine_lacks_is_refused(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor that has no more than a level: tests of those above are skipped there, and say so."""
    monkeypatch.setenv(CAP_VARIABLE, level)
    assert best(monkeypatch) == level
    bridge.conv2d(ONES, ONES)
    for above in LEVELS[LEVELS.index(level) + 1:]:
        monkeypatch.setenv(VARIABLE, above)
        with pytest.raises(EngineError, match=f'^{VARIABLE} is "{above}", but the best that this processor and this '
                                              f"build have is {level}$"):
            bridge.conv2d(ONES, ONES)
        with pytest.raises(pytest.skip.Exception, match=f"^{above} is not tested: .* has nothing above {level}$"):
            choose(above, monkeypatch)


def test_a_cap_adds_no_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CAP_VARIABLE, raising=False)
    highest = best(monkeypatch)
    monkeypatch.setenv(CAP_VARIABLE, LEVELS[-1])
    assert best(monkeypatch) == highest


def test_the_program_hears_the_variable(level: str, small_fixture: Path, tmp_path: Path) -> None:
    """And says what is wrong with it."""
    for name, status in ((level, 0), ("mmx", 2)):
        done = subprocess.run([cnn_step(), small_fixture, tmp_path / "r.h5"], capture_output=True, text=True,
                              check=False, env=os.environ | {VARIABLE: name})
        assert done.returncode == status, done.stderr
    assert done.stderr == f'cnn_step: {VARIABLE} is "mmx", expected baseline, avx2 or avx512\n'


def test_a_network_keeps_the_level_that_it_was_made_with(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is read when a device is opened."""
    net = bridge.Network(bridge.Model((bridge.Conv2d("a", 1, 1, (3, 3)),)))
    net.parameters["a.weight"][...] = 1
    monkeypatch.setenv(VARIABLE, "nonsense")
    assert net.forward(ONES).item() == 9


# --- what the build holds


def _extension() -> str:
    import _cnn_fortran

    extension.api()
    return str(_cnn_fortran.__file__)


def _disassembled() -> dict[str, str]:
    """Code by name of the kernels' procedures in the extension."""
    objdump = shutil.which("objdump")
    if not X86 or objdump is None:
        pytest.skip("needs objdump, and x86-64")
    code = subprocess.run([objdump, "-d", "--no-show-raw-insn", _extension()], capture_output=True, text=True,
                          check=True).stdout
    found = dict(re.findall(r"^[0-9a-f]+ <([^>]+)>:\n((?:.+\n)*)", code, re.MULTILINE))
    if not any("_cnn_cpu_kernels_" in name for name in found):
        pytest.skip("this extension has no symbols")
    return found


@pytest.fixture(scope="module")
def kernels() -> dict[str, dict[str, str]]:
    """By level: code of the procedures compiled for it."""
    code = _disassembled()
    return {one: {name: text for name, text in code.items() if f"f32_{one}_" in name or f"f64_{one}_" in name}
            for one in LEVELS}


def test_every_build_holds_every_level(kernels: dict[str, dict[str, str]]) -> None:
    """Tiles and kernels, of both precisions."""
    for one in LEVELS:
        for precision in ("f32", "f64"):
            names = [name for name in kernels[one] if f"{precision}_{one}_" in name]
            for part in ("tiles", "convolve", "correlate"):
                assert any(part in name for name in names), (part, precision, one)


def test_each_level_uses_its_own_registers_and_no_larger(kernels: dict[str, dict[str, str]]) -> None:
    """A processor without AVX must not meet an instruction of it, nor one without AVX-512 its registers."""
    code = {one: "\n".join(parts.values()) for one, parts in kernels.items()}
    assert "%xmm" in code["baseline"] and not re.search(r"%[yz]mm|\sv[a-z]+\s", code["baseline"])
    assert "vfmadd" in code["avx2"] and "%ymm" in code["avx2"] and not re.search(r"%zmm|%k[1-7]\b", code["avx2"])
    assert "vfmadd" in code["avx512"] and "%zmm" in code["avx512"]


def test_nothing_but_kernels_needs_more_than_the_baseline(kernels: dict[str, dict[str, str]]) -> None:
    """Only they, and the comparison's loops for each level, are called after the processor was asked."""
    chosen = {name for one in LEVELS[1:] for name in kernels[one]}
    beyond = [name for name, text in _disassembled().items() if name not in chosen and re.search(r"%[yz]mm", text)
              and not re.match(rf"__cnn_oracle_deviation_runs_({'|'.join(LEVELS[1:])})_MOD_", name)]
    assert not beyond
