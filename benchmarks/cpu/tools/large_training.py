# SPDX-License-Identifier: MIT
"""A training on a stack of 259 GB, by the command: is its memory flat, and is it the same to the bit when it is killed
three times and resumed?

The stack is a virtual dataset, which repeats few images.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from rich.table import Table

import bridge
from benchmarks.harness.document import Goal
from benchmarks.harness.tables import table
from tests import ROOT

SEED = 1
#: MiB that a process may grow by, after a tenth of its time
MOST_GROWTH = 16.0


def measure(folder: Path, steps: int, size: float = 259e9) -> dict[str, Any]:
    """Train on a stack of a size in bytes, once without an interruption and once killed three times.

    Parameters
    ----------
    folder : with ``noisy.npy``, images in pairs, and the network ``net.h5``
    steps : of each
    """
    images = np.load(folder / "noisy.npy", mmap_mode="r")
    count = round(size / images[0].nbytes)
    with h5py.File(folder / "images.h5", "w") as file:
        file["images"] = images
        source, layout = h5py.VirtualSource(file["images"]), h5py.VirtualLayout((count, *images.shape[1:]), np.float32)
        for first in range(0, count, len(images)):
            layout[first:first + len(images)] = source[:min(len(images), count - first)]
        file.create_virtual_dataset("stack", layout)
    crop, every = min(256, images.shape[1]), max(1, steps // 20)
    (folder / "large.toml").write_text(f'''model = "{folder}/net.h5"
[data]
inputs = "{folder}/images.h5:/stack"
noise2noise = "consecutive"
batch = 2
crop = [{crop}, {crop}]
normalization = [0.0, 1.0]
[training]
steps = {steps}
checkpoint_every = {every}
[optimizer]
type = "adam"
lr = 1e-3
''', encoding="utf-8")
    # The last look may be at a process that has just ended
    resident = [one for one in _run(folder, "whole", steps) if one]
    kills = sorted(int(k) for k in np.random.default_rng(SEED).integers(every + 1, steps, 3))
    for done, step in enumerate([*kills, steps]):
        _run(folder, "killed", step, resume=bool(done), kill=step < steps)
    ours, theirs = (bridge.Network.from_file(folder / run / f"step-{steps:09d}.h5").parameters
                    for run in ("whole", "killed"))
    first = max(1, len(resident) // 10)
    return {"images": count, "bytes": count * images[0].nbytes, "steps": steps, "killed_at": kills,
            "at_first": max(resident[:first]), "at_last": resident[-1],
            "growth": max(resident[first:]) - max(resident[:first]), "weights": sum(one.size for one in ours.values()),
            "equal": sum(int(np.count_nonzero(ours[name] == theirs[name])) for name in ours)}


def _run(folder: Path, output: str, until: int, *, resume: bool = False, kill: bool = False) -> list[int]:
    """Run the command until a step is done, and perhaps kill it there; its resident memory meanwhile, in bytes."""
    command = [sys.executable, "-m", "bridge.train", str(folder / "large.toml"), "--output", str(folder / output)]
    process = subprocess.Popen([*command, *["--resume"] * resume], cwd=ROOT, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    seen, log = list[int](), folder / output / "log.jsonl"
    while process.poll() is None:
        steps = log.read_text(encoding="utf-8").count("\n") if log.exists() else 0
        if steps:
            seen.append(_resident(process.pid))
        if kill and steps >= until:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.02)
    code = process.wait()
    assert kill or code == 0, f"bridge.train ended with {code}"
    return seen


def _resident(pid: int) -> int:
    """Bytes of a process's memory that are in the machine's; 0 once it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


def goals(found: dict[str, Any]) -> list[Goal]:
    size = f"{found['bytes'] / 1e9:.3g} GB"
    return [Goal(f"training: growth of the memory over {size}", found["growth"] / 2**20, MOST_GROWTH, at_least=False,
                 unit="MiB"),
            Goal("training: weights that are equal to the bit after three kills", found["equal"], found["weights"],
                 unit="")]


def table_of(one: dict[str, Any]) -> Table:
    """One row."""
    made = table(f"training on {one['bytes'] / 1e9:.0f} GB", "steps", "MiB at first", "MiB at last", "growth",
                 "killed at", "equal weights", texts=0)
    made.add_row(str(one["steps"]), *(f"{one[key] / 2**20:.1f}" for key in ("at_first", "at_last", "growth")),
                 ", ".join(map(str, one["killed_at"])), f"{one['equal']} of {one['weights']}")
    return made
