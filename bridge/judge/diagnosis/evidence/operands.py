# SPDX-License-Identifier: MIT
"""What a wrong operation was given: operands that are other tensors, or that its result betrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.criteria import is_cross_entropy, target_of
from bridge.judge.diagnosis.evidence.view import AXES, PER_NUMBER, Array, Seen, View
from bridge.judge.diagnosis.evidence.words import counting, factor, factors, indices
from bridge.judge.diagnosis.faults.output_faults import axis_names
from bridge.judge.diagnosis.predictions.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.predictions.elementwise import LossGradient, ReluBackward
from bridge.judge.diagnosis.predictions.formulas import Criterion
from bridge.judge.diagnosis.predictions.hypothesis import with_layer
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.records import NEARLY

#: Elements of a convolution to which a kernel is fitted, and the largest kernel that is
PIXELS, LARGEST = 3000, 600
#: An input is solved for where it has so few pixels times filters, and most of the result is wrong; iterations, and
#: what may be left of the error of filters that it was not fitted to
PIXELS_OF_INPUT, MOST, ITERATIONS, LEFT = 2**17, 0.5, 200, 0.01
#: Numbers of an operand, and products of a filter gradient, up to which other operands are tried
MANY, COSTLY = 2**21, 2**26
#: Images times rows whose parts of a filter gradient are told apart
MOST_BLOCKS = 256
#: Names of operands in the sentence
SAID = {"x": "the input", "dz": "dz", "y": "the output y", "z": "z", "da": "da", "source": "what the mask is made of"}


def swapped(view: View, case: Case, tensors: dict[str, Array]) -> Iterator[Seen]:
    """Yield the operation with another tensor of the file in place of an operand."""
    for operand, said in SAID.items():
        given = getattr(case.right, operand, None)
        if not isinstance(given, Predicted) or _costly(case.right):
            continue
        for name, other in tensors.items():
            if other.shape == given.value.shape and not np.array_equal(other, given.value):
                predicted = case.right.replaced(**{operand: Predicted(other)}).at(view.at)
                yield Seen(f"it is what {name} gives in place of {said}", f"what is passed as {said}: {name}?",
                           view.rest(predicted))


def recovered(view: View, case: Case, tensors: dict[str, Array]) -> Iterator[tuple[str, View]]:
    """Yield operands that the result betrays beside the right ones, with the words that lead to them."""
    right = case.right
    if isinstance(right, LossGradient):
        used = right.y.value - view.found / (2 * right.scale)
        # What y - t has lost
        error = 4e-7 * (np.abs(right.y.value) + np.abs(right.target)) + view.bound / (2 * right.scale)
        axes = AXES[axis_names(used.shape, case.name)]
        yield "the target", View(used, right.target, error, axes, _same(tensors, right.target))
    elif isinstance(right, Criterion) and right.gradient and is_cross_entropy(right):
        used = target_of(right, view.found)
        error = 1e-6 + view.bound / right.scale
        axes = AXES[axis_names(used.shape, case.name)]
        yield "the target", View(used, right.target, error, axes, _same(tensors, right.target))
    elif isinstance(right, ReluBackward):
        da, mask = right.da.value, (right.source.value > 0).astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            used = np.where(da != 0, view.found / da, mask)
        masks = {f"the mask of {name}": (x > 0).astype(float) for name, x in _same(tensors, mask).items()}
        axes = AXES[axis_names(used.shape, case.name)]
        yield "the mask", View(used, mask, np.full(1, 1e-6), axes, masks, {"z": right.source.value})
    elif case.updating is not None:
        rule, w, lr = case.updating, case.updating.weights[-1], case.updating.settings.lr
        if lr:
            others = {f"the gradient of {name}": x for name, x in rule.others.items()}
            others |= {"the weights": w, "the sign of the weights": np.sign(w), "this gradient": rule.gradients[-1]}
            if len(rule.gradients) > 1:
                others["the gradient of the step before"] = rule.gradients[-2]
                others["the weights of the step before"] = rule.weights[-2]
            # Numbers as long as the weights have so many digits
            error = view.bound / lr + 2.0**-23 * np.abs(w) / lr
            used, right_one = ((w - x) / lr for x in (view.found, view.right))
            yield "the step (w - w')/lr", View(used, right_one, error, view.axes, others)
    elif isinstance(right, Forward | Data):
        yield from _kernels(view, case, right, tensors)
        if isinstance(right, Forward):
            yield from _inputs(view, right, tensors)


def changed(view: View, case: Case) -> Iterator[Seen]:
    """Yield the operation with an operand that went through a change first."""
    for operand in ("x", "dz"):
        given = getattr(case.right, operand, None)
        if not isinstance(given, Predicted) or given.value.size > MANY or _costly(case.right):
            continue
        for said, change in CHANGES.items():
            with np.errstate(all="ignore"):
                other = change(given.value)
            if other.shape == given.value.shape and np.isfinite(other).all() and not np.array_equal(other, given.value):
                predicted = case.right.replaced(**{operand: Predicted(other)}).at(view.at)
                rest = view.rest(predicted)
                if said == "0":
                    yield Seen("it is the bias alone", "whether the sum of this part is ever computed", rest)
                    continue
                yield Seen(f"it is what {SAID[operand]} gives, if it is {said}",
                           f"what is done to {SAID[operand]} before", rest)


def proportional(view: View, case: Case) -> Iterator[Seen]:
    """Yield a convolution whose input is multiplied by a number, and one is added to it; the bias is not."""
    right = case.right
    if not isinstance(right, Forward):
        return
    shift = 0.0 if right.b is None else right.b[view.place[1]]
    ones = right.replaced(x=Predicted(np.ones_like(right.x.value)), b=None).at(view.at)
    for columns in (np.stack([view.r - shift], 1), np.stack([view.r - shift, ones], 1)):
        numbers = columns.shape[1]
        chosen = view.fitted
        if np.count_nonzero(chosen) < PER_NUMBER * numbers:
            return
        fit = np.linalg.lstsq(columns[chosen], (view.f - shift)[chosen], rcond=1e-9)[0]
        said = f"multiplied by {factor(fit[0])}" if abs(fit[0] - 1) > 1e-6 else ""
        if numbers == 2:
            said = f"{said}{' and ' if said else ''}{factor(abs(fit[1]))} is {'added' if fit[1] > 0 else 'taken off'}"
        if said:
            yield Seen(f"it is what the input gives, if it is {said}" if numbers == 1 else
                       f"it is what the input gives, if {'it is ' if said[0] == 'm' else ''}{said}",
                       "how the input is scaled before it is used, or the kernel", view.rest(columns @ fit + shift,
                                                                                             numbers), numbers)


def _costly(right: object) -> bool:
    return isinstance(right, Filter) and right.products > COSTLY


def _standard(x: Array, axes: tuple[int, ...]) -> Array:
    return (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)


def _unit(x: Array, axes: tuple[int, ...]) -> Array:
    low, high = x.min(axes, keepdims=True), x.max(axes, keepdims=True)
    return (x - low) / (high - low)


def _limited(most: float, x: Array) -> Array:
    return np.clip(x, -most, most)


#: What may happen to images before they are used
CHANGES: dict[str, Callable[[Array], Array]] = {
    "0": np.zeros_like,
    "normalised to mean 0 and deviation 1": lambda x: _standard(x, (0, 1, 2, 3)),
    "normalised to mean 0 and deviation 1, each image": lambda x: _standard(x, (1, 2, 3)),
    "normalised to mean 0 and deviation 1, each channel": lambda x: _standard(x, (0, 2, 3)),
    "without its mean": lambda x: x - x.mean(),
    "without the mean of each image": lambda x: x - x.mean((1, 2, 3), keepdims=True),
    "without the mean of each channel": lambda x: x - x.mean((0, 2, 3), keepdims=True),
    "scaled to 0 .. 1": lambda x: _unit(x, (0, 1, 2, 3)),
    "scaled to 0 .. 1, each image": lambda x: _unit(x, (1, 2, 3)),
    "divided by its largest size": lambda x: x / np.abs(x).max(),
    "its absolute value": np.abs,
    "its square": np.square,
    "without its negative numbers": lambda x: np.maximum(x, 0),
    "with the sign changed": np.negative,
    "rounded to integers": np.rint,
    "cut down to integers": np.trunc,
    "1 minus it": lambda x: 1 - x,
    **{f"limited to {-c:g} .. {c:g}": partial(_limited, c) for c in (0.5, 1.0, 2.0, 3.0)},
    "limited to 0 .. 1": lambda x: np.clip(x, 0, 1),
    "turned upside down": lambda x: x[:, :, ::-1],
    "mirrored left to right": lambda x: x[..., ::-1],
    "turned by 180 degrees": lambda x: x[:, :, ::-1, ::-1],
    "transposed": lambda x: x.swapaxes(2, 3),
    "with rows and columns at half the resolution (each pixel twice)":
        lambda x: x[:, :, np.arange(x.shape[2]) // 2 * 2][..., np.arange(x.shape[3]) // 2 * 2],
    **{f"moved by {abs(by)} {'down' if by > 0 else 'up'}, around the border": partial(np.roll, shift=by, axis=2)
       for by in (-2, -1, 1, 2)},
    **{f"moved by {abs(by)} to the {'right' if by > 0 else 'left'}, around the border":
       partial(np.roll, shift=by, axis=3) for by in (-2, -1, 1, 2)},
    "that of the image before": lambda x: np.roll(x, 1, 0),
    "that of the next image": lambda x: np.roll(x, -1, 0),
    "that of the first image": lambda x: np.broadcast_to(x[:1], x.shape),
    "the mean of all images": lambda x: np.broadcast_to(x.mean(0, keepdims=True), x.shape),
    "that of the channel before": lambda x: np.roll(x, 1, 1),
    "that of the next channel": lambda x: np.roll(x, -1, 1),
    "that of the first channel": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "the mean of all channels": lambda x: np.broadcast_to(x.mean(1, keepdims=True), x.shape),
    "without every second column": lambda x: x * (np.arange(x.shape[3]) % 2 == 0),
    "without every second row": lambda x: x * (np.arange(x.shape[2]) % 2 == 0)[:, None],
}


def padded(view: View, case: Case) -> Iterator[Seen]:
    """Yield an image that goes on beyond its border with a number that is solved for."""
    right = case.right
    if not isinstance(right, Forward | Filter) or not any(right.layer.padding):
        return
    ones = Predicted(np.ones_like(right.x.value))
    if isinstance(right, Forward):
        inside = right.replaced(x=ones, b=None).at(view.at)
        outside = right.w.sum((1, 2, 3))[view.place[1]] - inside
    else:
        if _costly(right):
            return
        outside = right.dz.value.sum((0, 2, 3))[view.place[0]] - right.replaced(x=ones).at(view.at)
    square = float(outside[view.fitted] @ outside[view.fitted])
    if square > 0:
        value = float(outside[view.fitted] @ (view.f - view.r)[view.fitted]) / square
        yield Seen(f"it is what an image gives that goes on with {factor(value)} beyond its border, in place of 0",
                   "the value with which images are padded", view.rest(view.r + value * outside, 1), 1)


def _same(tensors: dict[str, Array], other: Array) -> dict[str, Array]:
    return {name: x for name, x in tensors.items() if x.shape == other.shape and not np.array_equal(x, other)}


def _inputs(view: View, right: Forward, tensors: dict[str, Array]) -> Iterator[tuple[str, View]]:
    """The input by which every second filter gives what was found, where the other filters confirm it."""
    x, layer = right.x.value, right.layer
    half = layer.out_channels // 2
    several = half * view.right[0, 0].size >= 2 * x[0].size
    if layer.groups != 1 or not several or x.size * layer.out_channels > PIXELS_OF_INPUT or view.wrong.mean() < MOST:
        return
    b = np.zeros(layer.out_channels) if right.b is None else right.b
    z = view.found - b[:, None, None]

    def part(chosen: slice) -> tuple[Forward, Data]:
        one = replace(layer, out_channels=right.w[chosen].shape[0], bias=False)
        shape = (z.shape[0], one.out_channels, *z.shape[2:])
        given = Predicted(np.zeros(shape))
        return (right.replaced(shape=shape, layer=one, w=right.w[chosen], b=None),
                Data(x.shape, one, given, right.w[chosen]))

    forward, back = part(slice(0, None, 2))
    used = _least_squares(forward, back, z[:, ::2], x)
    other = part(slice(1, None, 2))[0]
    left = np.linalg.norm(other.replaced(x=Predicted(used)).values() - z[:, 1::2])
    error = np.linalg.norm((view.found - view.right)[:, 1::2])
    if left <= LEFT * error:
        size = float(np.abs(used).max())
        yield "the input", View(used, x, np.full(1, 2e-5 * size), AXES["nchw"], _same(tensors, x))


def input_in_use(view: View, case: Case) -> Iterator[Seen]:
    """Yield a filter gradient by the input that the layer's own output betrays, where that is another one."""
    right, graph = case.right, case.graph
    name = f"forward/{right.layer.name}" if isinstance(right, Filter) else ""
    z = graph.own(name) if name and graph.given(name) else None
    if z is None or not isinstance(right, Filter) or _costly(right):
        return
    made, x, layer = graph.operation(name), right.x.value, replace(right.layer, bias=False)
    if not isinstance(made, Forward) or z.size < 2 * x.size or x.size * layer.out_channels > PIXELS_OF_INPUT:
        return
    truth, error = made.full(graph.arithmetic), float(np.linalg.norm(z - made.values()))
    if (np.abs(z - truth.value) <= (0 if truth.error is None else truth.error)).all():
        return
    z = z if made.b is None else z - made.b[:, None, None]
    forward = made.replaced(layer=layer, b=None)
    used = _least_squares(forward, Data(x.shape, layer, Predicted(np.zeros(z.shape)), made.w), z, x)
    if np.linalg.norm(forward.replaced(x=Predicted(used)).values() - z) <= LEFT * error:
        yield Seen(f"it follows from the input that {name} shows to be in use, which is another one: one cause makes "
                   "both wrong", f"what is said of {name}", view.rest(right.replaced(x=Predicted(used)).at(view.at)))


def _least_squares(forward: Forward, back: Data, z: Array, start: Array) -> Array:
    """The x of the least |forward(x) - z|, by conjugate gradients on the normal equations."""
    x = start.copy()
    rest = z - forward.replaced(x=Predicted(x)).values()
    down = back.replaced(dz=Predicted(rest)).values()
    towards, square = down, float(np.vdot(down, down))
    end = 1e-18 * square
    for _ in range(ITERATIONS):
        if not square > end:
            break
        seen = forward.replaced(x=Predicted(towards)).values()
        step = square / float(np.vdot(seen, seen))
        x, rest = x + step * towards, rest - step * seen
        down = back.replaced(dz=Predicted(rest)).values()
        new = float(np.vdot(down, down))
        towards, square = down + new / square * towards, new
    return x


def _kernels(view: View, case: Case, right: Forward | Data, tensors: dict[str, Array]) -> Iterator[tuple[str, View]]:
    """The kernels (and the bias) by which the right operands give what was found."""
    fit = solved(view, right)
    if fit is not None and fit[2] <= NEARLY:
        w, b, left = fit
        size = float(np.abs(right.w).max())
        if (np.abs(w - right.w) > 1e-4 * size).any():
            yield "the kernel", View(w, right.w, np.full(1, 1e-4 * size), AXES["kcrs"], _same(tensors, right.w),
                                    left=left)
        elif b is not None and isinstance(right, Forward) and right.b is not None:
            error = np.full(1, 1e-4 * float(np.abs(right.b).max() + np.abs(b).max()))
            yield "the bias", View(b, right.b, error, AXES["k"], _same(tensors, right.b), left=left)


def solved(view: View, right: Forward | Data) -> tuple[Array, Array | None, float] | None:
    """Return the kernels and the bias that give what was found, and what they leave of the error; None where that would
    take too many numbers.
    """
    channel, layer = view.place[1], right.layer
    forward = isinstance(right, Forward)
    w = right.w.copy()
    b = right.b.copy() if isinstance(right, Forward) and right.b is not None else None
    errors = left = 0.0
    cg, kg = layer.in_channels // layer.groups, layer.out_channels // layer.groups
    for one in np.unique(channel)[:64]:
        at = view.at[channel == one][:PIXELS]
        patches = right._patches(at).reshape(at.size, -1)
        columns = np.concatenate([patches, np.ones((at.size, 1))], 1) if b is not None else patches
        if columns.shape[1] > LARGEST or at.size < 2 * PER_NUMBER * columns.shape[1]:
            return None
        y, half = view.found.reshape(-1)[at], np.arange(at.size) % 2 == 0
        found = np.linalg.lstsq(columns[half], y[half], rcond=1e-9)[0]
        errors += float(np.sum((y - view.right.reshape(-1)[at])[~half] ** 2))
        left += float(np.sum((y - columns @ found)[~half] ** 2))
        group = one // cg
        own = w[one] if forward else w[group * kg : (group + 1) * kg, one % cg]
        # What is multiplied with 0 alone shows nothing
        seen = patches.any(0).reshape(own.shape)
        kernel = np.where(seen, found[: patches.shape[1]].reshape(own.shape), own)
        if forward:
            w[one] = kernel
            if b is not None:
                b[one] = found[-1]
        else:
            w[group * kg : (group + 1) * kg, one % cg] = kernel
    return w, b, (left / errors) ** 0.5 if errors > 0 else np.inf


def wider(view: View, case: Case) -> Iterator[Seen]:
    """Yield a convolution whose taps lie elsewhere: the kernel is solved for in a window that is one pixel wider."""
    right = case.right
    if not isinstance(right, Forward | Data):
        return
    layer = right.layer
    for by in ((1, 1), (1, 0), (0, 1)):
        size = tuple((n - 1) * d + 1 + 2 * more
                     for n, d, more in zip(layer.kernel_size, layer.dilation, by, strict=True))
        padding = tuple(p + more for p, more in zip(layer.padding, by, strict=True))
        wide = with_layer(right, kernel_size=size, dilation=(1, 1), padding=padding)
        inner = tuple(slice(more, n - more, d) for n, d, more in zip(size, layer.dilation, by, strict=True))
        w = np.zeros((*right.w.shape[:2], *size))
        w[:, :, inner[0], inner[1]] = right.w
        fit = solved(view, wide.replaced(w=w))
        if fit is None:
            continue
        found, _, rest = fit
        found[np.abs(found) < 1e-3 * np.abs(found).max()] = 0
        channels = np.unique(view.place[1])
        used = found[channels] if isinstance(right, Forward) else found[:, channels % found.shape[1]]
        rows, columns = (np.flatnonzero(used.any(axis=(0, 1, other))) - more
                         for other, more in ((3, by[0]), (2, by[1])))
        numbers = int(np.prod(size)) * right.w.shape[1]
        reach = [list(range(0, (n - 1) * d + 1, d)) for n, d in zip(layer.kernel_size, layer.dilation, strict=True)]
        if [rows.tolist(), columns.tolist()] == reach:
            yield Seen("it is a convolution with the right window and another kernel: every tap is where it should be, "
                       "and the numbers of the kernel are others",
                       "the index into the kernel: the strides of its axes, the filter that is read", rest, numbers)
            return
        said = (f"it is a convolution whose taps reach rows {rows.tolist()} and columns {columns.tolist()}, "
                "counted from the first tap of the right kernel")
        yield Seen(said, "where the window of each output begins, the dilation, the taps of the kernel", rest, numbers)
        return


def terms(view: View, case: Case) -> Iterator[Seen]:
    """Yield sums in which images, or rows and columns of images, count more or less than once."""
    right = case.right
    images = getattr(right, "images", 0)
    if images is None and not _costly(right):
        given = right.y if hasattr(right, "y") else right.dz  # type: ignore[attr-defined]
        n = given.value.shape[0]
        if n <= 16:
            columns = np.stack([right.replaced(images=(i,)).at(view.at) for i in range(n)], 1)
            yield from _weights(view, columns, "image")
            yield from _left(view, case, n)
            if isinstance(right, Filter) and n <= 4:
                yield from _paired(view, right, n)
    if isinstance(right, Filter) and images is None and right.products <= 2**24:
        for axis, word in ((2, "row"), (3, "column")):
            n, size = right.dz.value.shape[0], right.dz.value.shape[axis]
            if size <= 64 and np.count_nonzero(view.fitted) >= PER_NUMBER * size:
                parts = np.stack([_lines(right, axis, i).reshape(n, -1)[:, view.at] for i in range(size)])
                yield from _weights(view, parts.sum(1).T, word)
                if n > 1 and n * size <= MOST_BLOCKS:
                    yield from _blocks(view, parts.swapaxes(0, 1), word)


def _left(view: View, case: Case, n: int) -> Iterator[Seen]:
    """The sums of some images of the step before, that were left in memory."""
    before = None if case.before is None or case.updating is not None else case.before.operation(case.name)
    if n < 2 or not isinstance(before, type(case.right)):
        return
    columns = np.stack([before.replaced(images=(i,)).at(view.at) for i in range(n)] + [view.r], 1)
    weights, rest = view.solve(columns)
    there = np.flatnonzero(np.abs(weights[:n]) > 0.1)
    if rest <= 0.1 and 0 < there.size < n and (np.abs(weights[there] - 1) < 0.1).all():
        rest = view.rest(view.r + columns[:, there].sum(1), n + 1)
        yield Seen(f"it is the right value plus the sum of {indices(there, n, 'image')} of the step before",
                   "what is cleared before it is added to: partial sums of some images are left", rest, n + 1)


def _lines(right: Filter, axis: int, i: int) -> Array:
    """What row or column i of dz gives, of each image."""
    only = np.zeros_like(right.dz.value)
    np.moveaxis(only, axis, 0)[i] = np.moveaxis(right.dz.value, axis, 0)[i]
    return np.stack([right.replaced(dz=Predicted(only), images=(image,)).values() for image in range(len(only))])


def _blocks(view: View, parts: Array, word: str) -> Iterator[Seen]:
    """Rows or columns of some images that count more or less than once; parts (image, row, element)."""
    n, size = parts.shape[:2]
    columns = parts.reshape(n * size, -1).T
    weights, rest = view.solve(columns)
    if not rest <= 0.1:
        return
    off = np.abs(weights - 1).reshape(n, size) > 0.1
    images, lines = np.flatnonzero(off.any(1)), np.flatnonzero(off.any(0))
    times = float(np.round(weights.reshape(n, size)[off].mean(), 1)) if off.any() else 1.0
    # One block, with one weight: that alone is said, and judged
    if not off[np.ix_(images, lines)].all() or images.size == n or lines.size == size or times == 1:
        return
    rest = view.rest(columns.sum(1) + (times - 1) * columns[:, off.reshape(-1)].sum(1), n * size)
    yield Seen(f"it is the sum in which {indices(lines, size, word)} of {indices(images, n, 'image')} "
               f"{counting(factor(times) if times else 0, many=True)}",
               f"how the sums of blocks of images and {word}s are put together: a block that is lost, or added twice",
               rest, n * size)


def _weights(view: View, columns: Array, word: str) -> Iterator[Seen]:
    n = columns.shape[1]
    exact = view.rest(columns.sum(1))
    weights, rest = view.solve(columns)
    # What is 0 everywhere may count as it likes
    off = np.flatnonzero((np.abs(weights - 1) > 2e-3) & columns.any(0))
    if not np.isfinite(rest) or not off.size or exact <= 0.5:
        return
    chosen = weights[off]
    same = np.ptp(chosen) <= 2e-3 * max(1.0, float(np.abs(chosen).max()))
    value = float(np.round(chosen.mean(), 3)) if same else 0.0
    times = 0 if same and abs(value) < 2e-3 else factor(value) if same else factors(np.round(chosen, 3))
    yield Seen(f"it is the sum in which {indices(off, n, word)} {counting(times, many=off.size > 1)}",
               f"the loop over {word}s: its bounds, a weight or a count that belongs to one {word}", rest, n)


def _paired(view: View, right: Filter, n: int) -> Iterator[Seen]:
    """Image i of dz with image j of the input."""
    pairs = [(i, j) for i in range(n) for j in range(n)]
    columns = np.stack([
        right.replaced(dz=Predicted(right.dz.value[[i]]), x=Predicted(right.x.value[[j]])).at(view.at)
        for i, j in pairs], 1)
    weights, rest = view.solve(columns)
    met = [f"{i} with {j}" for (i, j), weight in zip(pairs, weights, strict=True) if abs(weight) > 2e-3]
    if [one for one in met if one.split(" with ")[0] != one.split(" with ")[1]]:
        yield Seen(f"it is the sum of products of images of dz and of the input that do not belong together: "
                   f"{', '.join(met)}", "the index of the image in the filter gradient, of dz and of its input", rest,
                   n * n)


