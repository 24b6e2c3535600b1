# SPDX-License-Identifier: MIT
"""The sample reports of the site, made by the tool itself at small sizes.

``python -m docs.tools.samples FOLDER`` writes there:

- wrong.html, and wrong.txt for the front page: the verdict on the program of docs/gallery.md, whose filter gradients
  are flipped, and read in the wrong order; wrong-light.png and wrong-dark.png: one of them beside the right one
- right.html: the verdict on the same step without the mistakes
- training.html: a short training, audited
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from benchmarks.validator.exhibits import spoil
from bridge import compare
from bridge.engine.library import extension
from bridge.train import __main__ as train
from docs.tools import drawing
from reference.export import export
from reference.settings import ExportSettings
from reference.synthetic import synthetic_micrograph

#: Height and width of the images
SIZE = (96, 128)
#: Whose filter gradient is drawn
LAYER = "conv2"
#: Lines of the verdict on the front page
LINES = 6

TRAINING = """model = "denoiser:network"
output = "run"

[data]
inputs = "noisy.npy"
noise2noise = "consecutive"
batch = 4
crop = [64, 64]
normalization = "image"

[validation]
inputs = "held_out.npy"

[training]
steps = 150
schedule = "one_cycle steps=150"
validate_every = 50

[optimizer]
type = "adamw"
lr = 4e-3
"""

NETWORK = """from torch import manual_seed, nn


def network():
    manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=2), nn.ReLU(),
                         nn.Conv2d(8, 1, 5, padding=2))
"""


def judged(fixture: Path, result: Path, report: Path) -> tuple[int, str]:
    """Compare two files; return the exit code and what the command prints, and write its report."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = compare.main([str(fixture), str(result), "--report", str(report)])
    return code, printed.getvalue()


def verdicts(folder: Path) -> None:
    """Write the reports on a wrong program and on the repaired one."""
    with tempfile.TemporaryDirectory(prefix="samples-") as temporary:
        fixture, result = Path(temporary, "fixture.h5"), Path(temporary, "result.h5")
        export(fixture, ExportSettings(height=SIZE[0], width=SIZE[1], steps=1, lr=1e-3))
        extension.run_file(fixture, result)
        code, said = judged(fixture, result, folder / "right.html")
        assert code == 0, said
        spoil(fixture, result)
        code, said = judged(fixture, result, folder / "wrong.html")
        assert code == 1 and "ernel flipped" in said, said
        (folder / "wrong.txt").write_text("\n".join(said.splitlines()[:LINES]) + "\n", encoding="utf-8")
        with h5py.File(fixture) as reference, h5py.File(result) as candidate:
            name = f"steps/0/grads/{LAYER}/weight"
            draw(reference[name][()], candidate[name][()], folder / "wrong")


def draw(right: np.ndarray, found: np.ndarray, stem: Path) -> None:
    """Draw a filter gradient as it should be, as it is, and the difference; shape (k, c, r, s)."""
    limit = float(np.abs(right).max())
    shown = (("right", right), ("found", found), ("difference", found - right))
    drawing.draw([drawing.Panel(title, drawing.kernels(one), -limit, limit) for title, one in shown], stem, 7.2)


def training(folder: Path) -> None:
    """Train for a moment on synthetic noise, and keep the page."""
    rng = np.random.default_rng(0)
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="training-") as temporary:
        os.chdir(temporary)
        try:
            for name, images in (("noisy", 12), ("held_out", 4)):
                np.save(f"{name}.npy", _pairs(rng, images))
            Path("denoiser.py").write_text(NETWORK, encoding="utf-8")
            Path("train.toml").write_text(TRAINING, encoding="utf-8")
            code = train.main(["train.toml", "--audit", "50"])
            assert code == 0, code
            shutil.copy("run/report.html", folder / "training.html")
        finally:
            os.chdir(here)


def _pairs(rng: np.random.Generator, images: int) -> np.ndarray:
    """Each micrograph twice, one after the other, with noise of its own each time; float32, shape (2 images, h, w)."""
    both = []
    for _ in range(images):
        clean = synthetic_micrograph(rng, *SIZE)[1]
        both += [clean + rng.standard_normal(SIZE) * clean.std() for _ in range(2)]
    return np.array(both, np.float32)


def main(arguments: Sequence[str]) -> None:
    """Write all samples into a folder."""
    folder = Path(arguments[0]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    verdicts(folder)
    training(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
