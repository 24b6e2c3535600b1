# SPDX-License-Identifier: MIT
"""Losses that are divided or weighted by another number; derivatives of logits for those of probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from bridge.judge.diagnosis.wrong_operations.change import changed
from bridge.operations.losses import BinaryCrossEntropy, BinaryCrossEntropyWithLogits, CrossEntropy, Loss
from bridge.operations.operation import Number


def wrong_losses(right: Loss) -> Iterator[tuple[str, Loss]]:
    """Yield what exactly, and the loss that has it."""
    if isinstance(right, BinaryCrossEntropy):
        yield "the derivative y - t, which is that of logits", changed(right, slope=lambda y, t: y - t)
    if isinstance(right, BinaryCrossEntropyWithLogits):
        of_probabilities, plain = BinaryCrossEntropy(right.mean), replace(right, pos_weight=1.0)
        if right.pos_weight != 1.0:
            yield "pos_weight is of the target 0, too", changed(
                right, value=lambda y, t: plain.value(y, t) * right.pos_weight,
                slope=lambda y, t: plain.slope(y, t) * right.pos_weight)
        yield "the derivative is that of probabilities", changed(
            right, slope=lambda y, t: of_probabilities.slope(y.sigmoid(), t))
    if isinstance(right, CrossEntropy) and right.class_indices and right.mean:
        given = {one.name: getattr(right, one.name) for one in fields(right)}
        yield "a mean over all pixels, not over the weights of those that count", _MeanOfAll(**given)
        if right.weight:
            yield "a mean over the pixels that count, not over their weights", _MeanOfCounted(**given)


class _MeanOfAll(CrossEntropy):
    """A mean over all images and pixels, ignored ones too."""

    def _scaled(self, found: Number, output: Number, target: Number) -> Number:
        return found * (output.shape[1] / output.size)


class _MeanOfCounted(CrossEntropy):
    """A mean over the images and pixels that are not ignored."""

    def _scaled(self, found: Number, output: Number, target: Number) -> Number:
        return found / target.moved(self._counted).sum(None)
