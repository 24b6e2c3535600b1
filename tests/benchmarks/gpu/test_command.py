# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gpu_bench``: the whole flow without a GPU, and who may take part."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.frameworks.gpu import CHEAP, COMPILES, FRAMEWORKS, NAMES, OURS, REFERENCE, TUNES, framework
from benchmarks.gpu import cli as program
from benchmarks.gpu.agreement import LIMITS
from benchmarks.gpu.cells import FULL, Cell, schedule
from benchmarks.harness import gpu_device
from benchmarks.harness.document import RESULTS
from benchmarks.harness.processes import ROOT
from benchmarks.harness.workloads import Net
from tests import software_device
from tests.helpers.networks.measured import GRAPH, WAITS, Found


def bench_program(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "benchmarks.gpu_bench", *map(str, arguments)], cwd=ROOT, text=True,
                          capture_output=True, check=False, env=os.environ | variables)


@pytest.fixture(scope="module")
def libraries() -> Path:
    """The software device."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    return software_device.build()


@pytest.fixture(scope="module")
def pretended(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, str, Path]:
    """Everything once, without some contestants that would only take time here: JSON, output, folder."""
    folder = tmp_path_factory.mktemp("gpu_bench")
    done = bench_program("--pretend", libraries, "--output", folder / "gpu.json", "--precisions", "fp32,bf16",
                         "--without", "torch benchmark,bridge after_relu,bridge capture,bridge det")
    assert done.returncode in (0, 1), done.stderr
    found = json.loads((folder / "gpu.json").read_text(encoding="utf-8"))
    assert found["exit_code"] == done.returncode
    return found, done.stdout, folder


def test_without_a_gpu_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    """What is there is seen by what gpu_check sees it by, and tested there."""
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setattr(gpu_device, "doctor", lambda *_: gpu_device.Seen(False, "no GPU driver", {}, {}))
    assert program.main([]) == 0
    assert capsys.readouterr().out == "gpu-bench: skipped: no GPU driver\n"
    assert list(tmp_path.iterdir()) == []
    assert program.main(["--require"]) == 1


@pytest.mark.deep
@pytest.mark.together
def test_a_pretended_run_says_so_everywhere(pretended: tuple[Found, str, Path]) -> None:
    found, said, folder = pretended
    assert found["pretended"] is True and found["kind"].startswith("pretended") and "no GPU" in found["name"]
    assert found["words"].startswith("pretended: ") and found["gpu"]["name"] == "no GPU"
    assert said.startswith("pretended: ") and "gpu-bench: pretended: " in said
    assert str(ROOT) not in json.dumps(found) and str(folder) not in json.dumps(found)


@pytest.mark.deep
@pytest.mark.together
def test_everybody_has_a_figure_or_a_reason(pretended: tuple[Found, str, Path]) -> None:
    found = pretended[0]
    left_out = ("torch benchmark", "bridge after_relu", "bridge capture", "bridge det")
    taking_part = {name for name in NAMES if framework(name).cost == CHEAP and not name.startswith(left_out)}
    assert [(one["size"], one["precision"]) for one in found["cells"]] == [
        (12, "fp32"), (12, "bf16"), (6, "fp32"), (6, "bf16")]
    for cell in found["cells"]:
        results = cell["results"]
        assert set(results) == taking_part
        for name in (WAITS, REFERENCE, "torch channels_last"):
            assert results[name]["median"] > 0 and results[name]["calls"] >= 1, results[name]
            assert results[name]["update_difference"] <= LIMITS[cell["precision"]][1]
        assert "need a GPU" in results[GRAPH]["failed"]
        assert results[REFERENCE]["notes"]["optimizer"] in ("foreach", "fused")
        assert results[WAITS]["notes"]["device"] == f"cuda:0,math={cell['precision']},algorithm=measured"
        # PyTorch in float32 is held against itself, and bfloat16 is another precision
        assert (results[REFERENCE]["update_difference"] == 0) == (cell["precision"] == "fp32")
        assert cell["best_torch"].startswith("torch")
        assert cell["ratios"][WAITS] == pytest.approx(
            results[cell["best_torch"]]["median"] / results[WAITS]["median"])


@pytest.mark.deep
@pytest.mark.together
def test_steps_that_wait_for_nothing_are_measured(pretended: tuple[Found, str, Path]) -> None:
    """And the exit code says that nothing failed."""
    found = pretended[0]
    own = [cell["results"][OURS] for cell in found["cells"]]
    assert all(one["median"] > 0 for one in own) and found["exit_code"] == 0


@pytest.mark.deep
@pytest.mark.together
def test_rooflines_and_rates_are_written(pretended: tuple[Found, str, Path]) -> None:
    found = pretended[0]
    assert found["rates"]["bandwidth"] == max(found["rates"]["through"].values()) > 0
    assert set(found["rates"]["arithmetic"]) == set(found["rooflines"]) == {"fp32", "bf16"}
    for cell in found["cells"]:
        assert cell["roofline"]["flop"] == Net(size=cell["size"]).flop
        for one in cell["results"].values():
            if "median" in one:
                assert one["of_roofline"] == pytest.approx(cell["roofline"]["each"] / one["median"])
                assert one["gflops"] == pytest.approx(cell["roofline"]["flop"] / one["median"] / 1e9)
    texts = [goal["text"] for goal in found["goals"]]
    assert len(texts) == len(set(texts)) == 6


@pytest.mark.deep
@pytest.mark.together
def test_pictures_are_made_and_can_be_made_again(pretended: tuple[Found, str, Path]) -> None:
    folder = pretended[2]
    made = [folder / f"gpu_{name}.png" for name in ("times", "ratios", "roofline")]
    if not all(path.exists() for path in made):
        pytest.importorskip("matplotlib")
    assert all(path.stat().st_size > 5000 for path in made)
    for path in made:
        path.unlink()
    assert program.main(["--draw", str(folder / "gpu.json")]) == 0
    assert all(path.stat().st_size > 5000 for path in made)


@pytest.mark.parametrize("arguments", [("--device", "cpu"), ("--device", "cuda,math=tf32"), ("--minutes", "0"),
                                       ("--quick", "--json", "benchmarks/results/gpu.json")])
def test_bad_usage_is_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str],
                        monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("OUT", str(tmp_path))
    assert program.main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("output", [[], ["--output", str(RESULTS / "gpu.json")]])
def test_nothing_pretended_gets_among_the_results(output: list[str], tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--pretend", str(tmp_path), *output]) == 2
    assert "outside of benchmarks/results" in capsys.readouterr().err


def test_the_mission_comes_first_and_complete() -> None:
    """At once with what starts at once, then with what is compiled; only then other sizes."""
    jobs = schedule(FULL, ["fp32", "tf32", "bf16"])
    mission = [Cell(1024, 2, precision) for precision in ("fp32", "tf32", "bf16")]
    assert [(job.cell, job.cost) for job in jobs[:6]] == [(one, cost) for cost in (CHEAP, COMPILES) for one in mission]
    everywhere = {(size, batch) for size in FULL.sizes for batch in FULL.batches}
    assert {(job.cell.size, job.cell.batch) for job in jobs} == everywhere
    assert len({FULL.mission, *FULL.order}) == len(FULL.order) + 1 == len(everywhere)
    assert max(job.cost for job in jobs if job.cell in mission) == TUNES


def test_names_are_one_each_and_in_processes_of_one_kind() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for process in {one.process for one in FRAMEWORKS}:
        assert len({one.ours for one in FRAMEWORKS if one.process == process}) == 1
    # By their names alone they are told apart in pictures and in the exit code
    assert all(one.ours == one.name.startswith(OURS) for one in FRAMEWORKS)
