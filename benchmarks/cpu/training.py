# SPDX-License-Identifier: MIT
"""Denoisers trained noise2noise, ours beside PyTorch's loop on the same batches: are they the same, and how fast?

From files to the last update: PyTorch's loop has a DataLoader with a process that makes the batches, ours has threads.
The images are windows of a real micrograph where it is there, else of synthetic ones, each twice with independent
noise as large as the image's own standard deviation; what they were before it is what results are measured by.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.utils.data import DataLoader

import bridge
from benchmarks.cpu.tools import large_training
from benchmarks.cpu.tools.runs import call
from benchmarks.frameworks.cpu import CHANNELS_LAST, EAGER, OURS
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.tables import optional, table
from benchmarks.harness.timing import summary
from bridge.common.progress import stage
from bridge.common.threads import keep_freed_memory
from bridge.data import Batches, Consecutive
from bridge.train import Checkpoints, Trainer, TrainSettings
from bridge.train.quality import quality
from bridge.train.trainer import StepRecord
from reference.model import ThreeLayerCNN
from reference.synthetic import synthetic_micrograph
from tests import ROOT
from tests.helpers.real_networks import ResidualDenoiser, TwoLevelUnet

#: Of the time of the faster of PyTorch's loops
TIMES_FASTER = 2.0
#: How far two curves of losses may be from each other: float32 sums in other orders, over so many steps
MOST_APART = 0.05
MICROGRAPH = ROOT.parent / "shared" / "data" / "micrograph_4096.mrc"
SEED, LR, WARM = 1, 1e-3, 5
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "default, 1-16-16-1": ThreeLayerCNN,
    "12 layers, residual, 16 channels": lambda: ResidualDenoiser(16, norm=False),
    "U-Net, 16 channels": lambda: TwoLevelUnet(16)}
PEERS = {EAGER: torch.contiguous_format, CHANNELS_LAST: torch.channels_last}


def module_of(name: str) -> nn.Module:
    """With the weights that all begin with."""
    torch.manual_seed(SEED)
    return NETWORKS[name]()


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """Each network in turn: rounds of ours and of PyTorch's loops, one after the other."""
    sizes = {"size": 64, "crop": 32, "steps": 12} if options.quick else {"size": 1024, "crop": 256, "steps": 200}
    found: dict[str, Any] = {"batch": 2, **sizes, "cases": []}
    with tempfile.TemporaryDirectory() as folder, stage(console, "training") as report:
        found["data"] = write_images(Path(folder), sizes["size"], 4 if options.quick else 8)
        names = list(NETWORKS)[:1 if options.quick else None]
        for done, name in enumerate(names):
            report(done, len(names))
            found["cases"].append(_case(name, folder, found, 1 if options.quick else options.rounds(3)))
        bridge.Network.from_torch(module_of(next(iter(NETWORKS)))).save(Path(folder) / "net.h5")
        found["large"] = large_training.measure(Path(folder), *((40, 4e6) if options.quick else (500,)))
    return found, _goals(found["cases"]) + large_training.goals(found["large"])


def _case(name: str, folder: str, sizes: dict[str, Any], rounds: int) -> dict[str, Any]:
    asked = {"network": name, "folder": folder, "crop": sizes["crop"], "batch": sizes["batch"], "steps": sizes["steps"]}
    ways = {OURS: ("ours", {})} | {peer: ("torchs", {"peer": peer}) for peer in PEERS}
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (function, more) in ways.items():
            runs[way].append(call(f"benchmarks.cpu.training:{function}", 2, **asked, **more))
    results = {way: summary([one["seconds"] for one in every]) | {
        key: value for key, value in every[0].items() if key != "seconds"} for way, every in runs.items()}
    median = {way: one["median"] for way, one in results.items()}
    curves = [np.array(results[way]["losses"]) for way in (OURS, EAGER)]
    apart = float(np.max(np.abs(curves[0] - curves[1]) / curves[1]))
    return {"name": name, "results": results, "apart": apart,
            "audits": call("benchmarks.cpu.training:audits", 2, **asked),
            "ratios": {peer: median[peer] / median[OURS] for peer in PEERS}}


def _goals(cases: list[dict[str, Any]]) -> list[Goal]:
    made = []
    for case in cases:
        audits = case["audits"]
        made += [Goal(f"training: {case['name']}, PyTorch's faster loop over ours", min(case["ratios"].values()),
                      TIMES_FASTER),
                 Goal(f"training: {case['name']}, losses beside PyTorch's", case["apart"], MOST_APART, at_least=False,
                      unit=""),
                 Goal(f"training: {case['name']}, audits that are right", sum(one == "rounding" for one in audits),
                      len(audits), unit="")]
    return made


def write_images(folder: Path, size: int, count: int) -> str:
    """Write noisy images in pairs, and a held out pair and what it was; return where they come from."""
    rng, source = np.random.default_rng(SEED), "synthetic"
    if MICROGRAPH.exists() and size == 1024:
        import mrcfile

        with mrcfile.open(MICROGRAPH) as file:
            whole = np.asarray(file.data, np.float32)
        source = "real micrograph"
        tiles = whole.reshape(4, size, 4, size).swapaxes(1, 2).reshape(16, size, size)[:count + 1]
    else:
        tiles = np.stack([synthetic_micrograph(rng, size, size)[1] for _ in range(count + 1)]).astype(np.float32)
    clean = (tiles - tiles.mean()) / tiles.std()
    noisy = clean[:, None] + rng.standard_normal((count + 1, 2, size, size), dtype=np.float32)
    np.save(folder / "noisy.npy", noisy[:-1].reshape(-1, size, size))
    np.save(folder / "held_out.npy", noisy[-1])
    np.save(folder / "clean.npy", clean[-1])
    return source


def batches_of(folder: str, crop: int, batch: int) -> Batches:
    """What all are trained on."""
    data = Consecutive(Path(folder) / "noisy.npy")
    return Batches(data, batch, (crop, crop), SEED, normalization=(0.0, 1.0), crops=8, swap=True)


def ours(network: str, folder: str, crop: int, batch: int, steps: int) -> dict[str, Any]:
    """Return the time of a training step, losses, and how good the network is then."""
    keep_freed_memory()
    net = bridge.Network.from_torch(module_of(network), keep_activations=False, example=(1, 1, crop, crop))
    records, ends = list[StepRecord](), list[float]()

    def note(record: StepRecord) -> None:
        records.append(record)
        ends.append(time.perf_counter())

    settings = TrainSettings(steps, bridge.Adam(LR), checkpoint_every=steps)
    with tempfile.TemporaryDirectory() as output:
        trainer = Trainer(net, batches_of(folder, crop, batch), settings, Checkpoints(output), report=note)
        trainer.run()
    return {"seconds": (ends[-1] - ends[WARM]) / (steps - 1 - WARM), "losses": [one.loss for one in records],
            **_held_out(net, folder)}


def audits(network: str, folder: str, crop: int, batch: int, steps: int) -> list[str]:
    """Return the verdicts of four steps of the same training."""
    net = bridge.Network.from_torch(module_of(network), keep_activations=False, example=(1, 1, crop, crop))
    records = list[StepRecord]()
    settings = TrainSettings(steps, bridge.Adam(LR), checkpoint_every=steps, audit_every=max(1, steps // 4))
    with tempfile.TemporaryDirectory() as output:
        Trainer(net, batches_of(folder, crop, batch), settings, Checkpoints(output), report=records.append).run()
    return [one.audit.verdict for one in records if one.audit is not None]


class _Steps(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """The same batches, by the number of the step."""

    def __init__(self, batches: Batches, steps: int) -> None:
        self._batches, self._steps = batches, steps

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        found = self._batches.at(step)
        return torch.from_numpy(found.input), torch.from_numpy(found.target)


def torchs(network: str, folder: str, crop: int, batch: int, steps: int, peer: str) -> dict[str, Any]:
    """Return the same of PyTorch's loop."""
    layout = PEERS[peer]
    module = module_of(network).to(memory_format=layout)
    optimizer = torch.optim.Adam(module.parameters(), LR)
    loader = DataLoader(_Steps(batches_of(folder, crop, batch), steps), batch_size=None, num_workers=1)
    losses, ends = list[float](), list[float]()
    for x, target in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(module(x.contiguous(memory_format=layout)), target)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        ends.append(time.perf_counter())
    size = (1, 1, crop, crop)
    trained = bridge.Network.from_torch(module.to(memory_format=torch.contiguous_format), example=size)
    return {"seconds": (ends[-1] - ends[WARM]) / (steps - 1 - WARM), "losses": losses, **_held_out(trained, folder)}


def _held_out(net: bridge.Network, folder: str) -> dict[str, float]:
    """Peak signal to noise ratio and resolution of an image that nobody was trained on."""
    net.eval()
    noisy, clean = np.load(Path(folder) / "held_out.npy"), np.load(Path(folder) / "clean.npy")
    batch = Batches(Consecutive(Path(folder) / "held_out.npy"), 1, clean.shape, flips=False, rotations=False).at(0)
    assert np.array_equal(batch.input[0, 0], noisy[0])
    batch.target[0, 0] = clean
    found = quality(net, batch, symmetric=False)
    assert found is not None and found.psnr is not None
    return {"psnr_before": found.psnr[0], "psnr": found.psnr[1], "resolution_before": found.before.resolution(),
            "resolution": found.after.resolution()}


def tables(document: dict[str, Any]) -> list[Table]:
    """A row for each loop."""
    made = table(f"training on {document['batch']} x {document['crop']}² of a {document['data']}", "network", "loop",
                 "ms a step", "over ours", "last loss", "PSNR before", "PSNR", "cycles per pixel", texts=2)
    for case in document["cases"]:
        for way, one in case["results"].items():
            last = math.fsum(one["losses"][-20:]) / len(one["losses"][-20:])
            made.add_row(case["name"], way, f"{1000 * one['median']:.1f}", optional(case["ratios"].get(way)),
                         f"{last:.4f}", f"{one['psnr_before']:.2f}", f"{one['psnr']:.2f}", f"{one['resolution']:.3f}")
    return [made, large_training.table_of(document["large"])]


def draw(document: dict[str, Any], folder: Path) -> list[Path]:
    """The losses of all loops, which should be one curve."""
    from benchmarks.harness.pictures import BLACK, BLUE, ORANGE, RED, new_figure, saved

    figure = new_figure(11, 3.6)
    colours = dict(zip((OURS, *PEERS), (BLUE, ORANGE, RED), strict=True))
    panels = figure.subplots(1, len(document["cases"]), squeeze=False)[0]
    for axes, case in zip(panels, document["cases"], strict=True):
        for way, one in case["results"].items():
            axes.plot(one["losses"], color=colours.get(way, BLACK), lw=1, alpha=0.7, label=way)
        axes.set(title=case["name"], xlabel="step", yscale="log")
    figure.axes[0].set_ylabel("loss")
    figure.axes[0].legend(fontsize=8)
    return [saved(figure, folder / "training.png")]
