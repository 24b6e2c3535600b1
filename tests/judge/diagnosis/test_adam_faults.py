# SPDX-License-Identifier: MIT
"""Mistakes in Adam's update are named; each is planted by numpy, not by the formulas of the search.

Only those are here that the self-test does not plant.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from reference.export import export
from reference.settings import ExportSettings

LR, B1, B2, EPS, DECAY = 2.0**-6, 0.9, 0.99, 1e-4, 0.25
Gradients = list[np.ndarray]


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adam")
    common = {"height": 12, "width": 10, "steps": 2, "lr": LR, "betas": (B1, B2), "eps": EPS, "weight_decay": DECAY}
    return {kind: export(folder / f"{kind}.h5", ExportSettings(optimizer=kind, schedule=schedule, **common)).path
            for kind, schedule in (("adam", None), ("adamw", "StepLR(step_size=1, gamma=0.5)"))}


def adam(w: np.ndarray, gs: Gradients, lr: float = LR, c1: bool = True, c2: bool = True, t: int = 0,
         root: Callable[[np.ndarray], np.ndarray] = lambda v: np.sqrt(v) + EPS, betas: tuple[float, float] = (B1, B2)
         ) -> np.ndarray:
    b1, b2 = betas
    m = v = np.zeros_like(w)
    for g in gs:
        m, v, t = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g, t + 1
    return w - lr * (m / (1 - b1**t if c1 else 1)) / root(v / (1 - b2**t if c2 else 1))


def coupled(gs: Gradients, ws: Gradients, decay: float = DECAY) -> Gradients:
    return [g + decay * w for g, w in zip(gs, ws, strict=True)]


def late(ws: Gradients, gs: Gradients) -> np.ndarray:
    """The step of the second gradient by the average of the first one alone."""
    m, v = (1 - B1) * gs[0], (1 - B2) * (B2 * gs[0] ** 2 + gs[1] ** 2)
    return ws[-1] - LR * (m / (1 - B1**2)) / (np.sqrt(v / (1 - B2**2)) + EPS)


#: Optimiser, weights after the second step from the gradients and the weights before each, words of the finding
MISTAKES: list[tuple[str, Callable[[Gradients, Gradients], np.ndarray], str]] = [
    ("adam", lambda g, w: adam(w[-1], coupled(g, w), c1=False), "1 - beta1**t"),
    ("adam", lambda g, w: adam(w[-1], coupled(g, w), c2=False), "1 - beta2**t"),
    ("adam", lambda g, w: adam(w[-1], coupled(g, w), root=np.sqrt), "without eps"),
    ("adam", lambda g, w: adam(w[-1], coupled(g, w), t=6), "is counted for each of the"),
    ("adam", lambda g, w: adam(w[-1], coupled(g, w), t=97), "is 97 ahead"),
    ("adam", lambda g, w: adam(w[-1], coupled(g, w), t=-1), "stays at 1"),
    ("adam", lambda g, w: adam(w[-1], coupled(g, w), root=lambda v: v + EPS), "without the root"),
    ("adam", lambda g, w: adam(w[-1], coupled(g, w), betas=(B1, 0.999)), "beta2 = 0.999, not 0.99"),
    ("adam", lambda g, w: adam(w[-1], coupled(g, w), LR * ((1 - B1**2) / (1 - B2**2)) ** 0.5,
                               root=lambda v: np.sqrt(v) + EPS * ((1 - B1**2) / (1 - B2**2)) ** 0.5),
     "both averages are corrected by beta1"),
    ("adam", lambda g, w: late(w, coupled(g, w)), "the average of the gradient is that of the step before"),
    ("adamw", lambda g, w: adam(w[-1], g, LR / 2) - LR * DECAY * w[-1], "by lr = 0.015625, that of the step before"),
    ("adam", lambda g, w: adam(w[-1], g) - LR * DECAY * w[-1], "decoupled, as AdamW's"),
    ("adamw", lambda g, w: adam(w[-1], g, LR) - LR * DECAY * w[-1], "that of the step before"),
    ("adamw", lambda g, w: 2 * w[-1] - adam(w[-1], g, LR / 2) + LR / 2 * DECAY * w[-1], "w + lr*g"),
]


@pytest.mark.parametrize(("optimizer", "mistake", "words"), [
    pytest.param(*one, id=one[-1], marks=pytest.mark.deep if i % 3 else ()) for i, one in enumerate(MISTAKES)])
def test_a_mistake_is_named(fixtures: dict[str, Path], tmp_path: Path, optimizer: str,
                            mistake: Callable[[Gradients, Gradients], np.ndarray], words: str) -> None:
    result = copy_of(fixtures[optimizer], tmp_path)
    with h5py.File(result, "r+") as file:
        gradients, weights = ([file[f"steps/{k}/{kind}/conv2/weight"][()].astype(float) for k in (0, 1)]
                              for kind in ("grads", "weights"))
        file["steps/2/weights/conv2/weight"][...] = mistake(gradients, weights)
    judgement = judge(fixtures[optimizer], result, adequacy=False)
    assert judgement.verdict.outcome is Outcome.BUG
    assert judgement.verdict.words.startswith("BUG: optimizer/conv2/weight of step 1 is wrong"), judgement.verdict.words
    assert judgement.verdict.diagnosis is not None
    first = judgement.verdict.diagnosis.findings[0].explanations[0]
    assert words in f"{first.kinds[0].title}: {first.detail}"


def test_the_reference_itself_is_right(fixtures: dict[str, Path], tmp_path: Path) -> None:
    for path in fixtures.values():
        assert judge(path, copy_of(path, tmp_path), adequacy=False).verdict.outcome is Outcome.ROUNDING


def copy_of(fixture: Path, folder: Path) -> Path:
    result = folder / "result.h5"
    shutil.copy(fixture, result)
    with h5py.File(result, "r+") as file:
        file.attrs["role"], file.attrs["producer"] = "candidate", "another program"
    return result
