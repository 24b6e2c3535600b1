# SPDX-License-Identifier: MIT
"""What a process of its own computes between fences of memory, or with a number of threads."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import sys

import numpy as np

import bridge
from tests.helpers.cases import Array, Case, channels_last, fortran_convolution, tensors
from tests.helpers.cpu import channels_last as shapes
from tests.helpers.instruction_sets import GROUPS, UNFOLDED, VARIABLE, facts, integers

#: Of the kinds that differ in what lies beside a pixel
PICTURES = (GROUPS["filters"][14], GROUPS["widths"][20], GROUPS["heights"][8], GROUPS["bands across"][1],
            GROUPS["bands across"][9], GROUPS["strides"][7], GROUPS["strides"][12], GROUPS["padding"][20],
            GROUPS["dilation"][8], GROUPS["channel groups"][4], GROUPS["kernels"][8], GROUPS["batch"][4],
            GROUPS["whole vectors"][3], GROUPS["depthwise"][2], GROUPS["split columns"][7], UNFOLDED[0])


class Fenced:
    """Arrays that end where memory may no more be read, or begin where it may: beyond, the process dies."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.protect, self.maps = libc.mprotect, []
        self.protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def copy_last(self, array: Array, *, at_end: bool) -> Array:
        """Channels_last where it is an image."""
        if array.ndim < 4:
            return self.copy(array, at_end=at_end)
        return self.copy(np.ascontiguousarray(array.transpose(0, 2, 3, 1)), at_end=at_end).transpose(0, 3, 1, 2)

    def copy(self, array: Array, *, at_end: bool) -> Array:
        page, size = mmap.PAGESIZE, array.nbytes
        room = -(-size // page) * page
        memory = mmap.mmap(-1, room + 2 * page)
        whole = np.frombuffer(memory, np.uint8)
        first = page + (room - size if at_end else 0)
        found = whole[first:first + size].view(array.dtype).reshape(array.shape)
        found[...] = array
        for fence in (whole.ctypes.data, whole.ctypes.data + page + room):
            assert self.protect(fence, page, 0) == 0
        self.maps.append(memory)
        return found


def compute_between_fences() -> None:
    """All groups, with every input between pages that cannot be read."""
    for case in (*PICTURES, *GROUPS["widths"], *GROUPS["points"], *GROUPS["strides"],
                 *GROUPS["whole vectors"], *GROUPS["depthwise"], *GROUPS["split columns"],
                 *GROUPS["lanes"], *GROUPS["lanes in bands"], *GROUPS["lanes in steps"],
                 *GROUPS["matrix products"], *shapes.SHAPES):
        fenced = Fenced()
        for dtype, at_end in (("float32", True), ("float64", False), ("float64", True)):
            t = integers(case, dtype)
            inside = {name: fenced.copy(array, at_end=at_end) for name, array in t.items()}
            found, right = fortran_convolution(case, inside), fortran_convolution(case, t)
            assert all(np.array_equal(found[name], right[name]) for name in right), case
    for case in shapes.SHAPES:
        fenced = Fenced()
        for dtype, at_end in (("float32", True), ("float64", False)):
            t = integers(case, dtype)
            inside = {name: fenced.copy_last(array, at_end=at_end) for name, array in t.items()}
            found, right = fortran_convolution(case, inside), fortran_convolution(case, t)
            assert all(np.array_equal(found[name], right[name]) for name in right), case
    # The arrays lie in memory that is not given back by steps: without a word to numpy
    sys.stdout.write("done\n")
    sys.stdout.flush()
    os._exit(0)


def digests(*names: str) -> str:
    """sha256 of all results at each level, of float32 and float64, with rounding."""
    lines = []
    for name in names:
        os.environ[VARIABLE] = name
        assert (facts()["level"], facts()["threads"]) == (name, os.environ["OMP_NUM_THREADS"])
        text = hashlib.sha256()
        for case in (*PICTURES, *GROUPS["heights"], *GROUPS["channel groups"], *GROUPS["batch"],
                     *GROUPS["whole vectors"], *GROUPS["many pixels"], *GROUPS["many filters"], *GROUPS["depthwise"],
                     *GROUPS["split columns"], *GROUPS["lanes"], *GROUPS["lanes in bands"], *GROUPS["lanes in steps"],
                     *GROUPS["matrix products"], *shapes.SHAPES):
            for dtype in ("float32", "float64"):
                for _, array in sorted(fortran_convolution(case, tensors(case, dtype)).items()):
                    text.update(array.tobytes())
            text.update(_lean_step(case).tobytes())
        for case in shapes.SHAPES:
            for dtype in ("float32", "float64"):
                found = fortran_convolution(case, tensors(case, dtype), layout=channels_last)
                text.update(b"".join(found[name].tobytes() for name in sorted(found)))
        lines.append(f"{name} {text.hexdigest()}\n")
    return "".join(lines)


def _lean_step(case: Case) -> Array:
    """All gradients of a 1x1 convolution, a ReLU and the case's convolution."""
    c = case.x[1]
    layers = (bridge.Conv2d("a", c, c, (1, 1)), bridge.Relu("r"),
              bridge.Conv2d("b", c, case.w[0], case.w[2:], case.stride, case.padding, case.dilation, case.groups))
    net, rng = bridge.Network(bridge.Model(layers), keep_activations=False), np.random.default_rng(9)
    for values in net.parameters.values():
        values[...] = rng.standard_normal(values.shape)
    net.step(rng.standard_normal(case.x).astype("f4"), rng.standard_normal(case.y).astype("f4"), lr=0.125)
    return np.concatenate([array.ravel() for array in net.gradients.values()])
