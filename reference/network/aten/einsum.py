# SPDX-License-Identifier: MIT
"""Sums of products over letters, as torch.einsum has them: each pair of operands is one product of matrices.

Letters of a pair are of four kinds: those of both that stay are the images and batches of the product; those of both
that nothing takes any more are summed; the others are its rows and columns.

Source: torch.einsum, https://docs.pytorch.org/docs/stable/generated/torch.einsum.html
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reference.network.aten import image_axis, rules, shared
from reference.network.aten.writing import Stored, Tensor, UnsupportedError, Writer, shape_of


@dataclass(frozen=True)
class Lettered:
    """A tensor of images, with a letter for each of its other dimensions."""

    of: Tensor
    letters: str


def einsum(w: Writer, equation: str, operands: Sequence[Tensor | Stored], path: Any = None) -> Tensor:
    """Return the sum of products of tensors of images and of what all images share."""
    given, output = letters_of(equation, [len(shape_of(one)) for one in operands])
    images = {letters[one.axis] for letters, one in zip(given, operands, strict=True)
              if isinstance(one, Tensor) and one.images}
    if len(images) != 1 or not images <= set(output):
        raise UnsupportedError(f"{equation}: over the images, too; supported are the other dimensions")
    (image,) = images
    extents: dict[str, int] = {}
    for letters, one in zip(given, operands, strict=True):
        for letter, extent in zip(letters, shape_of(one), strict=True):
            if extents.setdefault(letter, extent) != extent:
                raise UnsupportedError(f"{equation}: operands of {extents[letter]} and {extent} numbers along {letter}")
    w.rewritten()
    left = [_lettered(w, one, letters, image, extents[image]) for letters, one in zip(given, operands, strict=True)]
    kept = output.replace(image, "")
    while len(left) > 1:
        later = kept + "".join(one.letters for one in left[2:])
        left[:2] = [_product(w, left[0], left[1], later, extents)]
    found = _summed(w, left[0], kept)
    return image_axis.moved_to(_in_order(w, found, kept), output.index(image))


def letters_of(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of each operand and of the output, with some in the place of dots.

    Raises
    ------
    UnsupportedError
        If an operand has a letter twice, or dimensions without one.

    Examples
    --------
    >>> letters_of("... i d, j d -> ... i j", [4, 2]), letters_of("ij,jk", [2, 2])
    ((['ABid', 'jd'], 'ABij'), (['ij', 'jk'], 'ik'))
    """
    before, arrow, output = equation.replace(" ", "").partition("->")
    given = before.split(",")
    if len(given) != len(ranks):
        raise UnsupportedError(f"{equation}: {len(given)} operands, and there are {len(ranks)}")
    free = [one for one in string.ascii_uppercase if one not in equation]
    dots = max((rank - len(one.replace("...", "")) for one, rank in zip(given, ranks, strict=True) if "..." in one),
               default=0)
    if not arrow:
        found = before.replace("...", "").replace(",", "")
        output = "..." * ("..." in before) + "".join(sorted(one for one in set(found) if found.count(one) == 1))
    wide = "".join(free[:dots])
    whole = [one.replace("...", wide[dots - (rank - len(one.replace("...", ""))):])
             for one, rank in zip(given, ranks, strict=True)]
    if any(len(set(one)) < len(one) or len(one) != rank for one, rank in zip(whole, ranks, strict=True)):
        raise UnsupportedError(f"{equation}: a letter twice in one operand, or dimensions without one")
    return whole, output.replace("...", wide)


def _lettered(w: Writer, one: Tensor | Stored, letters: str, image: str, images: int) -> Lettered:
    """With its images first; what all images share is there for each of them."""
    if not shared.is_shared(one):
        assert isinstance(one, Tensor)
        return Lettered(image_axis.images_first(one), letters.replace(image, ""))
    if image in letters:
        one = shared.once(w, one, letters.index(image))
        if shape_of(one)[letters.index(image)] != 1:
            raise UnsupportedError("a stored tensor of each image as an operand")
        at = letters.index(image)
        letters = letters.replace(image, "")
        return Lettered(shared.spread(w, shared.lifted(w, one, (*shape_of(one)[:at], *shape_of(one)[at + 1:])), images),
                        letters)
    shape = shape_of(one)
    return Lettered(shared.spread(w, shared.lifted(w, one, shape), images), letters)


def _summed(w: Writer, one: Lettered, kept: str) -> Lettered:
    """Without the letters that nothing takes any more."""
    dims = [1 + i for i, letter in enumerate(one.letters) if letter not in kept]
    if not dims:
        return one
    return Lettered(rules.reduced("sum")(w, one.of, dims), "".join(x for x in one.letters if x in kept))


def _in_order(w: Writer, one: Lettered, letters: str) -> Tensor:
    if set(one.letters) != set(letters):
        raise UnsupportedError("an output with letters that no operand has")
    return w.permute(one.of, [0, *(1 + one.letters.index(letter) for letter in letters)])


def _product(w: Writer, one: Lettered, other: Lettered, later: str, extents: dict[str, int]) -> Lettered:
    """The product of two, summed over what nothing behind it takes."""
    one, other = (_summed(w, a, later + b.letters) for a, b in ((one, other), (other, one)))
    both = [x for x in one.letters if x in other.letters]
    batches, inner = ("".join(x for x in both if (x in later) is stays) for stays in (True, False))
    rows = "".join(x for x in one.letters if x not in both)
    columns = "".join(x for x in other.letters if x not in both)
    count, m, k, n = (math.prod(extents[x] for x in letters) for letters in (batches, rows, inner, columns))
    images = one.of.shape[0]
    outer = (images, count) if batches else (images,)
    a = w.reshape(_in_order(w, one, batches + rows + inner), (*outer, m, k))
    b = w.reshape(_in_order(w, other, batches + inner + columns), (*outer, k, n))
    # Without a sum it is a product of numbers
    found = rules.matmul(w, a, b, "product") if inner else w.binary("multiply", a, b, "product")
    letters = batches + rows + columns
    return Lettered(w.reshape(found, (images, *(extents[x] for x in letters))), letters)
