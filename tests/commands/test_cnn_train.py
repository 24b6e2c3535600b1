# SPDX-License-Identifier: MIT
"""``mpirun -n N cnn_train``: N ranks are one, says the judge, and a rank that does not do its part is found."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import h5py
import pytest
import torch

from bridge.engine.library import extension
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from reference.export import export
from reference.settings import ExportSettings
from tests import ROOT
from tests.helpers.library.fortran_ranks import APP, build, run, start
from tests.helpers.tiers import deep, few
from tests.helpers.torch_graphs import Dropped, Evaluated, Mlp, Segmenter, Unet

#: No two parts are alike of 2 ranks, nor of 4
SETTINGS = {"height": 18, "width": 22, "batch": 5, "steps": 2, "momentum": 0.9, "weight_decay": 0.01}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(APP / "cnn_train.f90", tmp_path_factory.mktemp("cnn_train"))


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("ranks") / "fixture.h5", ExportSettings(**SETTINGS)).path


def tensors(path: Path) -> dict[str, bytes]:
    """Every dataset of the steps, with its shape."""
    found: dict[str, bytes] = {}
    with h5py.File(path) as file:
        file["steps"].visititems(lambda name, one: found.update({name: repr(one.shape).encode() + one[()].tobytes()})
                                 if isinstance(one, h5py.Dataset) else None)
    return found


def trained(program: Path, ranks: int, fixture: Path, result: Path, *options: object) -> Path:
    """The result of a training that has gone well."""
    done = run(program, ranks, fixture, result, *options)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return result


@pytest.mark.parametrize("ranks", few([1, 2, 4], lambda ranks: ranks == 2))
def test_many_ranks_are_one(ranks: int, program: Path, fixture: Path, tmp_path: Path) -> None:
    """All tensors of the batch are there and inside their bounds; one rank has the bits of ``cnn_step``."""
    result = trained(program, ranks, fixture, tmp_path / "result.h5")
    comparison, verdict = judge(fixture, result, diagnosing=False)
    assert verdict.outcome is Outcome.ROUNDING and not comparison.not_judged
    extension.run_file(fixture, tmp_path / "alone.h5")
    one, alone = tensors(result), tensors(tmp_path / "alone.h5")
    assert one.keys() == alone.keys()
    # What is of each image by itself has the bits of one process, too, while the weights are the same
    same = {name for name in one if one[name] == alone[name]}
    assert same >= {name for name in one if name.startswith(("0/forward/", "0/weights/"))}
    assert {name for name in one if "/output" in name and name.startswith("0/")} <= same
    assert ranks > 1 or same == set(one)
    with h5py.File(result) as file:
        assert file.attrs.get("ranks", 1) == ranks


@pytest.mark.deep
@pytest.mark.parametrize("options", [(), ("--reproducible",)])
@pytest.mark.parametrize("model", [None, "VariedCNN"])
def test_an_exact_probe_is_exact(options: tuple[str, ...], model: str | None, program: Path, tmp_path: Path) -> None:
    """No number is rounded in it, so that sums over ranks have the bits of one."""
    path = export(tmp_path / "probe.h5", ExportSettings(height=8, width=32, batch=4, steps=1, probe=True,
                                                        model=f"reference.model:{model}" if model else None)).path
    extension.run_file(path, tmp_path / "alone.h5")
    for ranks in (2, 4):
        result = trained(program, ranks, path, tmp_path / f"{ranks}.h5", *options)
        comparison, verdict = judge(path, result, diagnosing=False)
        assert verdict.outcome is Outcome.ROUNDING and not comparison.not_judged
        assert tensors(result) == tensors(tmp_path / "alone.h5")


@pytest.mark.parametrize("precision", few(["float32", "float64"], 1))
def test_reproducible_bits_do_not_depend_on_the_ranks(precision: str, program: Path, fixture: Path, tmp_path: Path
                                                      ) -> None:
    """Not one bit, in steps with the batches again, too; without the option some do."""
    made = [trained(program, ranks, fixture, tmp_path / f"{ranks}.h5", "--reproducible", "--steps", 4, "--precision",
                    precision) for ranks in (1, 2, 4)]
    assert tensors(made[0]) == tensors(made[1]) == tensors(made[2])
    assert {"0/grads/conv1/weight", "3/loss", "4/weights/conv1/weight"} <= tensors(made[0]).keys()
    assert "3/weights/conv1/weight" not in tensors(made[0])
    comparison, verdict = judge(fixture, made[1], diagnosing=False)
    assert verdict.outcome is Outcome.ROUNDING and comparison.judged
    plain = trained(program, 2, fixture, tmp_path / "plain.h5", "--steps", 4, "--precision", precision)
    assert tensors(plain) != tensors(made[0])


#: Networks that are graphs, with losses, optimisers and masks; a residual one without a batch norm is Denoiser's kind
GRAPHS = {
    "unet": (Unet, {}), "mlp": (Mlp, {"loss": "huber delta=0.5", "optimizer": "adamw", "schedule":
                                      "StepLR(step_size=1, gamma=0.5)"}),
    "dropped": (Dropped, {"reduction": "sum"}), "segmenter": (Segmenter, {"loss": "cross_entropy label_smoothing=0.1"}),
}


@pytest.mark.deep
@pytest.mark.parametrize("options", [(), ("--reproducible",)])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name: str, options: tuple[str, ...], program: Path, tmp_path: Path) -> None:
    """With masks, of which each rank takes its part."""
    factory, given = GRAPHS[name]
    torch.manual_seed(0)
    path = export(tmp_path / "f.h5", ExportSettings(**{"height": 12, "width": 10, "batch": 5, "steps": 2, **given},
                                                    model=factory)).path
    for ranks in (2, 4):
        result = trained(program, ranks, path, tmp_path / "r.h5", *options)
        comparison, verdict = judge(path, result, diagnosing=False)
        assert verdict.outcome is Outcome.ROUNDING, [one.name for one in comparison.judged]
        assert all(one.name.startswith("update/") for one in comparison.not_judged)
    assert options == () or tensors(result) == tensors(trained(program, 1, path, tmp_path / "one.h5", *options))


@pytest.mark.deep
@pytest.mark.parametrize("options", [(), ("--reproducible",)])
def test_gradients_come_from_a_device_and_go_back(options: tuple[str, ...], program: Path, tmp_path: Path, cuda: str
                                                  ) -> None:
    """What the ranks add up is in host memory."""
    path = export(tmp_path / "f.h5", ExportSettings(height=12, width=10, batch=5, steps=2, model=Dropped)).path
    comparison, verdict = judge(path, trained(program, 2, path, tmp_path / "r.h5", "--device", cuda, *options),
                                diagnosing=False)
    assert verdict.outcome is Outcome.ROUNDING and not comparison.not_judged


@pytest.mark.deep
def test_statistics_of_a_batch_are_each_ranks_own(program: Path, tmp_path: Path) -> None:
    """As --help says, and the judge sees it; where images are taken one by one it is refused."""
    path = export(tmp_path / "f.h5", ExportSettings(height=16, width=16, batch=4, steps=1, model=Evaluated)).path
    assert judge(path, trained(program, 1, path, tmp_path / "1.h5"), diagnosing=False)[1].outcome is Outcome.ROUNDING
    assert judge(path, trained(program, 2, path, tmp_path / "2.h5"), diagnosing=False)[1].outcome is Outcome.BUG
    done = run(program, 2, path, tmp_path / "3.h5", "--reproducible")
    assert done.returncode == 2
    assert "batch_norm2d computes over all images of a batch, expected none of it" in done.stderr


FAULTS = ["unweighted parts", "one rank twice", "a forgotten rank", "sums in place of means", "nobody adds up",
          "outputs of another rank"]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT / "tests/helpers/programs/wrong_ranks.f90", tmp_path_factory.mktemp("wrong"))


@pytest.mark.parametrize("fault", [deep("none"), *few(FAULTS, 1)])
def test_a_rank_that_is_wrong_is_a_bug(fault: str, wrong: Path, tmp_path: Path) -> None:
    """Planted in what the ranks say to each other; without a fault the same program is right."""
    path = export(tmp_path / "f.h5", ExportSettings(height=18, width=22, batch=6, steps=1)).path
    # Of 6 images 4 ranks take 1, 2, 1, 2
    done = run(wrong, 4, path, tmp_path / "r.h5", fault, 6)
    assert (done.returncode, done.stderr) == (0, "")
    outcome = judge(path, tmp_path / "r.h5", diagnosing=False)[1].outcome
    assert outcome is (Outcome.ROUNDING if fault == "none" else Outcome.BUG)


@pytest.mark.deep
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_killed_rank_ends_all(ranks: int, program: Path, fixture: Path, tmp_path: Path) -> None:
    """Within seconds, and an older result stays."""
    (tmp_path / "r.h5").write_bytes(b"old")
    process = start(program, ranks, fixture, tmp_path / "r.h5", "--steps", 100000000)
    assert process.stdout is not None
    # It is at work
    assert process.stdout.readline().startswith("step 0 of 0..99999999")
    children = [int(word) for word in subprocess.run(["pgrep", "-P", str(process.pid), "cnn_train"], text=True,
                                                     capture_output=True, check=True).stdout.split()]
    assert len(children) == ranks
    os.kill(children[-1], signal.SIGKILL)
    killed = time.monotonic()
    process.communicate(timeout=20)
    assert process.returncode != 0 and time.monotonic() - killed < 10
    assert (tmp_path / "r.h5").read_bytes() == b"old"


@pytest.mark.parametrize(("arguments", "said"), [
    (("none.h5", "r.h5"), "none.h5: no such file"),
    deep(("none.h5",), "expected two files, FIXTURE and RESULT (cnn_train --help)"),
    deep(("none.h5", "r.h5", "--steps", "0"), "--steps 0: expected a whole number from 1 on (cnn_train --help)"),
    deep(("none.h5", "r.h5", "--step", "2"), "unknown option --step (cnn_train --help)"),
])
def test_one_message(arguments: tuple[str, ...], said: str, program: Path) -> None:
    """Whatever all ranks have found, the first says it, and all end."""
    done = run(program, 2, *arguments)
    ours = [line for line in done.stderr.splitlines() if line.startswith("cnn_train")]
    assert (done.returncode, done.stdout, ours) == (2, "", [f"cnn_train: rank 0: {said}"])


@pytest.mark.deep
def test_more_ranks_than_images(program: Path, small_fixture: Path, tmp_path: Path) -> None:
    done = run(program, 4, small_fixture, tmp_path / "r.h5")
    assert done.returncode == 2 and not (tmp_path / "r.h5").exists() and not list(tmp_path.glob(".r*"))
    assert "/batches/0/input has 3 images for 4 ranks, expected one or more for each" in done.stderr


@pytest.mark.deep
def test_a_mean_that_no_part_knows_is_refused(program: Path, tmp_path: Path) -> None:
    path = export(tmp_path / "f.h5", ExportSettings(height=16, width=16, batch=2, steps=1, model=Segmenter,
                                                    loss="cross_entropy weight=1,2,3,1,1,1 class_indices=1")).path
    done = run(program, 2, path, tmp_path / "r.h5")
    assert done.returncode == 2 and "a mean over the pixels that count" in done.stderr


def test_help(program: Path) -> None:
    """Alone, without mpirun, it is one rank."""
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
    assert max(map(len, done.stdout.splitlines())) <= 99  # as of cnn_step
    assert all(word in done.stdout for word in ("--steps", "batch_norm2d", "OMP_NUM_THREADS", "bridge.compare"))
