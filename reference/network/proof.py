# SPDX-License-Identifier: MIT
"""Proof that the layers of a module are all of it: both are run, and give the same to the bit.

The present parameters may hide what a forward does: a factor that begins with 1, a gate that begins with 0. So the
proof draws parameters and buffers at random. Mode and gradients hide, too: it runs in the module's modes and in those
of evaluation, with gradients, which must be the same, and without.

Both sides are the same calls of torch in the same order, on the same numbers: nothing is rounded in another way, and
what differs at all computes something else. It is the module's own element type that is proved, for autocast changes
float32 and leaves float64 alone. Layers that are written otherwise than the module calls them round otherwise: both
sides are computed in float64 then, and differ by less than CLOSE of the largest number of the output or buffer, or of
all gradients: one that is zero but for rounding, as of a bias before a normalisation, is noise on both sides.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from reference.errors import InputError, one_line
from reference.network.layers import Layers, as_pairs, real_type, run, to_type
from reference.network.modes import AlongTheLast, in_float64
from reference.network.outputs import only_output

Shape = tuple[int, ...]
#: Heights and widths that are tried: U-Nets want multiples of powers of 2; few pixels are fast
SIZES = tuple(size for n in (16, 32, 64, 128, 256) for size in ((n, n + n // 4), (n + n // 2, n)))
#: The shortest sides of volumes that are tried
SIDES = (4, 8, 16, 32)
#: Dimensions of images (n, c, h, w)
IMAGES = 4
GRADIENT = "the gradient of "
#: Rounding in float64 makes less of it, and so do those constants that torch's kernels have in float32 (1/6 of a
#: hardsigmoid); another computation makes far more
CLOSE = 1e-7
#: Where all is zero but for rounding
SMALLEST = 1e-3
#: Pixels that cost little
SMALL = 64 * 64


def sizes(fits: Callable[[int, int], bool], given: tuple[int, int]) -> list[tuple[int, int]]:
    """Return two small sizes of images that fit, or as many as there are among those that are tried.

    Parameters
    ----------
    fits : whether a model takes images of a height and width
    given : a size that it takes, which may be large

    Examples
    --------
    >>> sizes(lambda h, w: h % 32 == 0, (1024, 1024)), sizes(lambda h, w: w == 10, (4, 10))
    ([(32, 40), (64, 80)], [(4, 10), (8, 10)])
    """
    height, width = given
    most = max(height * width, SMALL)
    known = {given, (2 * height, width), (height, 2 * width), *SIZES}
    tried = sorted((one for one in known if one[0] * one[1] <= most), key=lambda one: (one[0] * one[1], one))
    return list(itertools.islice((one for one in tried if fits(*one)), 2)) or [given]


def volumes(fits: Callable[[int, int, int], bool], given: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Return two small sizes of volumes that fit and differ along each axis, or the one that is known to.

    Parameters
    ----------
    fits : whether a model takes volumes of a depth, height and width
    given : a size that it takes

    Examples
    --------
    >>> volumes(lambda d, h, w: d % 8 == 0, (32, 32, 32)), volumes(lambda d, h, w: d == 5, (5, 6, 7))
    ([(8, 16, 8), (16, 8, 16)], [(5, 6, 7)])
    """
    for side in SIDES:
        pair = [(side, 2 * side, side), (2 * side, side, 2 * side)]
        if all(fits(*one) for one in pair):
            return pair
    return [given]


@dataclass(frozen=True)
class Whole:
    """Which numbers of an input are integers.

    Attributes
    ----------
    below : of one input, all of whose numbers are: they are below this
    places : of several inputs where those begin and end that lie among real numbers, and what they are below
    """

    below: int = 0
    places: tuple[tuple[int, int, int], ...] = ()

    @property
    def dtype(self) -> torch.dtype | None:
        """Return the input's element type, where it is not the module's."""
        return torch.int64 if self.below else None


#: All are real numbers
REAL = Whole()


def prove(module: nn.Module, layers: Layers, shapes: Sequence[Shape], whole: Whole = REAL, *,
          evaluated: bool = True) -> None:
    """Refuse layers that do not give, to the bit, what the module gives.

    Parameters
    ----------
    module : nn.Module
        A copy on the CPU: its parameters, buffers and modes are changed.
    layers : of another copy; not modified
    shapes : of inputs
    whole : which numbers of an input are integers
    evaluated : in the modes of evaluation, too

    Raises
    ------
    InputError
        If the module fails on them, or gives something else; says what differs, and what may be the reason.
    """
    twin = _Twin(module, layers, whole)
    for mode in ("as it is", "in evaluation"):
        if mode == "in evaluation":
            if not evaluated or not any(part.training for part in module.modules()):
                return
            twin.evaluate()
        # Others for each shape: a limit that one draw does not reach, another does. And where a logarithm has made NaN
        # of it, positive numbers show what follows
        for shape in shapes:
            for positive in (False, True):
                twin.draw(positive)
                if twin.compare(shape, mode):
                    break


def _attributes(module: nn.Module) -> list[tuple[nn.Module, dict[str, Any]]]:
    """Lists and dictionaries in which a forward may keep something for its next call."""
    usual = vars(nn.Module())
    return [(part, {name: copy.copy(value) for name, value in vars(part).items()
                    if name not in usual and isinstance(value, (dict, list))}) for part in module.modules()]


@contextlib.contextmanager
def _kept(module: nn.Module) -> Iterator[list[tuple[nn.Module, dict[str, Any]]]]:
    """What a forward keeps for its next call is forgotten: parameters are others there."""
    kept = _attributes(module)
    try:
        yield kept
    finally:
        for part, values in kept:
            vars(part).update(values)


def _has_changed(before: list[tuple[nn.Module, dict[str, Any]]], module: nn.Module) -> bool:
    """Whether a list or a dictionary has other elements than before."""
    def elements(found: list[tuple[nn.Module, dict[str, Any]]]) -> list[Any]:
        return [(name, list(one) if isinstance(one, dict) else None,
                 [id(x) for x in (one.values() if isinstance(one, dict) else one)])
                for _, values in found for name, one in values.items()]

    return elements(before) != elements(_attributes(module))


class _Twin:
    """A module and its layers, with the same parameters, at random."""

    def __init__(self, module: nn.Module, layers: Layers, whole: Whole) -> None:
        self._whole = whole
        self._close = CLOSE if layers.rewritten else 0.0
        is_single = real_type(module) == torch.float32
        self._mode = in_float64 if layers.rewritten and is_single else contextlib.nullcontext
        module = to_type(module, torch.float64) if layers.rewritten else module
        values = dict(module.named_parameters())
        # The copies of the layers have the module's parameters, or views of them, and buffers of their own, which a run
        # may change
        shared: dict[int, nn.Parameter] = {}
        self._views: dict[str, nn.Parameter] = dict(values)
        for name, layer in layers:
            for part, one in layer.named_parameters():
                source = layers.source(name, part)
                if source not in values:
                    exact = getattr(one, "exact", one.detach())
                    shared[id(one)] = nn.Parameter(exact.double(), requires_grad=False)
                    continue
                if one.shape != values[source].shape:
                    pairs = as_pairs(values[source]).detach()
                    self._views[source] = nn.Parameter(pairs.view(one.shape), one.requires_grad)
                shared[id(one)] = self._views[source]
        self._module, self._layers = module, copy.deepcopy(layers, shared)
        if layers.rewritten:
            for _, layer in self._layers:
                for buffer in layer.buffers():
                    buffer.data = buffer.double() if buffer.is_floating_point() else buffer
        self._learned = {name: one for name, one in values.items() if one.requires_grad}
        none = torch.float64 if layers.rewritten else torch.float32
        self._dtype = real_type(module) if values else none
        self._generator = torch.Generator().manual_seed(0)
        self._positive, self._drawn = False, 0
        self._rewritten = layers.rewritten

    def evaluate(self) -> None:
        """Set both into the mode of evaluation."""
        self._module.eval()
        for _, layer in self._layers:
            layer.eval()

    def compare(self, shape: Shape, mode: str) -> bool:
        """Run both, with gradients and without; returns whether all of the output is a number."""
        x = self._input(shape)
        for gradients in (True, False):
            with self._mode(), _kept(self._module) as kept:
                expected = self._run(self._module, x, gradients, "the model", self._learned)
                if not gradients and _has_changed(kept, self._module):
                    self._check_repeated(x, expected["output"])
            found = self._run(lambda given: list(run(self._layers, given))[-1][1], x, gradients,
                              "the graph of the model's layers", {name: self._views[name] for name in self._learned})
            self._check_output(x, expected["output"], found["output"])
            expected |= dict(self._module.named_buffers())
            found |= {self._layers.source(name, part): one for name, layer in self._layers
                      for part, one in layer.named_buffers()}
            slopes = max((_largest(one) for name, one in expected.items() if name.startswith(GRADIENT)), default=0.0)
            for name, one in expected.items():
                size = slopes if name.startswith(GRADIENT) else _largest(one)
                # What no layer takes is no part of the forward
                if name in found and not _same(one, found[name], self._close * max(size, SMALLEST)):
                    raise InputError(_difference(name, mode, gradients, x))
        return not bool(found["output"].isnan().any())  # type: ignore[union-attr]

    def _check_repeated(self, x: torch.Tensor, first: torch.Tensor | None) -> None:
        """A cache gives the same again; a forward that counts its calls, or adds what it kept, does not."""
        buffers = {name: one.clone() for name, one in self._module.named_buffers()}
        for _ in range(2):
            found = self._run(self._module, x, False, "the model", self._learned)["output"]
            if not isinstance(found, torch.Tensor) or not _same(first, found, 0.0):
                raise InputError("the model's forward gives something else when it is called again: it keeps something "
                                 "in a list or a dictionary; supported is one that is the same in all its calls")
        with torch.no_grad():
            for name, one in self._module.named_buffers():
                one.copy_(buffers[name])

    def _check_output(self, x: torch.Tensor, expected: object, found: object) -> None:
        assert isinstance(found, torch.Tensor)
        if not isinstance(expected, torch.Tensor) or found.shape != expected.shape:
            gives = tuple(expected.shape) if isinstance(expected, torch.Tensor) else type(expected).__name__
            raise InputError(f"the model gives {gives} for the input {tuple(x.shape)}, and its layers "
                             f"{tuple(found.shape)}: they keep the first dimension, the images'")

    def _run(self, call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, gradients: bool, who: str,
             learned: dict[str, nn.Parameter]) -> dict[str, torch.Tensor | None]:
        """The output, and its gradients with respect to the input and all parameters that learn."""
        # The same masks of dropouts, and the same gradient of the output
        torch.default_generator.manual_seed(self._drawn)
        images = "images of {2}x{3} pixels" if x.dim() == IMAGES else "an input of the shape {0}"
        where = images.format(tuple(x.shape), *x.shape[1:])
        start = x.clone().requires_grad_(gradients and x.is_floating_point())
        # Of layers that are not the module's own. In the mode of inference operations made of others come whole
        drops = self._rewritten and any(isinstance(one, (nn.Dropout, nn.Dropout2d)) and one.training
                                        for _, one in self._layers)
        with torch.set_grad_enabled(gradients) if drops else torch.inference_mode(not gradients), (
                AlongTheLast() if drops else contextlib.nullcontext()):  # type: ignore[no-untyped-call]
            try:
                # What works in place cannot change where gradients begin
                output = only_output(call(start.clone()))
            except Exception as error:  # whatever a foreign forward() raises
                # A matrix product, as of vectors, that does not fit the rows of an image
                hint = " (example, or --shape of commands, says the shape of what is no image)" if (
                    x.dim() == IMAGES and "mat1" in str(error)) else ""
                raise InputError(f"{who} fails on {where}: {one_line(error)}{hint}") from error
        if not gradients or not isinstance(output, torch.Tensor):
            return {"output": output}
        names, values = ["the input"] * start.requires_grad + [*learned], [start] * start.requires_grad + [
            *learned.values()]
        if not output.requires_grad:
            return {"output": output, **{f"{GRADIENT}{name}": None for name in names}}
        try:
            # The same numbers in whatever order the output lies in memory. Given to grad itself, they would have torch
            # import its symbolic shapes
            upstream = torch.empty(output.shape, dtype=output.dtype)
            upstream.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
            grads = torch.autograd.grad((output * upstream).sum(), values, allow_unused=True)
        except RuntimeError as error:
            raise InputError(f"{who} fails in its backward pass on {where}: {one_line(error)}"
                             ) from error
        return {"output": output.detach(), **{f"{GRADIENT}{one}": None if grad is None else as_pairs(grad)
                                              for one, grad in zip(names, grads, strict=True)}}

    def _input(self, shape: Shape) -> torch.Tensor:
        if self._whole.below:
            return torch.randint(self._whole.below, shape, generator=self._generator)
        x = self._random(shape)
        for begin, end, below in self._whole.places:
            x[:, begin:end] = torch.randint(below, (shape[0], end - begin), generator=self._generator)
        return x

    def _random(self, shape: Shape) -> torch.Tensor:
        found = torch.empty(shape, dtype=self._dtype).uniform_(-2, 2, generator=self._generator)
        return found.abs_() if self._positive else found

    @torch.no_grad()
    def draw(self, positive: bool) -> None:
        """Parameters at random, of a size with which numbers grow neither large nor small from layer to layer; buffers
        from 0.5 to 1.5, as a variance is positive; counters stay. Inputs are drawn alike.
        """
        self._positive, self._drawn = positive, self._drawn + 1
        for one in map(as_pairs, self._module.parameters()):
            # Smaller ones of one dimension: a bias must not decide the signs of all that follows
            fan = one.numel() / max(one.shape[0], 1) if one.dim() > 1 else 4.0
            one.copy_(self._random(tuple(one.shape)) / max(fan, 1.0) ** 0.5)
        for name, buffer in self._module.named_buffers():
            if buffer.is_floating_point() and name not in self._layers.constants:
                buffer.uniform_(0.5, 1.5, generator=self._generator)
        values = dict(self._module.named_buffers())
        for name, layer in self._layers:
            for part, buffer in layer.named_buffers():
                # The forward's own constants stay
                buffer.copy_(values.get(self._layers.source(name, part), buffer))


def _same(one: torch.Tensor | None, other: torch.Tensor | None, close: float) -> bool:
    """To the bit, or but for rounding; of what a function is not defined for NaN is right."""
    if one is None or other is None:
        return one is other
    if close and one.is_floating_point():
        return one.dtype == other.dtype and torch.allclose(one, other.reshape(one.shape), rtol=0.0, atol=close,
                                                           equal_nan=True)
    return one.dtype == other.dtype and (
        torch.equal(one, other) or torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True))


def _largest(one: torch.Tensor | None) -> float:
    """Of all that are finite."""
    known = one[one.isfinite()] if one is not None else torch.zeros(0)
    return float(known.double().abs().max()) if known.numel() else 0.0


def _difference(name: str, mode: str, gradients: bool, x: torch.Tensor) -> str:
    if not gradients:
        reason = "its forward asks whether gradients are wanted (torch.is_grad_enabled)"
    elif mode == "in evaluation":
        reason = "its forward asks for the mode (self.training, or a dropout that never ends)"
    elif name.startswith(GRADIENT):
        reason = "its forward keeps gradients back (torch.no_grad), or changes them (torch.autograd.Function)"
    else:
        reason = ("its forward depends on values, changes a tensor in place that is used later, or computes in another "
                  "type (torch.autocast)")
    without = "" if gradients else " without gradients"
    return (f"the model's layers, one after the other, do not give what the model gives: {name} differs "
            f"{mode}{without}, for an input of the shape {tuple(x.shape)} and random parameters: {reason}")
