# SPDX-License-Identifier: MIT
"""The experiments of `bridge.validate`, each with a conclusion in one line and an exit code.

* ``--sizes``: the error against the size of the images;
* ``--probe``: steps in which nothing is rounded;
* ``--checks``: identities that need no reference.

(``--precision float64``, the fourth, belongs to an ordinary validation.)
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from rich.markup import escape
from rich.table import Table

from bridge import validation
from bridge.checks import Check, self_checks
from bridge.command import BAD_INPUT, Output, complain
from bridge.errors import BridgeError
from bridge.identities import adjoint_identities
from bridge.identities import conclusion as adjoint_conclusion
from bridge.outcome import Outcome, worst
from bridge.plots import drawn, plot_sizes
from bridge.programs import run_cnn_step
from bridge.progress import stage
from bridge.report.files import write_json
from bridge.scaling import Scaling
from bridge.validation import Files, with_defaults
from bridge.wording import short
from bridge.workspace import workspace

#: What an exact probe is asked for, where nothing else is: the default net, its memory between steps, all options
PROBES = {
    "default net, 64x128": {"size": "64x128", "steps": 1},
    "default net, 3 steps with the learning rate 0": {"size": "32x64", "steps": 3},
    "strides, dilations, groups": {"size": "32x64", "batch": 4, "steps": 1, "model": "reference.model:VariedCNN"},
}


def sizes(a: argparse.Namespace) -> int:
    """``--sizes``: validate at every size; the exit code is the worst."""
    start, console, errors = time.monotonic(), Output(), Output(stderr=True)
    scaling = Scaling()
    runs = [with_defaults(argparse.Namespace(**vars(a) | {"size": size}), steps=1) for size in a.sizes]
    needed = [validation.bytes_needed(one) for one in runs]
    with workspace(a.keep, sum(needed) if a.keep else max(needed)) as folder:
        for number, one in enumerate(runs, 1):
            files, what = Files.of(folder, f"-{one.size}"), f"[{number}/{len(runs)}] {one.size}: "
            with stage(errors, f"{what}reference.export"):
                validation.export(files, one)
            comparison, verdict = validation.run_and_judge(files, a.device, a.precision, errors, what)
            scaling.add(one.size, comparison, verdict)
            if a.keep is None:
                files.remove()
    console.print(scaling.table())
    console.print(scaling.conclusion, highlight=False, style="bold")
    unplotted = drawn(console, a.plot, lambda: plot_sizes(a.plot, scaling, a.precision)) if a.plot else []
    validation.print_end(console, start)
    return _finish(a.json, scaling.to_dict()) or BAD_INPUT * bool(unplotted)


def probes(a: argparse.Namespace) -> int:
    """``--probe``: run exact probes; the exit code is the worst."""
    start, console, errors = time.monotonic(), Output(), Output(stderr=True)
    found = []
    with workspace(a.keep, 2**27 + validation.bytes_needed(with_defaults(a, size="64x128"))) as folder:
        wanted = _wanted_probes(a)
        for number, (name, given) in enumerate(wanted.items(), 1):
            one = argparse.Namespace(**vars(a) | given | {"probe": True})
            files = Files.of(folder, f"-probe{number}")
            what = f"[{number}/{len(wanted)}] "
            with stage(errors, f"{what}reference.export --probe"):
                validation.export(files, one)
            _, verdict = validation.run_and_judge(files, a.device, a.precision, errors, what)
            found.append((name, verdict))
            console.print(f"[bold]{name}[/bold]: {escape(verdict.words)}", highlight=False)
            for hint in verdict.hints:
                console.print(f"  {hint}", highlight=False, markup=False)
    validation.print_end(console, start)
    zone = worst(verdict.outcome for _, verdict in found)
    probes = [{"name": name, "verdict": v.outcome.label, "words": v.words, "hints": v.hints} for name, v in found]
    document = {"json_version": 1, "verdict": zone.label, "exit_code": zone.value, "probes": probes}
    return _finish(a.json, document)


def _wanted_probes(a: argparse.Namespace) -> dict[str, dict[str, object]]:
    """One with the options that were given, else those of `PROBES`."""
    names = ("size", "batch", "steps", "model", "lr", "reduction")
    if any(getattr(a, name) is not None for name in names):
        return {"probe": {}}
    return PROBES


def checks(a: argparse.Namespace) -> int:
    """``--checks``: what needs no reference; 1 if an identity does not hold."""
    start, console, errors = time.monotonic(), Output(), Output(stderr=True)
    with stage(errors, "identities of convolutions and of a network"):
        own = list(self_checks(a.device))
    one = with_defaults(a, size="48x64", steps=2)
    with workspace(a.keep, validation.bytes_needed(one)) as folder:
        files = Files.of(folder)
        with stage(errors, "reference.export"):
            validation.export(files, one)
        with stage(errors, f"cnn_step, {a.device}, {a.precision}"):
            run_cnn_step(files.fixture, files.result, a.device, a.precision)
        with stage(errors, "adjoint identities of the step") as progress:
            adjoint = adjoint_identities(files.fixture, files.result, progress)
    zone = worst([Outcome.ROUNDING if all(c.passed for c in own) else Outcome.BUG, *(one.outcome for one in adjoint)])
    found = own + [
        Check(f"cnn_step, {a.precision}: adjoint identity of {one.layer}, step {one.step}", f"T = {short(one.largest)}",
              one.outcome is Outcome.ROUNDING)
        for one in adjoint
    ]
    console.print(_checks_table(found))
    wrong = [check.name for check in found if not check.passed]
    words = f"{len(found) - len(wrong)} of {len(found)} identities hold."
    words += f" First wrong: {wrong[0]}." if wrong else ""
    words += f" {adjoint_conclusion(adjoint)}" if any(one.implicated for one in adjoint) else ""
    console.print(words, style="bold", highlight=False)
    validation.print_end(console, start)
    document = {"json_version": 1, "verdict": zone.label, "exit_code": zone.value, "words": words,
                "checks": [vars(check) for check in found]}
    return _finish(a.json, document)


def _checks_table(found: list[Check]) -> Table:
    rows = Table(box=None, show_header=False, pad_edge=False)
    for check in found:
        rows.add_row("ok" if check.passed else "WRONG", check.name, check.found, style="" if check.passed else "red")
    return rows


def _finish(path: str | None, document: dict[str, Any]) -> int:
    """Write the JSON file, if one is wanted; the exit code. A verdict against the candidate stays, whatever fails."""
    code = int(document["exit_code"])
    try:
        if path is not None:
            write_json(path, document)
    except OSError as error:
        return complain("bridge.validate", f"--json {path}: {error.strerror}", code or BAD_INPUT)
    return code


def refuse_together(a: argparse.Namespace) -> None:
    """Options that say nothing together.

    Raises
    ------
    BridgeError
        With both names.
    """
    chosen = [f"--{name}" for name in ("sizes", "probe", "checks", "self-test") if getattr(a, name.replace("-", "_"))]
    if len(chosen) > 1:
        raise BridgeError(f"{' and '.join(chosen)}: one experiment at a time")
    for name in ("report", "junit", "all"):
        if chosen and getattr(a, name):
            raise BridgeError(f"--{name} belongs to a single comparison, expected no {chosen[0]}")
    if a.quick and not a.self_test:
        raise BridgeError("--quick shortens --self-test, which is missing")
    if a.sizes and a.size:
        raise BridgeError("--sizes and --size: one of them")
    if a.plot and not (a.sizes or (a.precision == "float64" and not chosen)):
        raise BridgeError("--plot draws the result of --sizes or of --precision float64: one of them is missing")
