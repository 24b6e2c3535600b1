# SPDX-License-Identifier: MIT
"""An operation that the table lacks: PyTorch computes it, and the bound of its rounding is estimated."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bridge.common.errors import FileError
from bridge.operations.aten.estimate import estimated
from bridge.operations.aten.moves import Moves, moves_of
from bridge.operations.aten.program import Program, read
from bridge.operations.operation import Gradients, Number, Operation, Shape

Array = np.ndarray
#: Far above float64's rounding
CLOSE = 1e-10
#: What the text of a program is declared as
Text = str


@dataclass(frozen=True)
class Aten(Operation):
    """Calls of PyTorch's operations.

    Its formulas take numbers with their bounds and no other primitives. Numbers that are only moved are exact; the
    bounds of all else are estimated (`bridge.operations.aten.estimate`).

    Attributes
    ----------
    program : the calls, see `bridge.operations.aten.program`
    """

    program: Text
    kind: ClassVar[str] = "aten"
    arity: ClassVar[int] = -1

    @property
    def calls(self) -> Program:
        """Return the calls, checked."""
        return read(self.program)

    def check(self) -> None:
        """Refuse a text that is no program."""
        try:
            read(self.program)
        except FileError as error:
            raise FileError(f"model: layer {self.name} (aten): {error}") from None

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape that the program says, whose numbers are those of one shape of its inputs."""
        if len(shapes) < self.calls.inputs:
            raise self.refuse(f"{len(shapes)} inputs", f"{self.calls.inputs} or more")
        return self.calls.shape

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return the shapes of what it learns."""
        return dict(self.calls.parameters)

    def state_shapes(self) -> dict[str, Shape]:
        """Return the shapes of its constants, which no step changes."""
        return dict(self.calls.state)

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the output."""
        call = _Call(self.calls, inputs, parameters)
        moves = call.moves()
        return moves.moved(call.operands) if moves else estimated(call.outputs, call.operands, call.exact, _rounding)[0]

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the gradients by PyTorch's derivative; those with respect to integers are 0."""
        call = _Call(self.calls, inputs, parameters)
        moves = call.moves()
        found = moves.sent_back(dy, call.operands) if moves else []
        # Where it moves a number may hang on the number, which then is a constant
        if not moves or not call.agree(dy, found):
            found = estimated(call.gradients, [dy, *call.operands], frozenset(i + 1 for i in call.exact), _rounding)
        return found[:len(inputs)], dict(zip(self.calls.parameters, found[len(inputs):], strict=True))


def lacking(layers: Sequence[Operation]) -> str:
    """Return which operations of a network the library does not compute, in words, each with the first layer that has
    it; empty where it computes all.
    """
    found: dict[str, str] = {}
    for one in layers:
        for name in one.calls.operations if isinstance(one, Aten) else ():
            found.setdefault(name, f"{name} (layer {one.name})")
    return f"it has operations that the library does not compute: {', '.join(found.values())}" if found else ""


class _Call:
    """The calls with their operands: inputs, then parameters."""

    def __init__(self, program: Program, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> None:
        if importlib.util.find_spec("torch") is None:
            raise FileError(f"the model has {', '.join(program.operations)}, which PyTorch computes for the judge: "
                            "install torch")
        self._program = program
        self._state = {name: parameters[name].value for name in program.state}
        self.operands = [*inputs, *(parameters[name] for name in program.parameters)]
        self.exact = program.integers
        self._inputs = len(inputs)

    def moves(self) -> Moves | None:
        """Return how they move numbers, where bounds are wanted and they do nothing else."""
        if not self.operands[0].arithmetic.bounds:
            return None
        return moves_of(lambda arrays: self.outputs(arrays)[0], [one.value for one in self.operands], self.exact)

    def outputs(self, arrays: list[Array]) -> list[Array]:
        """Return the output for arrays in place of the operands, in their element type."""
        return [self._run(arrays)[1].detach().numpy()]

    def gradients(self, arrays: list[Array]) -> list[Array]:
        """Return the gradients with respect to all operands; the first array is that of the output."""
        import torch

        given, y = self._run(arrays[1:])
        found: list[Any] = [None] * len(given)
        if y.requires_grad:
            taken = [i for i, one in enumerate(given) if one.requires_grad]
            made = torch.autograd.grad(y, [given[i] for i in taken], _tensor(arrays[0]), allow_unused=True)
            for i, one in zip(taken, made, strict=True):
                found[i] = one
        return [np.zeros_like(array) if one is None else one.numpy()
                for array, one in zip(arrays[1:], found, strict=True)]

    def agree(self, dy: Number, found: Sequence[Number]) -> bool:
        """Return whether gradients are PyTorch's, but for the order of sums in float64."""
        by_torch = self.gradients([dy.value, *(one.value for one in self.operands)])
        close = CLOSE * float(np.abs(dy.value).max(initial=0.0))
        return all(np.allclose(one.value, other, rtol=CLOSE, atol=close)
                   for one, other in zip(found, by_torch, strict=True))

    def _run(self, arrays: list[Array]) -> tuple[list[Any], Any]:
        given = [_tensor(one).requires_grad_(i not in self.exact) for i, one in enumerate(arrays)]
        stored = {name: _tensor(one.astype(arrays[0].dtype)) for name, one in self._state.items()}
        stored |= zip(self._program.parameters, given[self._inputs:], strict=True)
        return given, self._program.run(given[:self._inputs], stored)


def _rounding(u: float, seed: int) -> AbstractContextManager[Any]:
    from bridge.operations.aten.rounding import RoundedByChance

    return RoundedByChance(u, seed)


def _tensor(array: Array) -> Any:
    import torch

    return torch.from_numpy(np.require(array, requirements=["C", "W"]))
