# SPDX-License-Identifier: MIT
"""Whatever fails after the comparison is missing, and nothing else: verdict, exit code and all files are there."""

from __future__ import annotations

import copy
import importlib
import json
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree

import h5py
import jsonschema
import numpy as np
import pytest

from bridge.common.errors import FileError
from bridge.common.stages import attempt
from bridge.judge.diagnosis.search import Search
from bridge.judge.judge import judge, judge_pair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict, unanswered
from bridge.testing import assert_step_matches
from bridge.validate import __main__ as validate
from tests.helpers.candidates import ask, plant
from tests.helpers.tiers import few, few_rows

GRADIENT = "steps/0/grads/conv2/weight"

#: Module, function, and what the line says that is missing
STAGES = [
    ("bridge.judge.judge", "diagnose", "the search for the fault"),
    ("bridge.judge.diagnosis.diagnose", "Search", "the search for the fault in grads/conv2/weight of step 0"),
    ("bridge.judge.diagnosis.diagnose", "pattern", "the search for the fault"),
    ("bridge.judge.diagnosis.background", "compute_adequacy", "what these data can show"),
    ("bridge.report.terminal", "finding_lines", "the faults, on the terminal"),
    ("bridge.report.terminal", "table", "the table, on the terminal"),
    ("bridge.report.terminal", "facts", "the facts, on the terminal"),
    ("bridge.report.terminal", "adequacy_lines", "what these data can show, on the terminal"),
    ("bridge.report.html_page", "title", "what was compared, in the report"),
    ("bridge.report.html_page", "faults", "What is wrong, in the report"),
    ("bridge.report.html_page", "tensor_table", "Tensors, in the report"),
    ("bridge.report.html_page", "error_map", "Where the errors are, in the report"),
    ("bridge.report.html_page", "scatter", "Where the errors are, in the report"),
    ("bridge.report.html_page", "dots", "T of every tensor, in the report"),
    ("bridge.report.html_page", "headline", "the headline, in the report"),
    ("bridge.report.html_page", "pictures", "Where the errors are, in the report"),
    ("bridge.report.html_page", "curve", "Over the steps, in the report"),
    ("bridge.report.html_page", "adequacy_tables", "What these data can show, in the report"),
    ("bridge.report.html_page", "not_judged_lines", "Not judged, in the report"),
    ("bridge.report.html_page", "origins", "Environment, in the report"),
    ("bridge.report.json_report", "environment", "environment, in the JSON"),
    ("bridge.report.json_report", "outcomes_of_steps", "step_zones, in the JSON"),
    ("bridge.report.json_report", "kappa", "tensors, in the JSON"),
    ("bridge.report.junit", "finding_lines", "the faults, in the JUnit file"),
    ("bridge.report.junit", "_judged", "the tensors, in the JUnit file"),
]


@pytest.fixture(scope="module")
def wrong(small_fixture: Path, small_result: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wrong") / "wrong.h5"
    return plant(small_result, path, {GRADIENT: lambda g: g[:, :, ::-1, ::-1]})


@pytest.fixture(scope="module")
def judged(small_fixture: Path, wrong: Path) -> tuple[Comparison, Verdict]:
    return judge(small_fixture, wrong)


def broken(monkeypatch: pytest.MonkeyPatch, module: str, name: str, error: BaseException | None = None) -> None:
    def fail(*given: object, **more: object) -> NoReturn:
        raise error or ValueError("planted")

    monkeypatch.setattr(importlib.import_module(module), name, fail)


@pytest.mark.parametrize(("module", "name", "said"), few_rows(STAGES, 4), ids=lambda value: value.rpartition(".")[2])
def test_a_stage_that_fails_takes_nothing_with_it(
    module: str, name: str, said: str, root: Path, small_fixture: Path, wrong: Path, tmp_path: Path,
    judged: tuple[Comparison, Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    if module.startswith("bridge.report"):
        monkeypatch.setattr("bridge.compare.judge_pair", lambda *given, **more: copy.deepcopy(judged))
    broken(monkeypatch, module, name)
    options = [f"--{kind}" for kind in ("json", "report", "junit")]
    files = [tmp_path / f"out{option}" for option in options]
    given = (text for pair in zip(options, map(str, files), strict=True) for text in pair)
    answer = ask(small_fixture, wrong, *given, diagnosing=True)
    assert answer.code == 1
    assert "BUG: grads/conv2/weight of step 0 is wrong" in answer.words
    document, page, junit = (path.read_text(encoding="utf-8") for path in files)
    jsonschema.validate(json.loads(document), json.loads((root / "docs/verdict.schema.json").read_text()))
    assert json.loads(document)["verdict"] == "bug" and "BUG: grads/conv2/weight" in page
    case = ElementTree.fromstring(junit).find(".//testcase[@name='verdict']")
    assert case is not None and case.find("failure") is not None
    # Where it failed it is said, and in what is written after that
    line = f"{said}: ValueError: planted"
    where = {"in the report": page, "in the JSON": document, "in the JUnit file": junit}
    text = next((text for place, text in where.items() if place in said), answer.words)
    assert line in " ".join(text.split()), text
    assert "Traceback" in answer.errors and "planted" in answer.errors


def test_a_right_result_stays_right(small_fixture: Path, small_result: Path, tmp_path: Path,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """What is only shown besides is no reason for another exit code."""
    broken(monkeypatch, "bridge.judge.diagnosis.background", "compute_adequacy", MemoryError())
    answer = ask(small_fixture, small_result, "--json", str(tmp_path / "out.json"), diagnosing=True)
    assert answer.code == 0 and "Traceback" not in answer.errors
    assert json.loads((tmp_path / "out.json").read_text())["missing"] == ["what these data can show: not enough memory"]


@pytest.mark.parametrize("name", ["decide", "compare"])
def test_what_carries_the_verdict_itself_does_fail(
    name: str, small_fixture: Path, wrong: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, "bridge.judge.judge", name)
    with pytest.raises(ValueError, match="planted"):
        judge(small_fixture, wrong)


def test_a_lower_precision_that_nobody_could_look_for_is_doubt(
    small_fixture: Path, wrong: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that look a program in TF32 would be called wrong."""
    broken(monkeypatch, "bridge.judge.arithmetic.precision", "recognise")
    verdict = judge(small_fixture, wrong, diagnosing=False)[1]
    assert verdict.outcome is Outcome.CANNOT_TELL and "Whether lower precision explains it" in verdict.words
    assert [line.partition(":")[0] for line in verdict.missing] == ["the look for a lower precision"]
    # A fault that is found by what it predicts needs no such look
    assert judge(small_fixture, wrong, adequacy=False)[1].outcome is Outcome.BUG


@pytest.mark.parametrize("error", few([ValueError("planted"), FileError("second.h5: planted")], 1))
def test_a_second_run_that_cannot_be_compared(error: Exception, small_fixture: Path, small_result: Path, wrong: Path,
                                              tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug stays one; what is right is not yet repeatable."""
    broken(monkeypatch, "bridge.compare", "compare_runs", error)
    second = tmp_path / "second.h5"
    second.write_bytes(small_result.read_bytes())
    for result, code in ((small_result, 4), (wrong, 1)):
        document = tmp_path / f"{code}.json"
        answer = ask(small_fixture, result, "--again", str(second), "--json", str(document))
        assert answer.code == code and "the comparison of the two runs" in answer.words
        assert json.loads(document.read_text())["exit_code"] == code


@pytest.mark.deep
def test_validate_goes_on_without_its_second_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    broken(monkeypatch, "bridge.validate.run", "repeated")
    document = tmp_path / "out.json"
    assert validate.main(["--size", "10x12", "--steps", "1", "--no-diagnosis", "--json", str(document)]) == 4
    said = capsys.readouterr().out
    assert "CANNOT TELL: the same steps through the Python extension: ValueError: planted" in " ".join(said.split())
    found = json.loads(document.read_text())
    assert found["verdict"] == "cannot_tell" and "bitwise" not in found and "RIGHT" in found["hints"][0]


@pytest.mark.deep
@pytest.mark.parametrize(("options", "function"), [
    (["--size", "10x12", "--precision", "float64"], "plot_precisions"),
    (["--sizes", "8x10,10x12"], "plot_sizes"),
])
def test_a_plot_that_fails_takes_no_json_with_it(options: list[str], function: str, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    door = "bridge.validate.__main__" if "precisions" in function else "bridge.validate.experiments"
    broken(monkeypatch, door, function)
    document, plot = tmp_path / "out.json", tmp_path / "out.png"
    given = [*options, "--steps", "1", "--no-diagnosis", "--plot", str(plot), "--json", str(document)]
    assert validate.main(given) == 2
    assert f"MISSING: --plot {plot}: ValueError: planted" in capsys.readouterr().out
    assert json.loads(document.read_text())["verdict"] == "rounding" and not plot.exists()


def test_a_report_that_cannot_be_written_hides_no_bug(small_fixture: Path, small_result: Path, wrong: Path,
                                                      tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a test of one's own: the verdict and what is missing, or what is missing."""
    broken(monkeypatch, "bridge.testing", "page")
    with pytest.raises(AssertionError, match=r"(?s)BUG: grads/conv2/weight.*MISSING: report .*planted"):
        assert_step_matches(small_fixture, wrong, report=tmp_path / "out.html")
    with pytest.raises(FileError, match=r"report .*out\.html: ValueError: planted"):
        assert_step_matches(small_fixture, small_result, report=tmp_path / "out.html")


@pytest.mark.parametrize("function", few(["page", "suite", "to_dict"], 1))
def test_a_file_that_cannot_be_made_at_all(function: str, small_fixture: Path, wrong: Path, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, and the others are written."""
    broken(monkeypatch, "bridge.report.outputs", function)
    options = [f"--{kind}" for kind in ("json", "report", "junit")]
    given = [text for option in options for text in (option, str(tmp_path / f"out{option}"))]
    answer = ask(small_fixture, wrong, *given, diagnosing=True)
    assert answer.code == 1 and "ValueError: planted" in answer.errors
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_program_passes_through(error: type[BaseException]) -> None:
    def work() -> NoReturn:
        raise error

    with pytest.raises(error):
        attempt([], "a stage", work, None)


def test_only_what_was_right_is_put_in_doubt() -> None:
    for outcome in Outcome:
        found = unanswered(Verdict(outcome, "before"), ["why"])
        assert found.missing == ["why"]
        doubted = (Outcome.CANNOT_TELL, "CANNOT TELL: why.")
        assert (found.outcome, found.words) == (doubted if outcome is Outcome.ROUNDING else (outcome, "before"))


# --- a place is no explanation ------------------------------------------------------------------------------


def nudged(result: Path, path: Path, by: float) -> Path:
    """One element of a filter gradient moved; the weights that follow from it are left out."""
    with h5py.File(plant(result, path, {GRADIENT: lambda g: g}), "r+") as file:
        file[GRADIENT][1, 2, 0, 1] += np.float32(by)
        for k in (1, 2, 3):
            del file[f"steps/{k}"]
    return path


def test_a_place_makes_no_bug_of_what_rounding_may_be(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    """One element a few E off, as transforms of the input leave it, is not "corrupted" beyond doubt."""
    path, by = tmp_path / "nudged.h5", 1e-6
    for _ in range(2):
        comparison, _ = judge(small_fixture, nudged(small_result, path, by), diagnosing=False)
        by *= 3.6 / comparison.failures[0].t
    _, verdict = judge(small_fixture, path, adequacy=False)
    assert verdict.diagnosis is not None
    (finding,) = verdict.diagnosis.findings
    assert 3 < finding.t < 4 and finding.explanations[0].by_place, finding
    assert verdict.outcome is Outcome.CANNOT_TELL, verdict.words
    assert "So says the place" in ask(small_fixture, path, diagnosing=True).words


def test_the_search_ends_in_time(small_fixture: Path, wrong: Path) -> None:
    """Nothing is tried without time, and the wrong tensors that nobody looked at are counted."""
    verdict = judge(small_fixture, wrong, adequacy=False, seconds=0.0)[1]
    found = verdict.diagnosis
    assert verdict.outcome is Outcome.BUG and found is not None
    assert not found.findings and not found.complete and found.not_searched > 0 and found.seconds < 5
    assert "not looked at" in ask(small_fixture, wrong, "--diagnosis-time", "0", diagnosing=True).words
    for text in ("soon", "-1", "nan"):
        with pytest.raises(SystemExit):
            ask(small_fixture, wrong, "--diagnosis-time", text, diagnosing=True)


@pytest.mark.deep
def test_the_sample_of_a_costly_gradient_is_enough(small_fixture: Path, small_result: Path, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise in a filter gradient that counts as costly reaches the search for two faults, which reads all elements."""
    monkeypatch.setattr("bridge.judge.diagnosis.search.COSTLY", 1)
    monkeypatch.setattr("bridge.judge.diagnosis.search.TWO_FAULTS", 2.0)
    seen: list[int] = []
    original = Search._all_layouts

    def counted(self: Search, *given: object) -> None:
        seen.append(len(self.sample))
        original(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Search, "_all_layouts", counted)
    rng = np.random.default_rng(0)
    path = plant(small_result, tmp_path / "noise.h5",
                 {GRADIENT: lambda g: g * rng.uniform(0.5, 1.5, g.shape).astype(g.dtype)})
    _, verdict = judge(small_fixture, path, adequacy=False)
    assert verdict.outcome is Outcome.BUG and verdict.missing == []
    assert seen and seen[0] < 16 * 16 * 9
    assert verdict.diagnosis is not None and not verdict.diagnosis.findings[0].explanations


@pytest.mark.deep
@pytest.mark.parametrize("options", [["--sizes", "8x10,10x12"], ["--probe", "--size", "8x8", "--batch", "4"],
                                     ["--size", "8x10", "--precision", "float64"]])
def test_every_run_of_a_validation_is_judged_as_asked(options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No run of an experiment is searched that was not to be, or longer."""
    asked: list[dict[str, object]] = []

    def seen(*given: object, **judging: object) -> tuple[Comparison, Verdict]:
        asked.append(judging)
        return judge_pair(*given, **judging)  # type: ignore[arg-type]

    monkeypatch.setattr("bridge.validate.run.judge_pair", seen)
    judging = ["--no-diagnosis", "--diagnosis-time", "7", "--allow", "fft"]
    assert validate.main([*options, "--steps", "1", *judging]) == 0
    wanted = {"diagnosing": False, "seconds": 7.0, "allow": ("fft",), "allow_unknown": False}
    assert asked and all(one == wanted for one in asked)
