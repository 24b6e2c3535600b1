# SPDX-License-Identifier: MIT
"""Fourier transforms of complex tensors, and parts of these that are taken or written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import fx

from reference.network.aten.calls import name_of
from reference.network.aten.complex import fourier
from reference.network.aten.complex.numbers import ATEN, Complex, Emitter, Spectrum, shape_of
from reference.network.aten.writing import Shape, UnsupportedError


def fourier_call(emit: Emitter, name: str, x: Any, sizes: Any = None, dims: Any = None, norm: str | None = None) -> Any:
    """A call of torch.fft: a transform that is still to be made, or real numbers."""
    kind, shape = fourier.CALLS[name], shape_of(x)
    axes = kind.axes or (len(sizes) if sizes is not None else len(shape))
    if dims is None or kind.axes == 1:
        chosen = [-1 if dims is None else dims] if kind.axes == 1 else [*range(-axes, 0)]
    else:
        chosen = list(dims)
    chosen = [one % len(shape) for one in chosen]
    lengths = [sizes] if kind.axes == 1 else list(sizes) if sizes is not None else [None] * len(chosen)
    known = [shape[axis] if n is None or n < 0 else n for axis, n in zip(chosen, lengths, strict=True)]
    power = fourier.power(norm, kind.inverse)
    if kind.one_sided and kind.inverse:
        last = 2 * (shape[chosen[-1]] - 1) if lengths[-1] in (None, -1) else lengths[-1]
        return _to_real(emit, x, dict(zip(chosen[:-1], known, strict=False)), chosen[-1], last, power)
    along = {axis: fourier.matrix(shape[axis], n, kind.inverse, power) for axis, n in zip(
        chosen, known, strict=True)}
    if kind.one_sided:
        along[chosen[-1]] = along[chosen[-1]][:known[-1] // 2 + 1]
    return Spectrum(made(emit, x), along, emit.name, emit.origin)


def _to_real(emit: Emitter, x: Any, lengths: Mapping[int, int], last: int, n: int, power: float) -> fx.Node:
    """The real numbers of half of their frequencies."""
    shape = shape_of(x)
    if last != len(shape) - 1:
        x = _moved(emit, x, last)
        lengths = {axis - (axis > last): one for axis, one in lengths.items()}
    x = made(emit, x)
    moved = shape_of(x)
    along = {axis: fourier.matrix(moved[axis], one, True, power) for axis, one in lengths.items()}
    of = x if isinstance(x, Complex) else Complex(moved, emit(ATEN.stack.default, [
        x, emit(ATEN.mul.Tensor, x, 0.0)], -1))
    found: fx.Node = emit.transformed(Spectrum(of, along, emit.name, emit.origin), fourier.to_real(moved[-1], n, power))
    if last != len(shape) - 1:
        order = [*range(last), len(shape) - 1, *range(last, len(shape) - 1)]
        found = emit(ATEN.permute.default, found, order)
    return found


def _moved(emit: Emitter, x: Any, axis: int) -> Complex:
    """An axis as the last one."""
    order = [*(i for i in range(len(shape_of(x))) if i != axis), axis]
    pairs = emit(ATEN.permute.default, emit.pairs(x), [*order, len(order)])
    return Complex(tuple(shape_of(x)[i] for i in order), pairs)


def made(emit: Emitter, x: Any) -> Any:
    """A tensor that is there: of a transform the whole."""
    return emit.transformed(x) if isinstance(x, Spectrum) else x


def shifted(emit: Emitter, node: fx.Node, x: Any, dim: Any = None) -> Complex:
    """Half a turn along dimensions, as fftshift and ifftshift do."""
    shape = shape_of(x)
    axes = [*range(len(shape))] if dim is None else [one % len(shape) for one in (
        dim if isinstance(dim, (list, tuple)) else [dim])]
    by = [shape[i] // 2 if name_of(node) == "fft_fftshift" else (shape[i] + 1) // 2 for i in axes]
    return Complex(shape, emit(ATEN.roll.default, emit.pairs(x), by, axes))


def sliced(emit: Emitter, node: fx.Node, x: Any, dim: int = 0, start: int | None = None, end: int | None = None,
           step: int = 1) -> Any:
    """Part of the frequencies, which are the only ones that are computed, or of those that are not zero."""
    shape = shape_of(x)
    axis = dim % len(shape)
    at = np.arange(shape[axis])[slice(start, end, step)]
    if isinstance(x, Spectrum):
        if axis in x.along:
            return replace(x, along={**x.along, axis: x.along[axis][at]})
        return replace(x, of=sliced(emit, node, x.of, axis, start, end, step) if isinstance(x.of, Complex) else
                       emit(ATEN.slice.Tensor, x.of, axis, start, end, step))
    new = (*shape[:axis], len(at), *shape[axis + 1:])
    if x.pairs is None:
        return Complex(new, None)
    if axis not in x.places:
        return Complex(new, emit(ATEN.slice.Tensor, x.pairs, axis, start, end, step), x.places)
    return _kept(emit, x, new, axis, at)


def _kept(emit: Emitter, x: Complex, new: Shape, axis: int, at: np.ndarray) -> Complex:
    """Those of the places along an axis that are taken."""
    places = {one: i for i, one in enumerate(at.tolist())}
    inside = [i for i, one in enumerate(x.places[axis].tolist()) if one in places]
    if not inside:
        return Complex(new, None)
    if inside != [*range(inside[0], inside[-1] + 1)]:
        raise UnsupportedError("parts of what was written in several parts")
    assert x.pairs is not None
    pairs = emit(ATEN.slice.Tensor, x.pairs, axis, inside[0], inside[-1] + 1)
    return Complex(new, pairs, {**x.places, axis: np.array([places[int(x.places[axis][i])] for i in inside])})


def written_into(emit: Emitter, node: fx.Node, base: Any, part: Any, dim: int = 0, start: int | None = None,
                 end: int | None = None, step: int = 1) -> Complex:
    """A tensor with another part."""
    base, part = (as_complex(emit, made(emit, one)) for one in (base, part))
    axis = dim % len(base.shape)
    at = np.arange(base.shape[axis])[slice(start, end, step)]
    if part.pairs is None:
        raise UnsupportedError("zeros that are written")
    places = {**part.places, axis: at[part.places[axis]] if axis in part.places else at}
    new = Complex(base.shape, part.pairs, places)
    kept = _outside(emit, base, axis, at)
    if kept is None:
        return _whole_axes(new)
    if {**kept.places, axis: None}.keys() != {**places, axis: None}.keys() or any(
            not np.array_equal(kept.places[one], places[one]) for one in kept.places if one != axis):
        kept = Complex(kept.shape, emit.pairs(kept)) if axis not in kept.places else _full_but(emit, kept, axis)
        new = _full_but(emit, new, axis)
    both = [_kept_at(kept, axis), new.places[axis]]
    pairs = emit(ATEN.cat.default, [kept.pairs, new.pairs], axis)
    return _whole_axes(Complex(base.shape, pairs, {**new.places, axis: np.concatenate(both)}))


def one_written_into(emit: Emitter, node: fx.Node, base: Any, part: Any, dim: int, index: int) -> Complex:
    """A tensor with another index of a dimension."""
    axis, number = dim % len(shape_of(base)), index % shape_of(base)[dim]
    of = as_complex(emit, made(emit, part))
    whole = Complex((*of.shape[:axis], 1, *of.shape[axis:]), emit(ATEN.unsqueeze.default, emit.pairs(of), axis))
    return written_into(emit, node, base, whole, axis, number, number + 1)


def _kept_at(of: Complex, axis: int) -> np.ndarray:
    return of.places[axis] if axis in of.places else np.arange(of.shape[axis])


def _full_but(emit: Emitter, of: Complex, axis: int) -> Complex:
    """With zeros along all other axes."""
    others = {one: at for one, at in of.places.items() if one != axis}
    whole = Complex(tuple(len(of.places[axis]) if i == axis else n for i, n in enumerate(of.shape)), of.pairs, others)
    return Complex(of.shape, emit.pairs(whole), {axis: of.places[axis]})


def _outside(emit: Emitter, base: Complex, axis: int, at: np.ndarray) -> Complex | None:
    """What is not written over."""
    if base.pairs is None:
        return None
    known = _kept_at(base, axis)
    inside = np.flatnonzero(~np.isin(known, at))
    if not len(inside):
        return None
    pairs = base.pairs
    if len(inside) < len(known):
        runs = np.split(inside, np.flatnonzero(np.diff(inside) > 1) + 1)
        parts = [emit(ATEN.slice.Tensor, pairs, axis, int(one[0]), int(one[-1]) + 1) for one in runs]
        pairs = parts[0] if len(parts) == 1 else emit(ATEN.cat.default, parts, axis)
    return Complex(base.shape, pairs, {**base.places, axis: known[inside]})


def _whole_axes(of: Complex) -> Complex:
    """Without places that are all there are."""
    return Complex(of.shape, of.pairs, {axis: at for axis, at in of.places.items() if not np.array_equal(
        at, np.arange(of.shape[axis]))})


def copied(emit: Emitter, node: fx.Node, base: Any, of: Any, non_blocking: bool = False) -> Complex:
    """What is written over another tensor."""
    found, shape = as_complex(emit, made(emit, of)), shape_of(base)
    if found.shape == shape:
        return found
    return Complex(shape, emit(ATEN.expand.default, emit.pairs(found), [*shape, 2]))


def as_complex(emit: Emitter, of: Any) -> Complex:
    """A real tensor with imaginary parts of 0, or a complex one as it is."""
    if not isinstance(of, fx.Node):
        return of
    zero = emit(ATEN.mul.Tensor, of, 0.0)
    return emit.of_parts(of, zero)
