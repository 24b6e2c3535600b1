# SPDX-License-Identifier: MIT
"""What an operation of a network is: its hyperparameters, shapes and derivative, written once.

`forward` and `backward` are formulas on *numbers*: arrays that know their own error
(`bridge.judge.oracle.bounded.Bounded`). A formula uses their operators and methods and nothing else, so that the value,
the bound on rounding and the replay from a candidate's own tensors all come from the same lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bridge.common.errors import FileError

Shape = tuple[int, ...]
#: `bridge.judge.oracle.bounded.Bounded`; formulas use nothing of it but its operators and methods
Number = Any
#: A hyperparameter of either sign, or infinite; a `float` is from 0 on
Real = float
#: Gradients with respect to the inputs, in their order, and to the parameters by name
Gradients = tuple[list[Number], dict[str, Number]]


@dataclass(frozen=True)
class Operation:
    """One node of a network.

    Attributes
    ----------
    name : of the node, as in an exchange file
    inputs : names of the nodes whose outputs it takes, or "input" for the network's; none: the node before it
    kind : its type in an exchange file, torch's name
    arity : number of inputs; 0: two or more; -1: one or more
    sample_rank : dimensions of one sample that torch's operation takes without a batch, and computes as in a batch of
        one: 3, an image (c, h, w); 1, a vector; 0, any. None: it takes none, or counts its dimensions otherwise
    has_mask : it takes 0 and 1 of `mask_shape` with each batch, which the formulas find among the parameters as
        ``mask``
    follows_itself : a part of its output follows from another part. Where these are known, the formulas find a
        program's own output among the parameters as ``output``, and its own gradient of the first input as
        ``input_gradient``
    without_gradient : numbers of the inputs that it gives no gradient back: it takes nothing of them but the number of
        images, or they are whole numbers that choose something (`takes_whole_numbers`)
    """

    name: str
    inputs: tuple[str, ...] = field(default=(), kw_only=True)
    kind: ClassVar[str]
    arity: ClassVar[int] = 1
    sample_rank: ClassVar[int | None] = None
    has_mask: ClassVar[bool] = False
    without_gradient: ClassVar[tuple[int, ...]] = ()
    takes_whole_numbers: ClassVar[bool] = False
    follows_itself: ClassVar[bool] = False

    def check(self) -> None:
        """Refuse hyperparameters that do not fit together.

        Raises
        ------
        FileError
        """

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the output for these shapes of the inputs.

        Raises
        ------
        FileError
            If the operation cannot take them.
        """
        return shapes[0]

    def mask_shape(self, shape: Shape) -> Shape:
        """Return that of the mask, where it takes one, for an output of this shape."""
        return shape

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return the shapes of the parameters by name (``weight``, ``bias``)."""
        return {}

    def state_shapes(self) -> dict[str, Shape]:
        """Return the shapes of what it keeps from step to step and does not learn, by name (``running_mean``).

        The formulas find it among the parameters, as it is before the step.
        """
        return {}

    def initial_state(self) -> dict[str, float]:
        """Return the numbers that its state has all over before any step, by name."""
        return dict.fromkeys(self.state_shapes(), 0.0)

    def new_state_shapes(self) -> dict[str, Shape]:
        """Return those of the state that a forward pass changes."""
        return {}

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the output."""
        raise NotImplementedError

    def new_state(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> dict[str, Number]:
        """Return what the forward pass makes of the state that it changes."""
        return {}

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the gradients of the loss, from that with respect to the output."""
        raise NotImplementedError

    def in_words(self, name: str, *shapes: Shape) -> str:
        """Return what a setting stands for, of inputs of these shapes, where that is no number of it; else nothing."""
        return ""

    def choices(self, shape: Shape) -> tuple[tuple[int, ...], int]:
        """Return the axes of its input, of `shape`, within which it chooses one of equal numbers to send the gradient
        to, and among how many; none where nothing is chosen.
        """
        return (), 0

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return what PyTorch computes for it, from torch tensors; its state is changed in place."""
        raise NotImplementedError

    def refuse(self, found: str, expected: str) -> FileError:
        """Return the error of a node that cannot be what it is asked to be."""
        return FileError(f"layer {self.name} ({self.kind}): {found}, expected {expected}")
