# SPDX-License-Identifier: MIT
"""cuDNN's graph API from Python: descriptors, the graphs of a training step, engines, plans.

Needs nothing but ctypes. The library may be the strict software device or the real cuDNN.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_bool, c_char, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass

from tests.software_device.calls import CROSS_CORRELATION, DOUBLE, FLOAT, NCHW, NHWC

#: Descriptors
POINTWISE, CONVOLUTION, ENGINE, ENGINECFG, ENGINEHEUR, EXECUTION_PLAN = range(6)
FORWARD, BACKWARD_FILTER, BACKWARD_DATA, OPERATION_POINTWISE = 10, 11, 12, 13
OPERATIONGRAPH, VARIANT_PACK, TENSOR, REDUCTION, OPERATION_REDUCTION, DEVICEPROP = 15, 16, 17, 21, 22, 38
#: Types of attributes, and what holds one element
HANDLE, DATA_TYPE, BOOLEAN, INT64, REAL4, REAL8, POINTER, MODE = range(8)
HEUR_MODE, NAN_OPTION, NUMERICAL_NOTE, POINTWISE_MODE, PART = 8, 10, 11, 14, 15
OPERATOR, BEHAVIOR_NOTE, CHAR = 18, 19, 24
ELEMENTS: dict[int, type] = {HANDLE: c_void_p, BOOLEAN: c_bool, INT64: c_int64, REAL4: c_float, REAL8: c_double,
                             POINTER: c_void_p, PART: c_void_p, CHAR: c_char}  # fmt: skip
ADD, RELU, RELU_BACKWARD = 0, 100, 200
FALLBACK, BEST = 2, 3
TENSOR_CORE, FFT, NONDETERMINISTIC, WINOGRAD, WINOGRAD_4X4, STRICT_NAN = 0, 3, 4, 5, 6, 9
RUNTIME_COMPILATION = 0
#: Unique ids of tensors in memory, and the first of those that are not
X, W, Y, BIAS, MASK, VIRTUAL = range(1, 7)
RESULTS, WORKSPACE_SIZE = 202, 402


@dataclass(frozen=True)
class Engine:
    """What a heuristic offers."""

    configuration: c_void_p
    number: int
    notes: tuple[int, ...]
    behaviors: tuple[int, ...]


def strides(shape: Sequence[int], layout: int) -> list[int]:
    """Of a packed tensor n, c, h, w."""
    _, c, h, w = shape
    return [c * h * w, 1, w * c, c] if layout == NHWC else [c * h * w, h * w, w, 1]


class Graphs:
    """The descriptors made so far, by one library.

    Examples
    --------
    ``g = Graphs(cuda.c); g.finalized(TENSOR, [(902, INT64, (1, 2, 3, 4)), ...])``
    """

    def __init__(self, c: ctypes.CDLL) -> None:
        self.c = c
        self.made: list[c_void_p] = []

    def reason(self) -> str:
        """The last error's text."""
        text = ctypes.create_string_buffer(1000)
        self.c.cudnnGetLastErrorString(text, c_size_t(len(text)))
        return text.value.decode()

    def check(self, status: int, what: object) -> None:
        """Only success will do."""
        assert status == 0, f"{what}: status {status}: {self.reason()}"

    def create(self, kind: int) -> c_void_p:
        """A new descriptor."""
        made = c_void_p()
        self.check(self.c.cudnnBackendCreateDescriptor(kind, byref(made)), f"descriptor {kind}")
        self.made.append(made)
        return made

    def set(self, part: object, name: int, kind: int, values: Sequence[object] | bytes) -> int:
        """Status of setting an attribute."""
        if isinstance(values, bytes):
            elements = ctypes.create_string_buffer(values, len(values))
        else:
            plain = [value.value if isinstance(value, c_void_p) else value for value in values]
            elements = (ELEMENTS.get(kind, c_int) * len(plain))(*plain)
        return int(self.c.cudnnBackendSetAttribute(part, name, kind, c_int64(len(values)), elements))

    def finalize(self, part: object) -> int:
        """Status of finalizing."""
        return int(self.c.cudnnBackendFinalize(part))

    def filled(self, kind: int, attributes: Sequence[tuple[int, int, Sequence[object] | bytes]]) -> c_void_p:
        """A descriptor with these attributes (name, type, values), not finalized."""
        part = self.create(kind)
        for attribute in attributes:
            self.check(self.set(part, *attribute), attribute)
        return part

    def finalized(self, kind: int, attributes: Sequence[tuple[int, int, Sequence[object] | bytes]]) -> c_void_p:
        """The same, finalized."""
        part = self.filled(kind, attributes)
        self.check(self.finalize(part), attributes)
        return part

    def get(self, part: object, name: int, kind: int, room: int) -> tuple[int, int, list[object]]:
        """Status, element count, and the elements that it says were given."""
        elements, n = (ELEMENTS.get(kind, c_int) * max(room, 1))(), c_int64(-1)
        status = self.c.cudnnBackendGetAttribute(part, name, kind, c_int64(room), byref(n), elements)
        return int(status), n.value, list(elements[: min(room, max(n.value, 0))])  # of characters: their codes

    def values(self, part: object, name: int, kind: int, room: int) -> tuple[object, ...]:
        """The elements."""
        status, _, values = self.get(part, name, kind, room)
        self.check(status, f"attribute {name}")
        return tuple(values)

    def destroy(self) -> None:
        """Everything that was made."""
        for part in self.made:
            self.check(self.c.cudnnBackendDestroyDescriptor(part), "destroy")
        self.made.clear()

    def tensor(self, number: int, shape: Sequence[int], dtype: int = FLOAT, layout: int = NCHW, *,
               virtual: bool = False, changes: dict[int, Sequence[object]] | None = None) -> c_void_p:  # fmt: skip
        """A tensor; `changes` replaces values of attributes."""
        values = {901: (DATA_TYPE, [dtype]), 902: (INT64, shape), 903: (INT64, strides(shape, layout)),
                  906: (INT64, [number]), 900: (INT64, [16]), 907: (BOOLEAN, [virtual])}  # fmt: skip
        new = changes or {}
        return self.finalized(TENSOR, [(name, kind, new.get(name, value)) for name, (kind, value) in values.items()])

    def convolution(self, *, padding: Sequence[int] = (0, 0), stride: Sequence[int] = (1, 1),
                    dilation: Sequence[int] = (1, 1), compute: int = FLOAT,
                    mode: int = CROSS_CORRELATION) -> c_void_p:  # fmt: skip
        """A convolution descriptor."""
        return self.finalized(CONVOLUTION, [(100, DATA_TYPE, [compute]), (101, MODE, [mode]), (106, INT64, [2]),
                                            (105, INT64, padding), (104, INT64, padding), (103, INT64, stride),
                                            (102, INT64, dilation)])  # fmt: skip

    def convolve(self, kind: int, conv: object, tensors: Sequence[object], alpha: float = 1,
                 beta: float = 0) -> c_void_p:  # fmt: skip
        """A convolution of any of the three kinds, of x, w and y."""
        x, w, y = tensors
        base, names = {FORWARD: (700, {704: x, 703: w, 705: y}), BACKWARD_DATA: (706, {710: x, 709: w, 711: y}),
                       BACKWARD_FILTER: (712, {716: x, 715: w, 717: y})}[kind]  # fmt: skip
        return self.finalized(kind, [(base + 2, PART, [conv]), *((name, PART, [t]) for name, t in names.items()),
                                     (base, REAL8, [alpha]), (base + 1, REAL4, [beta])])  # fmt: skip

    def pointwise(self, mode: int, tensors: dict[int, object], compute: int = FLOAT, nan: int = 1) -> c_void_p:
        """A pointwise operation; `tensors` by the names of its attributes."""
        how = self.finalized(POINTWISE, [(0, POINTWISE_MODE, [mode]), (1, DATA_TYPE, [compute]),
                                         (2, NAN_OPTION, [nan])])  # fmt: skip
        return self.finalized(OPERATION_POINTWISE, [(750, PART, [how]), *((i, PART, [t]) for i, t in tensors.items())])

    def sum(self, x: object, y: object, compute: int = FLOAT) -> c_void_p:
        """A sum of x over what is 1 in y."""
        how = self.finalized(REDUCTION, [(1600, OPERATOR, [0]), (1601, DATA_TYPE, [compute])])
        return self.finalized(OPERATION_REDUCTION, [(1612, PART, [how]), (1610, PART, [x]), (1611, PART, [y])])

    def graph(self, *operations: object) -> c_void_p:
        """An operation graph."""
        return self.finalized(OPERATIONGRAPH, [(801, PART, operations)])

    def device(self, json: bytes) -> c_void_p:
        """A described device."""
        return self.finalized(DEVICEPROP, [(2702, CHAR, json)])

    def heuristic(self, graph: object, mode: int = BEST, device: object = None) -> c_void_p:
        """A heuristic, with its results."""
        about = [(204, PART, [device])] if device else []
        return self.finalized(ENGINEHEUR, [(201, PART, [graph]), (200, HEUR_MODE, [mode]), *about])

    def engines(self, graph: object, mode: int = BEST, device: object = None) -> list[Engine]:
        """What is offered, the best first."""
        heuristic = self.heuristic(graph, mode, device)
        room = [self.create(ENGINECFG) for _ in range(40)]
        status, n = self.fill(heuristic, RESULTS, room)
        self.check(status, "results")
        return [self.engine(part) for part in room[:n]]

    def fill(self, part: object, name: int, to: Sequence[c_void_p]) -> tuple[int, int]:
        """Status and number of descriptors that were filled."""
        elements, n = (c_void_p * len(to))(*(each.value for each in to)), c_int64(-1)
        status = self.c.cudnnBackendGetAttribute(part, name, PART, c_int64(len(to)), byref(n), elements)
        return int(status), n.value

    def engine(self, configuration: c_void_p) -> Engine:
        """The engine of a configuration."""
        part = self.create(ENGINE)
        assert self.fill(configuration, 300, [part]) == (0, 1), self.reason()
        (number,) = self.values(part, 1301, INT64, 1)
        return Engine(configuration, number, self.values(part, 1303, NUMERICAL_NOTE, 30),
                      self.values(part, 1305, BEHAVIOR_NOTE, 30))  # fmt: skip

    def plan(self, engine: Engine, *, handle: object = None, device: object = None) -> c_void_p:
        """A plan, not finalized."""
        where = (400, HANDLE, [handle]) if handle else (407, PART, [device])
        return self.filled(EXECUTION_PLAN, [where, (401, PART, [engine.configuration])])

    def pack(self, data: dict[int, object], space: object = None) -> c_void_p:
        """A variant pack: addresses by unique id, and the workspace."""
        return self.finalized(VARIANT_PACK, [(1000, INT64, list(data)), (1001, POINTER, list(data.values())),
                                             (1003, POINTER, [space])])  # fmt: skip


def compute_type(dtype: int) -> int:
    """What sums of this type are in."""
    return DOUBLE if dtype == DOUBLE else FLOAT
