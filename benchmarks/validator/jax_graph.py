# SPDX-License-Identifier: MIT
"""The operations of a graph in JAX, compiled by XLA for the CPU; `jax.vjp` makes their gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import torch
from jax import numpy as jnp
from jax.scipy.ndimage import map_coordinates

from bridge.exchange.model import Operation
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic
from bridge.operations import OPERATIONS
from bridge.operations.hyperparameters import fields
from bridge.operations.losses import settings
from bridge.operations.pointwise import Pointwise
from bridge.operations.resizing import window_means
from bridge.operations.table import rows
from bridge.validate.self_test.graph_candidate import GraphOperations, Parameters

Tensor = torch.Tensor
Array = jax.Array
Given = dict[str, Array]
Formula = Callable[[Any, list[Array], Given], Array]

jax.config.update("jax_platforms", "cpu")


def _with_bias(z: Array, given: Given) -> Array:
    return z + given["bias"].reshape((-1, *[1] * (z.ndim - 2))) if "bias" in given else z


def _conv(node: Any, x: list[Array], given: Given) -> Array:
    return _with_bias(jax.lax.conv_general_dilated(
        x[0], given["weight"], node.stride, [(n, n) for n in node.padding], rhs_dilation=node.dilation,
        feature_group_count=node.groups), given)


def _conv_transpose(node: Any, x: list[Array], given: Given) -> Array:
    """What sends a gradient back through a convolution, by `jax.linear_transpose`."""
    shape = node.output_shape(x[0].shape)
    convolution = partial(_conv, node, given={"weight": given["weight"]})
    (z,) = jax.linear_transpose(lambda y: convolution([y]), jax.ShapeDtypeStruct(shape, x[0].dtype))(x[0])
    return _with_bias(z, given)


def _linear(node: Any, x: list[Array], given: Given) -> Array:
    y = x[0] @ given["weight"].T
    return y + given["bias"] if "bias" in given else y


def _attention(node: Any, x: list[Array], given: Given) -> Array:
    scores = x[0] @ jnp.swapaxes(x[1], -1, -2) * node.factor(x[0].shape[-1])
    if node.is_causal:
        scores = jnp.where(jnp.tri(scores.shape[-1]) > 0, scores, -jnp.inf)
    return jax.nn.softmax(scores, -1) @ x[2]


def _complex_linear(node: Any, x: list[Array], given: Given) -> Array:
    """By JAX's own complex numbers."""
    whole, weight = (jax.lax.complex(one[..., 0], one[..., 1]) for one in (x[0], given["weight"]))
    y = jnp.einsum("nip,iop->nop", whole, weight)
    return jnp.stack([y.real, y.imag], -1)


def _embedding(node: Any, x: list[Array], given: Given) -> Array:
    rows = given["weight"][x[0].astype(int)]
    # The row that is not learned
    return jnp.where((x[0] == node.padding_idx)[..., None], jax.lax.stop_gradient(rows), rows)


def _gather_rows(node: Any, x: list[Array], given: Given) -> Array:
    rows = jax.vmap(lambda table, at: table[at])(x[0], x[1].astype(int))
    return jnp.where((x[1] == node.padding_idx)[..., None], jax.lax.stop_gradient(rows), rows)


def _recurrent(node: Any, x: list[Array], given: Given) -> Array:
    """By `jax.lax.scan` over the times."""
    def cell(state: tuple[Array, Array], z: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = state
        product = _linear(node, [h], given)
        if node.kind == "gru":
            (r, u, n), (r_, u_, n_) = (jnp.split(one, 3, 1) for one in (z, product))
            u = jax.nn.sigmoid(u + u_)
            h = (1 - u) * jnp.tanh(n + jax.nn.sigmoid(r + r_) * n_) + u * h
        elif node.kind == "rnn":
            h = jax.nn.relu(z + product) if node.relu else jnp.tanh(z + product)
        else:
            i, f, g, o = jnp.split(z + product, 4, 1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x[0].shape[0], node.hidden_size), x[0].dtype)
    _, y = jax.lax.scan(cell, (zero, zero), jnp.swapaxes(x[0], 0, 1), reverse=node.reverse)
    return jnp.swapaxes(y, 0, 1)


def _windows_of(length: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the windows of a mean of as many as wanted begin, and what they end before."""
    i = np.arange(size)
    return i * length // size, -(-(i + 1) * length // size)


def _windows(node: Any, x: Array, start: float, combine: Callable[..., Any]) -> Array:
    behind = [max(0, places[-1][-1] + 1 - n) for places, n in zip(node.windows(x.shape), x.shape[2:], strict=True)]
    sides = [(0, 0), (0, 0), *zip(node.padding, behind, strict=True)]
    found: Array = jax.lax.reduce_window(x, start, combine, (1, 1, *node.kernel_size), (1, 1, *node.stride), sides,
                                         window_dilation=(1, 1, *node.settings()[0]))
    return found


def _avg_pool2d(node: Any, x: list[Array], _: Given) -> Array:
    counts = np.outer(*(node.counts(length, axis) for axis, length in enumerate(x[0].shape[2:])))
    return _windows(node, x[0], 0.0, jax.lax.add) / (float(node.divisor_override) or counts.astype(np.float32))


def _pool3d(node: Any, x: Array, start: float, combine: Callable[..., Any]) -> Array:
    sides = [(0, 0), (0, 0), *((n, n) for n in node.padding)]
    found: Array = jax.lax.reduce_window(x, start, combine, (1, 1, *node.kernel_size), (1, 1, *node.stride), sides)
    return found


def _adaptive_max_pool2d(node: Any, x: list[Array], _: Given) -> Array:
    """Of equal ones the first; windows are filled up by what is never the largest."""
    rows, columns = map(np.array, node.windows(x[0].shape))
    padded = jnp.pad(x[0], ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=-jnp.inf)
    flat = padded[:, :, rows[:, None, :, None], columns[None, :, None, :]].reshape(
        *x[0].shape[:2], len(rows), len(columns), -1)
    return jnp.take_along_axis(flat, flat.argmax(-1, keepdims=True), -1)[..., 0]


def _batch_norm2d(node: Any, x: list[Array], given: Given) -> Array:
    axes = (0, 2, 3)
    if node.training:
        mean, variance = x[0].mean(axes, keepdims=True), x[0].var(axes, keepdims=True)
    else:
        mean, variance = (given[name][:, None, None] for name in ("running_mean", "running_var"))
    weight, bias = (given[name][:, None, None] for name in ("weight", "bias"))
    return (x[0] - mean) * jax.lax.rsqrt(variance + node.eps) * weight + bias


def _row_norm(node: Any, x: list[Array], given: Given) -> Array:
    rows = x[0].reshape(node._form(x[0].shape))
    mean, variance = rows.mean((2, 3), keepdims=True), rows.var((2, 3), keepdims=True)
    factor, shift = (given[name].reshape((1, rows.shape[1], -1, 1)) if name in given else default
                     for name, default in (("weight", 1.0), ("bias", 0.0)))
    return ((rows - mean) * jax.lax.rsqrt(variance + node.eps) * factor + shift).reshape(x[0].shape)


def _first_extreme(node: Any, x: list[Array], _: Given) -> Array:
    """JAX divides the gradient among equal ones; of one that is taken all goes to that."""
    at = getattr(jnp, f"arg{node.kind}")(x[0], axis=node.dim[0], keepdims=True)
    found = jnp.take_along_axis(x[0], at, node.dim[0])
    return found if node.keepdim else found.squeeze(node.dim[0])


def _padded(node: Any, x: list[Array], _: Given, mode: str) -> Array:
    left, right, top, bottom = node.padding
    return jnp.pad(x[0], ((0, 0), (0, 0), (top, bottom), (left, right)), mode=mode)


def _upsample_nearest(node: Any, x: list[Array], _: Given) -> Array:
    found = x[0]
    for axis, factor in enumerate(node.scale_factor, 2):
        found = found.repeat(factor, axis)
    return found


def _upsample_linear(node: Any, x: list[Array], _: Given) -> Array:
    places = []
    for length, scale in zip(x[0].shape[2:], node.scale_factor, strict=True):
        place = jnp.arange(length * scale, dtype=jnp.float32)
        corners = place * ((length - 1) / max(length * scale - 1, 1))
        places.append(corners if node.align_corners else (place + 0.5) / scale - 0.5)
    at = jnp.meshgrid(*places, indexing="ij")
    one = partial(map_coordinates, coordinates=at, order=1, mode="nearest")
    return jax.vmap(jax.vmap(one))(x[0])


def _interpolate(node: Any, x: list[Array], _: Given) -> Array:
    """By matrices of its weights; of cubic ones the images have two more pixels on each side."""
    exact = Bounded(np.zeros(()), 0.0, Arithmetic(0.0))
    rows, columns = (node._weights(exact, length, axis).value.astype(np.float32)
                     for axis, length in enumerate(x[0].shape[2:]))
    more = ((0, 0), (0, 0), (2, 2), (2, 2)) if node.degree == 3 else ((0, 0),) * 4
    return jnp.einsum("ph,nchw,qw->ncpq", rows, jnp.pad(x[0], more, mode="edge"), columns)


def _pointwise(node: Pointwise, x: list[Array], _: Given) -> Array:
    """JAX has torch's names, but for underlines, and the arguments in torch's order."""
    function = next(one for module in (jax.nn, jnp, jax.lax) for name, one in vars(module).items()
                    if name.replace("_", "") == node.kind.replace("_", ""))
    found: Array = function(x[0], *(getattr(node, one.name) for one in fields(node)))
    return found


def _prelu(node: Any, x: list[Array], given: Given) -> Array:
    weight = given["weight"].reshape((-1, *[1] * (x[0].ndim - 2)))
    found: Array = jnp.where(x[0] > 0, x[0], weight * x[0])
    return found


def _spline(node: Any, x: list[Array], given: Given) -> Array:
    place = (x[0][..., None] - node.low) / node.step - jnp.arange(-node.order, node.grid + node.order)
    values = ((place >= 0) & (place < 1)).astype(jnp.float32)
    for q in range(1, node.order + 1):
        place = place[..., :-1]
        values = (place * values[..., :-1] + (q + 1 - place) * values[..., 1:]) / q
    factors = given["coefficient"]
    if "scale_spline" in given:
        factors = factors * given["scale_spline"][..., None]
    return jax.nn.silu(x[0]) @ given["scale_base"].T + jnp.einsum("...ik,oik->...o", values, factors)


def _between(x: Array, f: int) -> Array:
    n, channels, h, w = x.shape
    return x.reshape(n, channels // f**2, f, f, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, -1, h * f, w * f)


def _apart(x: Array, f: int) -> Array:
    n, channels, h, w = x.shape
    return x.reshape(n, channels, h // f, f, w // f, f).transpose(0, 1, 3, 5, 2, 4).reshape(n, -1, h // f, w // f)


FORMULAS: dict[str, Formula] = {
    **{kind: _pointwise for kind, one in OPERATIONS.items() if issubclass(one, Pointwise)},
    "affine": lambda node, x, given: x[0] * node.scale + node.shift,
    **dict.fromkeys(("amax", "amin", "mean", "sum"), lambda node, x, given: getattr(jnp, node.kind)(
        x[0], axis=node.dim, keepdims=node.keepdim)),
    "adaptive_avg_pool2d": lambda node, x, given: jnp.einsum(
        "ph,nchw,qw->ncpq", node.weights(x[0].shape[2], 0), x[0], node.weights(x[0].shape[3], 1)),
    "adaptive_max_pool2d": _adaptive_max_pool2d,
    # At 0 the derivative of jnp.abs is 1, torch's is 0
    "abs": lambda node, x, given: _size(x[0]),
    "adaptive_avg_pool3d": lambda node, x, given: jnp.einsum(
        "pd,qh,rw,ncdhw->ncpqr", *(window_means(length, *_windows_of(length, size)) for length, size in zip(
            x[0].shape[2:], node.output_size, strict=True)), x[0]),
    "attention": _attention,
    "add": lambda node, x, given: x[0] + x[1],
    "subtract": lambda node, x, given: x[0] - x[1],
    "multiply": lambda node, x, given: x[0] * x[1],
    "divide": lambda node, x, given: x[0] / x[1],
    "prelu": _prelu,
    "avg_pool2d": _avg_pool2d,
    "avg_pool3d": lambda node, x, given: _pool3d(node, x[0], 0.0, jax.lax.add) / float(np.prod(node.kernel_size)),
    "batch_norm2d": _batch_norm2d,
    "circular_pad": lambda node, x, given: x[0][np.ix_(*node.places(x[0].shape))],
    "constant_pad": lambda node, x, given: jax.lax.pad(
        x[0], jnp.asarray(node.value, x[0].dtype), [(*one, 0) for one in node.sides(x[0].shape)]),
    "complex_linear": _complex_linear,
    "concat": lambda node, x, given: jnp.concatenate(x, node.dim),
    "conv2d": _conv,
    "conv3d": _conv,
    "conv_transpose2d": _conv_transpose,
    "conv_transpose3d": _conv_transpose,
    "dropout": lambda node, x, given: jnp.where(given["mask"] > 0.5, x[0] / (1 - node.p), 0.0),
    "dropout2d": lambda node, x, given: jnp.where(given["mask"] > 0.5, x[0] / (1 - node.p), 0.0),
    "embedding": _embedding, **dict.fromkeys(("gru", "lstm", "rnn"), _recurrent),
    "expand": lambda node, x, given: jnp.broadcast_to(x[0], node.output_shape(x[0].shape)),
    "flatten": lambda node, x, given: x[0].reshape((x[0].shape[0], -1)),
    "flip": lambda node, x, given: jnp.flip(x[0], node.dims),
    "gather_rows": _gather_rows,
    "gelu": lambda node, x, given: jax.nn.gelu(x[0], approximate=False),
    "gelu_tanh": lambda node, x, given: jax.nn.gelu(x[0], approximate=True),
    "global_avg_pool2d": lambda node, x, given: x[0].mean((2, 3), keepdims=True),
    "group_norm": _row_norm,
    "index_select": lambda node, x, given: jnp.take(x[0], jnp.array(node.indices), node.dim),
    "interpolate": _interpolate,
    "layer_norm": _row_norm,
    # At 0 the derivative of jax.nn.leaky_relu is 1, torch's is the slope
    "leaky_relu": lambda node, x, given: jnp.where(x[0] > 0, x[0], node.negative_slope * x[0]),
    "linear": _linear,
    "log_softmax": lambda node, x, given: jax.nn.log_softmax(x[0], node.dim),
    "matmul": lambda node, x, given: x[0] @ x[1],
    "max": _first_extreme,
    "min": _first_extreme,
    "max_pool2d": lambda node, x, given: _windows(node, x[0], -jnp.inf, jax.lax.max),
    "parameter": lambda node, x, given: jnp.broadcast_to(given["weight"], node.output_shape(x[0].shape)),
    "max_pool3d": lambda node, x, given: _pool3d(node, x[0], -jnp.inf, jax.lax.max),
    "permute": lambda node, x, given: x[0].transpose(node.dims),
    "pixel_shuffle": lambda node, x, given: _between(x[0], node.upscale_factor),
    "pixel_unshuffle": lambda node, x, given: _apart(x[0], node.downscale_factor),
    "reflection_pad2d": partial(_padded, mode="reflect"),
    "replication_pad2d": partial(_padded, mode="edge"),
    "reshape": lambda node, x, given: x[0].reshape(node.output_shape(x[0].shape)),
    "roll": lambda node, x, given: jnp.roll(x[0], node.shifts, node.dims),
    "slice": lambda node, x, given: x[0][node.index(x[0].ndim)],
    "softmax": lambda node, x, given: jax.nn.softmax(x[0], node.dim),
    "spline": _spline,
    "softplus": lambda node, x, given: jax.nn.softplus(node.beta * x[0]) / node.beta,
    "transpose": lambda node, x, given: x[0].swapaxes(node.dim0, node.dim1),
    "upsample_bilinear2d": _upsample_linear,
    "upsample_nearest2d": _upsample_nearest,
    "upsample_nearest3d": _upsample_nearest,
    "upsample_trilinear3d": _upsample_linear,
    "zero_pad2d": partial(_padded, mode="constant"),
}

def _cross_entropy(loss: Any, y: Array, t: Array) -> Array:
    """Of each image or pixel, over the weights of those that count where these are to be the mean's divisor."""
    weights = jnp.array(loss.weight or (1.0,) * y.shape[1]).reshape((-1, *[1] * (y.ndim - 2)))
    if 0 <= loss.ignore_index < y.shape[1]:
        t = t.at[:, loss.ignore_index].set(0)
    share = loss.label_smoothing / y.shape[1] * (t.sum(1, keepdims=True) if loss.class_indices else 1.0)
    found = -(((1 - loss.label_smoothing) * t + share) * weights * jax.nn.log_softmax(y, 1)).sum(1)
    return found * (found.size / (t * weights).sum()) if loss.mean and loss.class_indices else found


def _size(d: Array) -> Array:
    return jnp.where(d > 0, d, jnp.where(d < 0, -d, 0.0))


def _huber(d: Array, delta: float) -> Array:
    return jnp.where(jnp.abs(d) <= delta, 0.5 * d * d, delta * (jnp.abs(d) - 0.5 * delta))


def _formula(formula: str, loss: Any, y: Array, t: Array) -> Array:
    """A formula of the table of losses."""
    given = {one.name: getattr(loss, one.name) for one in settings(loss)}
    found: Array = eval(formula, vars(jnp) | given, {"y": y, "t": t})
    return found


#: Of the loss with its settings, output and target
LOSSES: dict[str, Callable[[Any, Array, Array], Array]] = {
    **{kind: partial(_formula, row["formula"]) for kind, row in rows("losses").items() if "formula" in row},
    "bce": lambda loss, y, t: -(t * jnp.maximum(jnp.log(y), -100) + (1 - t) * jnp.maximum(jnp.log1p(-y), -100)),
    "bce_with_logits": lambda loss, y, t: -(loss.pos_weight * t * jax.nn.log_sigmoid(y)
                                            + (1 - t) * jax.nn.log_sigmoid(-y)),
    "cross_entropy": _cross_entropy,
    "huber": lambda loss, y, t: _huber(y - t, loss.delta),
    "l1": lambda loss, y, t: _size(y - t),
    "mse": lambda loss, y, t: (y - t) ** 2,
    "smooth_l1": lambda loss, y, t: _huber(y - t, loss.beta) / loss.beta,
}


class _Call(torch.autograd.Function):
    """A function of JAX arrays, and `jax.vjp` of it, on torch's tensors."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Array], *operands: Tensor) -> Tensor:
        found, ctx.back = jax.vjp(jax.jit(function), *(jnp.array(one.contiguous().numpy()) for one in operands))
        return torch.from_numpy(np.array(found))

    @staticmethod
    def backward(ctx: Any, *dy: Tensor) -> Any:
        return None, *(torch.from_numpy(np.array(one)) for one in ctx.back(jnp.array(dy[0].contiguous().numpy())))


_call: Callable[..., Tensor] = _Call.apply


class JaxGraph(GraphOperations):
    """Every operation and the loss by JAX, float32; new running statistics and weights by torch."""

    def forward(self, node: Operation, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        names, n = list(parameters), len(inputs)
        kept = [one.detach().clone() if one.requires_grad is False else one for one in parameters.values()]
        if node.new_state_shapes():
            super().forward(node, [one.detach() for one in inputs], parameters)  # changes them in place
        return _call(
            lambda *xs: FORMULAS[node.kind](node, list(xs[:n]), dict(zip(names, xs[n:], strict=True))), *inputs, *kept)

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        criterion = self.model.criterion
        each = LOSSES[criterion.kind]
        return _call(lambda y, t: each(criterion, y, t).mean() if criterion.mean else each(criterion, y, t).sum(), y,
                     target)
