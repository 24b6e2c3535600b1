# SPDX-License-Identifier: MIT
"""Proof that a module is a plain chain of Conv2d and ReLU, and the chain's description.

The proof is a run: hooks see every leaf module being called, and that each takes the very tensor, unchanged,
that the one before it returned. So nothing can happen between the layers that the description does not say.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from reference.errors import InputError, one_line


class Layers(list[tuple[str, nn.Module]]):
    """Layers with their dotted names in the module, in the order of their calls.

    Attributes
    ----------
    inputs : names of the layers whose outputs each takes, "input" for the model's; None: a chain
    """

    def __init__(
        self, layers: Iterable[tuple[str, nn.Module]], inputs: dict[str, tuple[str, ...]] | None = None
    ) -> None:
        super().__init__(layers)
        self.inputs = inputs

    def inputs_of(self, name: str) -> tuple[str, ...]:
        """Return the names of what a layer takes."""
        if self.inputs is not None:
            return self.inputs[name]
        names = ["input", *(one for one, _ in self)]
        return (names[names.index(name) - 1],)

    def changed(self, change: Callable[[str, nn.Module], nn.Module]) -> Layers:
        """Return the same graph of other layers."""
        return Layers([(name, change(name, layer)) for name, layer in self], self.inputs)

SUPPORTED = "supported is a plain chain of nn.Conv2d (zero padding) and nn.ReLU, each used once"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class ModelRunError(InputError):
    """The module cannot be run on the example, for instance because the image is too small for a kernel."""


def describe(module: nn.Module, example_input: torch.Tensor) -> Layers:
    """Return the layers of a module that is proved to be a plain chain.

    Parameters
    ----------
    module : nn.Module
        Not modified: the layers belong to a copy, in which no ReLU works in place.
    example_input : float32 or float64, shape (n, c, h, w)
        The module is run on it once, without gradients. Small is enough.

    Returns
    -------
    layers : list of (name, layer)
        In the order of the calls; names are those of ``named_modules()``.

    Raises
    ------
    InputError
        If the module is anything else than a chain; the message names the layer and what is supported.
    ModelRunError
        If the module fails on the example.
    """
    root = _private_copy(module)
    leaves = _leaves(root)
    check_parameters(root, leaves)
    if not any(isinstance(leaf, nn.Conv2d) for leaf in leaves.values()):
        raise InputError(f"the model has no nn.Conv2d: {SUPPORTED}")
    walk = _Walk(example_input)
    handles = [hook for name, leaf in leaves.items() for hook in walk.watch(name, leaf)]
    try:
        with torch.no_grad():
            output = root(example_input)
    except InputError:
        raise
    except Exception as error:  # whatever a foreign forward() raises
        size = "x".join(map(str, example_input.shape[2:]))
        raise ModelRunError(f"the model fails on an image of {size} pixels: {one_line(error)}") from error
    finally:
        for handle in handles:
            handle.remove()
    walk.finish(output, leaves)
    return Layers((name, leaves[name]) for name in walk.called)


def padding_of(name: str, conv: nn.Conv2d) -> list[int]:
    """Zero padding (height, width) in pixels on each side; words of torch turned into numbers."""
    if conv.padding_mode != "zeros":
        raise InputError(f"layer '{name}': padding_mode '{conv.padding_mode}' found, 'zeros' is supported")
    if conv.padding == "valid":
        return [0, 0]
    if conv.padding != "same":
        return [int(pad) for pad in conv.padding]
    both_sides = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
    if any(total % 2 for total in both_sides):
        raise InputError(
            f"layer '{name}': padding 'same' of a {conv.kernel_size[0]}x{conv.kernel_size[1]} kernel is "
            "not the same on both sides; numbers are supported"
        )
    return [total // 2 for total in both_sides]


def _private_copy(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:  # a foreign module decides what it raises
        raise InputError(f"the model cannot be copied: {one_line(error)}") from error


def _leaves(root: nn.Module) -> dict[str, nn.Module]:
    """Leaf modules of the private copy by name, checked one by one."""
    if not any(True for _ in root.children()):
        raise InputError(
            f"the model is a single {type(root).__name__} without a name: put it into nn.Sequential "
            "or a class of your own"
        )
    leaves = {}
    for name, leaf in root.named_modules():
        if any(True for _ in leaf.children()):
            continue
        # Exactly these types: a subclass may compute something else.
        if type(leaf) not in (nn.Conv2d, nn.ReLU):
            raise InputError(f"layer '{name}' is {type(leaf).__name__}: {SUPPORTED}")
        if not NAME.fullmatch(name) or name == "input":
            raise InputError(
                f"layer '{name}': a name has 1 to 64 letters, digits, '_', '.', '-', does not start with "
                "'.' or '-', and is not 'input'"
            )
        if leaf._backward_hooks or leaf._backward_pre_hooks:
            raise InputError(f"layer '{name}' has backward hooks: {SUPPORTED}")
        if isinstance(leaf, nn.ReLU):
            leaf.inplace = False  # the un-reduced output before it would be lost
        else:
            padding_of(name, leaf)
        leaves[name] = leaf
    return leaves


def check_parameters(root: nn.Module, leaves: dict[str, nn.Module]) -> None:
    owner: dict[int, str] = {}
    for name, leaf in leaves.items():
        for part, parameter in leaf.named_parameters():
            shared = owner.setdefault(id(parameter), name)
            if shared != name:
                raise InputError(f"layers '{shared}' and '{name}' share their {part}: {SUPPORTED}")
            if not bool(torch.isfinite(parameter).all()):
                raise InputError(f"layer '{name}': {part} has values that are not finite")
    for name, parameter in root.named_parameters():
        if id(parameter) not in owner:
            raise InputError(f"parameter '{name}' belongs to no layer: {SUPPORTED}")


class _Walk:
    """Follows one tensor through the module, from call to call."""

    def __init__(self, start: torch.Tensor) -> None:
        self.called: list[str] = []
        self._source = "the model's input"
        self._pass_on(start)

    def watch(self, name: str, leaf: nn.Module) -> list[torch.utils.hooks.RemovableHandle]:
        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if name in self.called:
                raise InputError(f"layer '{name}' is used twice: {SUPPORTED}")
            self._expect([*args, *kwargs.values()], f"layer '{name}' does not take")
            self.called.append(name)

        def after(_: nn.Module, __: tuple[Any, ...], ___: dict[str, Any], output: torch.Tensor) -> None:
            self._replay(name, leaf, output)
            self._source = f"layer '{name}'"
            self._pass_on(output)

        return [
            leaf.register_forward_pre_hook(before, with_kwargs=True),
            leaf.register_forward_hook(after, with_kwargs=True),
        ]

    def finish(self, output: object, leaves: dict[str, nn.Module]) -> None:
        for name in leaves:
            if name not in self.called:
                raise InputError(f"layer '{name}' is never used: {SUPPORTED}")
        self._expect([output], "the model's output is not")

    def _pass_on(self, tensor: torch.Tensor) -> None:
        self._tensor, self._copy, self._version = tensor, tensor.clone(), tensor._version

    def _expect(self, values: list[object], complaint: str) -> None:
        # Identity alone would miss what happens in place between two layers: hence version and values.
        same = len(values) == 1 and values[0] is self._tensor
        if not same or self._tensor._version != self._version or not torch.equal(self._tensor, self._copy):
            raise InputError(f"{complaint} the unchanged result of {self._source}: {SUPPORTED}")

    def _replay(self, name: str, leaf: nn.Module, output: torch.Tensor) -> None:
        """A layer must compute what its description says: a hook or a replaced forward() may not."""
        if isinstance(leaf, nn.Conv2d):
            expected = functional.conv2d(
                self._copy,
                leaf.weight,
                leaf.bias,
                leaf.stride,
                tuple(padding_of(name, leaf)),
                leaf.dilation,
                leaf.groups,
            )
        else:
            expected = functional.relu(self._copy)
        scale = float(expected.abs().max()) if expected.numel() else 0.0
        same = isinstance(output, torch.Tensor) and output.shape == expected.shape
        if not same or not torch.allclose(output, expected, rtol=0.0, atol=1e-4 * scale):
            raise InputError(
                f"layer '{name}' does not compute what a {type(leaf).__name__} computes (a hook?)"
            )
