# SPDX-License-Identifier: MIT
"""The layers that a module consists of, whose outputs each takes, and layers of what torch has functions for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn
from torch.nn import functional

INPUT = "input"


#: The real numbers of which complex ones are made
REAL_OF = {torch.complex64: torch.float32, torch.complex128: torch.float64}


class Layers(list[tuple[str, nn.Module]]):
    """Layers with their dotted names in the module, in the order of their calls.

    Attributes
    ----------
    inputs : names of the layers whose outputs each takes, "input" for the model's; where none are given, each takes the
        one before
    sources : the module's names of parameters and buffers that have others here, by these (``conv2d.weight``)
    constants : the module's names of buffers of which only numbers are left
    rewritten : whether some are other operations than the module calls, which round in another way
    left_out : the module's names of running statistics that its forward changes and no layer has
    """

    def __init__(
        self, layers: Iterable[tuple[str, nn.Module]], inputs: dict[str, tuple[str, ...]] | None = None,
        sources: dict[str, str] | None = None, rewritten: bool = False, constants: frozenset[str] = frozenset(),
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(layers)
        names = [INPUT, *(name for name, _ in self)]
        self.inputs: dict[str, tuple[str, ...]] = inputs or {
            name: (before,) for before, name in itertools.pairwise(names)}
        self.sources, self.rewritten, self.constants = sources or {}, rewritten, constants
        self.left_out = left_out

    def changed(self, change: Callable[[str, nn.Module], nn.Module]) -> Layers:
        """Return the same graph of other layers."""
        return Layers([(name, change(name, layer)) for name, layer in self], self.inputs, self.sources, self.rewritten,
                      self.constants, self.left_out)

    def source(self, name: str, part: str) -> str:
        """Return the module's name of a layer's parameter or buffer; none of numbers that its forward makes."""
        return self.sources.get(f"{name}.{part}", f"{name}.{part}")


def real_type(module: nn.Module) -> torch.dtype:
    """Return the element type of a module's numbers, or of the parts of complex ones."""
    first = next((one.dtype for one in module.parameters()), torch.float32)
    return REAL_OF.get(first, first)


def as_pairs(value: torch.Tensor) -> torch.Tensor:
    """Return a complex parameter or buffer as the real one (..., 2) of the same memory; another one as it is."""
    if not value.is_complex():
        return value
    found = torch.view_as_real(value.detach())
    return nn.Parameter(found, value.requires_grad) if isinstance(value, nn.Parameter) else found


def to_type(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return a module with its real numbers, and the parts of complex ones, of another type."""
    found = module.to(dtype) if not any(one.is_complex() for one in module.parameters()) else (
        module.double() if dtype == torch.float64 else module.float())
    whole = next(one for one, of in REAL_OF.items() if of == dtype)
    for one in [*found.parameters(), *found.buffers()]:
        if one.is_complex():
            one.data = one.data.to(whole)
    return found


def run(layers: Layers, x: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the names and outputs of all layers; what no other layer takes is forgotten."""
    known = {INPUT: x}
    last_use = {one: name for name, _ in layers for one in layers.inputs[name]}
    for name, layer in layers:
        taken = layers.inputs[name]
        value = layer(*(known[one] for one in taken))
        if any(value is known[one] for one in taken):
            # What is multiplied by 1: its gradient is its own, not that of all who take the input
            value = value.view_as(value)
        for one in {one for one in taken if last_use[one] == name}:
            del known[one]
        known[name] = value
        yield name, value


class Add(nn.Module):
    """The sum of two tensors."""

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one + other


class Subtract(nn.Module):
    """The difference of two tensors."""

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one - other


class Multiply(nn.Module):
    """The product of each two elements."""

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one * other


class Divide(nn.Module):
    """The quotient of each two elements."""

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one / other


class Concat(nn.Module):
    """Tensors one behind the other along a dimension."""

    def __init__(self, dim: int = 1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return torch.cat(tensors, dim=self.dim)


class Matmul(nn.Module):
    """The matrix product of two tensors."""

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one @ other


class Reshape(nn.Module):
    """The numbers of each image in another shape; where it is `fixed`, they have it already.

    Each becomes several `images`, or so many one, where that is negative.
    """

    def __init__(self, shape: tuple[int, ...], fixed: bool = False, images: int = 1) -> None:
        super().__init__()
        self.shape, self.fixed, self.images = shape, fixed, images

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fixed and tuple(x.shape[1:]) != self.shape:
            raise ValueError(f"images of the shape {tuple(x.shape[1:])}, but the model was read at {self.shape}")
        images = x.shape[0] * self.images if self.images > 0 else x.shape[0] // -self.images
        return x.reshape(images, *self.shape)


class Transpose(nn.Module):
    """Two dimensions exchanged."""

    def __init__(self, dim0: int, dim1: int) -> None:
        super().__init__()
        self.dims = dim0, dim1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(*self.dims)


class Permute(nn.Module):
    """All dimensions in another order."""

    def __init__(self, dims: tuple[int, ...]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(self.dims)


class Slice(nn.Module):
    """Some indices of a dimension; a `stop` of `END` is the end."""

    END = 2**24

    def __init__(self, dim: int, start: int = 0, stop: int = END, step: int = 1) -> None:
        super().__init__()
        self.dim, self.start, self.stop, self.step = dim, start, stop, step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = slice(self.start, None if self.stop == self.END else self.stop, self.step)
        return x[(slice(None),) * (self.dim % x.ndim) + (chosen,)]


class Flip(nn.Module):
    """Dimensions backwards."""

    def __init__(self, dims: tuple[int, ...]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flip(self.dims)


class Roll(nn.Module):
    """Numbers some places on along dimensions, the last ones to the beginning."""

    def __init__(self, shifts: tuple[int, ...], dims: tuple[int, ...]) -> None:
        super().__init__()
        self.shifts, self.dims = shifts, dims

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.roll(self.shifts, self.dims)


class ConstantPad(nn.Module):
    """A number beside those of the last dimensions, or these without the outermost."""

    def __init__(self, pad: tuple[int, ...], value: float) -> None:
        super().__init__()
        self.pad, self.value = pad, value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.pad(x, self.pad, value=self.value)


class CircularPad(nn.Module):
    """Numbers of the opposite side beside those of the last dimensions."""

    def __init__(self, pad: tuple[int, ...]) -> None:
        super().__init__()
        self.pad = pad

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.pad(x, self.pad, "circular")


class Expand(nn.Module):
    """Dimensions of one number repeated, in each image; -1 is what a dimension has."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.expand(-1, *self.shape)


class Parameter(nn.Module):
    """The same numbers for each image, whatever the input is."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.weight = nn.Parameter(torch.zeros(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight.expand(x.shape[0], *self.shape)


class IndexSelect(nn.Module):
    """The numbers of some indices of a dimension."""

    MOST = 4096

    def __init__(self, dim: int, indices: tuple[int, ...]) -> None:
        super().__init__()
        self.dim, self.indices = dim, indices

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.index_select(self.dim, torch.tensor(self.indices, device=x.device))


class Embedding(nn.Embedding):
    """torch's, of whole numbers in an array of real ones; with a row of -1 all are learned."""

    def __init__(self, rows: int, width: int, padding_idx: int = -1) -> None:
        super().__init__(rows, width, None if padding_idx < 0 else padding_idx)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.long())


class GatherRows(nn.Module):
    """The rows of each image's table (n, rows, width) that its whole numbers choose; one row may have no gradient."""

    def __init__(self, padding_idx: int = -1) -> None:
        super().__init__()
        self.padding_idx = padding_idx

    def forward(self, table: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        at = x.long().reshape(x.shape[0], -1, 1).expand(-1, -1, table.shape[2])
        found = table.gather(1, at)
        return torch.where(at == self.padding_idx, found.detach(), found).reshape(*x.shape, table.shape[2])


class Attention(nn.Module):
    """Of queries, keys and values (n, ..., length, features or width); a scale of 0 is 1 / sqrt(features)."""

    def __init__(self, is_causal: bool = False, scale: float = 0.0) -> None:
        super().__init__()
        self.is_causal, self.scale = is_causal, scale

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal,
                                                       scale=self.scale or None)


class ComplexLinear(nn.Module):
    """What a complex matrix of each place makes of the channels: of (n, in_channels, places, 2), whose last dimension
    are real and imaginary parts, (n, out_channels, places, 2). The weight is (in_channels, out_channels, places, 2).
    """

    def __init__(self, in_channels: int, out_channels: int, places: int) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.places = in_channels, out_channels, places
        scale = 1 / math.sqrt(2 * in_channels)
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels, places, 2).uniform_(-scale, scale))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        products = torch.einsum("nip,iop->nop", torch.view_as_complex(x.contiguous()),
                                torch.view_as_complex(self.weight))
        return torch.view_as_real(products)


#: Of recurrent layers by their type
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


class Recurrent(nn.Module):
    """One direction of one layer of torch's `LSTM`, `GRU` or `RNN`, of what its weight_ih and bias_ih make of its input
    (n, times, gates * hidden_size); the last time comes first where it is the `reverse` one.
    """

    def __init__(self, kind: str, hidden_size: int, bias: bool = True, reverse: bool = False, relu: bool = False
                 ) -> None:
        super().__init__()
        self.kind, self.hidden_size, self.reverse, self.relu = kind, hidden_size, reverse, relu
        count = GATES[kind] * hidden_size
        self.weight = nn.Parameter(torch.zeros(count, hidden_size))
        self.bias = nn.Parameter(torch.zeros(count)) if bias else None

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        h = c = z.new_zeros(z.shape[0], self.hidden_size)
        found = []
        for t in reversed(range(z.shape[1])) if self.reverse else range(z.shape[1]):
            h, c = self._cell(z[:, t], functional.linear(h, self.weight, self.bias), h, c)
            found.append(h)
        return torch.stack(found[::-1] if self.reverse else found, 1)

    def _cell(self, z: torch.Tensor, product: torch.Tensor, h: torch.Tensor, c: torch.Tensor
              ) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and state of a time."""
        if self.kind == "gru":
            (r, u, n), (r_, u_, n_) = z.chunk(3, 1), product.chunk(3, 1)
            n = (n + (r + r_).sigmoid() * n_).tanh()
            return n + (u + u_).sigmoid() * (h - n), c
        if self.kind == "rnn":
            return (z + product).relu() if self.relu else (z + product).tanh(), c
        i, f, g, o = (z + product).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class Reduce(nn.Module):
    """One number of all along some dimensions: what a method of tensors gives, or of two things the first."""

    def __init__(self, kind: str, dim: tuple[int, ...], keepdim: bool) -> None:
        super().__init__()
        self.kind, self.dim, self.keepdim = kind, dim, keepdim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        method = getattr(x, self.kind)
        found: torch.Tensor = (method(self.dim[0], self.keepdim).values if self.kind in ("max", "min") else
                               method(self.dim, self.keepdim))
        return found


class MaskedDropout(nn.Module):
    """A dropout whose mask is given: 0 and 1, of the input's shape, of whole channels (n, c, 1, 1)."""

    def __init__(self, p: float, of_channels: bool) -> None:
        super().__init__()
        self.p, self.of_channels = p, of_channels
        self.mask = torch.ones(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.mask.to(x.dtype) / (1 - self.p))
