# SPDX-License-Identifier: MIT
"""The loop of a training: batches, updates, validations, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from bridge.common.errors import ArgumentError, BridgeError, DivergenceError
from bridge.data import Batch, Batches
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.network.network import Network
from bridge.exchange.optimizers import Optimizer
from bridge.train import gradients
from bridge.train.audit import FOLDER as AUDITS
from bridge.train.audit import Audit, AuditError, AuditRecord
from bridge.train.checkpoints import Checkpoints, Progress
from bridge.train.images import counted
from bridge.train.quality import Quality, quality
from bridge.train.ranks.communicator import Alone, Communicator, RankError, together
from bridge.train.settings import TrainSettings
from bridge.train.stopping import Request, signals_noted
from bridge.train.team import Team


@dataclass(frozen=True)
class StepRecord:
    """What is known of a step.

    Attributes
    ----------
    step : int
        Counted from 0.
    loss : float
        Of the batch, before the update; of several that of all their images as one batch.
    lr : float
    gradient_norm : float or None
        Before it is clipped; None where nothing is.
    validation_loss : float or None
        After the step, where it is validated.
    resolution : float or None
        The frequency, in cycles per pixel, at which the Fourier ring correlation of `bridge.train.quality` falls below
        0.143, where it is validated.
    left_out : tuple of str
        Why images were not taken.
    audit : AuditRecord or None
        Of a step that was judged; one with a bug is the last that is reported.
    """

    step: int
    loss: float
    lr: float
    gradient_norm: float | None = None
    validation_loss: float | None = None
    resolution: float | None = None
    audit: AuditRecord | None = None
    left_out: tuple[str, ...] = ()


class Trainer:
    """Train a network on batches.

    The training depends on the network, the batches and the settings alone: what is read ahead, interrupted and resumed
    gives the same bits. Dropouts' masks are drawn from (seed of the batches, step).

    Parameters
    ----------
    network : Network
        In training mode. Is changed.
    batches : Batches
    settings : TrainSettings
    checkpoints : Checkpoints or None
        Where they go; None: there are none.
    validation : Batches or None
        What validations are on: the whole batches of one epoch.
    report : called after each step with its `StepRecord`
    progress : of a checkpoint, to go on from it, see `resume`
    ranks : who shares each batch; None: this process alone
        All of them make a trainer of the same network, batches and settings, and call it alike; checkpoints and report
        are for rank 0.

    Attributes
    ----------
    quality : Quality or None
        Of the first batch of the last validation.

    Raises
    ------
    ArgumentError
        If settings and what is given do not fit to each other.
    RankError
        If the ranks have begun differently.

    Examples
    --------
    >>> import os, tempfile
    >>> from bridge.data import Consecutive
    >>> from bridge.exchange.model import Conv2d, Model
    >>> from bridge.exchange.optimizers import Sgd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     images = np.random.default_rng(0).standard_normal((6, 8, 8), dtype=np.float32)
    ...     np.save(os.path.join(folder, "noisy.npy"), images)
    ...     batches = Batches(Consecutive(folder), batch=2, crop=(8, 8))
    ...     net = Network(Model((Conv2d("a", 1, 1, (3, 3), padding=(1, 1)),)))
    ...     trainer = Trainer(net, batches, TrainSettings(steps=4, optimizer=Sgd(0.1)))
    ...     records = []
    ...     trainer.report = records.append
    ...     trainer.run()
    >>> net.steps, [one.step for one in records]
    (4, [0, 1, 2, 3])
    """

    def __init__(self, network: Network, batches: Batches, settings: TrainSettings,
                 checkpoints: Checkpoints | None = None, validation: Batches | None = None,
                 report: Callable[[StepRecord], None] | None = None, *, progress: Progress | None = None,
                 ranks: Communicator | None = None) -> None:
        ranks = ranks or Alone()
        together(ranks, lambda: _check(settings, validation, checkpoints, ranks))
        self.network, self.batches, self.settings = network, batches, settings
        self.checkpoints, self.validation, self.report = checkpoints, validation, report
        self.quality: Quality | None = None
        # Whether a step has changed anything and is not done; what its batches left out
        self._begun, self._left_out = False, tuple[str, ...]()
        self.progress = progress or Progress(settings, batches.seed)
        self._team = Team(ranks, network, batches, settings, self.progress.seed)
        if settings.average is None:
            # One that is no longer updated would be taken for the weights' average later on
            self.progress.average = {}
        elif not self.progress.average:
            self.progress.average = {name: np.array(to_host(one)) for name, one in network.parameters.items()}

    @property
    def finished(self) -> bool:
        """Return whether all steps are done, or validations have been without a better loss for too long."""
        patience = self.settings.patience
        return self.network.steps >= self.settings.steps or bool(patience and self.progress.without_better >= patience)

    def run(self) -> None:
        """Train until all steps are done.

        SIGINT, SIGTERM and SIGHUP, on any rank, end it after the step that is at work, with a checkpoint; they are
        raised then.

        Raises
        ------
        DivergenceError
            If a loss or a gradient is not finite; with the step. The checkpoints before it stay as they are.
        AuditError
            If a step that was judged is wrong; what shows it stays in the folder ``audits`` beside the checkpoints.
        FileError
            If a batch cannot be read, or a checkpoint not be written; the steps that are done are in a checkpoint
            then, as far as it can be written.
        RankError
            If another rank is gone, or has other weights.
        """
        s, first, team = self.settings, self.network.steps, self._team
        stream = team.stream(first * s.accumulate, s.steps * s.accumulate)
        with closing(stream), signals_noted(once=team.ranks.size == 1) as request:
            try:
                self._steps(stream, request)
            except (DivergenceError, AuditError, RankError):
                raise
            except Exception:
                self._keep_what_is_done(first)
                raise
            if self.network.steps > first and self.network.steps % s.checkpoint_every:
                self.checkpoint()
            # For rank 0, which may be writing still
            team.ranks.wait()
            if team.ended_by(request):
                raise request.error()

    def _steps(self, stream: Generator[Batch, None, None], request: Request) -> None:
        while not self.finished and not self._team.ended_by(request):
            record = self._step(stream)
            if self.report is not None:
                self.report(record)
            if self.network.steps % self.settings.checkpoint_every == 0:
                self.checkpoint()

    def _keep_what_is_done(self, first: int) -> None:
        """A checkpoint after an error of a file or of ours, where nothing has begun of the next step; the error is told
        whatever becomes of that.
        """
        kept = self.checkpoints
        if kept is None or self._begun or self._team.ranks.size > 1 or self.network.steps == first:
            return
        if self.network.steps % self.settings.checkpoint_every or not (kept.folder / kept.name_of(
                self.network.steps)).exists():
            with suppress(BridgeError, OSError):
                kept.write(self.network, self.progress)

    def checkpoint(self) -> None:
        """Write a checkpoint, if they go anywhere; all ranks must have the same numbers then."""
        self._team.check()
        if self.checkpoints is not None:
            self.checkpoints.write(self.network, self.progress)

    def validate(self) -> float:
        """Return the mean loss of the whole batches of an epoch of the validation data, in evaluation mode."""
        assert self.validation is not None
        network, losses = self.network, np.zeros(max(1, self.validation.samples // self.validation.batch))
        network.eval()
        try:
            for k in self._team.mine(losses.size):
                losses[k] = self._loss_of(self.validation.at(k))
            self.quality = quality(network, self.validation.at(0), symmetric=self.validation.data.symmetric)
        finally:
            network.train()
        return self._team.mean_in_order(losses)

    def _step(self, stream: Generator[Batch, None, None]) -> StepRecord:
        network, s = self.network, self.settings
        step = network.steps
        optimizer = s.optimizer_at(step)
        network.masks.generator = self._team.generator(step)
        audit, applied = self._audit(step, optimizer), None
        if s.clip is None and s.accumulate == 1 and self._team.alone:
            batch = next(stream)
            self._begun, self._left_out = True, batch.left_out
            network.feed(batch.input, batch.target)
            loss, found = network.step(optimizer=optimizer), None
            assert loss is not None
            if audit is not None:
                audit.saw(network, batch, loss)
        else:
            loss, found, applied = self._gradients(stream, step, audit)
            self._begun = True
            network.update(optimizer)
        try:
            judged = self._judged(audit, applied)
        except AuditError as error:
            if self.report is not None and error.record is not None:
                self.report(StepRecord(step, loss, optimizer.lr, found, audit=error.record))
            raise
        self._average()
        self._begun = False
        validated = self._validated()
        resolution = None if validated is None or self.quality is None else self.quality.after.resolution()
        return StepRecord(step, loss, optimizer.lr, found, validated, resolution, judged, self._left_out)

    def _audit(self, step: int, optimizer: Optimizer) -> Audit | None:
        """The record of a step that is to be judged: on the rank with the checkpoints, of its part of the batch."""
        every = self.settings.audit_every
        if self.checkpoints is None or not every or step % every:
            return None
        return Audit(self.checkpoints.folder / AUDITS, self.network, optimizer)

    def _judged(self, audit: Audit | None, applied: dict[str, np.ndarray] | None) -> AuditRecord | None:
        """A bug ends all ranks."""
        every, step = self.settings.audit_every, self.network.steps - 1
        if not every or step % every:
            return None
        try:
            return together(self._team.ranks, lambda: None if audit is None else audit.judge(self.network, applied))
        except RankError as error:
            raise AuditError(str(error)) from None

    def _gradients(self, stream: Generator[Batch, None, None], step: int, audit: Audit | None
                   ) -> tuple[float, float | None, dict[str, np.ndarray]]:
        """Gradients of several batches as of one, clipped, as the network's; their loss and norm, and they themselves.
        """
        network, s = self.network, self.settings
        loss, counts, total = 0.0, 0.0, dict[str, Any]()
        for number in range(s.accumulate):
            batch = next(stream)
            # Running statistics change with each batch, weights with the last
            self._begun, self._left_out = bool(network.buffers), self._left_out * bool(number) + batch.left_out
            count = counted(network.model, batch.target) if s.accumulate > 1 else 1.0
            # A batch of which nothing counts has no mean; one alone is a loss of NaN, as torch's
            if not count and number < s.accumulate - 1 + bool(counts):
                continue
            part, own = self._of_batch(batch, step, number)
            loss += part * count
            if audit is not None and not audit.has_seen:
                audit.saw(network, batch, part)
            if count != 1:
                gradients.scale(own, count)
            gradients.add(total, own)
            counts += count
        if network.model.mean and counts != 1:
            loss /= counts
            gradients.scale(total, 1 / counts)
        if not (s.reproducible or self._team.alone):
            loss, total = self._team.added(loss, total)
        found = gradients.norm(total)
        if not (math.isfinite(loss) and math.isfinite(found)):
            self._team.ranks.settle()
            raise DivergenceError(f"step {step}: loss {loss:g}, norm of the gradients {found:g}, expected finite ones")
        if s.clip is not None and (factor := gradients.clip_factor(found, s.clip)) < 1:
            gradients.scale(total, factor)
        gradients.write(network, total)
        return loss, found if s.clip is not None else None, total

    def _of_batch(self, batch: Batch, step: int, number: int) -> tuple[float, dict[str, np.ndarray]]:
        """Loss and gradients of this rank's part of a batch; with `reproducible` of the whole batch."""
        if self.settings.reproducible:
            return self._team.by_images(batch, step, number)
        loss = self._loss_of(batch)
        self.network.backward()
        return loss, gradients.read(self.network)

    def _loss_of(self, batch: Batch) -> float:
        self.network.forward(to_device(batch.input, self.network.device))
        return self.network.loss(to_device(batch.target, self.network.device))

    def _average(self) -> None:
        decay = self.settings.average
        if decay is None:
            return
        for name, one in self.network.parameters.items():
            kept = self.progress.average[name]
            kept += (1 - decay) * (to_host(one) - kept)

    def _validated(self) -> float | None:
        s, steps = self.settings, self.network.steps
        if not s.validate_every or steps % s.validate_every:
            return None
        loss = self.validate()
        if loss < self.progress.best_loss:
            self.progress.best_loss, self.progress.without_better = loss, 0
            if self.checkpoints is not None:
                self.checkpoints.write_best(self.network, self.progress)
        else:
            self.progress.without_better += 1
        return loss


def _check(settings: TrainSettings, validation: Batches | None, checkpoints: Checkpoints | None, ranks: Communicator
           ) -> None:
    if settings.audit_every and checkpoints is None and ranks.rank == 0:
        raise ArgumentError(f"audit_every: {settings.audit_every} without a folder for it, expected checkpoints")
    if settings.validate_every and validation is None:
        raise ArgumentError(f"validate_every: {settings.validate_every} without data for it, expected validation")
