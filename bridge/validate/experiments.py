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

from rich.markup import escape
from rich.table import Table

from bridge.common.cli import BAD_INPUT, Output
from bridge.common.errors import BridgeError
from bridge.common.number_format import count, short
from bridge.common.progress import stage
from bridge.common.stages import attempt
from bridge.engine.library.programs import run_cnn_step
from bridge.identities.adjoint_check import adjoint_identities
from bridge.identities.adjoint_check import conclusion as adjoint_conclusion
from bridge.identities.self_checks import Check, self_checks
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome, worst
from bridge.judge.verdict import Verdict
from bridge.report.html_page import run_of_several
from bridge.report.junit import Answer
from bridge.report.outputs import finish_series
from bridge.report.series import Series
from bridge.validate import run as validation
from bridge.validate.plots import drawn, plot_sizes
from bridge.validate.run import Files, with_defaults
from bridge.validate.size_study import Scaling
from bridge.validate.workspace import workspace

#: What an exact probe is asked for, where nothing else is: the default net, its memory between steps, all options
PROBES = {
    "default net, 64x128": {"size": "64x128", "steps": 1},
    "default net, 3 steps with the learning rate 0": {"size": "32x64", "steps": 3},
    "strides, dilations, groups": {"size": "32x64", "batch": 4, "steps": 1, "model": "reference.model:VariedCNN"},
}


def sizes(a: argparse.Namespace) -> int:
    """``--sizes``: validate at every size; the exit code is the worst."""
    start, console, errors = time.monotonic(), Output(), Output(stderr=True)
    scaling, keeper = Scaling(), _Worst(a.report is not None)
    runs = [with_defaults(argparse.Namespace(**vars(a) | {"size": size}), steps=1) for size in a.sizes]
    needed = [validation.bytes_needed(one) for one in runs]
    with workspace(a.keep, sum(needed) if a.keep else max(needed)) as folder:
        for number, one in enumerate(runs, 1):
            files, what = Files.of(folder, f"-{one.size}"), f"[{number}/{len(runs)}] {one.size}: "
            with stage(errors, f"{what}reference.export"):
                validation.export(files, one)
            comparison, verdict = validation.run_and_judge(files, a.device, a.precision, errors, what,
                                                           **validation.judging(a))
            scaling.add(one.size, comparison, verdict)
            keeper.look(one.size, files, comparison, verdict)
            if a.keep is None:
                files.remove()
    console.print(scaling.table())
    console.print(scaling.conclusion, highlight=False, style="bold")
    unplotted = drawn(console, a.plot, lambda: plot_sizes(a.plot, scaling, a.precision)) if a.plot else []
    validation.print_end(console, start)
    answers = [Answer(size.name, size.outcome, size.words) for size in scaling.sizes]
    series = Series("sizes", _title("The error against the size of the images", a), scaling.outcome, scaling.conclusion,
                    answers, *scaling.cells(), keeper.shown)
    return finish_series("bridge.validate", a, series, scaling.to_dict()) or BAD_INPUT * bool(unplotted)


def probes(a: argparse.Namespace) -> int:
    """``--probe``: run exact probes; the exit code is the worst."""
    start, console, errors = time.monotonic(), Output(), Output(stderr=True)
    found, keeper = [], _Worst(a.report is not None)
    with workspace(a.keep, 2**27 + validation.bytes_needed(with_defaults(a, size="64x128"))) as folder:
        wanted = _wanted_probes(a)
        for number, (name, given) in enumerate(wanted.items(), 1):
            one = argparse.Namespace(**vars(a) | given | {"probe": True})
            files = Files.of(folder, f"-probe{number}")
            what = f"[{number}/{len(wanted)}] "
            with stage(errors, f"{what}reference.export --probe"):
                validation.export(files, one)
            comparison, verdict = validation.run_and_judge(files, a.device, a.precision, errors, what,
                                                           **validation.judging(a))
            found.append(Answer(name, verdict.outcome, verdict.words, verdict.hints))
            keeper.look(name, files, comparison, verdict)
            console.print(f"[bold]{name}[/bold]: {escape(verdict.words)}", highlight=False)
            for hint in verdict.hints:
                console.print(f"  {hint}", highlight=False, markup=False)
    validation.print_end(console, start)
    zone = worst(one.outcome for one in found)
    exact = sum(one.outcome is Outcome.ROUNDING for one in found)
    first = next((one for one in found if one.outcome is zone), found[0])
    words = f"{exact} of {count(len(found), 'probe')} exact."
    words += f" {first.name}: {first.words}" if exact < len(found) else ""
    probes = [{"name": one.name, "verdict": one.outcome.label, "words": one.words, "hints": one.hints} for one in found]
    series = Series("probes", _title("Exact probes, in which nothing is rounded", a), zone, words, found,
                    worst=keeper.shown)
    return finish_series("bridge.validate", a, series, {"probes": probes})


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
    zones = [Outcome.ROUNDING if one.passed else Outcome.BUG for one in own] + [one.outcome for one in adjoint]
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
    answers = [Answer(check.name, zone, check.found) for check, zone in zip(found, zones, strict=True)]
    series = Series("checks", _title("Identities that need no reference", a), worst(zones), words, answers)
    return finish_series("bridge.validate", a, series, {"checks": [vars(check) for check in found]})


def _title(what: str, a: argparse.Namespace) -> str:
    return f"{what}: device {a.device}, {a.precision}"


def _checks_table(found: list[Check]) -> Table:
    rows = Table(box=None, show_header=False, pad_edge=False)
    for check in found:
        rows.add_row("ok" if check.passed else "WRONG", check.name, check.found, style="" if check.passed else "red")
    return rows


class _Worst:
    """HTML of the worst run so far, made while its files are there.

    Parameters
    ----------
    wanted : somebody asked for a report
    """

    def __init__(self, wanted: bool) -> None:
        self.wanted, self.shown = wanted, ("", "")
        self._outcome, self._t = Outcome.ROUNDING, -1.0

    def look(self, name: str, files: Files, comparison: Comparison, verdict: Verdict) -> None:
        """Keep this one, if it is worse."""
        t = max((judged.t for judged in comparison.computed), default=0.0)
        same = verdict.outcome is self._outcome
        worse = not t <= self._t if same else worst([verdict.outcome, self._outcome]) is verdict.outcome
        if self.wanted and worse:
            self._outcome, self._t = verdict.outcome, t
            made = attempt(verdict.missing, "the run, in the report",
                           lambda: run_of_several(comparison, verdict, (files.fixture, files.result)), "")
            self.shown = (name, made)


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
        if getattr(a, name) and (a.self_test or (chosen and name == "all")):
            raise BridgeError(f"--{name} belongs to a single comparison, expected no {chosen[0]}")
    if a.quick and not a.self_test:
        raise BridgeError("--quick shortens --self-test, which is missing")
    if a.sizes and a.size:
        raise BridgeError("--sizes and --size: one of them")
    if a.plot and not (a.sizes or (a.precision == "float64" and not chosen)):
        raise BridgeError("--plot draws the result of --sizes or of --precision float64: one of them is missing")
