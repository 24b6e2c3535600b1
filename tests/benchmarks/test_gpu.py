# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gpu_bench``: the whole flow without a GPU, who may take part, runs, times that are up."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.frameworks.gpu import CHEAP, COMPILES, FRAMEWORKS, NAMES, OURS, REFERENCE, TUNES, framework
from benchmarks.frameworks.gpu_step import LR
from benchmarks.frameworks.torch_gpu import autocast, set_precision
from benchmarks.frameworks.torch_module import module_of
from benchmarks.gpu import bench, cells, document, runs
from benchmarks.gpu import cli as program
from benchmarks.gpu import worker as worker_module
from benchmarks.gpu.agreement import LIMITS, verdict
from benchmarks.gpu.cells import FULL, PRETENDED, Cell, Job, schedule
from benchmarks.gpu.runs import TIME_UP, Runs, judged
from benchmarks.gpu.worker import Worker, checked
from benchmarks.harness import data, processes
from benchmarks.harness.children import Clock
from benchmarks.harness.document import RESULTS
from benchmarks.harness.processes import ROOT, LostError, Process, TimeUpError
from benchmarks.harness.roofline import H200, Rates
from benchmarks.harness.workloads import Net
from tests import software_device

Found = dict[str, Any]
WAITS, GRAPH = "bridge, loss read", "torch CUDA graph"
CELL = Cell(12, 2, "fp32")
RATES = {"fp32": Rates(1e9, 1e9), "tf32": Rates(1e9, 1e9), "bf16": Rates(1e9, 1e9)}


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


def test_without_a_gpu_it_is_one_line(tmp_path: Path) -> None:
    hidden = {"OUT": str(tmp_path), "CUDA_VISIBLE_DEVICES": "", "CNN_CUDA_PATH": ""}
    done = bench_program(**hidden)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gpu-bench: skipped: ") and done.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    assert bench_program("--require", **hidden).returncode == 1


@pytest.mark.deep
def test_a_pretended_run_says_so_everywhere(pretended: tuple[Found, str, Path]) -> None:
    found, said, folder = pretended
    assert found["pretended"] is True and found["kind"].startswith("pretended") and "no GPU" in found["name"]
    assert found["words"].startswith("pretended: ") and found["gpu"]["name"] == "no GPU"
    assert said.startswith("pretended: ") and "gpu-bench: pretended: " in said
    assert str(ROOT) not in json.dumps(found) and str(folder) not in json.dumps(found)


@pytest.mark.deep
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
def test_steps_that_wait_for_nothing_are_measured(pretended: tuple[Found, str, Path]) -> None:
    """And the exit code says that nothing failed."""
    found = pretended[0]
    own = [cell["results"][OURS] for cell in found["cells"]]
    assert all(one["median"] > 0 for one in own) and found["exit_code"] == 0


@pytest.mark.deep
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


def right(seconds: float = 0.01, *, bend: float = 0.0) -> Found:
    """What a worker answers to "build"."""
    moved = [[1.0, 2.0, 3.0], [0.5 + bend, 0.5]]
    return {"losses": [1.0, 0.9, 0.8, 0.7], "moved": moved, "calls": 5, "seconds": seconds, "notes": {},
            "allocated": None}


class Workers:
    """Processes that answer what a test says: by contestant, a function of the question."""

    def __init__(self, answers: dict[str, Callable[[str], Found]]) -> None:
        self.answers, self.asked = answers, []
        self.used: list[Any] = []

    def __getitem__(self, process: str) -> Any:
        return SimpleNamespace(ask=self.ask)

    def ask(self, do: str, limit: float, left: float = math.inf, **request: Any) -> Found:
        if do == "forget":
            return {}
        name = request["task"]["framework"]
        self.asked.append((do, name, request["task"]["precision"], request.get("keep")))
        if name in self.answers:
            return self.answers[name](do)
        return right() if do == "build" else {"seconds": 0.01}

    def runs(self) -> list[str]:
        return [name for do, name, *_ in self.asked if do == "run"]


def measured(answers: dict[str, Callable[[str], Found]], names: list[str], *, clock: Clock | None = None,
             memory: int = 10**12, rounds: int = 3) -> tuple[Found, Workers]:
    workers = Workers(answers)
    one = Runs(workers, clock or Clock(60.0), RATES, memory)
    return one.cell(Job(CELL, CHEAP, rounds), names), workers


def test_runs_are_interleaved() -> None:
    names = [OURS, REFERENCE, GRAPH]
    found, workers = measured({}, names)
    assert workers.runs() == [*names, *reversed(names), *names]
    assert {one["runs"] for one in found["results"].values()} == {3}


def test_a_median_is_of_all_runs() -> None:
    times = iter([0.3, 0.1, 0.2])
    found, _ = measured({OURS: lambda do: right() if do == "build" else {"seconds": next(times)},
                         GRAPH: lambda do: right() if do == "build" else {"seconds": 0.004}}, [OURS, REFERENCE, GRAPH])
    assert found["results"][OURS]["median"] == 0.2
    # The best of PyTorch, not the last and not the slowest
    assert found["best_torch"] == GRAPH and found["ratios"][OURS] == pytest.approx(0.02)


@pytest.mark.parametrize("bend", [0.2, math.nan])
def test_who_computes_something_else_is_disqualified(bend: float) -> None:
    """And has no run, no median, no ratio; with ours the run fails."""
    found, workers = measured({OURS: lambda do: right(bend=bend), GRAPH: lambda do: right(bend=1e-4) if do == "build"
                               else {"seconds": 0.01}}, [OURS, REFERENCE, GRAPH])
    assert "not the same work" in found["results"][OURS]["disqualified"]
    assert OURS not in workers.runs() and OURS not in found["ratios"] and "median" in found["results"][GRAPH]
    wrong = document.faults([found], (12, 2), ["fp32"])
    assert len(wrong) == 2 and "not the same work" in wrong[0]


def test_a_gradient_of_another_layer_is_seen_in_each_precision() -> None:
    """Losses alone would not show it: they differ by less than rounding to bfloat16 makes."""
    reference = right()
    for precision in LIMITS:
        bent = right() | {"losses": [1.00001 * one for one in reference["losses"]],
                          "moved": [[3.0, 2.0, 1.0], [0.5, 0.5]]}
        assert "disqualified" in verdict(bent, reference, precision)
        assert "disqualified" not in verdict(reference, reference, precision)
        assert "disqualified" in verdict(right() | {"moved": [[1.0, 2.0, 3.0]]}, reference, precision)


def test_a_failure_is_a_line_and_the_others_go_on() -> None:
    def later(do: str) -> Found:
        if do == "run":
            raise LostError("the process ended with status -11: in /opt/some/where/lib.so.1")
        return right()

    found, _ = measured({OURS: lambda _: {"failed": "no such option"}, GRAPH: later}, [OURS, REFERENCE, GRAPH])
    results = found["results"]
    assert results[OURS] == {"failed": "no such option"}
    assert results[GRAPH] == {"failed": "the process ended with status -11: in lib.so.1"}
    assert results[REFERENCE]["runs"] == 3
    assert document.faults([found], (12, 2), ["fp32"]) == ["fp32: bridge: no such option"]


def test_a_failure_of_ours_elsewhere_is_a_failure() -> None:
    """Where PyTorch has a figure; a time that is up is none."""
    whole, other = result(1.0), result(1.0, cell=Cell(6, 2, "fp32"))
    assert document.faults([whole, other], (12, 2), ["fp32"]) == []
    other["results"][OURS] = {"failed": "no plan"}
    assert document.faults([whole, other], (12, 2), ["fp32"]) == ["2 x 1 x 6 x 6, fp32: bridge: no plan"]
    other["results"][OURS] = {"skipped": TIME_UP}
    assert document.faults([whole, other], (12, 2), ["fp32"]) == []


def test_who_ends_its_process_twice_is_not_asked_again() -> None:
    def lost(_: str) -> Found:
        raise LostError("no answer within 60 s")

    workers = Workers({GRAPH: lost})
    one = Runs(workers, Clock(60.0), RATES, 10**12)
    found = [one.cell(Job(CELL, CHEAP, 1), [OURS, REFERENCE, GRAPH])["results"][GRAPH]["failed"] for _ in range(3)]
    assert found[0] == found[1] == "no answer within 60 s" and "not tried" in found[2]
    assert sum(name == GRAPH for _, name, *_ in workers.asked) == 2


def test_without_a_reference_nobody_is_measured() -> None:
    found, workers = measured({REFERENCE: lambda _: {"failed": "out of memory"}}, [OURS, REFERENCE])
    assert all("out of memory" in one["failed"] for one in found["results"].values()) and workers.runs() == []


def test_everything_is_held_against_float32() -> None:
    workers = Workers({})
    one = Runs(workers, Clock(60.0), RATES, 10**12)
    for precision in ("bf16", "tf32"):
        one.cell(Job(Cell(12, 2, precision), CHEAP, 1), [OURS])
    built = [(name, precision) for do, name, precision, _ in workers.asked if do == "build"]
    assert built == [(REFERENCE, "fp32"), (OURS, "bf16"), (OURS, "tf32")]


def test_where_memory_is_short_they_go_between_runs() -> None:
    _, workers = measured({}, [OURS, REFERENCE], memory=1000)
    assert {keep for do, *_, keep in workers.asked if do == "run"} == {False}
    _, workers = measured({}, [OURS, REFERENCE])
    assert {keep for do, *_, keep in workers.asked if do == "run"} == {True}


def test_when_the_time_is_up_nobody_is_blamed() -> None:
    def late(do: str) -> Found:
        raise TimeUpError(TIME_UP)

    found, _ = measured({OURS: late}, [OURS, REFERENCE], clock=Clock(0.0))
    assert found["results"] == {OURS: {"skipped": TIME_UP}, REFERENCE: {"skipped": TIME_UP}}
    assert runs.interrupted(found) and "best_torch" not in found


def result(median: float, *, skipped: bool = False, cell: Cell = CELL) -> Found:
    results: Found = {name: {"median": value, "quartiles": [value, value]}
                      for name, value in ((OURS, median), (REFERENCE, 2.0))}
    if skipped:
        results[GRAPH] = {"skipped": TIME_UP}
    return judged(cell, Job(cell, CHEAP, 1), results, runs.roofline(cell.net.layers, cell.precision, RATES["fp32"]))


@pytest.fixture
def started(tmp_path: Path) -> bench.Bench:
    """A run that has measured nothing yet."""
    request = bench.Request(tmp_path / "gpu.json", Clock(60.0), 1.0, "cuda", 0, ("fp32",), NAMES, False, True, {})
    seen = SimpleNamespace(words="of a test", facts={}, environment={})
    return bench.Bench(request, seen, bench.Console(quiet=True))


def test_a_later_result_takes_the_place_of_an_earlier_one(started: bench.Bench) -> None:
    """If it is whole."""
    for median, skipped, expected in ((1.0, True, 1.0), (0.5, False, 0.5), (0.1, True, 0.5)):
        started._keep(result(median, skipped=skipped))
        started._write()
        found = json.loads(started._request.path.read_text(encoding="utf-8"))
        assert [one["results"][OURS]["median"] for one in found["cells"]] == [expected]
    assert (found["words"], found["exit_code"]) == ("not finished", 1)
    assert [goal["found"] for goal in found["goals"]][:2] == [4.0, 4.0]


def test_goals_are_about_the_mission_and_about_the_worst() -> None:
    some = [result(1.0), result(4.0, cell=Cell(6, 2, "fp32")), result(0.1, cell=Cell(6, 2, "tf32"))]
    first, worst, share = document.goals(some, (12, 2), ["fp32"])
    assert (first.found, first.met, worst.found, worst.met) == (2.0, True, 0.5, False)
    assert share.found == some[0]["results"][OURS]["of_roofline"]
    nothing = document.goals([], (12, 2), ["fp32"])
    assert [one.met for one in nothing] == [None] * 3
    assert document.faults([], (12, 2), ["fp32"]) == ["fp32: bridge: not measured"]


def test_a_cell_that_does_not_fit_is_named(started: bench.Bench) -> None:
    for _ in range(2):
        started._missing(Cell(4096, 64, "fp32"), "too large")
    assert started._document["not_measured"] == [{"cell": "64 x 1 x 4096 x 4096, fp32", "reason": "too large"}]


def child(source: str) -> Process:
    return Process(("-c", source), os.environ)


@pytest.mark.parametrize(("left", "error"), [(60.0, LostError), (0.3, TimeUpError)])
def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, left: float, error: type[Exception]) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 0.5)
    process, begin = child("import subprocess; subprocess.run(['sleep', '100'])"), time.monotonic()
    with pytest.raises(LostError) as raised:
        process.ask("build", 0.5, left)
    assert type(raised.value) is error and time.monotonic() - begin < 20


def test_a_process_that_ends_says_why_and_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    process = child("import os; input(); os.write(2, b'Illegal instruction'); os._exit(3)")
    for _ in range(2):
        with pytest.raises(LostError, match="status 3: Illegal instruction"):
            process.ask("build", 60.0)
    process.close()


def test_a_broken_process_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import os; input(); print('{\"failed\": \"%d\", \"broken\": true}' % os.getpid(), flush=True); input()"
    process = child(source)
    process.start()
    assert not process.used
    first, second = (process.ask("build", 60.0) for _ in range(2))
    assert not process.used
    assert first["failed"] != second["failed"] and set(first) == {"failed"}
    process.close()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Of torch: threads that wait for each other on a busy machine take seconds for tiny images."""
    import torch

    number = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(number)


@pytest.mark.usefixtures("one_thread")
def test_the_step_is_large_enough_to_show_its_gradients() -> None:
    """Four updates move parameters by much more than float32 rounds them, and training does not diverge."""
    import torch

    net = Net(size=12)
    module = module_of(net)
    before = [one.detach().clone() for one in module.parameters()]
    x, t = (torch.from_numpy(one) for one in map(np.ascontiguousarray, _images(net)))
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)
    losses: list[float] = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(module(x), t)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if len(losses) == 4:
            moved = [float((one.detach() - old).norm() / old.norm())
                     for one, old in zip(module.parameters(), before, strict=True)]
    assert losses[-1] < losses[0] and min(moved) > 100 * 2**-24


def _images(net: Net) -> list[np.ndarray]:
    from benchmarks.frameworks.gpu_step import batch

    return [one.numpy() for one in batch(net, "cpu")]


class Slow:
    """A step of a millisecond on a clock of its own, which counts what is asked of it."""

    clock = 0.0

    def __init__(self, loss: float = 1.0) -> None:
        self.notes: Found = {}
        self.made, self.set, self._loss = 0, 0, loss

    def settings(self) -> None:
        self.set += 1

    def run(self) -> None:
        self.made += 1
        Slow.clock += 0.001

    def loss(self) -> float:
        return self._loss

    def parameters(self) -> list[np.ndarray]:
        return [part + self.made for pair in data.weights(CELL.net) for part in pair]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    """Without a GPU, whose contestants are slow."""
    monkeypatch.setattr(Worker, "_build", lambda self, task: Slow())
    monkeypatch.setattr(worker_module, "time", SimpleNamespace(perf_counter=lambda: Slow.clock))
    return Worker("cpu")


def test_a_run_is_seconds_of_one_step(worker: Worker) -> None:
    """What was not built is built; settings are made; one step before the clock starts; what may not stay goes."""
    task = runs.task(CELL, GRAPH)
    assert worker.answer({"do": "run", "task": task, "calls": 20, "keep": True})["seconds"] == pytest.approx(0.001)
    kept = worker._steps[GRAPH]
    before = kept.made
    worker.answer({"do": "run", "task": task, "calls": 20, "keep": False})
    assert (kept.made - before, kept.set) == (21, 2) and worker._steps == {}


def test_a_run_has_as_many_steps_as_it_needs(worker: Worker) -> None:
    found = worker.answer({"do": "build", "task": runs.task(CELL, GRAPH), "seconds": 0.05})
    assert found["calls"] >= 50 and found["seconds"] == pytest.approx(0.001)
    assert found["losses"] == [1.0] * 4
    for moved in found["moved"]:
        assert np.allclose(moved, 4.0)


@pytest.mark.parametrize("request_", [{"do": "nothing"}, {"do": "build", "task": runs.task(CELL, "nobody")}])
def test_a_workers_failure_is_an_answer(request_: Found) -> None:
    found = Worker("cpu").answer(request_)
    assert set(found) == {"failed"} and "Error: " in found["failed"]


def test_a_loss_that_is_no_number_fails() -> None:
    with pytest.raises(RuntimeError, match="losses"):
        checked(Slow(math.nan), CELL.net)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_a_precision_is_set_for_convolutions_and_products(precision: str) -> None:
    """float32 means float32, though cuDNN's TF32 is PyTorch's default."""
    import torch

    backends = torch.backends
    before = backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32, backends.cudnn.benchmark
    try:
        set_precision(precision, benchmark=precision == "bf16")
        expected = precision == "tf32"
        assert (backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32) == (expected, expected)
        assert backends.cudnn.benchmark == (precision == "bf16")
        with autocast(precision, "cpu"):
            one = torch.ones(1, 1, 3, 3)
            assert torch.nn.functional.conv2d(one, one).dtype == (
                torch.bfloat16 if precision == "bf16" else torch.float32)
    finally:
        backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32, backends.cudnn.benchmark = before


def test_every_pixel_of_large_images_is_set() -> None:
    """Values repeat where an image has more pixels than were drawn, and no row is another's copy."""
    net = Net(size=1100, batch=1)
    x, t = _images(net)
    assert x.shape == (1, 1, 1100, 1100) and not np.array_equal(x, t)
    assert 0.99 < x.std() < 1.01 and len(np.unique(x[0, 0, :, 0])) > 900


def test_data_sheet() -> None:
    assert H200["bf16"].arithmetic > H200["tf32"].arithmetic > H200["fp32"].arithmetic > 1e13
    assert cells.too_large(Cell(4096, 8, "fp32"), 141 * 10**9) == ""
    assert PRETENDED.mission == (12, 2)
