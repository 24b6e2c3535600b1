# SPDX-License-Identifier: MIT
"""``python -m benchmarks``: everything runs, small; the arithmetic of the figures."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from benchmarks.cpu import SECTIONS, files, growth, networks, step, sweep
from benchmarks.cpu.tools.machine_peak import MachinePeak
from benchmarks.cpu.tools.shapes import SHAPES, name
from benchmarks.frameworks.cpu import CHANNELS_LAST, COMPILED, EAGER, JAX_NHWC, OURS
from benchmarks.harness.document import Options
from benchmarks.harness.timing import ratios, slope, summary
from benchmarks.harness.workloads import Conv, Net
from bridge import Network
from tests.helpers.real_networks import Resnet18

Document = dict[str, Any]


@pytest.fixture(scope="module")
def documents(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Document]:
    """All sections, as a user runs them."""
    folder = tmp_path_factory.mktemp("benchmarks")
    done = subprocess.run([sys.executable, "-m", "benchmarks", "--quick", "--runs", "2", "--output", str(folder)],
                          cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "the figures mean nothing" in done.stdout
    assert {path.suffix for path in folder.iterdir()} <= {".json", ".md", ".png"}
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}


def all_results(document: Document) -> list[dict[str, Document]]:
    """The results of every comparison of a section."""
    if "cases" in document:
        return [case["results"] for case in document["cases"]]
    if "curves" in document:
        return [points for curve in document["curves"] for points in
                ({place: one for place, one in enumerate(column)} for column in curve["points"].values())]
    return [document["results"]] if "results" in document else []


@pytest.mark.deep
@pytest.mark.together
@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_writes_what_it_found(documents: dict[str, Document], section: str) -> None:
    document = documents[section]
    assert document["section"] == section and document["quick"] and document["json_version"] == 1
    environment = document["environment"]
    assert environment["cpu"] and environment["processors"] >= 1
    assert {"python", "numpy", "torch", "fortran library"} <= set(environment["versions"])
    for goal in document["goals"]:
        assert goal["text"].startswith((section.rstrip("s"), section))
        # The files of a tiny step may take less time than the step's own time varies
        assert goal["met"] in (True, False) or files.RUN in goal["text"]
    for results in all_results(document):
        assert results
        for one in results.values():
            assert one.get("skipped") or one.get("seconds", 0) > 0 or one["median"] > 0
            low, high = one.get("quartiles", (1, 1))
            assert 0 < low <= high


@pytest.mark.deep
@pytest.mark.together
@pytest.mark.parametrize("section", ["step", "networks", "layers", "sweep"])
def test_ratios_are_quotients_of_medians(documents: dict[str, Document], section: str) -> None:
    for case in documents[section]["cases"]:
        own = next(iter(case["results"].values()))["median"]
        # oneDNN's AVX2 gradient of a strided 1x1 convolution of 4 channels ends the process of the peer
        assert CHANNELS_LAST in case["ratios"] or "ended with status" in case["results"][CHANNELS_LAST]["skipped"]
        for peer, ratio in case["ratios"].items():
            assert ratio == pytest.approx(case["results"][peer]["median"] / own)


@pytest.mark.deep
@pytest.mark.together
def test_rates_are_work_over_time(documents: dict[str, Document]) -> None:
    for section in ("step", "networks", "layers"):
        for case in documents[section]["cases"]:
            for one in case["results"].values():
                if "median" in one:
                    assert one["gflops"] == pytest.approx(case["gflop"] / one["median"])


@pytest.mark.deep
@pytest.mark.together
def test_memory_is_that_of_a_framework(documents: dict[str, Document]) -> None:
    """First the libraries, then the data, then the work; torch brings more libraries than we do."""
    for case in documents["step"]["cases"]:
        found = {key: one["memory"] for key, one in case["results"].items() if "memory" in one}
        for one in found.values():
            assert 0 < one["imported"] <= one["peak"] and one["with_data"] <= one["peak"]
        assert found[EAGER]["imported"] > found[OURS]["imported"]
        assert case["memory_ratios"][EAGER] == found[EAGER]["peak"] / found[OURS]["peak"]


@pytest.mark.deep
@pytest.mark.together
def test_networks_beside_torch(documents: dict[str, Document]) -> None:
    """Memory counts from the import on; every kind of operation is timed, both ways."""
    for case in documents["networks"]["cases"]:
        own, eager = (networks.taken(case["results"][name]) for name in (OURS, EAGER))
        assert own > 0 and case["memory_ratios"][EAGER] == eager / own
        convolution = "conv3d" if case["name"] == "3-D U-Net" else "conv2d"
        assert set(case["operations"]) >= {convolution, "accumulate"}
        assert all(one["backward"] > 0 for one in case["operations"].values())
        assert all(one["forward"] > 0 for kind, one in case["operations"].items() if kind != "accumulate")
        assert case["training"]["path"] == ""


@pytest.mark.deep
@pytest.mark.together
def test_shares_are_of_the_measured_peak(documents: dict[str, Document]) -> None:
    document = documents["layers"]
    peaks = {run["threads"]: run["gflops"] for run in document["machine"].get("runs", [])}
    if not peaks:
        pytest.skip(document["machine"]["skipped"])
    for case in document["cases"]:
        measured = [one for one in case["results"].values() if "median" in one]
        assert len(measured) >= 2
        for one in measured:
            assert one["share_of_peak"] == pytest.approx(one["gflops"] / peaks[case["threads"]][case["dtype"]])
    for run in document["machine"]["runs"]:
        assert 0 < run["median"]["gflops"]["float32"] <= run["gflops"]["float32"]


@pytest.mark.deep
@pytest.mark.together
def test_throughputs_of_files(documents: dict[str, Document]) -> None:
    document = documents["files"]
    median = {key: one["median"] for key, one in document["results"].items()}
    assert document["ratios"][files.READ] == pytest.approx(median[files.PLAIN_READ] / median[files.READ])
    # Of each of two images: the input and its gradient, and what two wide layers and their ReLUs give, twice
    assert document["bytes"][files.WRITE] > 2 * document["size"] ** 2 * (2 + 2 * (4 * 16 + 1)) * 4


@pytest.mark.deep
@pytest.mark.together
def test_slow_peers_are_named_as_skipped(documents: dict[str, Document]) -> None:
    for case in documents["step"]["cases"]:
        assert "too slow to start" in case["results"][COMPILED]["skipped"]
        assert COMPILED not in case["ratios"]


def products(conv: Conv) -> int:
    """Multiply-adds, counted one by one."""
    n, k, p, q = conv.output
    return sum(1 for _ in product(range(n), range(k), range(p), range(q), range(conv.c // conv.groups), range(conv.r),
                                  range(conv.s)))


@pytest.mark.parametrize("conv", [
    Conv(1, 2, 5, 4, 3, 3, 2), Conv(2, 4, 7, 6, 6, 3, 3, (2, 1), (1, 0), (1, 2), groups=2),
    Conv(1, 3, 6, 6, 3, 2, 2, groups=3),
], ids=name)
def test_operations_are_counted_as_by_hand(conv: Conv) -> None:
    assert conv.flop == 2 * products(conv)


def test_work_of_the_mission() -> None:
    """By hand: 2 x 1024 x 1024 pixels; 9 x 16, 9 x 256 and 9 x 16 products each; no gradient of the image."""
    net = Net()
    pixels = 2 * 1024 * 1024
    assert [layer.flop for layer in net.layers] == [2 * 9 * n * pixels for n in (16, 256, 16)]
    assert net.flop == 2 * 9 * pixels * (3 * (16 + 256 + 16) - 16)
    assert net.layers[1].bytes == 4 * (16 * pixels + 16 * pixels + 9 * 256)
    assert net.layers[0].bytes == 4 * (17 * pixels + 9 * 16)
    assert Net(dtype="float64").layers[0].bytes == 2 * net.layers[0].bytes


def test_the_median_of_the_peaks_is_their_median() -> None:
    peak = MachinePeak.__new__(MachinePeak)
    peak.found = {2: {"float32": [300.0, 100.0, 200.0]}}
    assert (peak.best(2, "float32"), peak.median(2, "float32")) == (300.0, 200.0)


@pytest.mark.deep
@pytest.mark.together
def test_the_sweeps_text_marks_what_is_slower(documents: dict[str, Document]) -> None:
    """Every shape once, bold where the ratio is below 1."""
    text = sweep.as_markdown(documents["sweep"])
    assert text.count("**") == 2 * len(documents["sweep"]["exceptions"])
    for case in documents["sweep"]["cases"]:
        ratio = f"{case['ratios'][CHANNELS_LAST]:.2f}"
        (row,) = (line for line in text.splitlines() if line.startswith(f"| {case['name']} |"))
        assert f" {ratio} |" in row or f" **{ratio}** |" in row


def test_shapes_of_the_sweep() -> None:
    """As many and as different as promised, and of the shapes that torch gives."""
    assert len(SHAPES) >= 60 and len({name(conv) for conv in SHAPES}) == len(SHAPES)
    for conv in SHAPES:
        with torch.device("meta"):
            out = torch.nn.functional.conv2d(torch.empty(conv.input), torch.empty(conv.weight), None, conv.stride,
                                             conv.padding, conv.dilation, conv.groups)
        assert tuple(out.shape) == conv.output and conv.flop < 1e9
        assert Conv.of_dict(json.loads(json.dumps(conv.as_dict()))) == conv
    kinds = {conv.stride[0] for conv in SHAPES}, {conv.dilation[0] for conv in SHAPES}, {conv.n for conv in SHAPES}
    assert all({1, 2, 3} <= kind for kind in kinds) and 64 in kinds[2]


def test_summary_and_slope() -> None:
    times = [4.0, 1.0, 3.0, 2.0]
    found = summary(times)
    assert found["median"] == statistics.median(times) == 2.5 and found["quartiles"] == [1.75, 3.25]
    assert (found["least"], found["most"], found["runs"]) == (1.0, 4.0, 4)
    assert summary([2.0])["quartiles"] == [2.0, 2.0]
    for wrong in ([], [0.0], [math.nan], [-1.0]):
        with pytest.raises(ValueError, match="expected one or more positive"):
            summary(wrong)
    assert slope([1, 2, 4, 8], [1.0, 1.0, 4.0, 32.0]) == pytest.approx(3.0)
    assert slope([5], [1.0]) is None


def case_of(name: str, times: dict[str, float], peaks: dict[str, int]) -> Document:
    results = {who: {"median": seconds, "gflops": 1 / seconds, "memory": {"peak": peaks[who]}}
               for who, seconds in times.items()}
    return {"name": name, "results": results, "ratios": {w: t / times[OURS] for w, t in times.items() if w != OURS},
            "memory_ratios": step.memory_ratios(results)}


def test_goals_of_a_step() -> None:
    """The best of the others counts for time, the smallest of PyTorch for memory."""
    times = {OURS: 1.0, EAGER: 9.0, CHANNELS_LAST: 4.0, COMPILED: 2.0, JAX_NHWC: 5.0}
    peaks = {OURS: 40, EAGER: 120, CHANNELS_LAST: 100, COMPILED: 110, JAX_NHWC: 10}
    double = case_of("float64", {OURS: 2.5, CHANNELS_LAST: 2.0}, {OURS: 1, CHANNELS_LAST: 1})
    found = step.goals([case_of("mission", times, peaks), double])
    assert [(goal.found, goal.met) for goal in found] == [(9.0, True), (2.0, False), (0.4, True), (0.4, False),
                                                           (0.8, False)]
    alone = step.goals([case_of("mission", {OURS: 1.0}, {OURS: 1})])
    assert [(goal.found, goal.met) for goal in alone] == [(None, None)] * 3


def test_goals_of_networks() -> None:
    """The fastest of PyTorch counts for time, the leanest for what was taken beyond the import."""
    def one(seconds: float, peak: int) -> Document:
        return {"median": seconds, "memory": {"imported": 10, "peak": 10 + peak}}

    results = {OURS: one(1.0, 60), EAGER: one(3.0, 80), CHANNELS_LAST: one(2.0, 90), COMPILED: {"skipped": "why"}}
    case = {"name": "U-Net", "threads": 1, "ratios": ratios(results, OURS),
            "memory_ratios": networks.memory_ratios(results)}
    assert [(goal.found, goal.met) for goal in networks.goals("networks", [case])] == [(2.0, True), (0.75, False)]
    alone = case | {"ratios": {}, "memory_ratios": {}}
    assert [(goal.found, goal.met) for goal in networks.goals("networks", [alone])] == [(None, None)] * 2


def test_work_of_a_residual_network() -> None:
    """By hand, of width 8: 8 x 8 x 9 products for each of 32 x 32 pixels in a convolution of the first stage, as many
    in the later ones, half where the size halves; shortcuts of 1 x 1; 64 x 10 for the classes.
    """
    found = networks.step_flop(Network.from_torch(Resnet18(8)).model.graph, (1, 3, 32, 32))
    whole = 8 * 8 * 9 * 32 * 32
    assert found == 2 * (2 * 3 * 8 * 9 * 32 * 32 + 3 * (13 * whole + 3 * whole // 2 + 3 * whole // 18 + 64 * 10))


def test_exceptions_of_the_sweep_are_all_there_the_worst_first() -> None:
    cases = [{"name": str(x), "pass": "data", "ratios": {CHANNELS_LAST: x}} for x in (1.2, 0.9, 0.5, 1.0)]
    assert [one["ratio"] for one in sweep.exceptions(cases)] == [0.5, 0.9]
    assert sweep.goals(cases)[0].met is False and sweep.goals([{"ratios": {}}])[0].met is None


def test_what_is_too_large_is_skipped_with_the_reason() -> None:
    before = {"seconds": 1.0, "bytes": 10**9}
    assert growth.too_much(None, 1.0, 1) == "" == growth.too_much(before, 4.0, 10**10)
    assert "about 40 s" in growth.too_much(before, 40.0, 10**12)
    assert "about 8 GB" in growth.too_much(before, 8.0, 10**10)
    assert growth.too_much({"skipped": "why"}, 1.0, 10**12) == "why"


def test_a_curve_goes_on_without_the_points_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are named below the table, for each framework with its own reason."""
    monkeypatch.setattr(growth, "LONGEST", 1e-9)
    content, _ = growth.measure(Options(quick=True, runs=1, without=("torch",)), Console(quiet=True))
    points = content["curves"][0]["points"]
    assert points[OURS][0]["seconds"] > 0 and points[OURS][0]["bytes"] > points[OURS][0]["bytes_after_import"] > 0
    assert "a step would take" in points[OURS][1]["skipped"]
    assert [one["skipped"] for one in points[CHANNELS_LAST]] == ["left out with --without"] * 2
    assert content["curves"][0]["ratios"] == [{}, {}]
    (made,) = growth.tables(content)
    assert f"skipped: {OURS}, height = width 16: a step would take" in str(made.caption)
