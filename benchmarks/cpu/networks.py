# SPDX-License-Identifier: MIT
"""A training step of U-Nets, ResNet-18 and ConvNeXt beside PyTorch's: time, peak memory, and what operations take.

The memory is that of a process that does nothing else, beyond what it had when the libraries were imported.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cpu.step import least
from benchmarks.cpu.tools.runs import call, compare, workers
from benchmarks.frameworks import bridge_profile
from benchmarks.frameworks.cpu import CHANNELS_LAST, COMPILED, COMPILED_LAST, EAGER, OURS
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.tables import caption, optional, skipped, table, times, title
from benchmarks.harness.timing import ratios
from benchmarks.harness.workloads import Conv, Training
from bridge.common.progress import stage
from bridge.operations import Attention, ComplexLinear, Conv2d, Conv3d, ConvTranspose3d, Linear, Lstm, Matmul
from bridge.operations.graph import INPUT, Graph
from bridge.operations.operation import Operation, Shape

PEERS = (EAGER, CHANNELS_LAST, COMPILED, COMPILED_LAST)
#: Of the time of the fastest of PyTorch, and of the memory of the leanest
TIMES_FASTER, OF_MEMORY = 1.0, 2 / 3


@dataclass(frozen=True)
class Case:
    """A step, and with how many threads and in how many runs it is run."""

    name: str
    training: Training
    threads: int = 2
    rounds: int = 7


def cases(quick: bool) -> tuple[Case, ...]:
    """A U-Net of 32 channels at first on 4 images of 256 x 256; ResNet-18 of the paper's width on CIFAR's; two blocks
    of ConvNeXt-T's first stage; a U-Net of 32 channels at first on a volume of 64 x 64 x 64.
    """
    if quick:
        return (Case("U-Net", unet(4, 1, 16), 1), Case("ResNet-18, 2 images", resnet(4, 2), 1),
                Case("ConvNeXt", convnext(4, 1, 32), 1), Case("3-D U-Net", volumes(2, 8), 1))
    return (Case("U-Net", unet(32, 4, 256)), Case("U-Net, 1 thread", unet(32, 4, 256), 1),
            *(Case(f"ResNet-18, {batch} images", resnet(64, batch)) for batch in (8, 32)),
            Case("ConvNeXt", convnext(96, 8, 224)), Case("3-D U-Net", volumes(32, 64), rounds=5))


def unet(width: int, batch: int, size: int) -> Training:
    """An image from an image."""
    return Training("U-Net", width, (batch, 1, size, size), (batch, 1, size, size), "mse")


def resnet(width: int, batch: int) -> Training:
    """One of ten classes."""
    return Training("ResNet-18", width, (batch, 3, 32, 32), (batch, 10), "cross_entropy")


def convnext(width: int, batch: int, size: int) -> Training:
    """One of ten classes."""
    return Training("ConvNeXt", width, (batch, 3, size, size), (batch, 10), "cross_entropy")


def volumes(width: int, size: int) -> Training:
    """A volume from a volume."""
    return Training("3-D U-Net", width, (1, 1, size, size, size), (1, 1, size, size, size), "mse")


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """All cases, one after the other."""
    return measured("networks", cases(options.quick), PEERS, options, console)


def measured(section: str, chosen: Sequence[Case], peers: Sequence[str], options: Options, console: Console
             ) -> tuple[dict[str, Any], list[Goal]]:
    """Each of some cases beside these frameworks."""
    found = []
    with tempfile.TemporaryDirectory() as folder, stage(console, section) as report:
        for done, case in enumerate(chosen):
            report(done, len(chosen))
            found.append(_one(case, Path(folder) / f"{done}.h5", peers, options))
    return {"cases": found}, goals(section, found)


def _one(case: Case, path: Path, peers: Sequence[str], options: Options) -> dict[str, Any]:
    training = replace(case.training, path=str(path))
    call("benchmarks.frameworks.torch_networks:write", case.threads, training=training.as_dict())
    training = replace(training, flop=step_flop(bridge_profile.graph_of(training), training.input))
    left_out = options.left_out(peers, slow=(COMPILED, COMPILED_LAST))
    with workers([name for name in (OURS, *peers) if name not in left_out], case.threads) as processes:
        results = compare(processes, training, options.rounds(case.rounds)) | left_out
    seconds = call("benchmarks.frameworks.bridge_profile:profile", case.threads, training=training.as_dict())
    # The file is gone when somebody reads this
    return {"name": case.name, "training": replace(training, path="").as_dict(), "threads": case.threads,
            "gflop": training.flop / 1e9, "results": results, "ratios": ratios(results, OURS),
            "memory_ratios": memory_ratios(results), "operations": seconds}


def step_flop(graph: Graph, shape: tuple[int, ...]) -> int:
    """Of a step's products: three passes, but nobody wants the gradient of the image.

    Examples
    --------
    >>> step_flop(Graph([Conv2d("a", 1, 2, (3, 3), padding=(1, 1)), Conv2d("b", 2, 1, (1, 1))]), (1, 1, 4, 4))
    1344
    """
    shapes = graph.shapes(shape)
    return sum((2 if node.inputs == (INPUT,) else 3)
               * pass_flop(node, [shapes[name] for name in node.inputs], shapes[node.name]) for node in graph.nodes)


def pass_flop(node: Operation, inputs: Sequence[Shape], output: Shape) -> int:
    """Of one pass of an operation, also of the products that fall on zeros."""
    if isinstance(node, Conv2d):
        n, c, h, w = inputs[0]
        return Conv(n, c, h, w, node.out_channels, *node.kernel_size, node.stride, node.padding, node.dilation,
                    node.groups).flop
    if isinstance(node, (Conv3d, ConvTranspose3d)):
        places = inputs[0] if isinstance(node, ConvTranspose3d) else output
        taps = math.prod(node.kernel_size) * node.in_channels * node.out_channels // node.groups
        return 2 * places[0] * math.prod(places[2:]) * taps
    if isinstance(node, Linear):
        return 2 * math.prod(inputs[0][:-1]) * node.in_features * node.out_features
    if isinstance(node, Matmul):
        return 2 * math.prod(output) * inputs[0][-1]
    if isinstance(node, Attention):
        rows, features = math.prod(inputs[0][:-1]), inputs[0][-1] + output[-1]
        return 2 * rows * inputs[1][-2] * features
    if isinstance(node, Lstm):
        return 2 * math.prod(inputs[0]) * node.hidden_size
    if isinstance(node, ComplexLinear):
        return 8 * math.prod(output[:3]) * node.in_channels
    return 0


def taken(one: dict[str, Any]) -> int:
    """Bytes that a framework took at most beyond what it had when it was imported."""
    return one["memory"]["peak"] - one["memory"]["imported"]


def memory_ratios(results: dict[str, Any]) -> dict[str, float]:
    """How many times our memory each peer's is."""
    own = taken(results[OURS])
    return {name: taken(one) / own for name, one in results.items() if name != OURS and "memory" in one}


def goals(section: str, found: list[dict[str, Any]]) -> list[Goal]:
    """What was promised of each case."""
    made = []
    for case in found:
        memory = least(case["memory_ratios"], PEERS)
        made += [Goal(f"{section}, {title(case)}: faster than the best of PyTorch", least(case["ratios"], PEERS),
                      TIMES_FASTER),
                 Goal(f"{section}, {title(case)}: memory, of PyTorch's least", None if memory is None else 1 / memory,
                      OF_MEMORY, at_least=False)]
    return made


def tables(document: dict[str, Any]) -> list[Table]:
    """A row for each framework in each case, and one for each kind of operation."""
    made = table("a training step", "case", "framework", "median ms", "quartiles", "GFLOP/s", "x our time",
                 "MB beyond import", "x our memory", "peak MB", texts=2)
    parts = table("operations of our step, each pass by itself", "case", "operation", "forward ms", "backward ms",
                  "share", texts=2)
    for case in document["cases"]:
        words = title(case)
        for name, one in case["results"].items():
            if "median" in one:
                made.add_row(words, name, *times(one), f"{one['gflops']:.1f}", optional(case["ratios"].get(name)),
                             f"{taken(one) / 1e6:.0f}", optional(case["memory_ratios"].get(name)),
                             f"{one['memory']['peak'] / 1e6:.0f}")
                words = ""
        _add_parts(parts, case)
    return [caption(made, (skipped(case["results"]) for case in document["cases"])), parts]


def _add_parts(parts: Table, case: dict[str, Any]) -> None:
    """The largest first."""
    whole = sum(sum(one.values()) for one in case["operations"].values())
    words = title(case)
    for kind, one in sorted(case["operations"].items(), key=lambda item: -sum(item[1].values())):
        parts.add_row(words, kind, *(f"{1000 * one[which]:.3g}" for which in ("forward", "backward")),
                      f"{sum(one.values()) / whole:.1%}")
        words = ""
