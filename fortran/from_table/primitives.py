# SPDX-License-Identifier: MIT
"""Primitives: the records of their arguments, the faces of their loops over host tensors, and who runs which loop."""

from __future__ import annotations

from collections.abc import Iterator

from fortran_text import Row, broken, table, template

#: Of what kind an argument is, in Fortran
TYPES = {"tensor": "type(tensor_type)", "integer": "integer", "real": "real(dp)", "logical": "logical"}


class Primitive:
    """A section ``[primitives.NAME]``: arguments with their types and what they are; and who runs it."""

    def __init__(self, name: str, row: Row) -> None:
        self.name = name
        self.gives_loss = row.get("gives") == "loss"
        self.has_loop = row.get("runs") != "on devices"
        self.arguments = {key: one for key, one in row.items() if isinstance(one, list)}

    def declared(self, argument: str) -> tuple[str, str]:
        """Return the type of an argument, and its name with extents.

        >>> Primitive("pool", {"kernel": ["integer(2)", "Size"]}).declared("kernel")
        ('integer', 'kernel(2)')
        """
        kind, bracket, extents = self.arguments[argument][0].partition("(")
        return TYPES[kind], argument + bracket + extents

    def of_type(self, *kinds: str) -> list[str]:
        """Return the arguments of such types."""
        return [name for name, (kind, _) in self.arguments.items() if kind.partition("(")[0] in kinds]

    def call(self) -> str:
        """Return what a loop is called with."""
        return ", ".join([f"p%{name}" for name in self.arguments] + ["loss"] * self.gives_loss)


def primitives() -> list[Primitive]:
    """Return all primitives by their names."""
    found: dict[str, Row] = {}
    for family in [*table.families(), "losses", "primitives"]:
        for row in table.rows(family).values():
            found |= row.get("primitives", {})
    return [Primitive(name, found[name]) for name in sorted(found)]


def records() -> str:
    """Return calls.f90."""
    made, arms = [], []
    for one in primitives():
        lines = [f"   type, extends(primitive_type), public :: {one.name}_call"]
        for name, (_, about) in one.arguments.items():
            kind, declared = one.declared(name)
            lines += [f"      !> {about}", f"      {kind} :: {declared}"]
        made.append("\n".join([*lines, f"   end type {one.name}_call\n"]))
        arms.append("\n".join(map(broken, _unpacked(one))))
    return template("core/calls.f90", RECORDS="\n".join(made), CASES="\n".join(arms))


def _unpacked(one: Primitive) -> Iterator[str]:
    """An arm that gives a primitive's arguments by their types."""
    yield f"       type is ({one.name}_call)"
    yield f'         name = "{one.name}"'
    yield f"         tensors = [{', '.join(f'p%{name}' for name in one.of_type('tensor'))}]"
    integers = [f"p%{name}" if one.declared(name)[0] == "integer" else f"merge(1, 0, p%{name})"
                for name in one.of_type("integer", "logical")]
    if integers:
        yield f"         integers = [{', '.join(integers)}]"
    if reals := one.of_type("real"):
        yield f"         reals = [{', '.join(f'p%{name}' for name in reals)}]"


def interfaces() -> str:
    """Return loops_table.f90."""
    pointers, faces = [], []
    for one in primitives():
        if one.has_loop:
            pointers.append(f"      procedure({one.name}_), pointer, nopass :: {one.name} => null()")
            faces.append("\n".join(_face(one)))
    return template("operations/loops_table.f90", POINTERS="\n".join(pointers), INTERFACES="\n\n".join(faces))


def _face(one: Primitive) -> Iterator[str]:
    arguments = [*one.arguments, *["loss"] * one.gives_loss]
    used = [*["dp"] * bool(one.of_type("real") or one.gives_loss), "tensor_type"]
    yield broken(f"      subroutine {one.name}_({', '.join(arguments)})")
    yield f"         import :: {', '.join(used)}"
    yield "         implicit none"
    for name, (_, about) in one.arguments.items():
        kind, declared = one.declared(name)
        yield f"         !> {about}"
        yield f"         {kind}, intent(in) :: {declared}"
    if one.gives_loss:
        yield "         !> The loss"
        yield "         real(dp), intent(out) :: loss"
    yield f"      end subroutine {one.name}_"


def assignments() -> str:
    """Return loops_assignments.inc."""
    return template("operations/loops_assignments.inc", LOOPS="\n".join(
        f"      table%{one.name} => {one.name}_loops" for one in primitives() if one.has_loop))


def runs() -> str:
    """Return primitives.f90."""
    loops = [one for one in primitives() if one.has_loop]
    return template(
        "operations/primitives.f90",
        USES=broken("   use cnn_core_calls, only : primitive_type, unpack, " + ", ".join(
            f"{one.name}_call" for one in loops)),
        LOOPS="\n".join(map(_arm, (one for one in loops if not one.gives_loss))),
        LOSSES="\n".join(map(_arm, (one for one in loops if one.gives_loss))))


def _arm(one: Primitive) -> str:
    return f"       type is ({one.name}_call)\n" + broken(f"         call loops%{one.name}({one.call()})")
