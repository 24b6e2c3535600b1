# SPDX-License-Identifier: MIT
"""Several answers with one conclusion: their JSON, JUnit XML and HTML."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from bridge.engine.network.functional import conv2d_backward
from bridge.gradcheck import __main__ as gradcheck
from bridge.identities import __main__ as identities
from bridge.judge.measure.outcome import Outcome
from bridge.report import outputs
from bridge.report.junit import Answer
from bridge.report.series import Series, series_page, series_suite
from bridge.validate import __main__ as validate
from bridge.validate import experiments
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.operations import Operations
from tests.helpers.candidates import keep
from tests.helpers.judged.report_reader import strict


@dataclass
class Files:
    """What a command wrote."""

    code: int
    document: dict[str, Any]
    cases: dict[str, str | None]
    page: str


class Ask:
    """Run a command with all three files, and hold its JSON against the schema."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        schema = json.loads((root / "docs" / "answers.schema.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator.check_schema(schema)
        self.schema = jsonschema.Draft202012Validator(strict(schema))

    def __call__(self, main: Any, *arguments: object) -> Files:
        paths = {name: self.folder / f"v.{name}" for name in ("json", "report", "junit")}
        options = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
        code = main([*map(str, arguments), *options])
        texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
        document = json.loads(texts["json"])
        self.schema.validate(document)
        assert document["exit_code"] == code
        (suite,) = ElementTree.fromstring(texts["junit"])
        cases = {case.attrib["name"]: None if (bad := case.find("failure")) is None else bad.attrib["type"]
                 for case in suite}
        assert int(suite.attrib["tests"]) == len(cases) and suite.attrib["name"].startswith("bridge.")
        assert int(suite.attrib["failures"]) == sum(one is not None for one in cases.values())
        assert "<script" not in texts["report"] and document["words"] in unescape(texts["report"])
        return Files(code, document, cases, unescape(texts["report"]))


@pytest.fixture
def ask(tmp_path: Path, root: Path) -> Ask:
    return Ask(tmp_path, root)


class Flipped(Operations):
    """Every filter gradient is flipped."""

    def filter_gradient(self, layer: Any, *given: Any) -> Any:
        return super().filter_gradient(layer, *given).flip(2, 3)


@pytest.fixture
def flipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that is validated flips its filter gradients where images are large enough."""

    def program(fixture: Path, result: Path, *given: object) -> None:
        right = "-8" in fixture.name or "probe1" in fixture.name
        train(fixture, result, Operations if right else Flipped)

    monkeypatch.setattr("bridge.validate.run.run_cnn_step", program)
    monkeypatch.setattr(experiments, "PROBES", {"first": {"size": "8x16", "steps": 1},
                                                "second": {"size": "16x8", "steps": 1}})


@pytest.mark.deep
def test_sizes_of_a_wrong_program(ask: Ask, flipped: None) -> None:
    found = ask(validate.main, "--sizes", "8,12", "--no-diagnosis")
    assert found.code == 1
    assert found.cases == {"verdict": "bug", "8": None, "12": "bug"}
    assert [one["verdict"] for one in found.document["sizes"]] == ["rounding", "bug"]
    assert "The worst: 12" in found.page and "Where the errors are" in found.page and "max T" in found.page


@pytest.mark.deep
def test_probes_of_a_wrong_program(ask: Ask, flipped: None) -> None:
    found = ask(validate.main, "--probe", "--no-diagnosis")
    assert found.code == 1
    assert found.cases == {"verdict": "bug", "first": None, "second": "bug"}
    assert found.document["words"].startswith("1 of 2 probes exact. second: BUG: ")
    assert "The worst: second" in found.page and "EXACT: all" in found.page


def test_checks(ask: Ask) -> None:
    found = ask(validate.main, "--checks", "--size", "8x10", "--steps", "1")
    assert found.code == 0 and set(found.cases.values()) == {None}
    names = [one["name"] for one in found.document["checks"]]
    assert list(found.cases) == ["verdict", *names] and len(names) == 25
    assert all(name in found.page for name in names)


def test_identities(ask: Ask, small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    found = ask(identities.main, small_fixture, small_result)
    assert found.code == 0 and set(found.cases.values()) == {None}
    assert len(found.cases) == 1 + 9 == 1 + len(found.document["identities"])
    wrong = ask(identities.main, small_fixture, train(small_fixture, tmp_path / "wrong.h5", Flipped))
    assert wrong.code == 1 and wrong.cases["conv2, step 0"] == wrong.cases["verdict"] == "bug"
    first = next(one for one in wrong.document["identities"] if one["verdict"] == "bug")
    assert first["implicated"].startswith("the filter gradient") and first["implicated"] in wrong.page
    part = keep(small_result, tmp_path / "part.h5", lambda name: not name.endswith("grads/input"))
    some = ask(identities.main, small_fixture, part).document["identities"]
    assert min(len(one["products"]) for one in some) == 2


def test_gradients(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ask(gradcheck.main, "relu", "--points", "4")
    assert found.code == 0 and found.document["verdict"] == "right"
    assert found.cases == {"verdict": None} | {f"relu: {what} {dtype}": None for what in ("input", "oracle")
                                               for dtype in ("float64", "float32")}

    def wrong_backward(*given: Any, **named: Any) -> Sequence[Any]:
        return tuple(None if one is None else 1.5 * one for one in conv2d_backward(*given, **named))

    monkeypatch.setattr(importlib.import_module("bridge.gradcheck.operations"), "conv2d_backward", wrong_backward)
    wrong = ask(gradcheck.main, "bridge.conv2d", "--points", "4")
    assert wrong.code == 1 and wrong.document["verdict"] == "wrong" and wrong.cases["verdict"] == "bug"
    assert "the difference says" in wrong.page


def test_an_input_is_not_replaced(small_fixture: Path, small_result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = small_result.read_bytes()
    assert identities.main([str(small_fixture), str(small_result), "--junit", str(small_result)]) == 2
    assert "would replace RESULT" in capsys.readouterr().err and small_result.read_bytes() == before


SERIES = Series("sizes", "a <title>", Outcome.BUG, "BUG & more",
                [Answer("8", Outcome.ROUNDING, "right"), Answer("<9>", Outcome.BUG, "wrong", ["look <there>"])],
                ("name", "T"), [["<9>", "1.0e+03"]], ("<9>", "<p>the run</p>"),
                ["<fixture>.h5", "result.h5"])


def test_texts_are_escaped() -> None:
    page = series_page(SERIES)
    assert "<9>" not in page and "<title>BUG: a &lt;title&gt;, result.h5</title>" in page
    assert "<b>&lt;fixture&gt;.h5</b>" in page
    assert "look &lt;there&gt;" in page and "<p>the run</p>" in page
    assert ElementTree.fromstring(series_suite(SERIES).partition("\n")[2])[0].attrib["failures"] == "2"


def test_a_file_that_fails_keeps_the_verdict(monkeypatch: pytest.MonkeyPatch, small_fixture: Path, small_result: Path,
                                             tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report that cannot be made spoils only a good exit code, and no other file."""

    def fail(series: Series) -> str:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(outputs, "series_page", fail)
    wrong = train(small_fixture, tmp_path / "wrong.h5", Flipped)
    for result, code in ((small_result, 2), (wrong, 1)):
        made = [f"--{name}={tmp_path / name}" for name in ("json", "report", "junit")]
        assert identities.main([str(small_fixture), str(result), *made]) == code
        assert "surprise" in capsys.readouterr().err
        assert (tmp_path / "json").is_file() and (tmp_path / "junit").is_file()
