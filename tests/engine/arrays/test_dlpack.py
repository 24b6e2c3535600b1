# SPDX-License-Identifier: MIT
"""Capsules against torch's and numpy's own, in host memory: the layout is the same as on a CUDA device."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from bridge.common.errors import ArgumentTypeError
from bridge.engine.arrays import dlpack
from tests.helpers.arrays.dlpack import HOST, Given
from tests.helpers.cases import batch


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (2, 1, 3, 4)])
def test_torch_takes_ours(dtype: str, shape: tuple[int, ...], versioned: bool) -> None:
    """The same memory, shape and type; it lives as long as the tensor."""
    bits = np.uint16 if dtype == "bfloat16" else dtype
    array = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    array = np.asarray((array.view(np.uint32) >> 16).astype(bits) if dtype == "bfloat16" else array.astype(bits))
    given = Given(array, dtype, versioned=versioned)
    alive = weakref.ref(given)
    tensor = torch.from_dlpack(given)
    del given
    gc.collect()
    assert alive() is not None and dlpack.given_count() == 1
    assert (tuple(tensor.shape), tensor.dtype, tensor.data_ptr()) == (shape, getattr(torch, dtype), array.ctypes.data)
    assert tensor.is_contiguous() and tensor.flatten().tolist() == list(range(array.size))
    del tensor
    gc.collect()
    assert alive() is None and dlpack.given_count() == 0


@pytest.mark.parametrize("versioned", [False, True])
def test_numpy_takes_ours(versioned: bool) -> None:
    array = batch((2, 3, 4), "float64", 1)
    found = np.from_dlpack(Given(array, "float64", versioned=versioned))
    assert found.ctypes.data == array.ctypes.data and np.array_equal(found, array)
    del found
    gc.collect()
    assert dlpack.given_count() == 0


@pytest.mark.parametrize("copied", [False, True])
def test_ours_may_be_written_to(copied: bool) -> None:
    """That nobody else has the memory is another bit of the flags than that nobody may write to it."""
    array = batch((2, 3), "float32", 1)
    capsule = dlpack.give(array, array.ctypes.data, array.shape, "float32", HOST, versioned=True, copied=copied)
    assert not dlpack.TakenTensor("x", capsule).read_only
    gc.collect()
    assert dlpack.given_count() == 0


@pytest.mark.parametrize("version", [{}, {"max_version": (1, 0)}])
def test_we_take_those_of_torch_and_numpy(version: dict[str, Any]) -> None:
    """Strides in elements, offsets, read-only memory; the deleter frees it."""
    tensor = torch.arange(24, dtype=torch.bfloat16).reshape(2, 3, 4)[1:, :, ::2]
    taken = dlpack.TakenTensor("x", tensor.__dlpack__(**version))
    assert (taken.address, taken.shape, taken.strides) == (tensor.data_ptr(), (1, 3, 2), tensor.stride())
    assert (taken.dtype, taken.device, taken.read_only) == ("bfloat16", HOST, False)
    array = batch((2, 3), "float32", 2)
    alive = weakref.ref(array)
    if version and np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        array.flags.writeable = False
        taken = dlpack.TakenTensor("x", array.__dlpack__(**version))
        assert taken.read_only
    else:
        taken = dlpack.TakenTensor("x", array.__dlpack__())
        assert not taken.read_only
    assert (taken.address, taken.shape, taken.dtype) == (array.ctypes.data, (2, 3), "float32")
    del array
    gc.collect()
    assert alive() is not None
    del taken
    gc.collect()
    assert alive() is None


def test_other_types_are_refused_and_freed() -> None:
    array = np.arange(5)
    alive = weakref.ref(array)
    with pytest.raises(ArgumentTypeError, match=r"^x: DLPack type 0 of 64 bits and 1 lanes, expected float32"):
        dlpack.TakenTensor("x", array.__dlpack__())
    del array
    gc.collect()
    assert alive() is None
    with pytest.raises(ArgumentTypeError, match=r"^x: __dlpack__ gave 7, expected a capsule"):
        dlpack.TakenTensor("x", 7)


LAST = """
import sys, numpy as np, torch
from tests.helpers.arrays.dlpack import Given
array = np.arange(5, dtype=np.float32)
here, sys.kept, torch.kept = (torch.from_dlpack(Given(array, "float32", versioned=v)) for v in (True, False, True))
"""


def test_takers_may_keep_ours_to_the_end() -> None:
    """Modules are taken apart in any order: a deleter that is called late must still be there."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, "-c", LAST], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
