# SPDX-License-Identifier: MIT
"""Arrays for kernels that run on a CPU: with guards around them, and with special numbers in them."""

from __future__ import annotations

import numpy as np

KINDS = {"f32": np.float32, "f64": np.float64}
GUARD = 64
CANARY = 0xA5


class Memory:
    """Arrays with guards around them; those put in must come out unchanged."""

    def __init__(self) -> None:
        self.guards: list[np.ndarray] = []
        self.inputs: list[tuple[np.ndarray, bytes]] = []

    def out(self, shape: int | tuple[int, ...], dtype: np.typing.DTypeLike) -> np.ndarray:
        """Room for a result, filled with canaries as what lies around it is."""
        size = int(np.prod(shape))*np.dtype(dtype).itemsize
        whole = np.full(size + 2*GUARD, CANARY, np.uint8)
        self.guards += [whole[:GUARD], whole[GUARD + size:]]
        return whole[GUARD:GUARD + size].view(dtype).reshape(shape)

    def put(self, values: np.ndarray) -> np.ndarray:
        """An input that no kernel may change."""
        array = self.inout(values)
        self.inputs.append((array, array.tobytes()))
        return array

    def inout(self, values: np.ndarray) -> np.ndarray:
        array = self.out(values.shape, values.dtype)
        array[...] = values
        return array

    def check(self) -> None:
        assert all((guard == CANARY).all() for guard in self.guards), "a kernel wrote outside its arrays"
        assert all(array.tobytes() == before for array, before in self.inputs), "a kernel changed an input"


def special(kind: type, size: int, seed: int) -> np.ndarray:
    """Random numbers of both signs, among them every special value."""
    values = np.random.default_rng(seed).standard_normal(size).astype(kind)
    tiny = np.finfo(kind).smallest_subnormal
    listed = np.array([0.0, -0.0, tiny, -tiny, np.inf, -np.inf, np.nan, np.finfo(kind).max], kind)
    where = np.random.default_rng(seed + 1).permutation(size)[:4*listed.size]
    values[where] = np.resize(listed, where.size)
    return values
