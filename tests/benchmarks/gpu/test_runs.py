# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gpu_bench``: runs of several workers, and times that are up."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.frameworks.gpu import CHEAP, NAMES, OURS, REFERENCE
from benchmarks.gpu import bench, document, runs
from benchmarks.gpu.agreement import LIMITS, verdict
from benchmarks.gpu.cells import Cell, Job
from benchmarks.gpu.runs import TIME_UP, Runs, judged
from benchmarks.harness.children import Clock
from benchmarks.harness.processes import LostError, TimeUpError
from benchmarks.harness.roofline import Rates
from tests.helpers.networks.measured import CELL, GRAPH, Found

RATES = {"fp32": Rates(1e9, 1e9), "tf32": Rates(1e9, 1e9), "bf16": Rates(1e9, 1e9)}


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
