# SPDX-License-Identifier: MIT
"""Networks of other packages: what is said of them, and a sample of those that are installed."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import h5py
import pytest
import torch
from torch import nn

from benchmarks.zoo import __main__ as zoo
from benchmarks.zoo.ask import Found, ask
from benchmarks.zoo.networks import NETWORKS, Entry
from benchmarks.zoo.page import Answers, document
from benchmarks.zoo.series import SEQUENCES
from bridge.common.cli import Output
from reference.network.layers import Layers

#: How many
SAMPLE = 4


class Small(nn.Module):
    """What the library has, and what it lacks; a bias behind which nothing is random."""

    def __init__(self, lacks: bool = False, wrong: bool = False) -> None:
        super().__init__()
        self.first, self.drop, self.norm = nn.Conv2d(1, 4, 3), nn.Dropout(0.5), nn.BatchNorm2d(4)
        self.lacks, self.wrong = lacks, wrong

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.drop(self.first(x)))
        if self.wrong:
            raise ValueError("no such size")
        return torch.sinh(y) if self.lacks else y


SHAPE = (2, 1, 8, 10)


def entry(**named: bool) -> Entry:
    return Entry(__name__, "Small", (), named, SHAPE)


def test_a_network_is_judged_and_trained() -> None:
    found = ask(entry())
    assert found == Found(entry().name, "yes", "yes")
    assert entry().make().drop.p == 0.0 and entry().installed


class Pair(nn.Module):
    """Of two inputs, and numbers that nothing learns."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.one(x) * self.other(y) + self.one(x) * torch.arange(2.0)


def test_several_inputs() -> None:
    one = Entry(__name__, "Pair", (), {}, [(2, 3), (2, 4)])
    assert ask(one) == Found(one.name, "yes", "yes")


class Config:
    """What a network of words is made of."""

    def __init__(self, words: int, inner: nn.Module) -> None:
        self.words, self.inner = words, inner


class Talks(nn.Module):
    """Takes words, and gives several outputs."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words, self.inner, self.half = nn.Embedding(config.words, 4), config.inner, 1.0

    def halve(self) -> None:
        self.half = 0.5

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.inner(self.words(x)) * self.half
        return {"y": y, "largest": y.argmax()}


class Inner(nn.Linear):
    """A part that another entry makes."""


def test_words_a_configuration_and_a_step_of_adamw(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Entry(__name__, "Inner", (4, 3))
    one = Entry(__name__, "Talks", (), {"words": 5, "inner": inner}, (2, 6), "y", below=5, config="Config", adamw=True,
                then="halve", label="words")
    assert one.name.endswith(" words") and one.make().half == 0.5
    assert ask(one) == Found(one.name, "yes", "yes")
    step = zoo.ask.__globals__["Network"].step
    monkeypatch.setattr(zoo.ask.__globals__["Network"], "step",
                        lambda net, x, t, how: step(net, x, t, replace(how, eps=1e-3)))
    assert ask(one).trained.partition(" is ")[0] not in ("yes", "the output in training")


def test_what_was_right_is_not_asked_again(tmp_path: Path) -> None:
    names = [one.name for one in NETWORKS[:3]]
    zoo.write(str(tmp_path / "zoo.json"), [Found(names[0], "yes", "yes", ("a",)), Found(names[1], "yes", "no"),
                                           Found(names[2], "no", "yes"), Found("nobody's", "yes", "yes")])
    assert zoo.right(str(tmp_path / "zoo.json")) == [Found(names[0], "yes", "yes", ("a",))]


def test_what_is_missing_is_said() -> None:
    lacking = ask(entry(lacks=True))
    assert lacking.judged == "yes" and lacking.estimated == ("aten.sinh.default",)
    assert "sinh: there is no such operation" in lacking.trained
    assert "(test_zoo.py, line " in lacking.trained
    wrong = ask(entry(wrong=True))
    assert wrong.judged == wrong.trained == "ValueError: no such size"


def test_a_library_that_is_wrong_is_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = zoo.ask.__globals__["Network"].forward
    monkeypatch.setattr(zoo.ask.__globals__["Network"], "forward", lambda net, x: forward(net, x) * 1.001)
    assert ask(entry()).trained.startswith("the output in training is 1.0e-03 of its largest number away")


def test_a_step_that_is_wrong_is_not_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs before it are right."""
    step = zoo.ask.__globals__["Network"].step
    monkeypatch.setattr(zoo.ask.__globals__["Network"], "step",
                        lambda net, x, t, how: step(net, x, t, replace(how, lr=1.01 * how.lr)))
    said = ask(entry()).trained
    assert said != "yes" and "the output in" not in said.replace("in evaluation after a step", "")


def test_what_is_known_is_kept_as_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    monkeypatch.setattr(zoo, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    monkeypatch.setattr(zoo, "ask", lambda one: Found(one.name, "yes", "yes"))
    monkeypatch.setattr(zoo, "write", lambda path, found: kept.append(len(found)))
    assert len(zoo.run([entry(), entry(lacks=True)], Output(stderr=True), 1, "a.json")) == 2
    assert kept == [1, 2]


class Dies(nn.Module):
    """Takes its process with it."""

    def __init__(self) -> None:
        os._exit(3)


def test_a_network_that_dies_takes_no_other_with_it() -> None:
    """They are asked at the same time."""
    died = Entry(__name__, "Dies", (), {}, SHAPE)
    found = {one.name: one.judged for one in zoo.run([died, entry()], Output(stderr=True), 2)}
    assert found == {died.name: "its process died", entry().name: "yes"}


def test_a_verdict_that_is_not_right_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = zoo.ask.__globals__
    write = inside["_by_float64"]

    def wrong(layers: Layers, fixture: Path, result: Path) -> None:
        write(layers, fixture, result)
        with h5py.File(result, "r+") as file:
            file["steps/0/loss"][...] *= 1.01

    monkeypatch.setitem(inside, "_by_float64", wrong)
    assert ask(entry()).judged.startswith("BUG: loss of step 0 is wrong")


def test_the_table_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                              capsys: pytest.CaptureFixture[str]) -> None:
    found = [Found("a b", "yes", "yes"),
             Found("a c", "yes", "it lacks | roll (/a/b.py, line 3)", ("aten.roll.default",))]
    monkeypatch.setattr(zoo, "NETWORKS", (entry(), Entry("no_such_package", "A")))
    monkeypatch.setattr(zoo, "run", lambda entries, *_: found if [one.installed for one in entries] == [True] else [])
    monkeypatch.setattr(zoo, "DOCUMENT", tmp_path / "zoo.md")
    assert zoo.main(["--json", str(tmp_path / "zoo.json"), "--document"]) == 0
    assert "networks: 2 judged: 2 trained: 1" in capsys.readouterr().out
    assert json.loads((tmp_path / "zoo.json").read_text())["networks"][1]["estimated"] == ["aten.roll.default"]
    text = (tmp_path / "zoo.md").read_text()
    assert "Judged: 2 of 2. Trained: 1 of 2." in text and "`aten.roll.default` (1)" in text
    assert "| a c | yes | it lacks / roll (line 3) | aten.roll.default |" in text


def test_names_are_there_once() -> None:
    names = [one.name for one in NETWORKS]
    assert len(names) >= 100 and len(set(names)) == len(names)
    of_sequences = [one.name for some in SEQUENCES.values() for one in some]
    assert len(of_sequences) >= 20 and len(set(of_sequences) | set(names)) == len(of_sequences) + len(names)


def test_sequences_have_their_own_section() -> None:
    found = [Found(SEQUENCES["neural operators"][0].name, "yes", "yes"),
             Found(SEQUENCES["transformers"][0].name, "yes", "it lacks gather")]
    text = document(Answers([Found("a", "yes", "yes")], {"torch": "1"}, 1), Answers(found, {"torch": "1"}, 3))
    assert "| transformers | 1 | 1 | 0 |" in text and "| neural operators | 1 | 1 | 1 |" in text
    assert "1 networks more were not asked yet (`--sequences --again` asks them)." in text
    assert text.index("| a | yes") < text.index("## Sequences and functions") < text.index("it lacks gather")


@pytest.mark.deep
def test_a_sample_of_what_is_installed() -> None:
    here = [one for one in NETWORKS if one.installed]
    if not here:
        pytest.skip("none of timm, torchvision, segmentation_models_pytorch, monai, deepinv, vit_pytorch is installed")
    for one in here[:: max(1, len(here) // SAMPLE)]:
        assert ask(one).judged == "yes", one.name


