# SPDX-License-Identifier: MIT
"""What stands beyond the border of images and of tiles; sums that count a part of the border twice or not at all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.view import EXACT, Array, Seen, View
from bridge.judge.diagnosis.evidence.words import counting
from bridge.judge.diagnosis.predictions.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.predictions.elementwise import BiasGradient
from bridge.judge.diagnosis.predictions.hypothesis import with_layer
from bridge.judge.diagnosis.predictions.operations import Predicted

#: Numbers of an image batch, and products of a filter gradient, up to which other borders are tried
MANY, COSTLY = 2**21, 2**26
#: Right elements by which a prediction is checked
MOST_SPARED = 2000
WORDS = ("row", "column")
#: What stands in the place of an image's border where nobody tests for it
OF_MEMORY = ("what memory holds there: the neighbouring row of the channel",
             "what memory holds there, of other channels and images too")
#: Sizes of tiles, the large first: small ones explain the borders of large ones, too
TILES = (64, 32, 16, 8, 4)


def borders(view: View, case: Case) -> Iterator[Seen]:
    """Yield images that go on beyond their border with other pixels than zeros."""
    right = case.right
    if isinstance(right, Data):
        yield from _of_gradients(view, right)
        return
    if not isinstance(right, Forward | Filter) or not any(right.layer.padding) or right.x.value.size > MANY:
        return
    if isinstance(right, Filter) and right.products > COSTLY:
        return
    images = [("", *one) for one in _extended(right.x.value, right.layer.padding)]
    sides = _at_one_side(view, right) if isinstance(right, Forward) else _memory_at_sides(
        right.x.value, right.layer.padding)
    for where, said, image in (*images, *sides):
        other = with_layer(right, padding=(0, 0)).replaced(x=Predicted(image))
        rest = view.rest(other.at(view.at))
        if rest <= EXACT and not _spares(view, other):
            continue
        yield Seen(f"it is what an image gives that goes on beyond its border{where} with {said}, in place of 0",
                   "how pixels outside of the image are told from those inside: rows and columns each need a check",
                   rest)


def _spares(view: View, other: Forward | Filter) -> bool:
    """Whether what is predicted is also right where the candidate is, outside of the part that is looked at."""
    rest = np.flatnonzero(~view.region())
    if rest.size > MOST_SPARED:
        rest = np.random.default_rng(0).choice(rest, MOST_SPARED, replace=False)
    found, bound = view.found.reshape(-1)[rest], view.bound.reshape(-1)[rest]
    off = np.abs(other.at(rest) - found)
    return bool((off <= 2 * bound + 4e-7 * np.abs(found)).all())


def _of_gradients(view: View, right: Data) -> Iterator[Seen]:
    """The same of dz, where a data gradient gathers: it goes on as far as the kernel reaches beyond it."""
    layer = right.layer
    reach = [max(0, -(-((n - 1) * d - p) // step)) for n, d, p, step in zip(
        layer.kernel_size, layer.dilation, layer.padding, layer.stride, strict=True)]
    if not any(reach) or right.dz.value.size > MANY:
        return
    by = tuple(more * step for more, step in zip(reach, layer.stride, strict=True))
    shape = (*right.shape[:2], *(n + 2 * more for n, more in zip(right.shape[2:], by, strict=True)))
    n, c, i, j = view.place
    at = np.ravel_multi_index((n, c, i + by[0], j + by[1]), shape)
    around = (reach[0], reach[1])
    images = [("", *one) for one in _extended(right.dz.value, around)]
    for where, said, dz in (*images, *_memory_at_sides(right.dz.value, around)):
        yield Seen(f"it is what dz gives that goes on beyond its border{where} with {said}, in place of 0",
                   "how outputs outside of the image are told from those inside: rows and columns each need a check",
                   view.rest(right.replaced(shape=shape, dz=Predicted(dz)).at(at)))


def _memory_at_sides(x: Array, padding: tuple[int, int]) -> Iterator[tuple[str, str, Array]]:
    """What memory holds beyond one side, which alone is not tested: the end of the next row, channel or image."""
    (height, width), (p, q) = x.shape[2:], padding
    i, j = np.meshgrid(np.arange(-p, height + p), np.arange(-q, width + q), indexing="ij")
    rows, columns = (i >= 0) & (i < height), (j >= 0) & (j < width)
    sides = {"at the right": rows & (j >= width), "at the left": rows & (j < 0),
             "at the bottom": columns & (i >= height), "at the top": columns & (i < 0)}
    for said, image in _extended(x, padding):
        if said in OF_MEMORY:
            for side, beyond in sides.items():
                if beyond.any():
                    yield f" {side}", said, image * ((rows & columns) | beyond)


def _extended(x: Array, padding: tuple[int, int]) -> Iterator[tuple[str, Array]]:
    """Images with their border around them, in words."""
    (n, c, height, width), (p, q) = x.shape, padding
    i, j = np.meshgrid(np.arange(-p, height + p), np.arange(-q, width + q), indexing="ij")
    flat = i * width + j
    in_plane = (flat >= 0) & (flat < height * width)
    planes = x.reshape(n, c, -1)[:, :, np.where(in_plane, flat, 0)]
    yield OF_MEMORY[0], planes * in_plane
    rows = (i >= 0) & (i < height)
    yield "the neighbouring row at its left and right", planes * (in_plane & rows)
    whole = np.arange(n * c)[:, None, None] * (height * width) + flat
    inside = (whole >= 0) & (whole < x.size)
    memory = np.where(inside, x.reshape(-1)[np.where(inside, whole, 0)], 0.0)
    yield OF_MEMORY[1], memory.reshape(n, c, *flat.shape)

    def pad(given: Array, sides: tuple[int, int, int, int], mode: str) -> Array:
        top, bottom, left, right = sides
        return np.pad(given, ((0, 0), (0, 0), (top, bottom), (left, right)), mode=mode)  # type: ignore[call-overload]

    if min(height, width) > max(p, q):
        for said, mode in (("copies of its last pixels", "edge"), ("its mirror image", "reflect"),
                           ("its mirror image, the last pixels twice", "symmetric"),
                           ("its other side, around the border", "wrap")):
            yield said, pad(x, (p, p, q, q), mode)
    for said, sides in (("at the bottom and right", (0, p, 0, q)), ("at the top and left", (p, 0, q, 0)),
                        ("at the top and bottom", (p, p, 0, 0)), ("at the left and right", (0, 0, q, q)),
                        ("at the top", (p, 0, 0, 0)), ("at the bottom", (0, p, 0, 0)),
                        ("at the left", (0, 0, q, 0)), ("at the right", (0, 0, 0, q))):
        rest = (p - sides[0], p - sides[1], q - sides[2], q - sides[3])
        yield f"copies of its last pixels {said}", pad(pad(x, sides, "edge"), rest, "constant")
    inner = np.pad(np.ones((height, width), dtype=bool), ((p, p), (q, q)))
    for axis, word in ((0, "image"), (1, "channel")):
        if x.shape[axis] > 1:
            before = np.roll(x, 1, axis)
            np.moveaxis(before, axis, 0)[0] = 0
            yield (f"copies of the last pixels of the {word} before",
                   np.where(inner, pad(x, (p, p, q, q), "constant"), pad(before, (p, p, q, q), "edge")))


def _at_one_side(view: View, right: Forward) -> Iterator[tuple[str, str, Array]]:
    """The same at one side of the border alone, as far as the padding or by one pixel, where outputs are wrong that
    reach beyond this side only.
    """
    for axis, (used, size) in enumerate(zip(view.used()[2:], view.right.shape[2:], strict=True)):
        pad, length = right.layer.padding[axis], right.x.value.shape[2 + axis]
        if not 0 < pad < length or not used.size or used.size > size // 2:
            continue
        place = np.arange(-pad, length + pad)
        first, last = (("at the top", "at the bottom"), ("at the left", "at the right"))[axis]
        sides = {first: -place, last: place - length + 1}
        inner = [np.pad(np.ones(n, bool), p) for n, p in zip(right.x.value.shape[2:], right.layer.padding, strict=True)]
        for (side, beyond), by in itertools.product(sides.items(), dict.fromkeys((1, pad))):
            inside = list(inner)
            inside[axis] = inner[axis] | ((beyond > 0) & (beyond <= by))
            where = f" {side}{f' by one {WORDS[axis]}' if by < pad else ''}"
            for said, image in _extended(right.x.value, right.layer.padding):
                yield where, said, image * (inside[0][:, None] & inside[1])


def tiles(view: View, case: Case) -> Iterator[Seen]:
    """Yield images that are convolved tile by tile, with zeros beyond each tile; and sums divided by their valid taps.
    """
    right = case.right
    if not isinstance(right, Forward):
        return
    layer, (_, k, i, j) = right.layer, view.place
    reach = [np.arange(n) * d - p for n, d, p in zip(layer.kernel_size, layer.dilation, layer.padding, strict=True)]
    places = [one[:, None] * step + taps for one, step, taps in zip((i, j), layer.stride, reach, strict=True)]
    patches = right._patches(view.at)
    bias = np.zeros(k.size) if right.b is None else right.b[k]
    if layer.stride == (1, 1):
        for size, both in itertools.product(TILES, ((True, True), (True, False), (False, True))):
            own = [(at // size == one[:, None] // size) | (not use)
                   for at, one, use in zip(places, (i, j), both, strict=True)]
            if all(one.all() for one in own):
                continue
            kept = patches * own[0][:, None, :, None] * own[1][:, None, None, :]
            what = f"{size} x {size} pixels" if all(both) else f"{size} {'rows' if both[0] else 'columns'}"
            yield Seen(f"it is what tiles of {what} give with zeros around each tile",
                       "the halo of each tile: the pixels that its neighbours lend it",
                       view.rest(np.einsum("icrs,icrs->i", kept, right.w[k]) + bias))
    if any(layer.padding):
        valid = [((at >= 0) & (at < n)).sum(1) for at, n in zip(places, right.x.value.shape[2:], strict=True)]
        share = np.prod(layer.kernel_size) / np.maximum(valid[0] * valid[1], 1)
        yield Seen("it is the sum times all taps / those inside of the image, the bias apart",
                   "a division by the number of taps that meet the image (partial convolution): torch has none",
                   view.rest((view.r - bias) * share + bias))


def counted(view: View, case: Case) -> Iterator[Seen]:
    """Yield bias gradients in which a part of the border counts twice, or does not count."""
    right = case.right
    if not isinstance(right, BiasGradient):
        return
    dz = np.moveaxis(right.dz.value, 1, 0)
    ends = dz[:, :, [0, -1]]
    parts = {"the corners": ends[..., [0, -1]], "the first row": dz[:, :, 0],
             "the last row": dz[:, :, -1], "the first column": dz[..., 0],
             "the last column": dz[..., -1], "the first and last row": ends,
             "the first and last column": dz[..., [0, -1]]}
    sides = dz[:, :, 1:-1, [0, -1]]
    parts["the border"] = np.concatenate([one.reshape(len(dz), -1) for one in (ends, sides)], 1)
    for said, part in parts.items():
        more = part.reshape(len(dz), -1).sum(1)[view.at]
        for times, sign in ((2, 1), (0, -1)):
            many = "corners" in said or " and " in said
            yield Seen(f"it is the sum in which {said} {counting(times, many=many)}",
                       "the bounds of the loops over rows and columns", view.rest(view.r + sign * more))
