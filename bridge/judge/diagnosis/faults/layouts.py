# SPDX-License-Identifier: MIT
"""Every way to read the memory of a tensor in another order: axes permuted, reversed, column-major.

A layout is an index map: element i of what was read is element ``source[i]`` of what is right. So it can be tried on a
few elements of a large tensor, and on all of a small one.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.records import Kind

Array = np.ndarray
Shape = tuple[int, ...]

#: Orders of libraries that keep channels last, of filters and of images
CHANNELS_LAST = ("krsc", "rsck", "nhwc", "hwcn", "kdrsc", "drsck", "ndhwc", "dhwcn")
#: All axes of windows, by how many a tensor has
OF_WINDOWS: dict[int, list[tuple[int, ...]]] = {4: [(2, 3)], 5: [(2, 3, 4), (3, 4)]}


class IndexMap(ABC):
    """A tensor whose elements are those of another one in some order."""

    @abstractmethod
    def source(self, indices: Array, shape: Shape) -> Array:
        """Return flat indices into the right tensor for flat indices of what was read."""

    def __call__(self, array: Array) -> Array:
        """The tensor as it is read."""
        return array.reshape(-1)[self.source(np.arange(array.size), array.shape)].reshape(array.shape)


@dataclass(frozen=True)
class SliceOrder(IndexMap):
    """Slices along one axis in another order: slice i of what was read is slice ``order[i]`` of what is right."""

    axis: int
    order: tuple[int, ...]

    def source(self, indices: Array, shape: Shape) -> Array:
        place = list(np.unravel_index(indices, shape))
        place[self.axis] = np.asarray(self.order)[place[self.axis]]
        return np.ravel_multi_index(tuple(place), shape)


@dataclass(frozen=True)
class AxisLayout(IndexMap):
    """Axes reversed, then permuted, then read as the declared shape.

    Attributes
    ----------
    axes : order of the axes in memory
    written : the memory holds the axes in this order and is read as if it held the declared one; else the other way
    flips : axes that run backwards
    names : letters of the axes
    """

    axes: tuple[int, ...]
    written: bool
    flips: tuple[int, ...]
    names: str

    def __call__(self, array: Array) -> Array:
        """The same as by `source`, without an index for each element."""
        turned = np.flip(array, self.flips)
        if self.written:
            return turned.transpose(self.axes).reshape(array.shape)
        permuted = tuple(array.shape[axis] for axis in self.axes)
        return turned.reshape(permuted).transpose(np.argsort(self.axes))

    def source(self, indices: Array, shape: Shape) -> Array:
        permuted = tuple(shape[axis] for axis in self.axes)
        if self.written:
            place = zip(self.axes, np.unravel_index(indices, permuted), strict=True)
        else:
            read = np.unravel_index(indices, shape)
            if list(self.axes) != sorted(self.axes):
                flat = np.ravel_multi_index(tuple(read[axis] for axis in self.axes), permuted)
                read = np.unravel_index(flat, shape)
            place = zip(range(len(shape)), read, strict=True)
        found = np.zeros(np.shape(indices), np.int64)
        for axis, at in place:
            stride = math.prod(shape[axis + 1 :])
            found += stride * (shape[axis] - 1 - at if axis in self.flips else at)
        return found

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the faults that make it."""
        spatial = tuple(axis for axis in self.flips if self.names[axis] in "drshw")
        found = []
        if spatial:
            found.append(kind("kernel_flipped" if "r" in self.names else "image_mirrored"))
        if set(self.flips) - set(spatial):
            found.append(kind("channels_permuted"))
        if self.axes != tuple(range(len(self.axes))):
            found.append(kind(self._permutation()))
        return tuple(dict.fromkeys(found))

    @property
    def common(self) -> bool:
        """Return whether somebody is likely to write it: axes reversed, or one of the usual orders."""
        return self.axes == tuple(range(len(self.axes))) or (not self.flips and self.usual)

    @property
    def usual(self) -> bool:
        """Return whether its order of axes has a name."""
        letters = "".join(self.names[axis] for axis in self.axes)
        return letters in CHANNELS_LAST or self._within_windows or self.axes in (
            (1, 0, 2, 3), (3, 2, 1, 0), (0, 2, 1, 3, 4), (1, 0, 2, 3, 4), (4, 3, 2, 1, 0))

    @property
    def _within_windows(self) -> bool:
        """Return whether rows and columns, and planes of volumes, are exchanged, and nothing else is."""
        return len(self.axes) > 3 and self.axes[:2] == (0, 1) and self.axes != tuple(range(len(self.axes)))

    def _permutation(self) -> str:
        ndim = len(self.axes)
        letters = "".join(self.names[axis] for axis in self.axes)
        if letters in CHANNELS_LAST:
            return "nhwc"
        if self._within_windows:
            return "taps_transposed" if "r" in self.names else "image_transposed"
        return {
            (1, 0, 2, 3): "in_out_swapped" if "k" in self.names else "nhwc",
            (1, 0, 2, 3, 4): "in_out_swapped" if "k" in self.names else "nhwc",
            (1, 0): "in_out_swapped" if "k" in self.names else "column_major",
            tuple(reversed(range(ndim))): "column_major",
        }.get(self.axes, "column_major" if "k" in self.names else "nhwc")

    @property
    def detail(self) -> str:
        """Return the layout in words."""
        said = []
        if self.flips:
            said.append("reversed along " + " and ".join(self.names[axis] for axis in self.flips))
        if self.axes != tuple(range(len(self.axes))):
            said.append(self._order())
        return ", then ".join(said)

    def _order(self) -> str:
        axes, right = (",".join(self.names[axis] for axis in order) for order in (self.axes, range(len(self.axes))))
        if self.axes == tuple(reversed(range(len(self.axes)))):
            if self.written:
                return f"memory that Fortran wrote as ({right}), column-major, read in C's order"
            return f"memory in C's order ({right}), read column-major: declare it ({axes}) in Fortran, not ({right})"
        return (
            f"memory in the order ({axes}), read as ({right})"
            if self.written
            else (f"memory in the order ({right}), read as ({axes})")
        )


@functools.lru_cache(maxsize=64)
def layouts(shape: Shape, names: str, which: str = "all") -> tuple[AxisLayout, ...]:
    """Return different layouts of a tensor, the simplest first; those that change nothing in this shape are left out.

    Parameters
    ----------
    shape, names : of the axes, "kcrs" for filters, "nchw" for images (and "kcdrs" and "ncdhw" of volumes), "kc" for
        matrices, "k" for biases
    which : "all"; "often" (every order, or one axis reversed), for large tensors; "common", for operands
    """
    ndim, chosen, seen = len(shape), [], set()
    probe = _probe(shape)
    seen.add(probe.tobytes())
    for layout in sorted(_all(ndim, names, which), key=_complexity):
        read = layout.source(probe, shape).tobytes()
        if read not in seen:
            seen.add(read)
            chosen.append(layout)
    return tuple(chosen)


def _probe(shape: Shape) -> Array:
    """Elements that tell layouts apart: all of a small tensor."""
    size = int(np.prod(shape))
    return np.arange(size) if size <= 4096 else np.random.default_rng(0).choice(size, 4096)


def _all(ndim: int, names: str, which: str) -> list[AxisLayout]:
    flips = [f for count in range(ndim + 1) for f in itertools.combinations(range(ndim), count)]
    orders = list(itertools.permutations(range(ndim)))
    if which != "all":
        flips = [f for f in flips if len(f) <= 1 or f in OF_WINDOWS.get(ndim, ())]
    found = []
    for axes, turned, written in itertools.product(orders, flips, (True, False)):
        layout = AxisLayout(axes, written, turned, names)
        if which == "all" or not turned or axes == orders[0]:
            found.append(layout)
    return [layout for layout in found if layout.common] if which == "common" else found


def _complexity(layout: AxisLayout) -> tuple[int, int, bool, bool]:
    return len(layout.kinds), len(layout.flips), not layout.usual, layout.written
