# SPDX-License-Identifier: MIT
"""Single passes of operations and losses, as the Fortran library runs them in graphs, on numpy arrays and any device.

They have the face of the formulas of `bridge.operations`, so that one can be put beside the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bridge.engine.arrays import dispatch
from bridge.engine.arrays.operand import Operand
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.library import extension
from bridge.operations.hyperparameters import numbers
from bridge.operations.losses import Loss
from bridge.operations.operation import Operation, Shape

Array = np.ndarray


def kept_numbers(kind: str, channels: int) -> int:
    """Return how many float64 numbers a forward pass leaves for the backward pass.

    >>> kept_numbers("batch_norm2d", 3), kept_numbers("relu", 3)
    (8, 0)
    """
    return 2 * (channels + channels % 2) if kind == "batch_norm2d" else 0


class OperationPasses:
    """The two passes of an operation.

    Parameters
    ----------
    node : the operation
    device : "cpu", "naive", "cuda", ... (see `bridge.engine.library.device_spec`)

    Raises
    ------
    ArgumentTypeError, ArgumentError, EngineError
        For arrays that do not fit together; each pass, too.

    Examples
    --------
    >>> from bridge.operations import Relu
    >>> relu, x = OperationPasses(Relu("a")), np.array([[-1.0, 2.0]])
    >>> relu.forward([x], {})
    array([[0., 2.]])
    >>> relu.backward(np.ones((1, 2)), [x], {})
    ([array([[0., 1.]])], {})
    """

    def __init__(self, node: Operation, device: str = "cpu") -> None:
        self._node, self._device = node, device
        self._place = dispatch.of_text(device)
        self._attributes = " ".join(f"{name}={','.join(f'{one:.17g}' for one in values)}"
                                    for name, values in numbers(node).items())

    def forward(self, inputs: Sequence[Array], parameters: Mapping[str, Array]) -> Array:
        """Return the output; `parameters` has the state and the mask, too, and none of it is changed."""
        y, _, _ = self._run(None, inputs, parameters)
        return y

    def backward(self, dy: Array, inputs: Sequence[Array], parameters: Mapping[str, Array]
                 ) -> tuple[list[Array], dict[str, Array]]:
        """Return the gradients with respect to the inputs, and to the parameters by name."""
        _, dx, dw = self._run(dy, inputs, parameters)
        return dx, dw

    def _run(self, dy: Array | None, inputs: Sequence[Array], parameters: Mapping[str, Array]
             ) -> tuple[Array, list[Array], dict[str, Array]]:
        """Forward, and with a gradient of the output backward, which takes the output."""
        node, like = self._node, inputs[0]
        shape, learned = node.output_shape(*(x.shape for x in inputs)), list(node.parameter_shapes())
        x, dx = [self._there(one) for one in inputs], [self._unwritten(one.shape, like) for one in inputs]
        y = self._unwritten(shape, like)
        upstream = self._unwritten(shape, like) if dy is None else self._there(dy)
        mask = self._there(parameters["mask"] if node.has_mask else np.zeros(1, like.dtype))
        w = [self._there(parameters[name]) for name in learned]
        dw = [self._unwritten(parameters[name].shape, like) for name in learned]
        # A forward pass changes it
        state = [self._there(parameters[name].copy()) for name in node.state_shapes()]
        numbers_kept = kept_numbers(node.kind, like.shape[1] if like.ndim > 1 else 0)
        kept = [self._unwritten((numbers_kept,), np.zeros(0))] if numbers_kept else []
        tensors = [*x, *dx, y, upstream, mask, *w, *dw, *state, *kept]
        table = np.array([[one.address, len(one.shape), *one.extent] for one in tensors], np.int64)
        with self._place.working(*tensors):
            for which in (0,) if dy is None else (0, 1):
                extension.call("operation_pass", self._place.text, node.kind, self._attributes,
                               extension.DTYPES[like.dtype.name], which, len(inputs), len(tensors),
                               extension.address(table))
        return (to_host(y.array), [to_host(one.array) for one in dx],
                {name: to_host(one.array) for name, one in zip(learned, dw, strict=True)})

    def _there(self, array: Array) -> Operand:
        """On the device."""
        return self._place.operand(self._node.kind, to_device(np.ascontiguousarray(array), self._device), values=False)

    def _unwritten(self, shape: Shape, like: Array) -> Operand:
        """For a result: NaN, so that an element that nobody writes is seen."""
        return self._there(np.full(shape, np.nan, like.dtype))


def loss_pass(loss: Loss, output: Array, target: Array, device: str = "cpu") -> tuple[float, Array]:
    """Return a loss, and its gradient with respect to the output.

    Examples
    --------
    >>> from bridge.operations.losses import Huber
    >>> loss_pass(Huber(mean=False, delta=0.5), np.array([[1.0, 3.0]]), np.array([[0.75, 1.0]]))
    (0.90625, array([[0.25, 0.5 ]]))
    """
    place = dispatch.of_text(device)
    y, t, gradient = (place.operand(name, to_device(array, device), values=False) for name, array in (
        ("output", output), ("target", target), ("gradient", np.full_like(output, np.nan))))
    with place.working(y, t, gradient):
        found = extension.call("loss_pass", place.text, loss.text, loss.reduction,
                               extension.DTYPES[output.dtype.name], output.ndim, y.extent, y.address, t.address,
                               gradient.address)
    return float(found), to_host(gradient.array)
