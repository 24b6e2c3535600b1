# SPDX-License-Identifier: MIT
"""Slices that are others: image i with image j, channel p with q, a tensor with another, and their combinations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.evidence.view import PER_NUMBER, Array, Seen, View
from bridge.judge.diagnosis.evidence.words import factor, listed, summed

#: Slices of an axis that are matched with each other, and elements by which
MOST_SLICES, PROBES = 256, 512
#: Slices that are combined by least squares, at most
MOST_MIXED = 64
#: Numbers of a tensor up to which its slices are matched
LARGE = 2**24
#: Distance over norm up to which slices are equal: rounding, but no other picture
SAME = 1e-3


def copies(view: View) -> Iterator[Seen]:
    """Yield other tensors that stand here, alone, times a factor, added or taken off."""
    shown = {"the right value": view.right, **view.operands, **view.others}
    for name, other in shown.items():
        if other is not view.right:
            x = other.reshape(-1)[view.at]
            if x.any():
                yield Seen(f"it is {name}", _names(name), view.rest(x))
                (slope,), rest = view.solve(x[:, None])
                yield Seen(f"it is {factor(slope)} times {name}", _names(name), rest, 1)
    yield from _sums(view, shown)


def _names(name: str) -> str:
    return f"the pointer or the name that is passed here: {name}"


def _sums(view: View, shown: dict[str, Array]) -> Iterator[Seen]:
    """Two tensors, or one and a constant, the best of all pairs; then three, the third on top of the best two."""
    columns = {name: x.reshape(-1)[view.at] for name, x in shown.items()} | {"1": np.ones(view.at.size)}
    columns = {name: x for name, x in columns.items() if x.any()}
    best: tuple[float, list[str], Array] = (np.inf, [], np.zeros(0))
    for i, one in enumerate(columns):
        for other in list(columns)[i + 1 :]:
            found, rest = view.solve(np.stack([columns[one], columns[other]], 1))
            if rest < best[0]:
                best = rest, [one, other], found
    if best[1]:
        for third in [name for name in columns if name not in best[1]]:
            names = [*best[1], third]
            found, rest = view.solve(np.stack([columns[name] for name in names], 1))
            if rest < 0.1 * best[0]:
                best = rest, names, found
        rest, names, found = best
        yield Seen(f"it is {summed(found, names)}", "what is added here, and with which factor", rest, len(names))


def moved(view: View) -> Iterator[Seen]:
    """Yield slices along one axis that stand in the place of others, of this tensor or of another."""
    if view.right.ndim == 1:
        yield from _numbers(view)
    for axis in range(view.right.ndim if view.right.size <= LARGE else 0):
        if not 1 < view.right.shape[axis] <= MOST_SLICES or view.right.ndim < 2:
            continue
        for name, other in {"the right values": view.right, **view.others}.items():
            yield from _matched(view, axis, name, other)


def _numbers(view: View) -> Iterator[Seen]:
    """Of one axis: each wrong number is a right one, which no other is near."""
    used = np.flatnonzero(view.wrong)
    if not used.size >= PER_NUMBER or view.right.size > MOST_SLICES:
        return
    off = np.abs(view.found[used, None] - view.right)
    source = off.argmin(1)
    near = np.maximum(2 * view.bound[used], 4e-7 * np.abs(view.found[used]))
    if (np.count_nonzero(off <= 10 * near[:, None], axis=1) == 1).all():
        predicted = view.right.copy()
        predicted[used] = view.right[source]
        yield Seen(_order(used, source, view.right.size, view.axes[0]),
                   f"the index of the {view.axes[0]} in loops and pointers", view.rest(predicted[view.at]))


def _matched(view: View, axis: int, name: str, other: Array) -> Iterator[Seen]:
    found, right = (np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1) for x in (view.found, other))
    used = view.used()
    # Elements where something is wrong: a part of a slice may be right
    mask = np.zeros([n for a, n in enumerate(view.right.shape) if a != axis], dtype=bool)
    mask[np.ix_(*(u for a, u in enumerate(used) if a != axis))] = True
    inside = np.flatnonzero(mask)
    if inside.size < PER_NUMBER:
        return
    probes = inside if inside.size <= PROBES else np.random.default_rng(0).choice(inside, PROBES, replace=False)
    a, b = found[:, probes][used[axis]], right[:, probes]
    size, cross = (b * b).sum(1), a @ b.T
    # Single numbers that are not 0 are multiples of each other
    if np.count_nonzero(a) < PER_NUMBER * len(a):
        return
    norm = (a * a).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(size > 0, cross / size, 0.0)
    near = np.abs(norm[:, None] - 2 * cross + size) / np.maximum(norm[:, None], 1e-300)
    scaled = np.abs(norm[:, None] - slope * cross) / np.maximum(norm[:, None], 1e-300)
    for left, times in ((near, False), (scaled, True)):
        source = left.argmin(1)
        if (left[np.arange(len(source)), source] > SAME**2)[norm > 0].any() or not norm.any():
            continue
        if name == "the right values" and (source == used[axis]).all():
            continue
        factors = slope[np.arange(len(source)), source] if times else np.ones(len(source))
        if np.ptp(factors) > SAME * np.abs(factors).max():
            continue
        predicted = np.zeros_like(view.f)
        order = np.full(view.right.shape[axis], -1)
        order[used[axis]] = source
        scale = np.zeros(view.right.shape[axis])
        scale[used[axis]] = factors
        place = list(view.place)
        place[axis] = order[view.place[axis]]
        predicted = scale[view.place[axis]] * other[tuple(place)]
        word = view.axes[axis]
        said = _order(used[axis], source, view.right.shape[axis], word)
        times_said = f", times {factor(float(factors[0]))}" if times else ""
        whose = "" if name == "the right values" else f" of {name}"
        yield Seen(f"{said}{whose}{times_said}", f"the index of the {word} in loops and pointers",
                   view.rest(predicted), 1 if times else 0)
        return


def _order(used: Array, source: Array, size: int, word: str) -> str:
    """Where slices come from, in words."""
    if np.unique(source).size == 1 and used.size > 1:
        return f"every wrong {word} holds what belongs to {word} {source[0]}"
    if used.size > 2:
        if (source == size - 1 - used).all():
            return f"{word}s are in reversed order"
        if np.ptp(source - used) == 0 and used[-1] - used[0] < used.size and 2 * abs(source[0] - used[0]) > size:
            return f"{word}s {used[0]} to {used[-1]} hold what belongs to {word}s {source[0]} to {source[-1]}"
        shift = (source - used) % size
        if np.unique(shift).size == 1:
            around = np.ptp(source - used) > 0
            by = int(shift[0]) if around else int(source[0] - used[0])
            by = by - size if by > size // 2 and around else by
            return (f"each {word} holds what belongs to the {word} {abs(by)} {'after' if by > 0 else 'before'} it"
                    f"{', around the end' if around else ''}")
        for step in (2, 4):
            if (source == used // step * step).all() or (source == used // step).all():
                return f"{word}s are repeated in groups of {step} (nearest neighbour)"
    pairs = [f"{word} {i} holds what belongs to {word} {j}" for i, j in zip(used[:4], source, strict=False) if i != j]
    more = ", ..." if used.size > 4 else ""
    return (", ".join(pairs) or f"each {word} holds the same {word}") + more


#: A mixing matrix has so many numbers that one which leaves more describes nothing
MIXED = 1e-3


def mixtures(view: View) -> Iterator[Seen]:
    """Yield slices that are combinations of right slices: the mixing matrix is solved for."""
    for axis, size in enumerate(view.right.shape):
        used = view.used()[axis]
        if view.right.ndim < 2 or not 1 < size <= MOST_MIXED or view.right.size > LARGE:
            continue
        found, right = (np.moveaxis(x, axis, 0).reshape(size, -1) for x in (view.found, view.right))
        rows = np.unique(np.ravel_multi_index(
            tuple(p for a, p in enumerate(view.place) if a != axis),
            tuple(n for a, n in enumerate(view.right.shape) if a != axis)))[:4096]
        fitted = np.random.default_rng(2).random(rows.size) < 0.5
        if min(np.count_nonzero(fitted), np.count_nonzero(~fitted)) < PER_NUMBER * size:
            continue
        given, wanted = right[:, rows].T, found[used][:, rows].T
        matrix = np.linalg.lstsq(given[fitted], wanted[fitted], rcond=1e-9)[0].T
        check = ~fitted
        error = float(np.linalg.norm(wanted[check] - given[check][:, used]))
        left = float(np.linalg.norm(wanted[check] - given[check] @ matrix.T))
        if not left <= MIXED * error:
            continue
        matrix = np.stack([_few(given, wanted[:, i], row) for i, row in enumerate(matrix)])
        matrix[np.abs(matrix) < 1e-4 * np.abs(matrix).max()] = 0
        if np.count_nonzero(matrix) > 0.75 * matrix.size and size > 3:
            said, more = f"each wrong {view.axes[axis]} is a combination of all {view.axes[axis]}s", ""
        else:
            more = "; ..." if used.size > 3 else ""
            said = "; ".join(f"{view.axes[axis]} {i} is {_sum(row, view.axes[axis])}"
                             for i, row in zip(used[:3], matrix, strict=False))
        yield Seen(said + more, f"what adds up different {view.axes[axis]}s",
                   left / error, int(np.count_nonzero(matrix)) + 1)


def _few(given: Array, wanted: Array, row: Array) -> Array:
    """The same combination of one or two slices, where there is one: right slices may depend on each other."""
    gram, cross, square = given.T @ given, given.T @ wanted, float(wanted @ wanted)
    i, j = np.triu_indices(len(cross), 1)
    determinant = gram[i, i] * gram[j, j] - gram[i, j] ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        a = (gram[j, j] * cross[i] - gram[i, j] * cross[j]) / determinant
        b = (gram[i, i] * cross[j] - gram[i, j] * cross[i]) / determinant
        left = square - a * cross[i] - b * cross[j]
    left[~np.isfinite(left) | (determinant <= 1e-10 * gram[i, i] * gram[j, j])] = np.inf
    best = int(left.argmin())
    sparse = np.zeros_like(row)
    sparse[i[best]], sparse[j[best]] = a[best], b[best]
    if float(np.linalg.norm(wanted - given @ sparse)) <= 3e-5 * square**0.5:
        return sparse
    return row


def _sum(row: Array, word: str) -> str:
    parts = [f"{factor(float(row[j]))} times {word} {j}" for j in np.flatnonzero(row)]
    if not parts:
        return "0"
    return " + ".join(parts) if len(parts) <= 4 else f"a sum over {word}s ({listed(parts)})"
