# SPDX-License-Identifier: MIT
"""The flat faces that f90wrap and C programs call: numbers, addresses and texts become what they stand for.

A face is Fortran whose procedures that can fail are written shorter:

    face network_update(network, optimizer)
       if (.not. allocated(error)) call network%update(optimizer, error)
    end face

Its arguments are those in brackets and, at the end, what its `error` becomes. What many procedures have is declared
here: arguments by their names, and objects that are found from arguments at first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from fortran_text import HERE, broken


class Object(NamedTuple):
    """What is found from arguments: their names, the type, and the call that finds it."""

    arguments: tuple[str, ...]
    kind: str
    call: str
    #: Whether the call can fail, and follows others that cannot
    fails: bool = True


class Language(NamedTuple):
    """Who calls the faces: arguments by their names, objects, and how a procedure begins and ends."""

    arguments: Mapping[str, str]
    objects: Mapping[str, Object]
    #: Arguments behind the others
    last: Mapping[str, str]
    head: str
    end: str
    hand_over: str


INTEGER = "integer(c_int), intent(in)"
ADDRESS = "integer(c_int64_t), intent(in)"
TEXT = "character(len=*), intent(in)"
PYTHON = Language(
    arguments={
        # Name of the device, with its options
        "device": TEXT,
        # The network's number
        "handle": INTEGER,
        # Element type, of cnn_core_kinds
        "dtype": INTEGER,
        # Of tensors, of the input or of the target, [w, h, c, n] with ones behind; dimensions of the input
        "extent(8)": INTEGER, "x_extent(8)": INTEGER, "input_extent(8)": INTEGER, "target_extent(8)": INTEGER,
        "rank": INTEGER,
        # Of the filters, [w, h, input channels of a group, output channels]
        "w_extent(8)": INTEGER,
        # Stride, padding, dilation as (h, w) each, then groups
        "params(7)": INTEGER,
        # Addresses in the network's memory
        "input": ADDRESS, "target": ADDRESS,
        # Of a layer of the network, and of a parameter in the layer, from 1
        "layer": INTEGER, "number": INTEGER,
        # Type of the optimizer, as in exchange files, and its settings in their order there, the learning rate first;
        # zeros behind them
        "kind": TEXT, "settings(8)": "real(c_double), intent(in)",
        # 1 to read the loss, which waits for the device; else 0
        "read": INTEGER,
        # Name of the file
        "path": TEXT},
    objects={
        "backend": Object(("device",), "class(backend_type), allocatable", "open_device(device, backend, error)"),
        "network": Object(("handle",), "class(network_type), pointer", "find_network(handle, network, error)"),
        "optimizer": Object(("kind", "settings"), "class(optimizer_type), allocatable",
                            "optimizer_of(kind, settings, optimizer, error)")},
    # 0 good, 1 failed, 2 the training diverges, 3 an argument is not finite; what is wrong, blank where nothing is
    last={"ierr": "integer(c_int), intent(out)", "errmsg": "character(len=512), intent(out)"},
    head="subroutine {0}({1})", end="end subroutine {0}", hand_over="hand_over(error, ierr, errmsg)")

POINTER = "type(c_ptr), value"


def c_text(argument: str, name: str, default: str = "") -> Object:
    """Return a text of C as an object, with what it is where the argument is null or empty."""
    return Object((argument,), "character(len=:), allocatable", f'read_text({argument}, "{default}", {name})', False)


C = Language(
    # What cnn.h says of them
    arguments={name: POINTER for name in (
        "network", "name", "kind", "settings", "inputs", "loss", "device", "precision", "path", "optimizer", "x", "y",
        "target", "dy", "dx", "values", "count")},
    objects={
        "text": c_text("name", "text"), "layer_kind": c_text("kind", "layer_kind"), "file": c_text("path", "file"),
        "numbers": c_text("settings", "numbers"), "taken": c_text("inputs", "taken"),
        "criterion": c_text("loss", "criterion", "mse"), "place": c_text("device", "place", "cpu"),
        "wanted": c_text("precision", "wanted"), "chosen": c_text("precision", "chosen", "float32"),
        "found": Object(("network",), "type(network_type), pointer", "find(network, found, error)"),
        "made": Object(("optimizer",), "class(optimizer_type), allocatable", "make(optimizer, made, error)")},
    last={"message": POINTER},
    head='integer(c_int) function {0}({1}) bind(C, name="{0}")', end="end function {0}",
    hand_over="hand_over(error, message, {0})")

FACE = re.compile(r"^   face (\w+)\((.*?)\)\n(.*?)^   end face\n", re.MULTILINE | re.DOTALL)
#: A line of the declarations at the head of a procedure, or of what continues one or explains it
DECLARATION = re.compile(r" +(?:.*::.*|!>.*|& .*)\n")


def procedure(face: re.Match[str], language: Language) -> str:
    """Return the procedure of a face.

    >>> short = FACE.match("   face cnn_tell(found, text)\\n      call tell(text)\\n   end face\\n")
    >>> print(procedure(short, C), end="")
       integer(c_int) function cnn_tell(network, name, message) bind(C, name="cnn_tell")
          type(c_ptr), value :: network
          type(c_ptr), value :: name
          type(c_ptr), value :: message
          type(error_type), allocatable :: error
          type(network_type), pointer :: found
          character(len=:), allocatable :: text
          call read_text(name, "", text)
          call find(network, found, error)
          call tell(text)
          call hand_over(error, message, cnn_tell)
       end function cnn_tell
    """
    name, given, body = face.groups()
    names = [one.strip() for one in given.split(",") if one.strip()]
    objects = {one: language.objects[one] for one in names if one in language.objects}
    arguments = [one for name in names for one in (objects[name].arguments if name in objects else [name])]
    declared = set(re.findall(r"(?:intent\(\w+\)|value) :: (\w+)", body))
    lines = [f"{kind} :: {shaped}" for shaped, kind in language.arguments.items()
             if shaped.partition("(")[0] in set(arguments) - declared]
    lines += [f"{kind} :: {one}" for one, kind in language.last.items()]
    lines += ["type(error_type), allocatable :: error", *(f"{one.kind} :: {key}" for key, one in objects.items())]
    end = 0
    while line := DECLARATION.match(body, end):
        end = line.end()
    fails = False
    calls = []
    for one in sorted(objects.values(), key=lambda one: one.fails):
        calls.append(f"{'if (.not. allocated(error)) ' * fails}call {one.call}")
        fails = fails or one.fails
    head = broken("   " + language.head.format(name, ", ".join([*arguments, *language.last])))
    return "".join([head, "\n", *(f"      {one}\n" for one in lines), body[:end], *(f"      {one}\n" for one in calls),
                    body[end:], f"      call {language.hand_over.format(name)}\n   {language.end.format(name)}\n"])


def face(name: str) -> str:
    """Return a file of faces."""
    language = PYTHON if name.startswith("api/") else C
    text = (HERE / f"{name}.in").read_text(encoding="utf-8")
    return FACE.sub(lambda found: procedure(found, language), text)
