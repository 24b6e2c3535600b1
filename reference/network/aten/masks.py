# SPDX-License-Identifier: MIT
"""Choices between numbers by marks that are the same for all images: masks of attention, and parts that are set."""

from __future__ import annotations

import math
from typing import Any

import torch

from reference.network.aten import shared
from reference.network.aten.writing import Stored, Tensor, UnsupportedError, Writer


def where(w: Writer, marks: Any, one: Any, other: Any) -> Tensor:
    """One where a mark is, the other elsewhere: the sum of both times 0 or 1."""
    if not isinstance(marks, Stored) or marks.value.dtype != torch.bool:
        raise UnsupportedError("a choice that depends on the input")
    w.reads([marks.name] if marks.name else [])
    like = next((x for x in (one, other) if isinstance(x, Tensor)), None)
    if like is None:
        raise UnsupportedError("a choice between stored tensors")
    w.rewritten()
    chosen = [_part(w, like, x, mark, name) for x, mark, name in ((one, marks.value, "chosen"),
                                                                  (other, ~marks.value, "kept"))]
    first, *rest = [x for x in chosen if x is not None]
    return w.binary("add", first, rest[0]) if rest else first


def filled(w: Writer, x: Tensor, marks: Any, value: Any) -> Tensor:
    """A number where a mark is."""
    return where(w, marks, value, x)


def _part(w: Writer, like: Tensor, x: Any, marks: torch.Tensor, name: str) -> Tensor | None:
    """The numbers where the marks are, 0 elsewhere; None where all are 0."""
    if isinstance(x, Tensor) or not (isinstance(x, (int, float)) or shared.is_constant(x)):
        return w.binary("multiply", shared.aligned(w, x, like) if shared.is_shared(x) else x,
                        shared.aligned(w, Stored("", marks.to(w.real)), like), name)
    value = torch.as_tensor(x.value if isinstance(x, Stored) else x, dtype=w.real)
    found = torch.where(marks, shared.finite(value), 0.0)
    return shared.aligned(w, Stored("", found), like) if bool(found.any()) else None


def of_attention(w: Writer, scores: Tensor, marks: Any, is_causal: bool) -> Any:
    """What is added to the scores: nothing where a mark is, elsewhere what leaves nothing of them behind a softmax."""
    if is_causal:
        marks = Stored("", torch.ones(scores.shape[-2:], dtype=torch.bool).tril())
    if not shared.is_index(marks):
        return marks
    w.reads([marks.name] if marks.name else [])
    return shared.aligned(w, Stored("", torch.where(marks.value, 0.0, -math.inf).to(w.real)), scores)
