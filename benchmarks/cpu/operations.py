# SPDX-License-Identifier: MIT
"""Operations that compute, forward and backward, beside PyTorch and what the machine can do.

What moves data is set against the bandwidth of a triad, which is measured in the same rounds; matrix products against
those of OpenBLAS.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cpu.tools.machine_peak import TRIAD, MachinePeak
from benchmarks.cpu.tools.runs import compare, workers
from benchmarks.frameworks.cpu import BLAS, CHANNELS_LAST, COMPILED, EAGER, OURS
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.errors import NotHere
from benchmarks.harness.tables import caption, optional, skipped, table, threads, times
from benchmarks.harness.timing import ratios
from benchmarks.harness.workloads import OperationPass
from bridge.common.progress import stage
from bridge.operations import OPERATIONS
from bridge.operations.losses import LOSSES

PEERS = (EAGER, CHANNELS_LAST, COMPILED)
#: Of the triad's rate, and of OpenBLAS's
OF_BANDWIDTH, OF_BLAS = 0.8, 0.9
#: Threads and precision of a round over all operations
ROUNDS = ((1, "float32"), (2, "float32"), (1, "float64"))
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """An operation at one size; `moves` are those of `OperationPass`, forward and backward.

    Each pass must read and write what its formula names once; a normalisation reads its input a second time, when it
    knows the mean.
    """

    kind: str
    moves: tuple[str, str]
    inputs: tuple[Shape, ...]
    options: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def name(self) -> str:
        """With what tells it from others of its kind."""
        return f"{self.kind} {self.note}".rstrip()


def cases(quick: bool) -> list[Case]:
    """Images larger than caches, as in the first level of a U-Net, and layers of networks for classes."""
    large = (1, 4, 16, 16) if quick else (8, 32, 256, 256)
    classes = (2, 10, 8, 8) if quick else (8, 20, 256, 256)
    words = (2, 16, 24) if quick else (32, 512, 768)
    half = (*large[:2], large[2] // 2, large[3] // 2)
    two = {"kernel_size": (2, 2), "stride": (2, 2)}
    three = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1)}
    twice = {"scale_factor": (2, 2)}
    found = [
        *(Case(kind, moves, (large,), options) for kind, moves, options in (
            *((kind, ("xy", "ydg"), {}) for kind in ("sigmoid", "tanh", "exp", "sqrt")),
            *((kind, ("xy", "xdg"), {}) for kind in ("leaky_relu", "elu", "gelu", "gelu_tanh", "silu", "mish",
                                                     "softplus", "log", "abs")),
            ("clip", ("xy", "xdg"), {"min": -0.5, "max": 0.5}),
            ("prelu", ("xy", "xdg"), {"num_parameters": large[1]}),
            ("dropout", ("xmy", "mdg"), {"p": 0.5}), ("batch_norm2d", ("xxy", "xxddg"), {"num_features": large[1]}),
            ("group_norm", ("xxy", "xxddg"), {"num_groups": 2, "num_channels": large[1]}),
            ("global_avg_pool2d", ("xy", "dg"), {}))),
        *(Case(kind, ("xy", moves), (large,), {"dim": dim}, f"over {', '.join(map(str, dim))}")
          for kind, moves in (("sum", "dg"), ("mean", "dg"), ("amax", "xydg")) for dim in ((1,), (2, 3))),
        Case("adaptive_avg_pool2d", ("xy", "dg"), (large,), {"output_size": (7, 7)}),
        Case("layer_norm", ("xxy", "xxddg"), (words,), {"normalized_shape": words[-1:]}),
        *(Case(kind, ("xy", moves), (large, large))
          for kind, moves in (("add", "dg"), ("subtract", "dg"), ("multiply", "xdg"), ("divide", "xdg"))),
        Case("multiply", ("xy", "xdg"), (large, (1, large[1], 1, 1)), note="by channels"),
        Case("add", ("xy", "dg"), (large, (1, large[1], 1, 1)), note="of channels"),
        Case("accumulate", ("xy", ""), (large, large)),
        *(Case(kind, ("xy", moves), (large,), options, note)
          for kind, moves in (("max_pool2d", "xdg"), ("avg_pool2d", "dg"))
          for options, note in ((two, "2x2"), (three, "3x3"))),
        *(Case(kind, ("xy", "ydg"), (shape,), note=note) for kind in ("softmax", "log_softmax")
          for shape, note in ((classes, "of pixels"), ((64, 10) if quick else (4096, 1000), "of images"))),
        *(Case(kind, ("xy", "dg"), (half,), twice) for kind in ("upsample_nearest2d", "upsample_bilinear2d")),
        *(Case(kind, ("xy", ""), (shape, shape))
          for kind, shape in (*((kind, large) for kind in ("mse", "l1", "smooth_l1", "huber", "bce",
                                                           "bce_with_logits")), ("cross_entropy", classes))),
    ]
    sizes = [(8, 512, 10), (64, 512, 1000), (128, 784, 256), (256, 1024, 1024), (1024, 256, 256)]
    for m, k, n in [(4, 8, 6)] if quick else sizes:
        options = {"in_features": k, "out_features": n, "bias": False}
        found.append(Case("linear", ("", ""), ((m, k),), options, f"{m}x{k}x{n}"))
    for batch, m, k, n in ((2, 4, 8, 6),) if quick else ((1, 512, 512, 512), (16, 256, 64, 256)):
        found.append(Case("matmul", ("", ""), ((batch, m, k), (batch, k, n)), note=f"{batch}x{m}x{k}x{n}"))
    return found


def passes(case: Case, dtype: str) -> Iterator[OperationPass]:
    """Both passes of an operation; of a loss, or an addition in place, the only one."""
    if case.kind in (*LOSSES, "accumulate"):
        yield OperationPass(case.kind, False, case.inputs, case.inputs[0], moves=case.moves[0], dtype=dtype)
        return
    node = OPERATIONS[case.kind]("it", inputs=("input",) * len(case.inputs), **case.options)
    forward = OperationPass(case.kind, False, case.inputs, node.output_shape(*case.inputs),
                            tuple(node.parameter_shapes().values()), case.options, case.moves[0], dtype=dtype)
    products: list[tuple[int, int, int]] = []
    if not case.moves[0]:
        m, k, n = *case.inputs[0][-2:], forward.output[-1]
        products = [(m * math.prod(case.inputs[0][:-2]), n, k)]
    yield replace(forward, products=tuple(products))
    yield replace(forward, backward=True, moves=case.moves[1], products=tuple(products * 2))


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """Every operation that computes with each number of threads and precision."""
    return measured("operations", cases(options.quick), options, console)


def measured(section: str, chosen: Sequence[Case], options: Options, console: Console
             ) -> tuple[dict[str, Any], list[Goal]]:
    """Some operations with each number of threads and precision."""
    found: list[dict[str, Any]] = []
    rounds = ROUNDS[:1] if options.quick else ROUNDS
    with tempfile.TemporaryDirectory() as folder, stage(console, section) as report:
        peak, why = _peak(Path(folder), options.quick)
        for done, (number, dtype) in enumerate(rounds):
            report(done, len(rounds))
            if peak is not None:
                peak.measure(number)
            found += _round(chosen, number, dtype, peak, options)
        machine = {"skipped": why} if peak is None else {"runs": [
            {"threads": number, "gigabytes_per_second": peak.median(number, TRIAD),
             "most": peak.best(number, TRIAD)} for number in peak.found]}
    return {"machine": machine, "cases": found}, goals(section, found)


def _peak(folder: Path, quick: bool) -> tuple[MachinePeak | None, str]:
    try:
        return MachinePeak(folder, mebibytes=8 if quick else 256, seconds=0.01), ""
    except NotHere as why:
        return None, str(why)


def _round(chosen: Sequence[Case], number: int, dtype: str, peak: MachinePeak | None, options: Options
           ) -> list[dict[str, Any]]:
    without = options.left_out((*PEERS, BLAS), slow=(EAGER, COMPILED))
    if (number, dtype) != ROUNDS[0]:
        without |= {COMPILED: {"skipped": f"{COMPILED}: takes seconds for each pass, which are spent in float32 alone"}}
    names = [name for name in (OURS, *PEERS, BLAS) if name not in without]
    found = []
    with workers(names, number) as processes:
        for case in chosen:
            for work in passes(case, dtype):
                taking_part = {name: one for name, one in processes.items() if (name != BLAS or work.products)
                               and (name != CHANNELS_LAST or len(work.inputs[0]) == 4)}
                if peak is not None and not options.quick and not work.products:
                    peak.measure(number)
                results = compare(taking_part, work, options.rounds(5)) | without
                found.append(_one(case, work, number, peak, results))
    return found


def _one(case: Case, work: OperationPass, number: int, peak: MachinePeak | None, results: dict[str, Any]
         ) -> dict[str, Any]:
    found = {"name": f"{case.name} {'backward' if work.backward else 'forward'}, {work.dtype}, {threads(number)}",
             "threads": number, "operation": work.as_dict(), "bytes": work.bytes, "gflop": work.flop / 1e9,
             "results": results, "ratios": ratios(results, OURS)}
    if work.products:
        found["of_openblas"] = found["ratios"].get(BLAS)
    elif peak is not None:
        triad = peak.found[number][TRIAD][-1]
        found |= {"triad": triad, "of_triad": results[OURS]["gigabytes_per_second"] / triad}
    return found


def goals(section: str, found: list[dict[str, Any]]) -> list[Goal]:
    """The part of all passes that reach their limit, for each number of threads and precision."""
    made = []
    for (number, dtype), (key, limit, of) in itertools.product(ROUNDS, (
            ("of_triad", OF_BANDWIDTH, "the bandwidth"), ("of_openblas", OF_BLAS, "OpenBLAS"))):
        shares = [case[key] for case in found if case["threads"] == number and case["operation"]["dtype"] == dtype
                  and case.get(key) is not None]
        if shares:
            made.append(Goal(f"{section}: passes at >= {limit:.0%} of {of}, {dtype}, {threads(number)}",
                             sum(share >= limit for share in shares) / len(shares), 1.0, unit=""))
    return made


def tables(document: dict[str, Any]) -> list[Table]:
    """A row for each pass."""
    made = table("operations of graphs", "pass", "median ms", "quartiles", "GB/s", "GFLOP/s", "of the triad",
                 "of OpenBLAS", *(f"{name}, x our time" for name in PEERS))
    for case in document["cases"]:
        one = case["results"][OURS]
        moved, computed = one["gigabytes_per_second"], one["gflops"]
        made.add_row(case["name"], *times(one), optional(moved or None, ".1f"), optional(computed or None, ".1f"),
                     optional(case.get("of_triad")), optional(case.get("of_openblas")),
                     *(optional(case["ratios"].get(name)) for name in PEERS))
    return [caption(made, (skipped(case["results"]) for case in document["cases"]))]
