# SPDX-License-Identifier: MIT
"""Networks that keep all activations beside those that keep what training needs."""

from __future__ import annotations

import numpy as np
import pytest

import bridge
from bridge.exchange.model import Conv2d, Layer, Model, Relu
from tests.helpers.cases import Array

ALL_DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
ALL_DEVICES = pytest.mark.parametrize("device", ["cpu", "naive"])


def _conv(name: str, c: int, k: int, size: tuple[int, int] = (3, 3), **more: object) -> Conv2d:
    return Conv2d(name, c, k, size, **more)  # type: ignore[arg-type]


NETWORKS: dict[str, tuple[Layer, ...]] = {
    "three layers": (_conv("a", 3, 8, padding=(1, 1)), Relu("r"), _conv("b", 8, 8, padding=(1, 1)), Relu("s"),
                     _conv("c", 8, 1, padding=(1, 1))),
    "one convolution": (_conv("a", 3, 2),),
    "relu last": (_conv("a", 3, 5), Relu("r"), _conv("b", 5, 4), Relu("s")),
    "two relus last": (_conv("a", 3, 5), Relu("r"), Relu("s")),
    "relu first": (Relu("q"), _conv("a", 3, 5), Relu("r"), _conv("b", 5, 2)),
    "two relus first": (Relu("p"), Relu("q"), _conv("a", 3, 5), Relu("r"), _conv("b", 5, 2)),
    "two relus": (_conv("a", 3, 5), Relu("r"), Relu("s"), _conv("b", 5, 2)),
    "three relus": (_conv("a", 3, 5), Relu("r"), Relu("s"), Relu("t"), _conv("b", 5, 2), Relu("u")),
    "no relu": (_conv("a", 3, 5), _conv("b", 5, 4), _conv("c", 4, 2)),
    "convolution, convolution, relu": (_conv("a", 3, 5), _conv("b", 5, 4), Relu("r"), _conv("c", 4, 2)),
    "no bias": (_conv("a", 3, 5, bias=False), Relu("r"), _conv("b", 5, 4), Relu("s"), _conv("c", 4, 2, bias=False)),
    "strides": (_conv("a", 3, 6, stride=(2, 1), padding=(1, 2)), Relu("r"), _conv("b", 6, 4, (2, 3), stride=(1, 3)),
                Relu("s"), _conv("c", 4, 5, (1, 1), stride=(2, 2))),
    "groups": (_conv("a", 3, 6, padding=(1, 1), groups=3), Relu("r"),
               _conv("b", 6, 6, (5, 3), padding=(3, 2), groups=6), Relu("s"),
               _conv("c", 6, 4, dilation=(2, 3), padding=(2, 3), groups=2)),
    "im2col": (_conv("a", 3, 6), Relu("r"), _conv("b", 6, 5, stride=(5, 4), padding=(2, 3)), Relu("s"),
               _conv("c", 5, 2, (1, 1))),
}
ALL_NETWORKS = pytest.mark.parametrize("network", NETWORKS)


def networks(model: Model, dtype: str = "float32", device: str = "cpu") -> tuple[bridge.Network, bridge.Network]:
    """A network that keeps all activations, and one that keeps none: the same weights."""
    rng = np.random.default_rng(5)
    plain, efficient = (bridge.Network(model, dtype, device, keep_activations=keep) for keep in (True, False))
    for name, values in plain.parameters.items():
        values[...] = rng.normal(size=values.shape) / 3
        efficient.parameters[name][...] = values
    return plain, efficient


def batch(model: Model, shape: tuple[int, int, int, int], dtype: str, seed: int) -> tuple[Array, Array]:
    """Random input and target."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape).astype(dtype)
    for layer in model.layers:
        shape = layer.output_shape(shape)
    return x, rng.normal(size=shape).astype(dtype)


def assert_same_gradients(plain: bridge.Network, efficient: bridge.Network, x: Array) -> None:
    """Equal to the bit, on the device cpu as far as sums over pixels in another order can be."""
    bounds = order_bounds(plain, x)
    for name, values in plain.gradients.items():
        differences = np.abs(values.astype(np.float64) - efficient.gradients[name])
        assert np.all(differences <= bounds[name]), name
        assert values.any(), name


def order_bounds(net: bridge.Network, x: Array) -> dict[str, Array]:
    """For each gradient of a plain network after `backward`: how far two orders of its sum can lie apart.

    Of biases, which are summed in float64: the rounding to the dtype, and that of such sums. Of weights on the device
    cpu, whose lanes (4 at least) sum what they have of at most 24576 pixels in the dtype: n u times the sum of the
    terms' absolute values, twice (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). The plain loops sum in
    one order only.
    """
    bounds, inputs = {}, np.abs(x).astype(np.float64)
    for layer in net.model.layers:
        if isinstance(layer, Conv2d):
            terms = np.abs(net.output_gradient(layer.name)).astype(np.float64)
            weight = net.parameters[f"{layer.name}.weight"].astype(np.float64)
            _, most, _ = bridge.conv2d_backward(
                terms, inputs, weight, layer.stride, layer.padding, layer.dilation, layer.groups,
                output_mask=(False, True, False), device="naive")
            n = min(terms[:, 0].size, 8192) + 8 if net.device == "cpu" else 0
            bounds[f"{layer.name}.weight"] = 2 * n * np.finfo(x.dtype).eps / 2 * most
            bias = net.gradients.get(f"{layer.name}.bias")
            if bias is not None:
                sums = terms[:, 0].size * 2.0**-52 * terms.sum((0, 2, 3))
                bounds[f"{layer.name}.bias"] = np.spacing(np.abs(bias)) + sums
        inputs = np.abs(net.output(layer.name)).astype(np.float64)
    return bounds
