# SPDX-License-Identifier: MIT
"""Functions of other libraries, from their signatures: interfaces, and for NVIDIA's the types that point to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fortran_text import HERE, broken, table, template

KINDS = {"int": "integer(c_int)", "size": "integer(c_size_t)", "int64": "integer(c_int64_t)",
         "long_long": "integer(c_long_long)", "pointer": "type(c_ptr)", "procedure": "type(c_funptr)",
         "char": "character(kind=c_char)", "id": "integer(hid_t)", "length": "integer(hsize_t)"}
ARGUMENT = re.compile(r"(\w+) (\w+)(\*?)(?:\[(\w*)\])?")


def signatures(name: str) -> dict[str, Any]:
    """Return what a file of signatures has."""
    found: dict[str, Any] = table.tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))
    return found


def short_name(function: str) -> str:
    """Return the name of a function's pointer.

    >>> short_name("cuCtxPushCurrent_v2"), short_name("cudaMalloc"), short_name("cudnnSetStream")
    ('ctx_push_current', 'malloc', 'set_stream')
    """
    name = re.sub(r"^(cudnn|cuda|cu)(?=[A-Z])|_v2$", "", function)
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def declared(argument: str) -> tuple[str, str]:
    """Return the name of an argument, and its declaration.

    >>> declared("size size*")
    ('size', 'integer(c_size_t), intent(out) :: size')
    >>> declared("name char*[len]")
    ('name', 'character(kind=c_char), intent(out) :: name(len)')
    """
    found = ARGUMENT.fullmatch(argument)
    if not found:
        raise ValueError(f"{argument!r}, expected a name and a type")
    name, kind, star, extent = found.groups()
    how = "intent(out)" if star else "value" if extent is None else "intent(in)"
    shape = "" if extent is None else f"({extent or '*'})"
    return name, f"{KINDS.get(kind, f'type({kind})')}, {how} :: {name}{shape}"


def interface(function: str, signature: str, *, named: bool = False) -> str:
    """Return the interface of a function, with its name in C where it is no abstract one."""
    taken, _, given = " ".join(signature.split()).partition("->")
    arguments = dict(declared(one.strip()) for one in taken.split(",") if one.strip())
    given = given.strip() or "int"
    kind, result = ("subroutine", "") if given == "nothing" else ("function", " result(given)")
    # An array comes behind its extent
    lines = sorted(arguments.values(), key=lambda one: one.endswith(")"))
    lines += [f"{KINDS[given]} :: given"] if result else []
    names = sorted({found[1] for line in lines if (found := re.match(r"\w+\((?:kind=)?(\w+)\)", line))})
    bound = f'bind(C, name="{function}")' if named else "bind(C)"
    return "\n".join([
        broken(f"      {kind} {function}({', '.join(arguments)}){result} {bound}"),
        broken(f"         import :: {', '.join(names)}"), "         implicit none",
        *(f"         {line}" for line in lines), f"      end {kind} {function}"])


def _type(library: str, functions: Mapping[str, str]) -> str:
    """The type of a library."""
    return "\n".join([
        f"   type, public :: {library}_functions_type", "      type(shared_library_type) :: library",
        *(f"      procedure({one}), pointer, nopass :: {short_name(one)} => null()" for one in functions),
        "   contains", f"      procedure :: bind_functions => bind_{library}",
        f"   end type {library}_functions_type\n"])


def _procedure(library: str, functions: Mapping[str, str]) -> str:
    """The procedure that sets a library's pointers."""
    return "\n".join([
        "   !> From the library, which is open; an error names all that it lacks",
        f"   subroutine bind_{library}(self, error)", f"      class({library}_functions_type), intent(inout) :: self",
        "      type(error_type), allocatable, intent(out) :: error",
        *(f'      call c_f_procpointer(self%library%symbol("{one}"), self%{short_name(one)})' for one in functions),
        "      call self%library%check_symbols(error)", f"   end subroutine bind_{library}\n"])


def nvidia() -> str:
    """Return signatures.f90."""
    libraries = signatures("cuda/bindings/signatures")
    every = {name: one for functions in libraries.values() for name, one in functions.items()}
    return template(
        "cuda/bindings/signatures.f90", PUBLIC=broken(f"   public :: {', '.join(every)}"),
        TYPES="\n".join(_type(*one) for one in libraries.items()),
        INTERFACES="\n".join(interface(*one) for one in every.items()),
        PROCEDURES="\n".join(_procedure(*one) for one in libraries.items()))


def hdf5() -> str:
    """Return hdf5_c.f90."""
    functions = signatures("io/hdf5_c")
    return template(
        "io/hdf5_c.f90", PUBLIC=broken(f"   public :: {', '.join(functions)}"),
        INTERFACES="\n".join(interface(*one, named=True) for one in functions.items()))
