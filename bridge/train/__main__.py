# SPDX-License-Identifier: MIT
"""``python -m bridge.train CONFIG.toml``: train a network on image files of any size."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bridge.common.cli import BAD_INPUT, INTERRUPTED, Output, complain, new_parser, run
from bridge.common.errors import ArgumentError, BridgeError, DivergenceError
from bridge.common.signals import Ended
from bridge.common.threads import keep_freed_memory
from bridge.engine.library import extension
from bridge.engine.network.network import Network
from bridge.train.audit import AuditError, AuditRecord
from bridge.train.checkpoints import Checkpoints, last_in, load
from bridge.train.checkpoints import Progress as State
from bridge.train.configuration import Configuration
from bridge.train.lock import locked
from bridge.train.log import StepLog, read
from bridge.train.page import write_page
from bridge.train.ranks.communicator import Communicator, together
from bridge.train.ranks.launcher import KINDS, join
from bridge.train.tensorboard import TensorBoard
from bridge.train.trainer import StepRecord, Trainer
from bridge.train.used import Used, model_differences, used_by

ABOUT = """Train a network on image files of any size, and be able to stop at any moment.

CONFIG is a TOML file: the network, the data, and how they are trained. Batches of crops are read ahead while a step
runs, and each is a function of a seed and the number of the step. So a training that is interrupted, or killed, goes
on with --resume from its last checkpoint to the same bits as if it had never stopped.

Under mpirun (with mpi4py) or torchrun several processes, ranks, share each batch and make the same update; rank 0
alone writes. A rank that dies ends all, and with --resume the training continues on any number of them.

The folder OUTPUT holds the last checkpoints, the best by validation, log.jsonl with a line for each step, and
report.html: loss curve, audits, and with a validation the Fourier ring correlation and what the network makes of an
image. A checkpoint is an exchange file, which bridge.Network.from_file and Fortran programs read."""

CONFIG = '''model = "my_nets:denoiser"        # a PyTorch module, or an exchange file
loss = "mse"

[data]
inputs = "movies/*.mrcs"
noise2noise = "even_odd"          # or: targets = "clean/*.mrc"
batch = 2
crop = [512, 512]
normalization = "image"

[training]
steps = 10000
schedule = "one_cycle steps=10000"

[optimizer]
type = "adamw"
lr = 1e-3'''

EPILOG = f"""a configuration:
{textwrap.indent(CONFIG, "  ")}

exit codes:
  0    all steps are done, or validations no longer become better
  1    a loss or a gradient is not finite, or an audit has found a bug: the
       step is named, the last checkpoint is kept
  2    bad input or usage
  130  interrupted; a checkpoint has been written; ended by another signal,
       that one's exit code

examples:
  python -m bridge.train train.toml
  python -m bridge.train train.toml --resume
  python -m bridge.train train.toml --audit 1000
  python -m bridge.train train.toml --steps 200 --output trial
                         --set optimizer.lr=3e-4
  mpirun -n 4 python -m bridge.train train.toml
  torchrun --nproc-per-node 4 -m bridge.train train.toml"""

#: Keys of the configuration that have a flag of their own
FLAGS = {"output": "output", "device": "device", "steps": "training.steps", "audit": "training.audit_every"}
#: What shells add to the number of a signal, for the exit code of who was ended by it
SIGNALLED = 128
#: What is left out, in lines
MOST_LEFT_OUT = 20
#: Lines in which a run without a terminal says how far it is
LINES = 20


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = new_parser("bridge.train", ABOUT, EPILOG)
    p.add_argument("config", metavar="CONFIG", help="TOML file")
    p.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="change a key of it, as "
                   "training.steps=200; may be given several times")
    p.add_argument("--output", metavar="FOLDER", help="of checkpoints and log, in place of the configuration's")
    p.add_argument("--device", help="in place of the configuration's")
    p.add_argument("--steps", metavar="N", type=int, help="training.steps in place of the configuration's")
    p.add_argument("--audit", metavar="N", type=int, help="training.audit_every: every N steps one step of the running "
                   "training is judged, as python -m bridge.validate judges a program; a bug ends the training")
    p.add_argument("--resume", action="store_true", help="go on from the last checkpoint in OUTPUT")
    p.add_argument("--allow-changes", action="store_true", help="with --resume: go on where the data, their files, "
                   "the model or the loss are not those of the checkpoint; model and loss stay the checkpoint's")
    p.add_argument("--ranks", choices=KINDS, help="who carries messages between several processes (default: as the "
                   "variables say that mpirun and torchrun set)")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    a = parser().parse_args(arguments)
    joined = list[Communicator]()
    code = run("bridge.train", lambda: _with_ranks(a, joined))
    for ranks in joined:
        ranks.end(code)
    return code


def _with_ranks(a: argparse.Namespace, joined: list[Communicator]) -> int:
    """The training, on each of the ranks; what ends all of them is told by one."""
    ranks = join(a.ranks)
    joined.append(ranks)
    try:
        return _train(a, ranks)
    except (BridgeError, OSError):
        if ranks.silent:
            return BAD_INPUT
        raise
    except KeyboardInterrupt:
        if ranks.silent:
            return INTERRUPTED
        raise
    except Ended as ended:
        if not ranks.settled:
            raise
        # By the signal itself it would not take leave of the others
        code = SIGNALLED + ended.number
        return code if ranks.silent else complain("bridge.train", f"ended by {ended}", code)


def _train(a: argparse.Namespace, ranks: Communicator) -> int:
    with ExitStack() as stack:
        return _run(together(ranks, lambda: _Prepared(a, ranks, stack)), ranks)


def _run(prepared: _Prepared, ranks: Communicator) -> int:
    settings, network, checkpoints = prepared.configuration.settings, prepared.network, prepared.checkpoints
    trainer = Trainer(network, prepared.batches, settings, checkpoints, prepared.validation, progress=prepared.state,
                      ranks=ranks)
    reporter: _Reporter | None = None
    with ExitStack() as stack:
        if checkpoints is not None:
            console = Output(stderr=True)
            for one in prepared.changes:
                complain("bridge.train", f"changed: {one}")
            log = stack.enter_context(StepLog(checkpoints.folder, network.steps))
            board = stack.enter_context(TensorBoard(checkpoints.folder, network.steps))
            trainer.report = reporter = _Reporter(trainer, (log, board), stack.enter_context(_bar(console)), console)
        try:
            trainer.run()
        except (DivergenceError, AuditError) as error:
            kept = last_in(prepared.configuration.output)
            return 1 if ranks.silent else complain("bridge.train",
                                                   f"{error}; the last checkpoint is {kept or 'none'}", 1)
        finally:
            if checkpoints is not None:
                _write_page(trainer, prepared.configuration)
    if checkpoints is not None:
        Output().print(f"{network.steps} steps done; {checkpoints.last()}", highlight=False, soft_wrap=True)
    if reporter is not None and reporter.audits:
        Output().print(reporter.audited(), highlight=False, soft_wrap=True)
    return 0


class _Prepared:
    """What a rank trains, as the command line says; on rank 0 alone with checkpoints."""

    def __init__(self, a: argparse.Namespace, ranks: Communicator, stack: ExitStack) -> None:
        flags = {key: given for flag, key in FLAGS.items() if (given := getattr(a, flag)) is not None}
        self.configuration = Configuration.of_file(a.config, dict(_change(text) for text in a.set), flags)
        settings, output = self.configuration.settings, self.configuration.output
        extension.check_device(self.configuration.device)
        keep_freed_memory()
        self.batches, self.validation = self.configuration.batches()
        self.network, self.state, self.changes = _begin(self.configuration, self._used(), resume=a.resume,
                                                        allowed=a.allow_changes)
        self.state.settings, self.state.seed = settings, self.batches.seed
        self.checkpoints: Checkpoints | None = None
        if ranks.rank == 0:
            self.checkpoints = Checkpoints(output, settings.keep)
            stack.enter_context(locked(self.checkpoints.folder))
            # Between the look at the folder and its lock
            if (last := self.checkpoints.last()) and last.name != Checkpoints.name_of(self.network.steps):
                raise ArgumentError(f"{output}: another training has written {last.name} just now")
            self.checkpoints.try_to_write(self.network, self.state)

    def _used(self) -> Used:
        """What stands in checkpoints; what was measured of the whole set as its two numbers, by which outputs are
        mapped back.
        """
        given = dict(self.configuration.data)
        if self.batches.scale is not None and given.get("normalization") == "set":
            given["normalization"] = [float(one) for one in self.batches.scale]
        return used_by(self.configuration.model, json.dumps(given, sort_keys=True),
                       json.dumps(self.configuration.validation, sort_keys=True),
                       {"data": self.batches, "validation": self.validation})


def _begin(configuration: Configuration, used: Used, *, resume: bool, allowed: bool
           ) -> tuple[Network, State, list[str]]:
    """The network at the beginning, or of the last checkpoint, with what its training knew, and what has changed."""
    folder = configuration.output
    last = last_in(folder)
    if last is None:
        if resume:
            raise ArgumentError(f"--resume: no checkpoint in {folder}, expected one")
        return configuration.network(), State(configuration.settings, used=used), []
    if not resume:
        raise ArgumentError(f"{folder}: has {last.name} already, expected --resume to go on from there, or --set "
                            "output=FOLDER with another folder")
    network, state = load(last, configuration.device, keep_activations=False)
    found = state.used.differences(used)
    # One of another name is another
    described = configuration.described() if state.used.model in ("", used.model) else None
    if described is not None:
        found += model_differences(network.model, described)
    if found and not allowed:
        raise ArgumentError(f"{last}: {'; '.join(found)}; expected what the training began with, or --allow-changes to "
                            "go on with these data and the checkpoint's model and loss")
    # The network is the checkpoint's, whatever the configuration says
    state.used = replace(used, model=state.used.model or used.model)
    return network, state, found


def _write_page(trainer: Trainer, configuration: Configuration) -> None:
    """The report, from the whole log, of which a run that was resumed is a part."""
    model = trainer.network.model
    settings = {"model": trainer.progress.used.model, "loss": f"{model.loss}, {'mean' if model.mean else 'sum'}",
                "device": configuration.device, "training": configuration.settings.text,
                "data": json.dumps(configuration.data)}
    write_page(Path(configuration.output), list(read(configuration.output)), trainer.quality, settings)


def _change(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentError(f"--set {text}: expected KEY=VALUE")
    return name.strip(), value.strip()


def _bar(console: Output) -> Progress:
    return Progress(TextColumn("step"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[said]}"),
                    TimeRemainingColumn(), console=console, disable=not console.is_terminal)


class _Reporter:
    """Tells of each step: to the log, and to who looks on."""

    def __init__(self, trainer: Trainer, logs: tuple[StepLog, TensorBoard], bar: Progress, console: Output) -> None:
        self._logs, self._bar, self._console, self._start = logs, bar, console, time.monotonic()
        self._images = trainer.batches.batch * trainer.settings.accumulate
        self._steps, self._first = trainer.settings.steps, trainer.network.steps
        self._task = bar.add_task("", total=self._steps, completed=self._first, said="")
        self.audits = list[AuditRecord]()
        self._left_out = set[str]()
        self._new = [*trainer.batches.left_out, *(trainer.validation.left_out if trainer.validation else ())]

    def __call__(self, record: StepRecord) -> None:
        record = replace(record, left_out=self._told((*self._new, *record.left_out)))
        self._new = []
        seconds, done = time.monotonic() - self._start, record.step + 1
        log, board = self._logs
        log.write(record, seconds)
        board.write(record)
        said = f"loss {record.loss:.4g}, {self._images * (done - self._first) / max(seconds, 1e-9):.3g} images/s"
        if record.validation_loss is not None:
            said += f", validation {record.validation_loss:.4g}"
        if record.resolution is not None:
            said += f", resolution {record.resolution:.3g}"
        if record.audit is not None:
            self.audits.append(record.audit)
            said += f", audit {record.audit.verdict.replace('_', ' ')} (T = {record.audit.t:g})"
        self._bar.update(self._task, completed=done, said=said)
        if not self._console.is_terminal and (done % max(1, self._steps // LINES) == 0 or done == self._steps):
            self._console.print(f"step {done}/{self._steps}: {said}", highlight=False, style="dim")

    def _told(self, reasons: Sequence[str]) -> tuple[str, ...]:
        """Those that are new, which are said."""
        new = tuple(one for one in dict.fromkeys(reasons) if one not in self._left_out)
        for number, one in enumerate(new, len(self._left_out)):
            if number < MOST_LEFT_OUT:
                complain("bridge.train", f"left out: {one}")
            elif number == MOST_LEFT_OUT:
                complain("bridge.train", "left out: more than these; all stand in log.jsonl")
        self._left_out.update(new)
        return new

    def audited(self) -> str:
        """Return what the audits of this run have found, and what they have cost."""
        found = Counter(one.verdict.replace("_", " ") for one in self.audits)
        spent, total = sum(one.seconds for one in self.audits), time.monotonic() - self._start
        said = ", ".join(f"{number} {verdict}" for verdict, number in found.items())
        return (f"{len(self.audits)} steps audited: {said}; largest T = {max(one.t for one in self.audits):g}; "
                f"{spent:.1f} of {total:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
