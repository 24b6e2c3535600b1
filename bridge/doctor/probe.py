# SPDX-License-Identifier: MIT
"""A tiny step on a device, in integers: nothing is rounded, so one wrong bit is a fault.

Truth is plain loops over Python's integers. All sums stay below 2**8 (in units of their last bit), so that they are
exact with TF32, float16 and bfloat16 operands, too.
"""

from __future__ import annotations

import numpy as np

import bridge
from bridge.engine.arrays.transfer import to_device, to_host

Array = np.ndarray


def probe(device: str) -> str:
    """Convolution and, with full float32 products, one step of SGD on `device`; what was found, if it is right.

    Raises
    ------
    ValueError
        If a number is wrong; says which.
    bridge.BridgeError
        If the device cannot be used.

    Examples
    --------
    >>> probe("cpu")
    'exact: a 3x3 convolution, one training step'
    """
    _convolution(device)
    if "math=" in device and "math=fp32" not in device:
        return "exact: a 3x3 convolution"
    _step(device)
    return "exact: a 3x3 convolution, one training step"


def integers(shape: tuple[int, ...], first: int, largest: int) -> Array:
    """Return small integers of both signs without a pattern that a shift or a flip would keep."""
    count = int(np.prod(shape))
    numbers = (np.arange(count) * 7 + first) ** 2 % (2 * largest + 1) - largest
    return numbers.reshape(shape).astype(np.float32)


def correlated(x: Array, w: Array, b: Array) -> Array:
    """Return the truth of a convolution with padding 1, stride 1: a loop for each axis."""
    n, _, height, width = x.shape
    k, _, r, s = w.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))).astype(np.int64)
    y = np.zeros((n, k, height, width), np.int64)
    for i, o, p, q in np.ndindex(*y.shape):
        y[i, o, p, q] = np.sum(padded[i, :, p:p + r, q:q + s] * w[o].astype(np.int64)) + int(b[o])
    return y.astype(np.float32)


def _convolution(device: str) -> None:
    x, w, b = integers((2, 3, 5, 6), 1, 2), integers((4, 3, 3, 3), 2, 2), integers((4,), 3, 2)
    image, weight, bias = (to_device(one, device) for one in (x, w, b))
    found = to_host(bridge.conv2d(image, weight, bias, padding=1, device=device))
    _compare("convolution", found, correlated(x, w, b))


def _step(device: str) -> None:
    """A convolution and a ReLU, mean((y - t)**2) over 64 elements, and w - lr * gradient with lr = 1/2."""
    x, t = integers((1, 2, 4, 8), 1, 2), integers((1, 2, 4, 8), 4, 2)
    w, b = integers((2, 2, 3, 3), 2, 1), integers((2,), 3, 1)
    net = bridge.Network(bridge.Model((bridge.Conv2d("a", 2, 2, (3, 3), padding=(1, 1)), bridge.Relu("b"))),
                         device=device)
    net.parameters["a.weight"][...] = w
    net.parameters["a.bias"][...] = b
    loss = net.step(to_device(x, device), to_device(t, device), lr=0.5)

    z = correlated(x, w, b)
    difference = np.maximum(z, 0) - t
    dz = np.where(z > 0, difference * 2 / difference.size, 0)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    dw = np.zeros_like(w)
    for o, c, r, s in np.ndindex(*w.shape):
        dw[o, c, r, s] = np.sum(dz[0, o] * padded[0, c, r:r + 4, s:s + 8])
    _compare("loss", np.asarray(loss, np.float32), np.asarray(np.mean(difference**2), np.float32))
    _compare("new weights", to_host(net.parameters["a.weight"]), w - dw / 2)
    _compare("new bias", to_host(net.parameters["a.bias"]), b - dz.sum((0, 2, 3)) / 2)


def _compare(what: str, found: Array, right: Array) -> None:
    """Equal, and not NaN."""
    if found.shape != right.shape:
        raise ValueError(f"{what}: shape {found.shape}, right is {right.shape}")
    wrong = np.argwhere(~(found == right))
    if len(wrong):
        at = tuple(int(i) for i in wrong[0])
        raise ValueError(f"{what}: {len(wrong)} of {right.size} numbers are wrong; at {at} it is {found[at]:.9g}, "
                         f"right is {right[at]:.9g}")
