# SPDX-License-Identifier: MIT
"""The experiments of `bridge.validate`, each with a conclusion in one line and an exit code.

* ``--sizes``: the error against the size of the images;
* ``--probe``: steps in which nothing is rounded;
* ``--checks``: identities that need no reference.

(``--precision float64``, the fourth, belongs to an ordinary validation.)
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

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
from bridge.identities.self_checks import IdentityCheck, self_checks
from bridge.judge.judge import Judgement
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.outcome import Outcome, worst
from bridge.report.html_page import run_of_several
from bridge.report.junit import Answer
from bridge.report.outputs import finish_series
from bridge.report.series import Series
from bridge.validate import run as validation
from bridge.validate.options import Files, Options
from bridge.validate.plots import drawn, plot_sizes
from bridge.validate.size_study import Scaling
from bridge.validate.workspace import workspace

#: What an exact probe is asked for, where nothing else is: the default net, its memory between steps, all options
PROBES = {
    "default net, 64x128": {"size": "64x128", "steps": 1},
    "default net, 3 steps with the learning rate 0": {"size": "32x64", "steps": 3},
    "strides, dilations, groups": {"size": "32x64", "batch": 4, "steps": 1, "model": "reference.model:VariedCNN"},
}


def sizes(options: Options) -> int:
    """``--sizes``: validate at every size; the exit code is the worst."""
    start, console, errors = time.monotonic(), Output(), Output(stderr=True)
    scaling, keeper = Scaling(), _Worst(options.files.report is not None)
    runs = {size: replace(options, size=size).filled(steps=1) for size in options.sizes}
    needed = [one.bytes_needed() for one in runs.values()]
    with workspace(options.keep, sum(needed) if options.keep else max(needed)) as folder:
        for number, (size, one) in enumerate(runs.items(), 1):
            files, what = Files.of(folder, f"-{size}"), f"[{number}/{len(runs)}] {size}: "
            with stage(errors, f"{what}reference.export"):
                validation.export(files, one)
            with validation.run_and_judge(files, one, errors, what) as (pair, judgement):
                scaling.add(size, *judgement)
                keeper.look(size, pair, judgement)
            if options.keep is None:
                files.remove()
    console.print(scaling.table())
    console.print(scaling.conclusion, highlight=False, style="bold")
    plot = options.plot
    unplotted = drawn(console, plot, lambda: plot_sizes(plot, scaling, options.precision)) if plot else []
    validation.print_end(console, start)
    answers = [Answer(size.name, size.outcome, size.words) for size in scaling.sizes]
    title = _title("The error against the size of the images", options)
    series = Series("sizes", title, scaling.outcome, scaling.conclusion, answers, *scaling.cells(), keeper.shown)
    return finish_series("bridge.validate", options.files, series, scaling.to_dict()) or BAD_INPUT * bool(unplotted)


def probes(options: Options) -> int:
    """``--probe``: run exact probes; the exit code is the worst."""
    start, console, errors = time.monotonic(), Output(), Output(stderr=True)
    found, keeper = [], _Worst(options.files.report is not None)
    with workspace(options.keep, 2**27 + options.filled(size="64x128").bytes_needed()) as folder:
        wanted = _wanted_probes(options)
        for number, (name, given) in enumerate(wanted.items(), 1):
            one = replace(options, probe=True, **given)
            files = Files.of(folder, f"-probe{number}")
            what = f"[{number}/{len(wanted)}] "
            with stage(errors, f"{what}reference.export --probe"):
                validation.export(files, one)
            with validation.run_and_judge(files, one, errors, what) as (pair, judgement):
                verdict = judgement.verdict
                found.append(Answer(name, verdict.outcome, verdict.words, verdict.hints))
                keeper.look(name, pair, judgement)
            console.print(f"[bold]{name}[/bold]: {escape(verdict.words)}", highlight=False, markup=True)
            for hint in verdict.hints:
                console.print(f"  {hint}", highlight=False, markup=False)
    validation.print_end(console, start)
    outcome = worst(one.outcome for one in found)
    exact = sum(one.outcome is Outcome.ROUNDING for one in found)
    first = next((one for one in found if one.outcome is outcome), found[0])
    words = f"{exact} of {count(len(found), 'probe')} exact."
    words += f" {first.name}: {first.words}" if exact < len(found) else ""
    probes = [{"name": one.name, "verdict": one.outcome.label, "words": one.words, "hints": one.hints} for one in found]
    series = Series("probes", _title("Exact probes, in which nothing is rounded", options), outcome, words, found,
                    worst=keeper.shown)
    return finish_series("bridge.validate", options.files, series, {"probes": probes})


def _wanted_probes(options: Options) -> dict[str, dict[str, Any]]:
    """One with the options that were given, else those of `PROBES`."""
    names = ("size", "batch", "steps", "model", "lr", "reduction")
    if any(getattr(options, name) is not None for name in names):
        return {"probe": {}}
    return PROBES


def checks(options: Options) -> int:
    """``--checks``: what needs no reference; 1 if an identity does not hold."""
    start, console, errors = time.monotonic(), Output(), Output(stderr=True)
    with stage(errors, "identities of convolutions and of a network"):
        own = list(self_checks(options.device))
    one = options.filled(size="48x64", steps=2)
    with workspace(one.keep, one.bytes_needed()) as folder:
        files = Files.of(folder)
        with stage(errors, "reference.export"):
            validation.export(files, one)
        with stage(errors, f"cnn_step, {one.device}, {one.precision}"):
            run_cnn_step(files.fixture, files.result, one.device, one.precision)
        with stage(errors, "adjoint identities of the step") as progress:
            adjoint = adjoint_identities(files.fixture, files.result, progress)
    outcomes = [Outcome.ROUNDING if one.passed else Outcome.BUG for one in own] + [one.outcome for one in adjoint]
    found = own + [
        IdentityCheck(f"cnn_step, {options.precision}: adjoint identity of {one.layer}, step {one.step}",
              f"T = {short(one.largest)}", one.outcome is Outcome.ROUNDING)
        for one in adjoint
    ]
    console.print(_checks_table(found))
    wrong = [check.name for check in found if not check.passed]
    words = f"{len(found) - len(wrong)} of {len(found)} identities hold."
    words += f" First wrong: {wrong[0]}." if wrong else ""
    words += f" {adjoint_conclusion(adjoint)}" if any(one.implicated for one in adjoint) else ""
    console.print(words, style="bold", highlight=False)
    validation.print_end(console, start)
    answers = [Answer(check.name, outcome, check.found) for check, outcome in zip(found, outcomes, strict=True)]
    series = Series("checks", _title("Identities that need no reference", options), worst(outcomes), words, answers)
    return finish_series("bridge.validate", options.files, series, {"checks": [vars(check) for check in found]})


def _title(what: str, options: Options) -> str:
    return f"{what}: device {options.device}, {options.precision}"


def _checks_table(found: list[IdentityCheck]) -> Table:
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

    def look(self, name: str, pair: FilePair, judgement: Judgement) -> None:
        """Keep this one, if it is worse."""
        comparison, verdict = judgement
        t = max((judged.t for judged in comparison.computed), default=0.0)
        same = verdict.outcome is self._outcome
        worse = not t <= self._t if same else worst([verdict.outcome, self._outcome]) is verdict.outcome
        if self.wanted and worse:
            self._outcome, self._t = verdict.outcome, t
            made = attempt(verdict.missing, "the run, in the report",
                           lambda: run_of_several(judgement, pair), "")
            self.shown = (name, made)


def refuse_together(options: Options) -> None:
    """Refuse options that say nothing together.

    Raises
    ------
    BridgeError
        With both names.
    """
    chosen = [f"--{name}" for name in ("sizes", "probe", "checks", "self-test")
              if getattr(options, name.replace("-", "_"))]
    if len(chosen) > 1:
        raise BridgeError(f"{' and '.join(chosen)}: one experiment at a time")
    if options.every_step and chosen:
        raise BridgeError(f"--all belongs to a single comparison, expected no {chosen[0]}")
    if options.quick and not options.self_test:
        raise BridgeError("--quick shortens --self-test, which is missing")
    for name in ("size", "shape"):
        if options.sizes and getattr(options, name):
            raise BridgeError(f"--sizes and --{name}: one of them")
    if options.plot and not (options.sizes or (options.precision == "float64" and not chosen)):
        raise BridgeError("--plot draws the result of --sizes or of --precision float64: one of them is missing")
