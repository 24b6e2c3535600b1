# SPDX-License-Identifier: MIT
"""One training step in float64, and how far a right implementation may be from it.

Every quantity comes as a value and a bound E on the error that rounding can cause in a right
implementation of the candidate's precision (unit roundoff u):

    E = s(n) * c + propagated          s(n) = u * (n if n <= 81 else 9*sqrt(n))

``n`` is the number of roundings in a sum, ``c`` the same sum with absolute values. For n <= 81 the bound is
deterministic; above it is probabilistic, and is passed with a probability below 1e-6 over all elements of a
model of this size. ``propagated`` carries the errors of the inputs through the operation, in absolute values.

Sources: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., ch. 3; N. J. Higham and
T. Mary, SIAM J. Sci. Comput. 41 (2019) A2815 (the sqrt(n) law); I. Ipsen and H. Zhou, SIAM J. Matrix Anal.
Appl. 41 (2020) 1653.

One image is treated at a time: what is not summed over the batch is handed to the caller and forgotten, so
memory does not grow with the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bridge import oracle
from bridge.model import Conv2d, Model

Array = np.ndarray

#: Unit roundoff by precision
UNIT_ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}

#: Called with a tensor's name under /steps/<k>, the value and the bound, both of one image
Visitor = Callable[[str, Array, Array], None]


def rounding_factor(n: Array | float, u: float) -> Array:
    """s(n): the relative error, against the sum of absolute values, that n roundings may leave.

    >>> bool(rounding_factor(81, 1.0) == 81.0)
    True
    """
    n = np.asarray(n, dtype=np.float64)
    return u * np.where(n <= 81, n, 9.0 * np.sqrt(n))


def total_roundoff(precision: str) -> float:
    """Unit roundoff of the candidate plus that of the float64 oracle itself."""
    return UNIT_ROUNDOFF[precision] + UNIT_ROUNDOFF["float64"]


@dataclass
class Sums:
    """What is summed over the batch: the loss and the parameter gradients, with their bounds' parts.

    Parts of images are added in the order of the images, so results do not depend on threads.
    """

    loss: float = 0.0
    loss_propagated: float = 0.0
    #: by parameter name: value, sum of absolute values, propagated bound, number of products
    gradients: dict[str, list[Array]] = field(default_factory=dict)

    def add(self, other: Sums) -> None:
        """Add another image's part."""
        self.loss += other.loss
        self.loss_propagated += other.loss_propagated
        for name, parts in other.gradients.items():
            if name in self.gradients:
                self.gradients[name] = [a + b for a, b in zip(self.gradients[name], parts, strict=True)]
            else:
                self.gradients[name] = parts


def step_of_image(model: Model, weights: dict[str, Array], x: Array, target: Array, scale: float, u: float,
                  visit: Visitor) -> Sums:
    """Forward and backward of one image in float64, with bounds.

    Parameters
    ----------
    model : Model
    weights : float64 arrays by name, ``conv1/weight`` (k, c/groups, r, s), ``conv1/bias`` (k,)
    x, target : (c, h, w) and the output's shape; exact in the candidate's precision
    scale : factor of the loss, 1 (sum) or 1/N (mean, N elements of the whole batch)
    u : unit roundoff, see `total_roundoff`
    visit : receives every un-reduced tensor in data-flow order: ``forward/<layer>``,
        ``grads/<layer>/output``, ``grads/input``

    Returns
    -------
    Sums
        This image's part of the loss and of the parameter gradients.
    """
    values, errors = [x.astype(np.float64)], [np.zeros(1)]
    doubtful: list[Array | None] = []
    for layer in model.layers:
        if isinstance(layer, Conv2d):
            z, e = _conv_forward(layer, weights, values[-1], errors[-1], u)
            doubtful.append(None)
        else:
            z, e, unsure = _relu_forward(values[-1], errors[-1])
            doubtful.append(unsure)
        visit(f"forward/{layer.name}", z, e)
        values.append(z)
        errors.append(e)

    sums = Sums()
    grad, e = _loss(values.pop(), errors.pop(), target, scale, u, sums)
    for layer, unsure in zip(reversed(model.layers), reversed(doubtful), strict=True):
        visit(f"grads/{layer.name}/output", grad, e)
        a, e_a = values.pop(), errors.pop()
        if isinstance(layer, Conv2d):
            _filter_gradients(layer, a, e_a, grad, e, sums)
            grad, e = _conv_backward(layer, weights, grad, e, a.shape, u)
        else:
            grad, e = _relu_backward(a, grad, e, unsure)
    visit("grads/input", grad, e)
    return sums


def loss_bound(sums: Sums, scale: float, elements: int, u: float) -> tuple[float, float]:
    """The loss of the batch and its bound; `elements` terms, each from 3 roundings (y - t, square, scale)."""
    bound = rounding_factor(elements, u) * sums.loss + 3 * u * sums.loss + sums.loss_propagated
    return scale * sums.loss, float(scale * bound)


def gradient_bound(parts: list[Array], u: float) -> tuple[Array, Array]:
    """A parameter gradient of the batch and its bound."""
    value, absolute, propagated, n = parts
    return value, rounding_factor(n, u) * absolute + propagated


def _conv_forward(layer: Conv2d, weights: dict[str, Array], a: Array, e_a: Array, u: float) -> tuple[Array, Array]:
    w = weights[f"{layer.name}/weight"]
    absolute = np.abs(w)
    z = oracle.forward(a, w, layer)
    e = oracle.forward(np.abs(a), absolute, layer)
    n = oracle.products_forward(layer, a.shape[1:], z.shape[1:])
    if layer.bias:
        b = weights[f"{layer.name}/bias"][:, None, None]
        z += b
        e += np.abs(b)
        n = n + 1
    e *= rounding_factor(n, u)
    if e_a.any():
        e += oracle.forward(e_a, absolute, layer)
    return z, e


def _relu_forward(z: Array, e: Array) -> tuple[Array, Array, Array]:
    """Value, bound, and where rounding may have decided the sign."""
    unsure = np.abs(z) <= e
    return np.maximum(z, 0.0), np.where(z > -e, e, 0.0), unsure


def _loss(y: Array, e_y: Array, target: Array, scale: float, u: float, sums: Sums) -> tuple[Array, Array]:
    d = y - target
    sums.loss = float(np.vdot(d, d))
    sums.loss_propagated = float(2 * np.vdot(np.abs(d), e_y) + np.vdot(e_y, e_y))
    return 2 * scale * d, 2 * scale * e_y + 4 * u * np.abs(2 * scale * d)


def _filter_gradients(layer: Conv2d, a: Array, e_a: Array, dz: Array, e_dz: Array, sums: Sums) -> None:
    size_in, size_out = a.shape[1:], dz.shape[1:]
    absolute = np.abs(dz)
    (value,) = oracle.backward_filter(a, [dz], layer)
    c, propagated = oracle.backward_filter(np.abs(a), [absolute, e_dz], layer)
    if e_a.any():
        propagated += oracle.backward_filter(e_a, [absolute + e_dz], layer)[0]
    n = np.broadcast_to(oracle.products_filter(layer, size_in, size_out), value.shape)
    sums.gradients[f"{layer.name}/weight"] = [value, c, propagated, n]
    if layer.bias:
        n = np.full(dz.shape[0], size_out[0] * size_out[1])
        sums.gradients[f"{layer.name}/bias"] = [dz.sum((1, 2)), absolute.sum((1, 2)), e_dz.sum((1, 2)), n]


def _conv_backward(layer: Conv2d, weights: dict[str, Array], dz: Array, e_dz: Array, shape: tuple[int, ...],
                   u: float) -> tuple[Array, Array]:
    w, size = weights[f"{layer.name}/weight"], (shape[1], shape[2])
    absolute = np.abs(w)
    da = oracle.backward_data(dz, w, layer, size)
    e = oracle.backward_data(np.abs(dz), absolute, layer, size)
    e *= rounding_factor(oracle.products_data(layer, size, dz.shape[1:]), u)
    e += oracle.backward_data(e_dz, absolute, layer, size)
    return da, e


def _relu_backward(z: Array, da: Array, e_da: Array, unsure: Array | None) -> tuple[Array, Array]:
    positive = z > 0
    e = np.where(positive, e_da, 0.0)
    e += np.where(unsure, np.abs(da) + e_da, 0.0)
    return np.where(positive, da, 0.0), e
