# SPDX-License-Identifier: MIT
"""``python -m benchmarks.healthy``: right programs in random configurations; every alarm is a false one.

Random chains of convolutions and ReLUs (depth, channels, groups, kernels, strides, dilations, paddings, biases), sizes,
batches, reductions, optimisers, scales of the weights and seeds; in each one a right program, drawn at random.
Configuration i of a seed is always the same one, whatever the count and the processes, where the same programs are
installed (JAX is one of them); one of them goes on from a training of 1,000 steps, with dead filters. With ``--graphs``
the networks are random graphs of all operations, trained by SGD, Adam or AdamW, and half of the programs are
``cnn_step``. Prints a false alarm when it comes, the largest T by program and the false alarms of fixed tolerances
beside, and writes all of it as JSON. A library that crashes ends its own process only, and is counted apart, as is a
fixture in which PyTorch is wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import nn

from benchmarks.harness.document import RESULTS, versions
from benchmarks.harness.tables import table
from benchmarks.validator import wider_programs
from benchmarks.validator.other_formulas import OtherFormulas
from benchmarks.validator.random_graphs import Layer, Network, draw_network, draw_settings
from benchmarks.validator.trained import TRAINED
from bridge.common import cli
from bridge.common.atomic_file import write_json
from bridge.common.command_files import check_files
from bridge.common.errors import FileError
from bridge.common.number_format import number
from bridge.common.progress import stage
from bridge.engine.library.programs import run_cnn_step
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.fast_algorithms import FAST
from bridge.validate.self_test.fixed_tolerances import RULES
from bridge.validate.self_test.graph_candidate import train_graph
from bridge.validate.self_test.healthy import HEALTHY, ON_GRAPHS, Healthy
from bridge.validate.self_test.operations import Operations
from bridge.validate.self_test.plants import Scene
from bridge.validate.self_test.plants.numbers import Lower, bf16, reduced, tf32
from bridge.validate.self_test.run_case import Healthily, check
from reference.errors import InputError
from reference.export import export
from reference.settings import ExportSettings

#: Until a chain fits its images
MOST_DRAWS = 100
#: Arithmetic of fewer digits than the fixture's: said as such, or not provable from few numbers; never a bug
LOWER = (0, 3, 4)


def _of(kind: type[Operations], name: str, codes: tuple[int, ...] = (0,)) -> Healthy:
    return Healthy(name, lambda fixture, result: train(fixture, result, kind), codes)


def _jax() -> tuple[Healthy, ...]:
    """Where it is installed."""
    if importlib.util.find_spec("jax") is None:
        return ()
    from benchmarks.validator.jax_program import Jax

    return (_of(Jax, "JAX"),)


#: With float32's range: gradients that are lost below fp16's are a fault
_LOWER: dict[str, Lower] = {"TF32": tf32, "bf16": bf16}

PROGRAMS: tuple[Healthy, ...] = (
    *HEALTHY,
    *FAST,
    *wider_programs.CHAINS,
    *_jax(),
    TRAINED,
    *(_of(reduced(lower), f"torch, {name} operands", LOWER) for name, lower in _LOWER.items()),
)


def _jax_graph() -> tuple[Healthy, ...]:
    """Where it is installed."""
    if importlib.util.find_spec("jax") is None:
        return ()
    from benchmarks.validator.jax_graph import JaxGraph

    return (Healthy("graph: JAX", lambda fixture, result: train_graph(fixture, result, JaxGraph)),)


#: Of graphs; every second one is the program itself
GRAPH_PROGRAMS: tuple[Healthy, ...] = (
    Healthy("graph: cnn_step", run_cnn_step), *ON_GRAPHS, *wider_programs.GRAPHS, *_jax_graph(),
    Healthy("graph: other formulas", lambda fixture, result: train_graph(fixture, result, OtherFormulas)))
#: What is the third number of a configuration with a graph
GRAPH = 1


@dataclass(frozen=True)
class Configuration:
    """A random model, its data, its optimiser, and a program.

    Attributes
    ----------
    layers : arguments of nn.Conv2d, or None for a ReLU
    settings : of `reference.settings.ExportSettings`
    program : index into `PROGRAMS`
    scale : of the first weights, a power of two
    """

    layers: tuple[dict[str, Any] | None, ...]
    settings: dict[str, Any]
    program: int
    scale: float = 1.0

    def model(self) -> nn.Module:
        """A new module."""
        made = nn.Sequential(*(nn.ReLU() if one is None else nn.Conv2d(**one) for one in self.layers))
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.mul_(self.scale)
        return made

    def __str__(self) -> str:
        data = " ".join(f"{name}={value}" for name, value in self.settings.items())
        return f"{PROGRAMS[self.program].name}; {data} scale={self.scale}; {self.model()}".replace("\n", " ")


@dataclass(frozen=True)
class GraphConfiguration:
    """As `Configuration`, of a network that is a graph; `program` is an index into `GRAPH_PROGRAMS`."""

    layers: tuple[Layer, ...]
    settings: dict[str, Any]
    program: int

    def model(self) -> nn.Module:
        """A new module."""
        return Network(self.layers)

    def __str__(self) -> str:
        data = " ".join(f"{name}={value}" for name, value in self.settings.items())
        return f"{GRAPH_PROGRAMS[self.program].name}; {data}; {self.layers}"


def draw_graph(rng: np.random.Generator) -> GraphConfiguration:
    """A graph with its images, optimiser and program."""
    for _ in range(MOST_DRAWS):
        settings = draw_settings(rng)
        shape = settings["batch"], int(rng.integers(1, 4)), settings["height"], settings["width"]
        layers, settings["loss"] = draw_network(rng, shape)
        if layers:
            program = 0 if rng.random() < 0.5 else int(rng.integers(1, len(GRAPH_PROGRAMS)))
            return GraphConfiguration(layers, settings, program)
    raise AssertionError("no graph begins with its convolution")


def draw(rng: np.random.Generator) -> Configuration:
    """A configuration whose layers fit its images."""
    for _ in range(MOST_DRAWS):
        settings = _settings(rng)
        layers = tuple(_layers(rng))
        height, width = settings["height"], settings["width"]
        for one in filter(None, layers):
            height, width = (_length(n, one, axis) for axis, n in enumerate((height, width)))
            if min(height, width) < 1:
                break
        else:
            return Configuration(layers, settings, int(rng.integers(len(PROGRAMS))), _scale(rng))
    raise AssertionError("no chain fits its images")


def _scale(rng: np.random.Generator) -> float:
    """Mostly torch's own; else activations and gradients of unusual sizes."""
    return 1.0 if rng.random() < 0.7 else float(2.0 ** rng.integers(-12, 3))


def _layers(rng: np.random.Generator) -> Iterator[dict[str, Any] | None]:
    """A chain of one to five convolutions, with ReLUs between most of them."""
    depth, channels = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    for i in range(depth):
        groups = int(rng.choice([g for g in (1, 1, 2, 3, 4) if channels % g == 0]))
        out = groups * int(rng.integers(1, 1 + 12 // groups))
        yield {
            "in_channels": channels,
            "out_channels": out,
            "kernel_size": _pair(rng, (1, 2, 3, 3, 5)),
            "stride": _pair(rng, (1, 1, 1, 2, 3)),
            "padding": _pair(rng, (0, 1, 1, 2)),
            "dilation": _pair(rng, (1, 1, 1, 2)),
            "groups": groups,
            "bias": bool(rng.random() < 0.7),
        }
        channels = out
        if i < depth - 1 and rng.random() < 0.7:
            yield None


def _pair(rng: np.random.Generator, values: tuple[int, ...]) -> tuple[int, int]:
    return int(rng.choice(values)), int(rng.choice(values))


def _length(n: int, layer: dict[str, Any], axis: int) -> int:
    kernel, stride, padding, dilation = (layer[k][axis] for k in ("kernel_size", "stride", "padding", "dilation"))
    return (n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _settings(rng: np.random.Generator) -> dict[str, Any]:
    height, width = (int(2 ** rng.uniform(2.5, 6)) for _ in range(2))
    momentum = float(rng.choice([0.0, 0.5, 0.9]))
    nesterov = bool(momentum and rng.random() < 0.3)
    return {
        "height": height,
        "width": width,
        "batch": int(rng.integers(1, 6)),
        "steps": int(rng.integers(1, 4)),
        "seed": int(rng.integers(2**31)),
        "reduction": str(rng.choice(["mean", "mean", "sum"])),
        "lr": float(2.0 ** -rng.integers(4, 9)),
        "momentum": momentum,
        "nesterov": nesterov,
        "dampening": 0.0 if nesterov or not momentum else float(rng.choice([0.0, 0.1, 0.5])),
        "weight_decay": float(rng.choice([0.0, 0.0, 1e-4, 1e-2])),
    }


def ask(one: Configuration | GraphConfiguration, folder: Path) -> Healthily:
    """Export, run and judge."""
    fixture, path = folder / "fixture.h5", folder / "result.h5"
    settings = dict(one.settings)
    if settings["reduction"] == "sum":
        settings["lr"] /= settings["height"] * settings["width"] * settings["batch"]
    export(fixture, ExportSettings(**settings, model=one.model, threads=1, oracle_steps=1))
    programs = GRAPH_PROGRAMS if isinstance(one, GraphConfiguration) else PROGRAMS
    return check(programs[one.program], str(one), Scene(fixture, path, path, "random"))


@dataclass(frozen=True)
class Crash:
    """A configuration whose process died, or whose fixture is wrong: a fault of a library, about which there is no
    verdict.
    """

    seed: int
    index: int
    said: str = ""


def run(count: int, seed: int, console: Console, jobs: int = 0, *, graphs: bool = False
        ) -> tuple[list[Healthily], list[Crash]]:
    """Ask `count` times, in `jobs` processes; in this one where 0, which a crash ends."""
    found: list[Healthily] = []
    crashes: list[Crash] = []
    numbers: list[tuple[int, ...]] = [(seed, i, GRAPH) if graphs else (seed, i) for i in range(count)]
    with stage(console, f"{count} right programs") as report:
        for done, one in enumerate(map(_one, numbers) if jobs == 0 else _in_processes(numbers, jobs), 1):
            if isinstance(one, Crash):
                crashes.append(one)
                console.print(f"CRASH of configuration {one.index} {one.said}".rstrip(), highlight=False)
            else:
                found.append(one)
                if one.alarm:
                    console.print(_said(one), highlight=False, markup=False)
            report(done, count)
    return found, crashes


def _one(number: tuple[int, ...]) -> Healthily | Crash:
    """Configuration i of a seed: the first that does not diverge.

    Of a transposed input PyTorch 2.13 gives wrong gradients of a batch normalisation on the CPU, in both precisions. A
    module whose numbers are not the same twice is no reference either.
    """
    new = draw_graph if len(number) == 3 else draw
    rng = np.random.default_rng(number)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(MOST_DRAWS):
            try:
                return ask(new(rng), Path(folder))
            except InputError as error:
                if not any(why in str(error) for why in ("diverges", "do not give what the model gives")):
                    raise
            except FileError as error:
                if "PyTorch's" not in str(error):
                    raise
                return Crash(*number[:2], str(error).partition(": ")[2])
    raise AssertionError("every training diverges")


def _in_processes(numbers: list[tuple[int, ...]], jobs: int) -> Iterator[Healthily | Crash]:
    """Each thread has a process, which asks one by one. New processes, not copies of this one: copies of a process with
    threads may hang."""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    mine, pools = threading.local(), list[ProcessPoolExecutor]()

    def ask_process(number: tuple[int, ...]) -> Healthily | Crash:
        if not hasattr(mine, "pool"):
            mine.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
            pools.append(mine.pool)
        try:
            return mine.pool.submit(_one, number).result()
        except BrokenProcessPool:
            del mine.pool
            return Crash(*number[:2])

    with ThreadPoolExecutor(jobs) as threads:
        yield from threads.map(ask_process, numbers)
        for pool in pools:
            pool.shutdown()


def show(console: Console, found: list[Healthily]) -> None:
    """Largest T by program, and the alarms."""
    fixed = (f"alarms: {rule[0]}" for rule in RULES)
    made = table("", "program", "runs", "false alarms", "exit codes", "largest T", *fixed)
    for name, row in by_program(found).items():
        made.add_row(name, *map(_cell, row.values()))
    console.print(made)
    for one in found:
        if one.alarm:
            console.print(_said(one), highlight=False, markup=False)


def _said(one: Healthily) -> str:
    return f"FALSE ALARM {one.code}: {one.said} {one.data}"


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{code}:{runs}" for code, runs in value.items())
    return "inf" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def by_program(found: list[Healthily]) -> dict[str, dict[str, Any]]:
    """Counts by program, and of all."""
    groups: dict[str, list[Healthily]] = defaultdict(list)
    for one in found:
        groups[one.name].append(one)
        groups["all"].append(one)
    return {
        name: {
            "runs": len(group),
            "false_alarms": sum(one.alarm for one in group),
            "exit_codes": dict(sorted(Counter(str(one.code) for one in group).items())),
            "largest_t": number(max(one.t for one in group)),
            **{rule[0]: sum(not one.naive[rule[0]] for one in group) for rule in RULES},
        }
        for name, group in sorted(groups.items(), key=lambda item: (item[0] == "all", item[0]))
    }


EXAMPLES = """exit codes:
  0    no false alarm
  1    a right program was called wrong
  2    bad usage
  130  interrupted

examples:
  python -m benchmarks.healthy --count 20 --json healthy.json
  python -m benchmarks.healthy --seed 3 --jobs 2
  python -m benchmarks.healthy --graphs --count 4000 --jobs 2"""


def main(arguments: list[str] | None = None) -> int:
    """Draw, run, judge, print, write."""
    p = cli.new_parser("benchmarks.healthy", str(__doc__), EXAMPLES)
    p.add_argument("--count", type=int, default=500, metavar="N", help="how many configurations (default 500)")
    p.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the configurations (default 0)")
    p.add_argument("--graphs", action="store_true", help="graphs in place of chains; their figures go under the key "
                   "graphs of the file, and the others stay")
    p.add_argument("--jobs", type=int, default=0, metavar="N",
                   help="worker processes; a crash ends only its own (default 0: none)")
    p.add_argument("--json", metavar="FILE", default=str(RESULTS / "healthy.json"),
                   help="where the figures go (default benchmarks/results/healthy.json)")
    a = p.parse_args(arguments)
    return cli.run("benchmarks.healthy", lambda: _main(a))


def _main(a: argparse.Namespace) -> int:
    check_files([], [("--json", a.json)])
    found, crashes = run(a.count, a.seed, cli.Output(stderr=True), a.jobs, graphs=a.graphs)
    show(cli.Output(), found)
    alarms = [asdict(one) | {"t": number(one.t)} for one in found if one.alarm]
    document: dict[str, Any] = {
        "count": a.count,
        "seed": a.seed,
        "versions": versions(("torch", "numpy", "jax")),
        "programs": by_program(found),
        "alarms": alarms,
        "crashes": [one.index for one in crashes],
    }
    before = json.loads(Path(a.json).read_text(encoding="utf-8")) if Path(a.json).is_file() else {}
    if a.graphs:
        document = before | {"graphs": document}
    elif "graphs" in before:
        document["graphs"] = before["graphs"]
    write_json(a.json, document)
    print(f"{len(alarms)} false alarms in {len(found)} right programs"
          + (f"; {len(crashes)} crashed, without a verdict" if crashes else ""))
    return 1 if alarms else 0
