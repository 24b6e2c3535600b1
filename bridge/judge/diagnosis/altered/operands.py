# SPDX-License-Identifier: MIT
"""A whole operand in another order: of memory, of images, of pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

Array = np.ndarray
#: The kind of the mistake, in words what is taken of the operand, and how
Change = tuple[str, str, Callable[[Array], Array]]


def changes(shape: tuple[int, ...], learned: bool = False, sequence: bool = True) -> Iterator[Change]:
    """Yield what may be read in the place of an operand of this shape, which may be a parameter, or have no times.

    >>> [said for _, said, _ in changes((3,))]
    ['one further, around the end', 'one before, around the end', 'in reverse order', 'of the first for all', \
'of the last for all']
    """
    if len(shape) == 1 and shape[0] > 1:
        for by, said in ((-1, "further"), (1, "before")):
            yield "index", f"one {said}, around the end", _rolled(by, 0)
        yield "channels_permuted", "in reverse order", lambda a: a[::-1].copy()
        yield from _of_one(0, "")
    if len(shape) == 4:
        yield from _images(shape)
    if len(shape) == 3 and shape[1] != shape[2]:
        yield "image_transposed", "with its last axes exchanged in memory", lambda a: np.ascontiguousarray(
            a.transpose(0, 2, 1)).reshape(a.shape)
    if len(shape) == 3 and shape[1] > 1 and sequence:
        yield from _rows(shape)
    if len(shape) == 2 and min(shape) > 1:
        yield "column_major", "with its axes exchanged in memory", lambda a: np.ascontiguousarray(a.T).reshape(a.shape)
    if len(shape) > 1 and shape[0] > 1:
        name = ("filter" if len(shape) == 4 else "row") if learned else "image" if len(shape) == 4 else "sample"
        for by, said in ((1, "previous"), (-1, "next")):
            yield "channels_permuted", f"of the {said} {name}", _rolled(by, 0)
        yield from _of_one(0, f" {name}")
    if len(shape) == 4 and shape[1] > 1:
        for by, said in ((1, "previous"), (-1, "next")):
            yield "channels_permuted", f"of the {said} channel", _rolled(by, 1)
        yield from _of_one(1, " channel")


def _rows(shape: tuple[int, ...]) -> Iterator[Change]:
    """Yield sequences that are a time, or a token, off: the rows of three axes."""
    for by, said in ((1, "behind"), (-1, "before")):
        where = f"of the row (the time, the token) {said}"
        for edge, there in ((False, "0 at the edge"), (True, "the edge repeated")):
            yield "index", f"{where}, {there}", partial(displaced, axis=1, by=by, edge=edge)
        # Of two rows each is before and behind the other
        if shape[1] > 2 or by > 0:
            yield "index", f"{where}, around the end", _rolled(-by, 1)
    if shape[1] > 2:
        yield "index", "with its rows (times, tokens) in reverse order", _flipped(1)


def in_memory(shape: tuple[int, ...], groups: int) -> Iterator[Change]:
    """Yield kernels whose channels are read in the other order of memory, in each group.

    >>> [(_, _, change)] = in_memory((4, 1, 1, 1), 2)
    >>> change(np.arange(4.0).reshape(4, 1, 1, 1)).ravel()
    array([0., 1., 2., 3.])
    """
    if len(shape) == 4 and shape[0] % groups == 0:
        where = " of each group" if groups > 1 else ""
        yield "in_out_swapped", f"with the input and output channels{where} exchanged in memory", lambda a: (
            a.reshape(groups, shape[1], shape[0] // groups, *shape[2:]).swapaxes(1, 2).reshape(shape))


def _of_one(axis: int, name: str) -> Iterator[Change]:
    for at, said in ((0, "first"), (-1, "last")):
        yield "index", f"of the {said}{name} for all", _taken(at, axis)


def _taken(at: int, axis: int) -> Callable[[Array], Array]:
    return lambda a: np.broadcast_to(np.take(a, [at], axis), a.shape).copy()


def _rolled(by: int, axis: int) -> Callable[[Array], Array]:
    return lambda a: np.roll(a, by, axis)


def _flipped(axis: int) -> Callable[[Array], Array]:
    return lambda a: np.flip(a, axis).copy()


def _images(shape: tuple[int, ...]) -> Iterator[Change]:
    n, c, h, w = shape
    yield "nhwc", "read as channels-last memory", lambda a: np.ascontiguousarray(a).reshape(n, h, w, c).transpose(
        0, 3, 1, 2)
    yield "nhwc", "in channels-last memory, read as channels first", lambda a: np.ascontiguousarray(
        a.transpose(0, 2, 3, 1)).reshape(shape)
    yield "image_transposed", "with rows and columns exchanged in memory", lambda a: np.ascontiguousarray(
        a.transpose(0, 1, 3, 2)).reshape(shape)
    yield "image_transposed", "with its rows and columns in reverse order", lambda a: a[:, :, ::-1, ::-1].copy()
    for axis, name in ((2, "row"), (3, "column")):
        yield "image_transposed", f"with its {name}s in reverse order", _flipped(axis)
        for by in (1, -1):
            for edge, said in ((True, "the edge repeated"), (False, "0 at the edge")):
                where = f"one {name} {'further' if by > 0 else 'before'}, {said}"
                yield "index", where, partial(displaced, axis=axis, by=by, edge=edge)


def displaced(a: Array, axis: int, by: int, edge: bool = False) -> Array:
    """Return element ``i + by`` at place i along an axis; beyond the end 0, or the edge's.

    >>> displaced(np.array([1, 2, 3]), 0, 1), displaced(np.array([1, 2, 3]), 0, -1, edge=True)
    (array([2, 3, 0]), array([1, 1, 2]))
    """
    size = a.shape[axis]
    source = np.arange(size) + by
    found = np.take(a, np.clip(source, 0, size - 1), axis)
    inside = ((source >= 0) & (source < size)).reshape([-1 if i == axis else 1 for i in range(a.ndim)])
    return found if edge else np.where(inside, found, 0)
