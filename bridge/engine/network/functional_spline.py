# SPDX-License-Identifier: MIT
"""A KAN layer as functions, on numpy and CUDA arrays and without copies."""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.common.errors import ArgumentError, ArgumentTypeError, FileError
from bridge.engine.arrays import dispatch
from bridge.engine.arrays.dispatch import Place
from bridge.engine.arrays.operand import Operand
from bridge.engine.library import extension
from bridge.operations.hyperparameters import check_layer, numbers
from bridge.operations.spline import Spline

#: numpy.ndarray, or on a CUDA device what `bridge.conv2d` takes there
Array = Any
#: A row of the table that Fortran reads: address, rank, extents
Row = list[int]
NONE: Row = [0] * (2 + extension.DIMENSIONS[-1])


def spline(input: Array, coefficient: Array, scale_base: Array, scale_spline: Array | None = None, order: int = 3,
           low: float = -1.0, high: float = 1.0, *, device: str | None = None) -> Array:
    """Compute a KAN layer: of each feature its SiLU and a spline, with factors for each output, summed.

    ``out[...,o] = sum_i scale_base[o,i] * silu(x[i]) + scale_spline[o,i] * sum_k coefficient[o,i,k] * B_k(x[i])`` of
    the features x of a row.

    Parameters
    ----------
    input : float32 or float64, shape (..., in_features), two dimensions or more, C-contiguous, finite
    coefficient : same dtype, shape (out_features, in_features, grid + order)
        Of the B-splines on `grid` intervals from `low` to `high`, and `order` more on each side; what lies beyond
        these has none, see `bridge.operations.Spline`.
    scale_base : same dtype, shape (out_features, in_features)
    scale_spline : the same, or None: 1
    order : degree of the polynomials, 2 to 5
    low, high : the grid's ends
    device : where all arrays are, as for `bridge.conv2d`

    Returns
    -------
    out : same dtype, shape (..., out_features)

    Raises
    ------
    ArgumentTypeError, ArgumentError
        For a wrong type, dtype, rank, shape, order, an array in another place, an empty or non-finite one.
    EngineError
        If the device does not exist.

    Source
    ------
    Z. Liu et al., KAN: Kolmogorov-Arnold Networks, https://arxiv.org/abs/2404.19756, equations 2.10 to 2.12.

    Examples
    --------
    >>> x = np.array([[-3.0], [0.0], [0.5], [9.0]])
    >>> spline(x, np.ones((1, 1, 6)), np.zeros((1, 1)), order=2)[:, 0]
    array([0., 1., 1., 0.])
    """
    place = dispatch.of(device, input)
    node, x, parameters = _check(place, order, low, high, input, coefficient, scale_base, scale_spline)
    y = place.empty(node.output_shape(x.shape), x)
    with place.working(x, *parameters, y):
        _run(place, node, x.dtype, [_row(x), NONE, _row(y), NONE, NONE, *map(_row, parameters),
                                    *[NONE] * len(parameters)])
    return y.array


def spline_backward(grad_output: Array, input: Array, coefficient: Array, scale_base: Array,
                    scale_spline: Array | None = None, order: int = 3, low: float = -1.0, high: float = 1.0, *,
                    device: str | None = None) -> tuple[Array, Array, Array, Array | None]:
    """Compute the gradients of `spline`.

    Parameters
    ----------
    grad_output : same dtype as `input`, shape (..., out_features)
        Gradient of the loss with respect to the output.
    input, coefficient, scale_base, scale_spline, order, low, high, device : as for `spline`

    Returns
    -------
    grad_input : shape (..., in_features)
    grad_coefficient : shape (out_features, in_features, grid + order), summed over all rows
    grad_scale_base : shape (out_features, in_features)
    grad_scale_spline : the same, or None where there is no `scale_spline`

    Raises
    ------
    As `spline`.

    Examples
    --------
    >>> x = np.array([[0.25]])
    >>> dx, dc, db, _ = spline_backward(np.ones((1, 1)), x, np.arange(3.0).reshape(1, 1, 3), np.zeros((1, 1)), order=2)
    >>> float(dx[0, 0]), dc[0, 0]
    (0.5, array([0.0703125, 0.734375 , 0.1953125]))
    """
    place = dispatch.of(device, input)
    node, x, parameters = _check(place, order, low, high, input, coefficient, scale_base, scale_spline)
    dy = place.operand("grad_output", grad_output, like=x, shape=node.output_shape(x.shape))
    dx, *found = (place.empty(one.shape, x) for one in (x, *parameters))
    with place.working(x, *parameters, dy, dx, *found):
        # The backward pass reads no output, but its shape
        y = [0, *_row(dy)[1:]]
        _run(place, node, x.dtype, [_row(x), _row(dx), y, _row(dy), NONE, *map(_row, (*parameters, *found))])
    grads = [one.array for one in found] + [None] * (3 - len(found))
    return dx.array, grads[0], grads[1], grads[2]


def _check(place: Place, order: int, low: float, high: float, input: Array, coefficient: Array, scale_base: Array,
           scale_spline: Array | None) -> tuple[Spline, Operand, list[Operand]]:
    """The layer, and what it takes."""
    x = place.operand("input", input)
    if x.dtype not in extension.DTYPES:
        raise ArgumentTypeError(f"input: {x.dtype}, expected float32 or float64")
    if len(x.shape) < 2:
        raise ArgumentError(f"input: shape {x.shape}, expected two dimensions or more")
    c = place.operand("coefficient", coefficient, like=x, ndim=3)
    outputs, features, functions = c.shape
    try:
        made = check_layer(Spline("spline", features, outputs, functions - order, order, low, high,
                                  scale_spline is not None))
        made.output_shape(x.shape)
    except (FileError, TypeError) as error:
        raise ArgumentError(f"coefficient {c.shape}, order {order!r}, low {low!r}, high {high!r}, input {x.shape}: "
                            f"{error}") from None
    assert isinstance(made, Spline)
    scales = {"scale_base": scale_base} | ({} if scale_spline is None else {"scale_spline": scale_spline})
    return made, x, [c, *(place.operand(name, one, like=x, shape=c.shape[:2]) for name, one in scales.items())]


def _row(operand: Operand) -> Row:
    return [operand.address, len(operand.shape), *map(int, operand.extent)]


def _run(place: Place, node: Spline, dtype: str, table: list[Row]) -> None:
    """One pass: forward where there is no gradient of the output."""
    rows = np.array(table, np.int64)
    settings = " ".join(f"{name}={float(value)!r}" for name, (value,) in numbers(node).items())
    backward = int(table[3][0] != 0)
    extension.call("operation_pass", place.text, node.kind, settings, extension.DTYPES[dtype], backward, 1, len(rows),
                   extension.address(rows))
