# SPDX-License-Identifier: MIT
"""Wrong descriptors and graphs: each gets a status and a reason from the strict software device."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_int64, c_void_p
from pathlib import Path

import pytest

from tests.software_device import graphs as names
from tests.software_device.calls import FLOAT, Calls
from tests.software_device.graph_misuse import (
    BAD,
    LAYOUT,
    NOT_FINALIZED,
    NOTHING_YET,
    NULL,
    OTHER_KIND,
    OTHER_TYPE,
    SHAPE,
    SMALL,
    UNSUPPORTED,
    Small,
    refused,
)
from tests.software_device.graphs import CHAR, INT64, PART, POINTER, REAL8, W, X, Y

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def cuda(folder: Path) -> Calls:
    """The device: one stream for all of these tests."""
    return Calls(folder)


def destroyed_between(s: Small) -> int:
    """A tensor that is set, and gone when its operation is finalized."""
    how = s.g.finalized(names.REDUCTION, [(1600, names.OPERATOR, [0]), (1601, names.DATA_TYPE, [FLOAT])])
    y = s.g.tensor(9, (1, 5, 1, 1))
    part = s.g.filled(names.OPERATION_REDUCTION, [(1612, PART, [how]), (1610, PART, [s.t[Y]]), (1611, PART, [y])])
    s.gone(y)
    return s.g.finalize(part)


def all_but(s: Small, kind: int, left_out: int) -> int:
    """Status of finalizing a complete descriptor without one attribute."""
    complete = {
        names.TENSOR: [(901, names.DATA_TYPE, [0]), (902, INT64, [1, 1, 1, 1]), (903, INT64, [1, 1, 1, 1]),
                       (906, INT64, [1]), (900, INT64, [16])],
        names.CONVOLUTION: [(100, names.DATA_TYPE, [0]), (101, names.MODE, [1]), (102, INT64, [1, 1]),
                            (103, INT64, [1, 1]), (104, INT64, [0, 0]), (105, INT64, [0, 0]), (106, INT64, [2])],
        names.FORWARD: [(702, PART, [s.conv]), (703, PART, [s.t[W]]), (704, PART, [s.t[X]]), (705, PART, [s.t[Y]])],
        names.BACKWARD_DATA: [(708, PART, [s.conv]), (709, PART, [s.t[W]]), (710, PART, [s.t[X]]),
                              (711, PART, [s.t[Y]])],
        names.BACKWARD_FILTER: [(714, PART, [s.conv]), (715, PART, [s.t[W]]), (716, PART, [s.t[X]]),
                                (717, PART, [s.t[Y]])],
        names.POINTWISE: [(0, names.POINTWISE_MODE, [0]), (1, names.DATA_TYPE, [0])],
        names.REDUCTION: [(1600, names.OPERATOR, [0]), (1601, names.DATA_TYPE, [0])],
        names.ENGINEHEUR: [(200, names.HEUR_MODE, [names.BEST]), (201, PART, [s.graph])],
        names.ENGINE: [(1300, PART, [s.graph]), (1301, INT64, [4])],
        names.VARIANT_PACK: [(1000, INT64, [X]), (1001, POINTER, [s.data[X]]), (1003, POINTER, [None])],
    }[kind]
    assert left_out in [name for name, *_ in complete]
    assert s.lacking(kind, complete) == 0
    return s.lacking(kind, [attribute for attribute in complete if attribute[0] != left_out])


REQUIRED = {
    names.TENSOR: (900, 901, 902, 903, 906), names.CONVOLUTION: range(100, 107), names.FORWARD: range(702, 706),
    names.BACKWARD_DATA: range(708, 712), names.BACKWARD_FILTER: range(714, 718), names.POINTWISE: (0, 1),
    names.REDUCTION: (1600, 1601), names.ENGINEHEUR: (200, 201), names.ENGINE: (1300, 1301),
    names.VARIANT_PACK: (1000, 1001, 1003),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, all_names in REQUIRED.items() for name in all_names])
def test_required_attributes(cuda: Calls, kind: int, name: int) -> None:
    """A descriptor without one of them is not finalized, whatever cuDNN would take in its place."""
    assert all_but(Small(cuda), kind, name) == BAD
    assert "was not set" in cuda.reason()


#: Status, a part of the reason, and the call
DESCRIPTORS: dict[str, tuple[int, str, Callable[[Small], int]]] = {
    # descriptors and attributes
    "unknown kind": (UNSUPPORTED, "type 99",
                     lambda s: s.cuda.status("cudnnBackendCreateDescriptor", 99, byref(c_void_p()))),
    "nowhere to put it": (NULL, "nullptr", lambda s: s.cuda.status("cudnnBackendCreateDescriptor", 17, None)),
    "finalize null": (NULL, "nullptr", lambda s: s.g.finalize(None)),
    "set in a destroyed one": (BAD, "was destroyed", lambda s: s.g.set(s.gone(s.g.create(17)), 906, INT64, [1])),
    "destroyed twice": (BAD, "was destroyed",
                        lambda s: s.cuda.status("cudnnBackendDestroyDescriptor", s.gone(s.t[X]))),
    "a tensor of the old interface": (BAD, "found a tensor descriptor",
                                      lambda s: s.g.finalize(s.cuda.make("cudnnCreateTensorDescriptor"))),
    "set after finalize": (BAD, "already finalized", lambda s: s.g.set(s.t[X], 906, INT64, [9])),
    "finalized twice": (BAD, "already finalized", lambda s: s.g.finalize(s.t[X])),
    "attribute of another kind": (BAD, "attribute 104 is none", lambda s: s.tensor(a104=(INT64, [1]))),
    "wrong type": (OTHER_TYPE, "type 5, expected 3", lambda s: s.tensor(a902=(REAL8, [1, 2, 3, 4]))),
    "too few elements": (BAD, "3 elements, expected 4", lambda s: s.tensor(a902=(INT64, [1, 2, 3]))),
    "too many elements": (BAD, "2 elements, expected 1", lambda s: s.tensor(a906=(INT64, [1, 2]))),
    "no elements": (NULL, "arrayOfElements", lambda s: s.cuda.status("cudnnBackendSetAttribute", s.g.create(17), 906,
                                                                     INT64, c_int64(1), None)),
    "elements on the device": (BAD, "found device memory", lambda s: s.cuda.status(
        "cudnnBackendSetAttribute", s.g.create(17), 906, INT64, c_int64(1), s.data[X])),
    "a dimension of 0": (BAD, "dimensions: found 0", lambda s: s.tensor(a902=(INT64, [1, 2, 0, 4]))),
    "a stride of 0": (BAD, "strides: found 0", lambda s: s.tensor(a903=(INT64, [0, 2, 1, 4]))),
    "alignment of 24": (BAD, "no power of 2", lambda s: s.tensor(a900=(INT64, [24]))),
    "an unknown data type": (BAD, "data type 5", lambda s: s.tensor(a901=(names.DATA_TYPE, [5]))),
    "a large tensor": (UNSUPPORTED, "2**40", lambda s: s.tensor(a902=(INT64, [1 << 14, 1 << 14, 1 << 14, 1]))),
    "setting a result": (BAD, "is a result", lambda s: s.g.set(s.g.create(5), names.WORKSPACE_SIZE, INT64, [1])),
    "another kind": (OTHER_KIND, "of the kind convolution, expected tensor",
                     lambda s: s.g.set(s.g.create(names.FORWARD), 704, PART, [s.conv])),
    "a part that is not finalized": (NOT_FINALIZED, "x: the descriptor is not finalized",
                                     lambda s: s.g.set(s.g.create(names.FORWARD), 704, PART, [s.g.create(17)])),
    "a null part": (NULL, "x: descriptor == nullptr", lambda s: s.g.set(s.g.create(names.FORWARD), 704, PART, [None])),
    "a part destroyed before it is used": (BAD, "y: this graph descriptor was destroyed", destroyed_between),
    # reading
    "read before finalize": (NOTHING_YET, "not finalized",
                             lambda s: s.g.get(s.g.create(5), names.WORKSPACE_SIZE, INT64, 1)[0]),
    "read as another type": (OTHER_TYPE, "type 5, expected 3",
                             lambda s: s.g.get(s.plan, names.WORKSPACE_SIZE, REAL8, 1)[0]),
    "room for no number": (BAD, "0 elements requested", lambda s: s.g.get(s.plan, names.WORKSPACE_SIZE, INT64, 0)[0]),
    "room for half a text": (SMALL, "room for 100", lambda s: s.g.get(s.plan, names.JSON, CHAR, 100)[0]),
    "read a part": (UNSUPPORTED, "not given back", lambda s: s.g.get(s.ops[0], 704, PART, 1)[0]),
    "read without a count": (NULL, "elementCount", lambda s: s.cuda.status(
        "cudnnBackendGetAttribute", s.plan, names.WORKSPACE_SIZE, INT64, c_int64(1), None, byref(c_int64()))),
    "read to nowhere": (NULL, "arrayOfElements", lambda s: s.cuda.status(
        "cudnnBackendGetAttribute", s.plan, names.WORKSPACE_SIZE, INT64, c_int64(1), byref(c_int64()), None)),
    "results into other kinds": (OTHER_KIND, "expected engine configuration",
                                 lambda s: s.g.fill(s.g.heuristic(s.graph), names.RESULTS, [s.g.create(17)])[0]),
    "results into filled ones": (BAD, "filled already", lambda s: s.g.fill(
        s.g.heuristic(s.graph), names.RESULTS, [s.engines[4].configuration])[0]),
}  # fmt: skip

V, B = 7, names.BIAS
GRAPHS: dict[str, tuple[int, str, Callable[[Small], int]]] = {
    "three spatial dimensions": (BAD, "spatial", lambda s: s.changed_convolution(a106=[3])),
    "a stride of 0": (BAD, "filter strides: found 0", lambda s: s.changed_convolution(a103=[0, 1])),
    "a dilation of 0": (BAD, "dilations: found 0", lambda s: s.changed_convolution(a102=[1, 0])),
    "a padding below 0": (BAD, "paddings before: found -1", lambda s: s.changed_convolution(a105=[-1, 1])),
    "paddings that differ": (UNSUPPORTED, "paddings before and behind", lambda s: s.changed_convolution(a104=[1, 0])),
    "another pointwise mode": (UNSUPPORTED, "mode 1", lambda s: s.lacking(
        names.POINTWISE, [(0, names.POINTWISE_MODE, [1]), (1, names.DATA_TYPE, [0])])),
    "another reduction": (UNSUPPORTED, "operator 3", lambda s: s.lacking(
        names.REDUCTION, [(1600, names.OPERATOR, [3]), (1601, names.DATA_TYPE, [0])])),
    "wrong output": (SHAPE, "output is 2 5 4 4", lambda s: s.convolved(s.t[X], s.t[W], s.g.tensor(Y, (2, 5, 4, 3)))),
    "wrong channels": (SHAPE, "3 channels, filter of 2",
                       lambda s: s.convolved(s.t[X], s.g.tensor(W, (5, 2, 3, 3)), s.t[Y])),
    "beta of nothing": (BAD, "no old value", lambda s: s.convolved(s.t[X], s.t[W], s.t[V], beta=1)),
    "a bias of another length": (SHAPE, "dimensions", lambda s: s.pointwise(0, a751=s.t[V], a752=s.t[W], a753=s.t[Y])),
    "a ReLU of another shape": (SHAPE, "dimensions", lambda s: s.pointwise(100, a751=s.t[X], a753=s.t[Y])),
    "a ReLU of two": (BAD, "found b y", lambda s: s.pointwise(100, a751=s.t[V], a752=s.t[B], a753=s.t[Y])),
    "adding nothing": (BAD, "found y", lambda s: s.pointwise(0, a751=s.t[V], a753=s.t[Y])),
    "a ReLU's gradient of y": (BAD, "found y dy dx",
                               lambda s: s.pointwise(200, a751=s.t[V], a753=s.t[Y], a757=s.t[Y], a756=s.t[Y])),
    "a gradient of another shape": (SHAPE, "dimensions",
                                    lambda s: s.pointwise(200, a751=s.t[V], a757=s.t[X], a756=s.t[Y])),
    "a sum to more": (SHAPE, "neither 1 nor", lambda s: s.summed(s.t[X], s.t[Y])),
    "a graph of a tensor": (OTHER_KIND, "expected an operation", lambda s: s.graph_of(s.t[X])),
    "an operation not finalized": (NOT_FINALIZED, "not finalized",
                                   lambda s: s.graph_of(s.ops[0], s.g.create(names.OPERATION_POINTWISE))),
    "two tensors of one id": (BAD, "two tensors have the unique id 1",
                              lambda s: s.graph_of(s.convolve(s.t[X], s.g.tensor(X, (5, 3, 3, 3)), s.t[Y]))),
    "a virtual tensor never read": (BAD, "never read", lambda s: s.graph_of(s.ops[0])),
    "a virtual tensor never written": (BAD, "never written", lambda s: s.graph_of(s.ops[2])),
    "two results in one": (BAD, "written by two", lambda s: s.graph_of(*s.ops, s.ops[2])),
    "unknown strides": (LAYOUT, "neither NCHW nor NHWC", lambda s: s.graph_of(s.convolve(
        s.g.tensor(X, (2, 3, 4, 4), changes={903: [96, 32, 8, 2]}), s.t[W], s.t[Y]))),
    "no such mode": (BAD, "mode: found 9", lambda s: s.g.set(s.g.create(names.ENGINEHEUR), 200, names.HEUR_MODE, [9])),
    "no such engine": (UNSUPPORTED, "engine 8", lambda s: s.lacking(
        names.ENGINE, [(1300, PART, [s.graph]), (1301, INT64, [8])])),
    "a device that is none": (BAD, 'no "maxGridSize"',
                              lambda s: s.lacking(names.DEVICEPROP, [(2702, CHAR, b'{"deviceName": "a toaster"}')])),
}  # fmt: skip


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_wrong_descriptors(cuda: Calls, name: str) -> None:
    """Attributes that are none, or of another type, number or range; descriptors that are not what they should be."""
    refused(cuda, *DESCRIPTORS[name])


@pytest.mark.parametrize("name", GRAPHS)
def test_wrong_graphs(cuda: Calls, name: str) -> None:
    """Operations whose tensors do not fit, graphs whose operations do not."""
    refused(cuda, *GRAPHS[name])
