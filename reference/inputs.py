# SPDX-License-Identifier: MIT
"""Several inputs of a network, which lie one behind the other in one array (n, numbers)."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from reference.errors import InputError

Shape = tuple[int, ...]
#: Ways in which some of the inputs may be integers that are tried: those of four inputs
GUESSES = 16
#: The shapes of several inputs with the images, by their names or in the order of the module's arguments; or arrays
Several = Mapping[str, Any] | Sequence[Any]


@dataclass(frozen=True)
class Inputs:
    """Names and shapes of inputs, in the order in which they lie in an array.

    Attributes
    ----------
    names : of the arguments of the module's ``forward``
    shapes : of each for one image; () is one number
    whole : those that the module takes as integers, which lie in the array as real numbers: each is below a number,
        which is 0 where that is not known. None: it is not known which these are

    Examples
    --------
    >>> inputs = Inputs(("x", "t"), ((1, 2), ()))
    >>> packed = inputs.packed({"x": np.array([[[1.0, 2.0]], [[4.0, 5.0]]]), "t": np.array([3.0, 6.0])})
    >>> packed.tolist(), inputs.parts(packed)["t"].tolist()
    ([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [3.0, 6.0])
    """

    names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    whole: Mapping[str, int] | None = field(default=None, hash=False)

    def guesses(self) -> Iterator[Inputs]:
        """Yield these with what may be integers: what is known, else none of them, then one, then more.

        >>> [sorted(one.whole) for one in Inputs(("x", "t"), ((1,), ())).guesses()]
        [[], ['x'], ['t'], ['t', 'x']]
        """
        if self.whole is not None:
            yield self
            return
        for count in range(len(self.names) + 1):
            for chosen in itertools.combinations(self.names, count):
                yield replace(self, whole=dict.fromkeys(chosen, 0))

    @property
    def text(self) -> str:
        """Return the attribute ``inputs`` of a model in exchange files.

        >>> Inputs(("x", "t"), ((1, 2), ())).text
        'x=1,2 t='
        """
        return " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in zip(
            self.names, self.shapes, strict=True))

    @classmethod
    def of_text(cls, text: str) -> Inputs:
        """Return those of a text of a file.

        Raises
        ------
        InputError
            If it says something else.

        Examples
        --------
        >>> Inputs.of_text("x=1,2 t=")
        Inputs(names=('x', 't'), shapes=((1, 2), ()), whole=None)
        """
        found = [re.fullmatch(r"([^=]+)=((?:[0-9]+(?:,[0-9]+)*)?)", one) for one in text.split()]
        named = {one[1]: tuple(int(n) for n in one[2].split(",") if n) for one in found if one}
        if not named or len(named) < len(found) or not all(n > 0 for shape in named.values() for n in shape):
            raise InputError(f"inputs: {text[:200]!r}, expected names, each with =, and the numbers of its shape with "
                             "commas between them")
        return cls(tuple(named), tuple(named.values()))

    @property
    def numbers(self) -> int:
        """Return how many numbers one image has."""
        return sum(math.prod(one) for one in self.shapes)

    @property
    def places(self) -> dict[str, tuple[int, int]]:
        """Return where each begins and ends in an array."""
        ends = np.cumsum([math.prod(one) for one in self.shapes]).tolist()
        return dict(zip(self.names, zip([0, *ends[:-1]], ends, strict=True), strict=True))

    def packed(self, given: Any) -> Any:
        """Return several arrays (n, ...) as one, (n, numbers): a mapping by their names, or a sequence in order.

        Arrays of numpy, torch or cupy; one array is taken as it is.

        Raises
        ------
        InputError
            If one is missing, unknown or of another shape: names it.
        """
        if hasattr(given, "ndim"):
            if tuple(given.shape[-1:]) != (self.numbers,):
                raise InputError(f"input: shape {tuple(given.shape)}, expected (n, {self.numbers}), or several: "
                                 f"{', '.join(self.names)}")
            return given
        if isinstance(given, Mapping):
            values: list[Any] = [given.get(name) for name in self.names]
            more = [name for name in given if name not in self.names]
        else:
            values = [*given, *[None] * (len(self.names) - len(given))]
            more = [str(one) for one in range(len(self.names), len(values))]
        lost = [name for name, value in zip(self.names, values, strict=False) if value is None]
        if lost or more:
            raise InputError(f"inputs: {', '.join(lost) or 'none'} missing and {', '.join(more) or 'none'} unknown, "
                             f"expected {', '.join(self.names)}")
        count = next(iter(getattr(values[0], "shape", ())), None)
        for name, shape, value in zip(self.names, self.shapes, values, strict=True):
            found = tuple(getattr(value, "shape", ()))
            if count is None or found != (count, *shape):
                raise InputError(f"input '{name}': shape {found}, expected {('n' if count is None else count, *shape)}")
        flat = [value.reshape(count, -1) for value in values]
        return _joining(values[0])(flat, 1)

    def parts(self, packed: Any) -> dict[str, Any]:
        """Return each of an array (n, numbers), as a gradient of the input is, in its own shape."""
        return {name: packed[:, begin:end].reshape(packed.shape[0], *shape)
                for (name, (begin, end)), shape in zip(self.places.items(), self.shapes, strict=True)}


def _joining(like: Any) -> Callable[[Any, int], Any]:
    """Of arrays of that library."""
    library = type(like).__module__.partition(".")[0]
    if library == "torch":
        import torch

        return torch.cat
    if library == "cupy":
        import cupy

        return cupy.concatenate
    return np.concatenate


def of_example(forward: Callable[..., Any], example: Several) -> tuple[Inputs, int]:
    """Return the inputs of shapes with the images, or of arrays, and the number of images.

    Raises
    ------
    InputError
        If ``forward`` has no such arguments, or numbers of images differ.
    """
    taken = [one.name for one in inspect.signature(forward).parameters.values()
             if one.kind in (one.POSITIONAL_OR_KEYWORD, one.POSITIONAL_ONLY)]
    names = list(example) if isinstance(example, Mapping) else taken[:len(example)]
    given = list(example.values() if isinstance(example, Mapping) else example)
    shapes = [tuple(int(n) for n in getattr(one, "shape", one)) for one in given]
    if len(names) < len(shapes) or any(name not in taken for name in names):
        raise InputError(f"{len(shapes)} inputs ({', '.join(names)}), expected those that forward takes: "
                         f"{', '.join(taken)}")
    if not shapes or any(not one or one[0] != shapes[0][0] for one in shapes):
        raise InputError(f"inputs of the shapes {shapes}, expected (n, ...), the same n of each")
    return Inputs(tuple(names), tuple(one[1:] for one in shapes), whole_of(dict(zip(names, given, strict=True)))
                  ), shapes[0][0]


def whole_of(arrays: Mapping[str, Any]) -> dict[str, int] | None:
    """Return which arrays are of integers, and what those are below; None where they are shapes, which do not say it.

    >>> whole_of({"x": np.zeros(2), "word": np.array([3, 8])}), whole_of({"x": (2, 3)})
    ({'word': 9}, None)
    """
    if not all(hasattr(one, "dtype") for one in arrays.values()):
        return None
    return {name: max(int(one.max()) + 1, 0) if math.prod(one.shape) else 0 for name, one in arrays.items()
            if str(one.dtype).removeprefix("torch.").startswith(("int", "uint"))}


def is_several(example: Any) -> bool:
    """Return whether an example has the shapes of several inputs, or several arrays.

    >>> is_several((2, 3)), is_several([(2, 3), (2,)]), is_several({"x": (2, 3)}), is_several([np.zeros((2, 3))])
    (False, True, True, True)
    """
    return isinstance(example, Mapping) or (isinstance(example, Sequence) and any(
        isinstance(one, Sequence) or hasattr(one, "dtype") for one in example))
