# SPDX-License-Identifier: MIT
"""What the reports say and hold: terminal, JSON and its schema, JUnit, files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest
import torch

from bridge import compare
from bridge.engine.library import extension
from bridge.exchange.model import Conv2d, Model
from bridge.judge.diagnosis.records import Adequacy, Diagnosis
from bridge.judge.judge import judge
from bridge.judge.measure.error_statistics import Statistic
from bridge.judge.measure.findings import NO_STEP, Comparison, Judged
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle.reduced_precision import round_fraction
from bridge.judge.verdict import Verdict, decide
from bridge.report import outputs, to_dict
from bridge.report.facts import finding_lines
from bridge.report.junit import suite
from bridge.report.rows import MOST_ROWS, compact
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import Operations, ask, keep, plant, train
from tests.helpers.judged.judgements import ADEQUACY, DIAGNOSIS, EXPLAINED, UNKNOWN, assert_in_order, of, printed, stat
from tests.helpers.judged.report_reader import Balanced, strict

Array = np.ndarray
Pair = tuple[Comparison, Verdict]


@pytest.fixture(scope="module")
def wrong_result(small_result: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filter gradient that is flipped."""
    path = tmp_path_factory.mktemp("report") / "wrong.h5"
    return plant(small_result, path, {"steps/1/grads/conv2/weight": lambda g: g[:, :, ::-1, ::-1]})


@pytest.fixture(scope="module")
def right(small_fixture: Path, small_result: Path) -> Pair:
    return judge(small_fixture, small_result)


@pytest.fixture(scope="module")
def wrong(small_fixture: Path, wrong_result: Path) -> Pair:
    comparison, verdict = judge(small_fixture, wrong_result)
    return comparison, replace(verdict, diagnosis=DIAGNOSIS, adequacy=ADEQUACY)


# --- terminal -----------------------------------------------------------------------------------------------


def test_a_right_result_on_a_terminal(right: Pair) -> None:
    """The verdict first; all that matters in 35 lines; the rest with --all."""
    lines = printed(right)
    assert lines[0].startswith("RIGHT: every difference is rounding.") and len(lines) <= 35
    assert any(line.startswith("steps 0 to 2: rounding; largest T = ") and " at (" in line for line in lines)
    assert re.search(r"Probability that rounding alone fails right code: below 1e-\d+ \(lambda = 9\)", "\n".join(lines))
    rest = "all inside their bounds: --all shows every one."
    (more,) = (int(line.split()[0]) for line in lines if line.endswith(rest))
    every = printed(right, every_step=True)
    table = [line for line in every if re.match(r"(loss|\S+/\S+) .* rounding ", line)]
    assert len(table) == more + len(compact(right[0])) == len([one for one in right[0].judged if not one.given])
    assert "--all" not in "\n".join(every)


def test_a_bug_on_a_terminal(wrong: Pair) -> None:
    """Verdict, named fault with its margin and class, what to look at; then the table."""
    text = "\n".join(printed(wrong, 160))
    assert_in_order(text, [
             "BUG: grads/conv2/weight of step 1 is wrong", "The same fault in every convolution.",
             "1. Kernel flipped, in the filter gradient of conv2 (grads/conv2/weight, step 0, T = 1.4e+05).",
             "In h and w.", "Explains the error to T = 0.2; next best: channels <swapped>, which leaves 98 % of it.",
             "These data cannot tell it apart from: channels <swapped> and kernel flipped.",
             "Look at: the order in which the taps are read.", "Look at: the order of k & c.",
             "2. Unknown structure, in the filter gradient of conv1", "No known fault explains it to rounding.",
             "412 predictions of known faults computed in 3.2 s.",
             "It is the first wrong tensor", "step 0: rounding; largest T", "steps 1 to 2: bug; first wrong: T = ",
             "kappa",
             "These data cannot show 1 of 2 faults (deviation / E below 3): channels <swapped> (1 variant)."])
    assert "One input channel" not in text and "spread over the whole tensor" not in text


def test_a_fault_of_several_operations_is_described_once(wrong: Pair) -> None:
    """Of the others the tensor, and how well the same fault explains it."""
    again = replace(EXPLAINED, name="grads/conv1/weight", operation="the filter gradient of conv1")
    late = Diagnosis([EXPLAINED, again, UNKNOWN], hypotheses=1, seconds=60.0, complete=False)
    verdict = replace(wrong[1], diagnosis=late)
    assert_in_order("\n".join(printed((wrong[0], verdict), 160)), [
        "1. Kernel flipped, in the filter gradient of conv2", "Look at: ",
        "2. The same, in the filter gradient of conv1 (grads/conv1/weight, step 0, T = 1.4e+05; explained to T = 0.2).",
        "\n  3. Unknown structure", "1 prediction of known faults computed in 60.0 s, when time was up"])


def test_every_new_fault_is_told_and_the_same_says_which(wrong: Pair) -> None:
    """Whatever stands before it, and where another fault stands between."""
    first, *_ = EXPLAINED.explanations
    others = [replace(EXPLAINED, name=f"grads/{i}/weight", explanations=(replace(first, detail=f"detail {i}"),))
              for i in range(4)]
    again = replace(EXPLAINED, name="grads/conv1/weight", operation="the filter gradient of conv1")
    verdict = replace(wrong[1], diagnosis=Diagnosis([EXPLAINED, again, *others, again, others[3]]))
    text = "\n".join(printed((wrong[0], verdict), 160))
    assert_in_order(text, ["2. The same, in", "Detail 0.", "Detail 1.", "6. Kernel flipped", "Detail 3.",
                           "7. The same as 1, in", "8. The same, in"])
    # The first three are told whole
    assert text.count("Explains the error to T") == 3


@pytest.mark.parametrize("where, said", [
    ("2300 of 2304 elements: spread over the whole tensor", []), ("the number itself", []), ("", []),
    ("10 of 40 elements: spread over the whole tensor", ["Wrong: 10 of 40 elements."]),
    ("40 of 40 elements: image 1 of 3", ["Wrong: 40 of 40 elements: image 1 of 3."]),
    ("one element of 144, (1, 2)", ["Wrong: one element of 144, (1, 2)."]),
])
def test_a_place_is_named_where_there_is_one(where: str, said: list[str]) -> None:
    lines = finding_lines(1, replace(EXPLAINED, where=where))
    assert [line for line in lines if line.startswith("Wrong")] == said


def test_missing_tensors_are_counted_on_a_terminal(right: Pair) -> None:
    """A report names them, and has the other remarks."""
    remarks = [f"{name} is not in the file: faults of it show only in what follows" for name in ("loss", "grads/input")]
    for n, words in ((1, "1 tensor is not in the file: its"), (2, "2 tensors are not in the file: their")):
        adequacy = Adequacy(ADEQUACY.sights, [*remarks[:n], "another remark"])
        text = "\n".join(printed((right[0], replace(right[1], adequacy=adequacy)), 160))
        assert f"{words} faults show only in what follows." in text and "remark" not in text.lower()


def test_a_probe_is_exact_on_a_terminal(tmp_path: Path) -> None:
    """No word of rounding but that there is none; the flipped gradient is a bug."""
    fixture, result = tmp_path / "probe.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(height=8, width=16, steps=1, probe=True))
    extension.run_file(fixture, result)
    text = "\n".join(printed(judge(fixture, result, diagnosing=False), 160))
    assert "step 0: exact\n" in text and "\nNothing is rounded in this probe.\n" in text and "Probability" not in text
    wrong = plant(result, tmp_path / "wrong.h5", {"steps/0/grads/conv2/weight": lambda g: g[:, :, ::-1]})
    lines = printed(judge(fixture, wrong, diagnosing=False), 160)
    assert any(line.startswith("step 0: bug; first wrong: T = inf, grads/conv2/weight") for line in lines)
    (row,) = (line for line in lines if line.startswith("grads/conv2/weight"))
    assert " bug " in row and "rounding" not in row


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_numbers_are_whole_in_every_width(wrong: Pair, width: int) -> None:
    lines = printed(wrong, width)
    assert max(map(len, lines)) <= width
    head = next(line for line in lines if line.startswith("tensor"))
    row = next(line for line in lines if " bug " in f"{line} " and line.startswith("grad"))
    t = next(one for one in wrong[0].failures).t
    assert f"{t:.1e}" in row.split() and "outcome" in head.split()
    assert any("\u2026" in line for line in lines) == (width < 80)
    assert ("E there" in head) == (width >= 80) and ("worst at" in head) == (width >= 100)


def test_the_first_failure_is_always_shown() -> None:
    """However many fail worse."""
    failing = [Judged(f"forward/conv{i}", k, stat(50.0 + i + k)) for k in range(2) for i in range(1, 101)]
    model = Model(tuple(Conv2d(f"conv{i}", 1, 1, (1, 1)) for i in range(1, 101)))
    passing = [Judged(f"grads/conv{i}/weight", 0, stat(0.9)) for i in range(1, 50)]
    comparison = replace(of(*passing, *failing), model=model)
    shown = compact(comparison)
    assert len(shown) == MOST_ROWS and shown[0] is failing[0] and all(not one.passed for one in shown)
    assert "229 rows more, 180 of them outside their bounds" in "\n".join(printed((comparison, decide(comparison))))


def test_a_tensor_that_fails_has_one_row() -> None:
    """Updates that are right share another one."""
    update = [("conv1", 0, 50.0), ("conv1", 1, 0.9), ("conv2", 0, 0.1), ("conv2", 1, 0.2), ("conv2", 2, 0.1)]
    comparison = of(*(Judged(f"update/{name}/weight", k, stat(t)) for name, k, t in update))
    found = [(one.name, one.step) for one in compact(comparison)]
    assert found == [("update/conv1/weight", 0), ("update/conv2/weight", 1)]


def test_names_are_no_markup(right: Pair) -> None:
    """A name in square brackets is shown as it is."""
    comparison = replace(right[0], not_judged=[])
    comparison.skip("[red]steps/0[/red] [/bold]", NO_STEP, "unknown [name]", unknown=True)
    assert "not judged: [red]steps/0[/red] [/bold]: unknown [name]" in "\n".join(printed((comparison, right[1])))


# --- JSON ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def check(root: Path) -> Callable[[dict], None]:
    schema = json.loads((root / "docs" / "verdict.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(strict(schema)).validate


class Tf32(Operations):
    """Every product of operands with 10 bits of fraction."""

    def conv(self, layer, x, w, b):
        low = [torch.from_numpy(round_fraction(v.numpy(), 10)) for v in (x, w)]
        return super().conv(layer, *low, b)


def results(small_fixture: Path, small_result: Path, wrong_result: Path, tmp_path: Path) -> dict[str, tuple[Path, int]]:
    """Results of all kinds, and the exit code of each."""
    last = {f"steps/{k}/weights/conv1/bias": lambda w: None for k in (1, 2)}
    return {
        "right": (small_result, 0), "wrong": (wrong_result, 1),
        "nan": (plant(small_result, tmp_path / "nan.h5", {"steps/0/loss": lambda loss: loss * np.nan}), 1),
        "part": (keep(small_result, tmp_path / "part.h5", lambda name: "/forward/conv1" in name, head=False), 4),
        "hidden": (plant(small_result, tmp_path / "hidden.h5", last), 4),
        "zero": (plant(small_result, tmp_path / "zero.h5", {"steps/0/grads/input": lambda g: 0 * g}), 1),
        "low": (train(small_fixture, tmp_path / "low.h5", Tf32), 3),
    }


def test_real_documents_follow_the_schema(check: Callable, small_fixture: Path, small_result: Path, wrong_result: Path,
                                          tmp_path: Path) -> None:
    for name, (result, code) in results(small_fixture, small_result, wrong_result, tmp_path).items():
        files = {kind: tmp_path / f"{name}.{kind}" for kind in ("json", "report", "junit")}
        given = [part for kind, path in files.items() for part in (f"--{kind}", str(path))]
        assert ask(small_fixture, result, *given).code == code, name
        document = json.loads(files["json"].read_text(encoding="utf-8"))
        check(document)
        assert document["exit_code"] == code
        assert document["environment"]["fixture"]["torch_version"] == str(torch.__version__)
        assert document["environment"]["result"]["file"] == result.name
        Balanced.read(files["report"].read_text(encoding="utf-8"))
        assert ElementTree.parse(files["junit"]).getroot().tag == "testsuites"
        outcomes = {tensor["zone"] for tensor in document["tensors"]}
        if name == "low":
            assert "precision" in outcomes and "bug" not in outcomes
            (low,) = document["lower_precisions"]
            assert (low["name"], low["tensor"], low["proven"]) == ("TF32", "forward/conv1", True)
        elif code == 1:
            assert "bug" in outcomes


def test_hand_made_documents_follow_the_schema(check: Callable, wrong: Pair, right: Pair) -> None:
    for pair in (wrong, right, (of(Judged("loss", 0, stat(math.nan))), Verdict(Outcome.BUG, "BUG"))):
        check(json.loads(json.dumps(to_dict(pair, bitwise={"compared": 3, "differing": 0}, seconds=1.5))))
    document = to_dict(wrong)
    first, second = document["faults"]
    assert [kind["key"] for kind in first["explanations"][1]["kinds"]] == ["channels_swapped", "kernel_flipped"]
    assert first["runner_up"]["T"] == 8e4 and second["T"] is None and second["explanations"] == []
    assert document["diagnosis"] == {
        "pattern": DIAGNOSIS.pattern, "hypotheses": 412, "seconds": 3.21, "complete": True, "not_searched": 0,
        "missing": []}
    assert [one["key"] for one in document["adequacy"]["blind"]] == ["channels_swapped"]


def test_the_numbers_of_a_tensor_stand_under_their_names() -> None:
    found = Statistic(t=2.0, error=3.0, at=(1, 4), found=5.0, expected=7.0, bound=11.0, elements=13, dot=12.0,
                      norm_found=9.0, norm_expected=64.0, norm_error=16.0)
    (tensor,) = to_dict((of(Judged("loss", 6, found)), Verdict(Outcome.BUG, "BUG")))["tensors"]
    names = ("name", "step", "T", "max_error", "bound", "relative_error", "cosine", "at", "found", "expected",
             "elements", "nonfinite")
    assert [tensor[name] for name in names] == ["loss", 6, 2.0, 3.0, 11.0, 0.5, 0.5, [1, 4], 5.0, 7.0, 13, 0]


@pytest.mark.parametrize("spoil", [
    lambda d: d.pop("verdict"), lambda d: d.update(new=1), lambda d: d["tensors"][0].pop("T"),
    lambda d: d["tensors"][0].update(zone="fine"), lambda d: d["tensors"][0].update(at=[-1]),
    lambda d: d.update(exit_code=2),
])
def test_the_schema_refuses_other_documents(check: Callable, right: Pair, spoil: Callable[[dict], object]) -> None:
    document = to_dict(right)
    check(document)
    spoil(document)
    with pytest.raises(jsonschema.ValidationError):
        check(document)


def test_every_key_is_described(root: Path, right: Pair) -> None:
    """And those of version 1 are all there."""
    words = (root / "docs" / "json.md").read_text(encoding="utf-8")
    document = to_dict(right)
    assert {"json_version", "verdict", "exit_code", "words", "hints", "precision", "batch_shape", "steps", "tensors",
            "not_judged", "reference_T", "oracle_T", "divergence", "environment"} <= set(document)
    assert {"name", "step", "T", "passed", "max_error", "bound", "relative_error", "cosine", "at", "found", "expected",
            "elements", "nonfinite", "note"} <= set(document["tensors"][0])
    for key in [*document, *document["tensors"][0]]:
        assert re.search(rf"`{key}(\[\])?`", words), key


# --- JUnit --------------------------------------------------------------------------------------------------


def test_junit(wrong: Pair) -> None:
    comparison = replace(wrong[0], not_judged=[])
    comparison.skip("steps/0/what\x01<is>\ud800", NO_STEP, "unknown name", unknown=True)
    root = ElementTree.fromstring(suite(comparison, wrong[1]).encode("utf-8"))
    (found,) = root
    cases = {(case.get("classname"), case.get("name")): case for case in found}
    assert int(found.get("tests")) == len(found) == len(cases) == len(comparison.judged) + 2
    failed = [case for case in found if case.find("failure") is not None]
    assert int(found.get("failures")) == len(failed) == len(comparison.failures) + 1
    first = cases["bridge.grads", "grads/conv2/weight [step 1]"].find("failure")
    assert first.get("type") == "bug" and re.match(r"T = \S+ at \(.*right is", first.get("message"))
    assert "Kernel flipped" in cases["bridge.verdict", "verdict"].find("failure").text
    assert cases["bridge.grads", "grads/conv2/weight [step 0]"].find("failure") is None
    (skipped,) = (case for case in found if case.find("skipped") is not None)
    assert skipped.get("name") == "steps/0/what?<is>?" and skipped.find("skipped").get("message") == "unknown name"
    assert found.get("skipped") == "1"


# --- files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--json", "--report", "--junit"])
def test_a_file_that_cannot_be_made_is_found_first(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(compare, "judge_pair", lambda *given: pytest.fail("the work has begun"))
    path = str(tmp_path / "none" / "file")
    assert compare.main(["none.h5", "none.h5", option, path]) == 2
    assert capsys.readouterr().err == f"bridge.compare: {option} {path}: no such folder\n"


@pytest.mark.parametrize("option, function",
                         [("--report", "page"), ("--junit", "write_text"), ("--json", "write_json")])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError()])
def test_a_report_that_fails_late_never_hides_a_bug(option: str, function: str, error: Exception, small_fixture: Path,
                                                    small_result: Path, wrong_result: Path, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        raise error

    monkeypatch.setattr(outputs, function, fail)
    for result, code in ((small_result, 2), (wrong_result, 1)):
        answer = ask(small_fixture, result, option, str(tmp_path / "file"))
        assert answer.code == code and answer.errors.splitlines()[-1].startswith(f"bridge.compare: {option} ")


def test_reports_replace_older_ones_in_one_piece(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    for option in ("--report", "--junit", "--json"):
        (tmp_path / "file").write_text("old", encoding="utf-8")
        assert ask(small_fixture, small_result, option, str(tmp_path / "file")).code == 0
        assert (tmp_path / "file").read_text(encoding="utf-8") != "old"
        assert [path.name for path in tmp_path.iterdir()] == ["file"]
