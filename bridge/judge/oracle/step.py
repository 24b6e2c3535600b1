# SPDX-License-Identifier: MIT
"""One training step in float64, and how far a right implementation may be from it.

Every quantity comes as a value and a bound E on the error that rounding can cause in a right
implementation of the candidate's precision (unit roundoff u):

    E = s(n) * c + propagated          s(n) = u * (n if n <= 81 else 9*sqrt(n))

``n`` is the number of roundings in a sum, ``c`` the same sum with absolute values. For n <= 81 the bound is
deterministic; above it is probabilistic, and right code exceeds it with a probability below 1e-6 over all elements of a
model of this size. ``propagated`` carries the errors of the inputs through the operation, in absolute values.

Sources: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., ch. 3; C.-P. Jeannerod and
S. M. Rump, SIAM J. Matrix Anal. Appl. 34 (2013) 338 (n*u without terms in u**2); N. J. Higham and T. Mary, SIAM
J. Sci. Comput. 41 (2019) A2815 (the sqrt(n) law); I. Ipsen and H. Zhou, SIAM J. Matrix Anal. Appl. 41 (2020) 1653.

One image is treated at a time: what is not summed over the batch is handed to the caller and forgotten, so
memory does not grow with the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bridge.common import parallel
from bridge.exchange.model import Conv2d, Model
from bridge.judge.oracle import convolution, elementwise, fast_convolution
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.reductions import GradientSums, ImageVisitor, StepSums, Truth

Array = np.ndarray


@dataclass
class _Input:
    """Input of a convolution, kept for its backward pass; `own` is the candidate's."""

    value: Array
    error: Array
    own: Array | None


@dataclass
class _Gradient:
    """Of the output of a convolution, and its absolute values."""

    value: Array
    absolute: Array


@dataclass
class _Mask:
    """Of a ReLU: where its input is positive, and where rounding may have decided that; `own` is the candidate's input.

    `own` is None where the file lacks it, and where it holds NaN: which way that goes is nobody's rule.
    """

    positive: Array
    unsure: Array
    own: Array | None


def step_of_image(
    model: Model,
    weights: dict[str, Array],
    x: Array,
    target: Array,
    scale: float,
    arithmetic: Arithmetic,
    visit: ImageVisitor,
) -> StepSums:
    """Forward and backward of one image in float64, with bounds.

    Parameters
    ----------
    model : Model
    weights : float64 arrays by name, ``conv1/weight`` (k, c/groups, r, s), ``conv1/bias`` (k,)
    x, target : (c, h, w) and the output's shape; exact in the candidate's precision
    scale : factor of the loss, 1 (sum) or 1/N (mean, N elements of the whole batch)
    arithmetic : of the candidate, with `bridge.judge.oracle.error_model.total_roundoff` as its u
    visit : receives every un-reduced tensor in data-flow order: ``forward/<layer>``,
        ``grads/<layer>/output``, ``grads/input``

    Returns
    -------
    StepSums
        This image's part of the loss and of the parameter gradients.
    """
    # Overflow is not an accident here: it makes a value infinite, and that is judged
    with np.errstate(over="ignore", invalid="ignore"):
        kept, output = _forward(model, weights, x.astype(np.float64), arithmetic, visit)
        return _backward(model, weights, kept, output, target, scale, arithmetic, visit)


def _backward(
    model: Model,
    weights: dict[str, Array],
    kept: list[_Input | _Mask],
    output: _Input,
    target: Array,
    scale: float,
    arithmetic: Arithmetic,
    visit: ImageVisitor,
) -> StepSums:
    sums = StepSums()
    grad, error, local = _loss(output, target, scale, arithmetic, sums)
    for layer in reversed(model.layers):
        own = visit(f"grads/{layer.name}/output", grad, error, *local)
        # What nobody reads any more makes room before the next arrays come
        saved, local = kept.pop(), ()
        if isinstance(layer, Conv2d):
            assert isinstance(saved, _Input)
            dz, shape = _Gradient(grad, parallel.absolute(grad)), saved.value.shape
            own = None if own is None else parallel.doubled(own)
            sums.gradients |= _filter_gradients(layer, saved, dz, error, own, arithmetic)
            del saved
            grad, error, local = _conv_backward(layer, weights, dz, error, own, shape, arithmetic)
            del dz, own
        else:
            assert isinstance(saved, _Mask)
            local = _relu_backward(saved, grad, error, own)
    visit("grads/input", grad, error, *local)
    return sums


def _forward(
    model: Model, weights: dict[str, Array], x: Array, arithmetic: Arithmetic, visit: ImageVisitor
) -> tuple[list[_Input | _Mask], _Input]:
    """What the backward pass needs of every layer, and the network's output."""
    kept: list[_Input | _Mask] = []
    value, error, own = x, np.zeros(1), None
    for layer in model.layers:
        local: tuple[Truth, ...] = ()
        if isinstance(layer, Conv2d):
            # The input of the network is the same for all: nothing is sharper than the oracle itself
            kept.append(_Input(value, error, x if value is x else own))
            value, error, local = _conv_forward(layer, weights, _Input(value, error, own), arithmetic)
        else:
            # Of the network's input nothing is in doubt, and the oracle is exact itself
            kept.append(_relu_forward(value, error, value.copy() if value is x else own))
            local = () if value is x else _copied(elementwise.positive_part, own)
        own = visit(f"forward/{layer.name}", value, error, *local)
    return kept, _Input(value, error, own)


def _conv_forward(
    layer: Conv2d, weights: dict[str, Array], a: _Input, arithmetic: Arithmetic
) -> tuple[Array, Array, tuple[Truth, ...]]:
    w = weights[f"{layer.name}/weight"]
    absolute = np.abs(w)
    if parallel.smallest(a.value) >= 0:
        z, e = fast_convolution.forward(a.value, [w, absolute], layer)
    else:
        (z,) = fast_convolution.forward(a.value, [w], layer)
        (e,) = fast_convolution.forward(parallel.absolute(a.value), [absolute], layer)
    n = convolution.products_forward(layer, a.value.shape[1:], z.shape[1:])
    b = np.zeros((1, 1, 1))
    if layer.bias:
        b = weights[f"{layer.name}/bias"][:, None, None]
        n = n + 1
    propagated = fast_convolution.forward(a.error, [absolute], layer)[0] if parallel.anything(a.error) else None
    own = None if a.own is None else fast_convolution.forward(parallel.doubled(a.own), [w], layer)[0]
    noise = None
    if arithmetic.algorithm is not None:
        largest = parallel.absolute(a.value) + a.error
        of = arithmetic.algorithm.forward_bound
        noise = arithmetic.noise(lambda x, filters: of(x, filters, layer), largest, absolute)
    local = elementwise.finish(elementwise.ConvolutionParts(z, e, propagated, own), n, arithmetic, b)
    return z, e, _joined(e, local, noise)


def _joined(e: Array, local: tuple[Truth, ...], noise: Array | None) -> tuple[Truth, ...]:
    """What an algorithm adds to both bounds, in place; they are one array where nothing is propagated."""
    if noise is not None:
        for bound in {id(one): one for one in (e, *(one.bound for one in local))}.values():
            bound += noise
    return local


def _loss(
    y: _Input, target: Array, scale: float, arithmetic: Arithmetic, sums: StepSums
) -> tuple[Array, Array, tuple[Truth, ...]]:
    """Sum of squares, and dy = 2*scale*(y - t): a difference, a product, a scale, which a mean of means rounds thrice.

    The candidate's own y is what it wrote; y - t may be taken before y is rounded.
    """
    rounding = 5 * arithmetic.u
    d = y.value - target
    sums.loss = float(np.vdot(d, d))
    if y.own is None:
        sums.local_loss = None
    else:
        sums.local_loss = float(np.vdot(y.own - target, y.own - target))
        unwritten = arithmetic.u * np.abs(y.own)
        sums.local_propagated = float(2 * np.vdot(np.abs(y.own - target), unwritten) + np.vdot(unwritten, unwritten))
    error = np.broadcast_to(y.error, d.shape)
    sums.loss_propagated = float(2 * np.vdot(np.abs(d), error) + np.vdot(error, error))
    e = 2 * scale * ((1 + rounding) * error + rounding * np.abs(d))
    lost: Array | float = 0.0
    if arithmetic.cancels:
        # Of c*y - c*t each product is rounded before they are subtracted, of acc + (b - t) the difference
        lost = 4 * scale * arithmetic.u * (np.abs(y.value) + error + np.abs(target) + arithmetic.bias)
        e += lost
    local: tuple[Truth, ...] = ()
    if y.own is not None:
        own = 2 * scale * (y.own - target)
        lost = lost + 2 * scale * (1 + rounding) * unwritten
        local = (Truth(own, arithmetic.with_underflow(rounding * np.abs(own) + lost, 1), 5),)
    return 2 * scale * d, arithmetic.with_underflow(e, 1), local


def _filter_gradients(
    layer: Conv2d, saved: _Input, dz: _Gradient, e_dz: Array, own_dz: Array | None, arithmetic: Arithmetic
) -> dict[str, GradientSums]:
    a, e_a = saved.value, saved.error
    size_in, size_out = a.shape[1:], e_dz.shape[1:]
    if parallel.smallest(a) >= 0:
        value, c, propagated = fast_convolution.backward_filter(a, [dz.value, dz.absolute, e_dz], layer)
    else:
        (value,) = fast_convolution.backward_filter(a, [dz.value], layer)
        c, propagated = fast_convolution.backward_filter(parallel.absolute(a), [dz.absolute, e_dz], layer)
    if parallel.anything(e_a):
        propagated += fast_convolution.backward_filter(e_a, [parallel.added(dz.absolute, e_dz)], layer)[0]
    own = None
    if own_dz is not None and saved.own is not None:
        (own,) = fast_convolution.backward_filter(parallel.doubled(saved.own), [own_dz], layer)
    n = np.broadcast_to(convolution.products_filter(layer, size_in, size_out), value.shape)
    noise: Array | float = 0.0
    if arithmetic.algorithm is not None:
        inputs, upstream = parallel.absolute(a) + e_a, parallel.added(dz.absolute, e_dz)
        of = arithmetic.algorithm.filter_bound
        noise = arithmetic.noise(lambda x, dy: of(x, dy, layer), inputs, upstream)
    gradients = {f"{layer.name}/weight": GradientSums(value, c, propagated, n, own, noise=noise)}
    if layer.bias:
        own = None if own_dz is None else parallel.channel_sums(own_dz)
        n = np.full(e_dz.shape[0], size_out[0] * size_out[1])
        value, c, propagated = (parallel.channel_sums(array) for array in (dz.value, dz.absolute, e_dz))
        gradients[f"{layer.name}/bias"] = GradientSums(value, c, propagated, n, own, products=False)
    return gradients


def _conv_backward(
    layer: Conv2d, weights: dict[str, Array], dz: _Gradient, e_dz: Array, own: Array | None, shape: tuple[int, ...],
    arithmetic: Arithmetic,
) -> tuple[Array, Array, tuple[Truth, ...]]:
    w, size = weights[f"{layer.name}/weight"], (shape[1], shape[2])
    absolute = np.abs(w)
    n = convolution.products_data(layer, size, e_dz.shape[1:])
    da = fast_convolution.backward_data(dz.value, w, layer, size)
    e = fast_convolution.backward_data(dz.absolute, absolute, layer, size)
    propagated = fast_convolution.backward_data(e_dz, absolute, layer, size)
    found = None if own is None else fast_convolution.backward_data(own, w, layer, size)
    noise = None
    if arithmetic.algorithm is not None:
        largest = parallel.added(dz.absolute, e_dz)
        of = arithmetic.algorithm.data_bound
        noise = arithmetic.noise(lambda dy, filters: of(dy, filters, layer, size), largest, absolute)
    local = elementwise.finish(elementwise.ConvolutionParts(da, e, propagated, found), n, arithmetic)
    return da, e, _joined(e, local, noise)


def _copied(operation: Callable[..., Array], *own: Array | None) -> tuple[Truth, ...]:
    """A ReLU of the candidate's own tensors copies numbers or drops them: nothing is rounded."""
    found = [array for array in own if array is not None]
    if len(found) < len(own):
        return ()
    return (Truth(operation(*found), np.zeros(1), 0, min(array.dtype.itemsize for array in found)),)


def _relu_forward(value: Array, error: Array, own: Array | None) -> _Mask:
    """In place: these arrays are as large as they are many. Where the input is exact, there is no doubt."""
    known = own if own is not None and not np.isnan(parallel.smallest(own)) else None
    return _Mask(*elementwise.rectify(value, error), known)


def _relu_backward(mask: _Mask, da: Array, e_da: Array, own: Array | None) -> tuple[Truth, ...]:
    """In place. Where the sign of the input is in doubt, a right candidate may pass the gradient or stop it.

    Its own input decides, where the file holds that: the gradient must follow from it to the bit.
    """
    elementwise.stop(mask.positive, mask.unsure, da, e_da)
    return _copied(elementwise.passed, own, mask.own)
