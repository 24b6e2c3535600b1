# SPDX-License-Identifier: MIT
"""Procedures for arrays of every type that a caller may have, from one text.

    !> The loss of x and target
    method evaluate(self, x, target, loss, error)
       ...
       number array, intent(in) :: x
       real array(:, :), intent(inout) :: packed
       call self%evaluate_array(x_, target_, loss, error)
    end method

A `real array` is of `real(sp)` or `real(dp)`, the same for all of them; a `number array` is of that kind, too, or of
`integer(int32)` or `integer(int64)`. Without extents it is of any rank. Each stands in the body as an `array_type` of
its name with _ behind it. `<METHODS>` is where the type names them. What comes twice, `method pull_back as other`, is
of one name with other arguments.

    each KIND in sp dp
       ...
    end each

is the text between them for each of the words, with that word for `<KIND>` and its type for `<KIND.type>`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from fortran_text import HERE, broken

TYPES = {"sp": "real(sp)", "dp": "real(dp)", "i32": "integer(int32)", "i64": "integer(int64)"}
REAL, WHOLE = ("sp", "dp"), ("i32", "i64")

METHOD = re.compile(r"^   !> ([^\n]*)\n   method (\w+)(?: as (\w+))?\((.*?)\)\n(.*?)^   end method\n\n?",
                    re.MULTILINE | re.DOTALL)
ARRAY = re.compile(r"^( +)(real|number) array(\(.*?\))?, intent\((\w+)\) :: (\w+)\n", re.MULTILINE)
#: That has no other within it
EACH = re.compile(r"^ *each (\w+) in ([^\n]*)\n((?:(?!^ *each ).)*?)^ *end each\n", re.MULTILINE | re.DOTALL)


def typed(name: str) -> str:
    """Return a file with the procedures for all types."""
    text = (HERE / f"{name}.in").read_text(encoding="utf-8")
    # From the inside
    while (inner := re.sub(EACH, _repeated, text)) != text:
        text = inner
    methods = list(METHOD.finditer(text))
    text = text.replace("      <METHODS>\n", "".join(map(_binding, methods)))
    return METHOD.sub(lambda found: "\n".join(_procedures(found)) + "\n", text)


def _repeated(found: re.Match[str]) -> str:
    name, words, body = found.groups()
    return "".join(body.replace(f"<{name}.type>", TYPES.get(word, "")).replace(f"<{name}>", word)
                   for word in words.split())


def kinds(arrays: list[str]) -> list[tuple[str, ...]]:
    """Return the kinds that the arrays of a call may be of.

    >>> kinds(["number", "real"])
    [('sp', 'sp'), ('i32', 'sp'), ('i64', 'sp'), ('dp', 'dp'), ('i32', 'dp'), ('i64', 'dp')]
    """
    found = [one for real in REAL
             for one in itertools.product(*((real, *WHOLE) if kind == "number" else (real,) for kind in arrays))]
    return list(dict.fromkeys(one for one in found if len(set(one) & set(WHOLE)) < 2))


def _names(found: re.Match[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    _, name, other, _, body = found.groups()
    for chosen in kinds([array[2] for array in ARRAY.finditer(body)]):
        yield "_".join([other or name, *(chosen[:1] if len(set(chosen)) == 1 else chosen)]), chosen


def _binding(found: re.Match[str]) -> str:
    names = ", ".join(name for name, _ in _names(found))
    return "\n".join([f"      !> {found[1]}", broken(f"      generic, public :: {found[2]} => {names}"),
                      broken(f"      procedure, private :: {names}"), ""])


def _procedures(found: re.Match[str]) -> Iterator[str]:
    _, _, _, arguments, body = found.groups()
    arrays = list(ARRAY.finditer(body))
    called = body.index("      call ") if "      if (" not in body else body.index("      if (")
    names = [array[5] for array in arrays]
    for name, chosen in _names(found):
        head = body[:called]
        for array, kind in zip(arrays, chosen, strict=True):
            head = head.replace(array[0], f"{array[1]}{TYPES[kind]}, target, intent({array[4]}) :: {array[5]}"
                                          f"{array[3] or '(..)'}\n")
        yield "".join([
            broken(f"   subroutine {name}({arguments})"), "\n", head,
            f"      type(array_type), target :: {', '.join(one + '_' for one in names)}\n",
            *(f"      call take({one}, {one}_)\n" for one in names), body[called:],
            *(f"      call give_back({array[5]}_, {array[5]})\n" for array in arrays if array[4] == "inout"),
            f"   end subroutine {name}\n"])
