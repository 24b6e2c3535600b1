# SPDX-License-Identifier: MIT
"""Is a convolution that somebody computed the right one? A random projection says so, at a fraction of the work.

A convolution is linear, so a weighted sum of its results is the convolution of a weighted sum, which needs no loop over
kernels for every pixel (R. Freivalds, Probabilistic machines can use less running time, IFIP 1977). Rows of results are
projected with random numbers v(q):

    sum_q y(k,p,q) v(q) = sum_crs w(k,c,r,s) sum_q x(c, p*stride + r*dilation - padding, q*stride + ...) v(q)

Each sum over q on the right is a product of an image row with one of s shifted vectors. Filter gradients are
projected over both channels. Every wrong element changes its projection, except with probability 0 over the choice of
v; what rounding may change is known: `SAFETY` * u * sqrt(n) times the sum of absolute values, which is bounded by
Euclidean norms.

Plain numpy, and no code in common with what is checked, nor with `bridge.judge.oracle.convolution`.
"""

from __future__ import annotations

import math

import numpy as np

from bridge.common.errors import OracleError
from bridge.common.parallel import in_order
from bridge.exchange.model import Conv2d

Array = np.ndarray

#: Unit roundoff of float64
ROUNDOFF = 2.0**-53
#: Times u*sqrt(n): right code stays far below, see `bridge.judge.oracle.step` for 9
SAFETY = 64.0
SEED = 19770808
#: Elements of a part of an image: about what a core's cache holds, and enough to let other threads work, which numpy
#: allows only while it makes more than some hundred results
PART = 1 << 18


@np.errstate(over="ignore", invalid="ignore")
def agrees_forward(x: Array, ws: list[Array], ys: list[Array], layer: Conv2d, what: str = "") -> bool:
    """Check ``y = conv2d(x, w)``, without bias, for each w.

    Parameters
    ----------
    x : float64, shape (c, h, w)
    ws : float64, each of the shape (k, c / groups, r, s)
    ys : float64, each of the shape (k, p, q)
    what : names the tensor in a message

    Returns
    -------
    bool
        False if that cannot be told, because something is not finite.

    Raises
    ------
    OracleError
        If one of `ys` is not that convolution.
    """
    v = _vector(ys[0].shape[2])
    rows = _rows(x, _spread(v, x.shape[2], layer))
    told = []
    for w, y in zip(ws, ys, strict=True):
        expected, size = _outputs(rows, w, y.shape[1], layer)
        terms = math.prod(w.shape[1:]) + x.shape[2]
        told.append(_compare(_results(y, v), expected, size * np.linalg.norm(v), terms, what))
    return all(told)


def _outputs(rows: tuple[Array, Array], w: Array, outputs: int, layer: Conv2d) -> tuple[Array, Array]:
    """Projected rows of the output (k, p) from those of the input, and a bound on the sums of absolute values."""
    (projected, norms), (k, cg, r, s) = rows, w.shape
    kg = k // layer.groups
    expected, limit = np.empty((k, outputs)), np.empty((k, outputs))
    at, inside = _places(norms.shape[1], outputs, r, layer, 0)
    for g in range(layer.groups):
        mine, theirs = slice(g * kg, (g + 1) * kg), slice(g * cg, (g + 1) * cg)
        # The rows that each tap meets, (c, r, p, s)
        met = projected[theirs][:, at] * inside[:, :, None]
        expected[mine] = w[mine].reshape(kg, -1) @ met.transpose(0, 1, 3, 2).reshape(cg * r * s, -1)
        size = norms[theirs][:, at] * inside
        limit[mine] = np.abs(w[mine]).sum(axis=3).reshape(kg, -1) @ size.reshape(cg * r, -1)
    return expected, limit


@np.errstate(over="ignore", invalid="ignore")
def agrees_data(dy: Array, w: Array, dx: Array, layer: Conv2d, what: str = "") -> bool:
    """Check that `dx` (c, h, w) is the gradient of ``conv2d(x, w)`` with respect to x, as `agrees_forward`."""
    v = _vector(dx.shape[2])
    projected, norms = _rows(dy, _gathered(v, dy.shape[2], layer))
    k, cg, r, s = w.shape
    kg = k // layer.groups
    expected, limit = np.zeros(dx.shape[:2]), np.zeros(dx.shape[:2])
    at, inside = _places(dx.shape[1], dy.shape[1], r, layer, 0)
    for g in range(layer.groups):
        mine, theirs = slice(g * kg, (g + 1) * kg), slice(g * cg, (g + 1) * cg)
        for i in range(r):
            taps = w[mine, :, i]
            met = projected[mine][:, inside[i]].transpose(0, 2, 1).reshape(kg * s, -1)
            expected[theirs, at[i, inside[i]]] += taps.transpose(1, 0, 2).reshape(cg, -1) @ met
            limit[theirs, at[i, inside[i]]] += np.abs(taps).sum(axis=2).T @ norms[mine][:, inside[i]]
    terms = kg * r * s + dx.shape[2]
    return _compare(_results(dx, v), expected, limit * np.linalg.norm(v), terms, what)


@np.errstate(over="ignore", invalid="ignore")
def agrees_filter(x: Array, dys: list[Array], dws: list[Array], layer: Conv2d, what: str = "") -> bool:
    """Check that each of `dws` (k, c / groups, r, s) is the gradient of ``conv2d(x, w)`` with respect to w, for a dy.

    Projected over both channels, x and dy are images of one channel, whose products are summed for every tap.
    """
    groups, (k, cg) = layer.groups, dws[0].shape[:2]
    t = _vector(x.shape[0]) / _estimated_sizes(x)
    mixed, size = _mixed(x, t, groups)
    # Not all that was computed can be told if one cannot
    told = []
    for dy, dw in zip(dys, dws, strict=True):
        z = _vector(k) / _estimated_sizes(dy)
        upstream, upstream_size = _mixed(dy, z, groups)
        expected = np.stack([_taps(mixed[g], upstream[g], layer) for g in range(groups)])
        grouped = dw.reshape(groups, k // groups, cg, *dw.shape[2:])
        found = np.einsum("gk,gc,gkcrs->grs", z.reshape(groups, -1), t.reshape(groups, -1), grouped)
        limit = np.broadcast_to((size * upstream_size)[:, None, None], found.shape)
        told.append(_compare(found, expected, limit, math.prod(dy.shape[1:]), what))
    return all(told)


def _estimated_sizes(x: Array) -> Array:
    """About the Euclidean norm of each channel, from some of its rows: with it, channels count the same."""
    found = np.sqrt(np.vecdot(x[:, ::16], x[:, ::16]).sum(axis=1))
    return np.where(found > 0, found, 1.0)


def _mixed(x: Array, t: Array, groups: int) -> tuple[Array, Array]:
    """sum_c t(c) x(c) of each group, (groups, h, w), and sum_c |t(c)| times the norm of x(c), (groups,)."""
    cg, (_, h, width) = x.shape[0] // groups, x.shape
    found = np.empty((groups, h, width))

    def part(rows: slice) -> Array:
        for g in range(groups):
            mine = slice(g * cg, (g + 1) * cg)
            np.matmul(t[mine], x[mine, rows].reshape(cg, -1), out=found[g, rows].reshape(-1))
        return np.vecdot(x[:, rows], x[:, rows]).sum(axis=1)

    step = max(1, PART // (x.shape[0] * width))
    squares = np.sum(in_order(part, [slice(i, min(h, i + step)) for i in range(0, h, step)]), axis=0)
    return found, (np.abs(t) * np.sqrt(squares)).reshape(groups, cg).sum(axis=1)


def _taps(x: Array, dy: Array, layer: Conv2d) -> Array:
    """Filter gradient of images of one channel, x (h, w) and dy (p, q): (r, s)."""
    r, s = layer.kernel_size
    rows, columns = (_places(x.shape[a], dy.shape[a], layer.kernel_size[a], layer, a) for a in (0, 1))

    def tap(place: tuple[int, int]) -> float:
        met = []
        for (at, inside), one, axis in zip((rows, columns), place, (0, 1), strict=True):
            outputs = np.flatnonzero(inside[one])
            if outputs.size == 0:
                return 0.0
            first, last = at[one, outputs[0]], at[one, outputs[-1]]
            met.append((slice(first, last + 1, layer.stride[axis]), slice(outputs[0], outputs[-1] + 1)))
        return float(np.einsum("hw,hw->", x[met[0][0], met[1][0]], dy[met[0][1], met[1][1]]))

    return np.array(in_order(tap, [(i, j) for i in range(r) for j in range(s)])).reshape(r, s)


def _vector(n: int) -> Array:
    """Random numbers of both signs, none of them small: an error in one element shows with at least half its size."""
    rng = np.random.default_rng([SEED, n])
    return rng.choice([-1.0, 1.0], n) * rng.uniform(0.5, 1.5, n)


def _places(n_in: int, n_out: int, taps: int, layer: Conv2d, axis: int) -> tuple[Array, Array]:
    """Input position of each tap and output, (taps, outputs), and whether it lies inside (else the position is 0)."""
    tap, output = np.arange(taps)[:, None], np.arange(n_out)[None]
    position = output * layer.stride[axis] + tap * layer.dilation[axis] - layer.padding[axis]
    inside = (position >= 0) & (position < n_in)
    return np.where(inside, position, 0), inside


def _spread(v: Array, width: int, layer: Conv2d) -> Array:
    """v(q) at the input positions that each tap meets, (s, w)."""
    taps = layer.kernel_size[1]
    at, inside = _places(width, v.size, taps, layer, 1)
    found = np.zeros((taps, width))
    for j in range(taps):
        found[j, at[j, inside[j]]] = v[inside[j]]
    return found


def _gathered(v: Array, outputs: int, layer: Conv2d) -> Array:
    """v at the input position that each tap and output meet, 0 outside, (s, q)."""
    at, inside = _places(v.size, outputs, layer.kernel_size[1], layer, 1)
    return v[at] * inside


def _rows(x: Array, vectors: Array) -> tuple[Array, Array]:
    """Products of all rows (c, h) with vectors (s, w): (c, h, s); and the Euclidean norm of each row, (c, h)."""
    found, norms = np.empty((x.shape[0], len(vectors), x.shape[1])), np.empty(x.shape[:2])

    def part(place: tuple[int, slice]) -> None:
        # BLAS is faster this way round, and with `dot` other threads may always work beside it
        found[place[0], :, place[1]] = np.dot(vectors, x[place].T)
        np.einsum("hw,hw->h", x[place], x[place], out=norms[place])

    step = max(1, PART // x.shape[2])
    in_order(part, [(c, slice(i, min(x.shape[1], i + step))) for c in range(x.shape[0])
                    for i in range(0, x.shape[1], step)])
    return found.swapaxes(1, 2), np.sqrt(norms)


def _results(y: Array, v: Array) -> Array:
    """Products of all rows (c, h) with one vector."""
    return np.stack(in_order(lambda channel: channel @ v, list(y)))


def _compare(found: Array, expected: Array, limit: Array, terms: int, what: str) -> bool:
    difference = np.abs(found - expected)
    allowed = SAFETY * ROUNDOFF * math.sqrt(terms) * limit + terms * np.finfo(np.float64).tiny
    if not (np.isfinite(difference).all() and np.isfinite(allowed).all()):
        return False
    if np.all(difference <= allowed):
        return True
    at = np.unravel_index(int(np.argmax(difference / allowed)), found.shape)
    raise OracleError(
        f"our own float64 kernel is wrong{f' in {what}' if what else ''}: its projection {tuple(map(int, at))} is "
        f"{found[at]:.17g}, expected {expected[at]:.17g} with at most {allowed[at]:.2g} of rounding. This is a fault "
        "of the oracle and says nothing about the candidate; CNN_ORACLE=numpy computes without that kernel"
    )
