# SPDX-License-Identifier: MIT
"""Every code block of the documents runs, each document in a clean folder, from top to bottom."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridge.exchange.model import Model
from reference.model import ThreeLayerCNN
from tests import ROOT
from tests.helpers.library.documents import LEFT_OUT, Reader, blocks, commands, here, left_out
from tests.helpers.tiers import few

DOCUMENTS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def judge_page(folder: Path, fixture: Path, result: Path) -> dict[str, Any]:
    """A micrograph of their own."""
    mrcfile = pytest.importorskip("mrcfile")
    with mrcfile.new(folder / "micrograph.mrc") as file:
        file.set_data(np.random.default_rng(0).standard_normal((200, 300)).astype(np.float32))
    return {}


def cuda(folder: Path, fixture: Path, result: Path) -> dict[str, Any]:
    """The default net and its data, some of it on the GPU already."""
    import bridge

    shutil.copy(fixture, folder / "fixture.h5")
    rng = np.random.default_rng(0)
    inputs, targets = rng.standard_normal((2, 3, 2, 1, 12, 16), dtype=np.float32)
    weight, bias = rng.standard_normal((4, 1, 3, 3), dtype=np.float32), np.zeros(4, np.float32)
    there = {"x": inputs[0], "target": targets[0], "weight": weight, "bias": bias}
    names = {name: bridge.DeviceArray.from_numpy(array, "cuda") for name, array in there.items()}
    return names | {"bridge": bridge, "module": ThreeLayerCNN(), "inputs": inputs, "targets": targets, "steps": 3}


def exchange_file(folder: Path, fixture: Path, result: Path) -> dict[str, Any]:
    """A file to read, and a tensor as some program keeps it: (h, w, c, n), upside down."""
    shutil.copy(fixture, folder / "fixture.h5")
    return {"np": np, "numbers": np.arange(120.0), "dims": (5, 4, 3, 2), "order": "C", "layout": "HWCN", "flip": "H"}


def json_files(folder: Path, fixture: Path, result: Path) -> dict[str, Any]:
    """The two files that are compared."""
    shutil.copy(fixture, folder / "fixture.h5")
    shutil.copy(result, folder / "result.h5")
    return {}


def train(folder: Path, fixture: Path, result: Path) -> dict[str, Any]:
    """A network, movies, and a short training of it."""
    mrcfile = pytest.importorskip("mrcfile")
    (folder / "my_nets.py").write_text("from torch import nn\n\n\ndef denoiser():\n    return nn.Sequential("
                                       "nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))\n",
                                       encoding="utf-8")
    for kind in ("movies", "held_out"):
        (folder / kind).mkdir()
        for number in range(3):
            with mrcfile.new(folder / kind / f"{number}.mrcs") as file:
                file.set_data(np.random.default_rng(number).standard_normal((4, 20, 24)).astype(np.float32))
                file.set_image_stack()
    (toml,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/train.md").read_text(encoding="utf-8"), re.DOTALL)
    for shown, short in (("[512, 512]", "[16, 16]"), ("10000", "12"), ("validate_every = 500", "validate_every = 6")):
        assert shown in toml
        toml = toml.replace(shown, short)
    (folder / "train.toml").write_text(toml, encoding="utf-8")
    return {}


def apply(folder: Path, fixture: Path, result: Path) -> dict[str, Any]:
    """A checkpoint, a network, micrographs and a stack."""
    mrcfile = pytest.importorskip("mrcfile")
    from bridge import Conv2d, Network
    from bridge.train import checkpoints
    from bridge.train.settings import TrainSettings
    from bridge.train.used import Used

    network = Network(Model((Conv2d("1", 1, 1, (3, 3), padding=(1, 1)),)))
    network.parameters["1.weight"][...] = 1
    (folder / "run").mkdir()
    data = json.dumps({"inputs": "in/*.mrc", "normalization": "image"})
    progress = checkpoints.Progress(TrainSettings(steps=1), used=Used(data=data))
    checkpoints.save(folder / "run/step-000010000.h5", network, progress)
    network.save(folder / "net.h5")
    (folder / "in").mkdir()
    for number in range(2):
        with mrcfile.new(folder / f"in/{number}.mrc") as file:
            file.set_data(np.random.default_rng(number).standard_normal((40, 30)).astype(np.float32))
    np.save(folder / "stack.npy", np.random.default_rng(2).standard_normal((3, 40, 30)))
    return {}


def tutorial(folder: Path, fixture: Path, result: Path) -> dict[str, Any]:
    """The two files that a reader is told to write, and a short training."""
    pytest.importorskip("mrcfile")
    written = blocks((ROOT / "docs/tutorial.md").read_text(encoding="utf-8"))
    (module,) = (one.text for one in written if "def denoiser" in one.text)
    (toml,) = (one.text for one in written if one.language == "toml")
    for shown, short in (("steps = 2000", "steps = 8"), ("steps=2000", "steps=8"), ("warm_up=50", "warm_up=2"),
                         ("every = 500", "every = 4")):
        assert shown in toml
        toml = toml.replace(shown, short)
    (folder / "my_nets.py").write_text(module, encoding="utf-8")
    (folder / "train.toml").write_text(toml, encoding="utf-8")
    return {}


#: What a document takes for granted: files in its folder, names in its Python
GIVEN: dict[str, Callable[[Path, Path, Path], dict[str, Any]]] = {
    "docs/judge.md": judge_page, "docs/cuda.md": cuda, "docs/exchange-file.md": exchange_file,
    "docs/json.md": json_files, "docs/train.md": train, "docs/apply.md": apply, "docs/tutorial.md": tutorial}
#: Programs without which a document cannot be read
NEEDED = {"docs/exchange-file.md": "h5fc", "docs/json.md": "jq", "docs/train.md": "mpirun"}


@pytest.mark.parametrize("name", few(DOCUMENTS, "README.md".__eq__))
def test_every_block_runs(name: str, small_fixture: Path, small_result: Path, tmp_path: Path,
                          monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if not here(NEEDED.get(name, "bash")):
        pytest.skip(f"skipped, because {NEEDED[name]} is not on the search path")
    if name == "docs/cuda.md":
        request.getfixturevalue("cuda")
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path, GIVEN[name](tmp_path, small_fixture, small_result) if name in GIVEN else {})
    for block in blocks((ROOT / name).read_text(encoding="utf-8")):
        reader.read(block)
    if name == "docs/exchange-file.md":
        assert len(Model.from_json(json.dumps(reader.names["shown"])).layers) == 3
        value, turned = reader.names["numbers"].reshape(5, 4, 3, 2), reader.names["tensor"]
        assert turned.shape == (2, 3, 5, 4) and turned[1, 2, 0, 3] == value[4, 3, 2, 1]


def test_nothing_is_left_out_that_is_not_there() -> None:
    """Every reason for not running is used, and a line without one runs."""
    lines = [command for name in DOCUMENTS for block in blocks((ROOT / name).read_text(encoding="utf-8"))
             if block.language == "console" for command in commands(block)]
    assert {left_out(command) for command in lines} == {*LEFT_OUT, None}
    assert sum(left_out(command) is None for command in lines) >= 8


@pytest.mark.parametrize(("block", "error"), [
    ("```console\n$ python -m bridge.compare none.h5 none.h5\n```\n", AssertionError),
    ("```console\nno prompt\n```\n", AssertionError),
    ("```python\nno_such_name\n```\n", NameError),
    ("```python\ndef test_it():\n    assert subprocess\n```\n", AssertionError),
    ("```json\n{\n```\n", ValueError),
    ("```fortran\nprogram p\n   x = undeclared(1\nend program\n```\n", AssertionError),
    ("```cobol\nSTOP RUN.\n```\n", AttributeError),
])
def test_a_wrong_block_fails(block: str, error: type[Exception], tmp_path: Path) -> None:
    """A language that nobody decided on, too."""
    if "fortran" in block and not here("h5fc"):
        pytest.skip("skipped, because h5fc is not on the search path")
    (one,) = blocks(block)
    with pytest.raises(error):
        Reader(tmp_path, {}).read(one)


def test_the_readme_is_read_in_a_minute(root: Path) -> None:
    assert len((root / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
