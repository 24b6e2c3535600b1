# SPDX-License-Identifier: MIT
"""What our Fortran sources say of NVIDIA's functions, and a C program that holds it against NVIDIA's headers.

The sources are read as text, because their interfaces are written in one regular way. The C program consists of
static assertions: the compiler, not a table of ours, says what a header declares. Nothing is run.

    >>> source = read_source("integer(c_int), parameter, public :: CUDNN_DATA_HALF = 2")
    >>> source.constants
    {'CUDNN_DATA_HALF': 2}
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

#: Name of a dummy argument or component -> its declaration without blanks, such as "integer(c_int),value"
Declarations = dict[str, str]


@dataclass
class Function:
    """An abstract interface: the names of its arguments in order, what they are, and what it returns (or "void")."""

    arguments: list[str]
    declarations: Declarations
    result: str


@dataclass
class Source:
    """What one or several Fortran files declare."""

    constants: dict[str, int] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    structures: dict[str, Declarations] = field(default_factory=dict)


def snake(name: str) -> str:
    """A C name as we write it.

    >>> snake("workSpaceSizeInBytes"), snake("pKernel"), snake("A")
    ('work_space_size_in_bytes', 'p_kernel', 'a')
    """
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def read_source(text: str) -> Source:
    """Read Fortran text; raises ValueError for a dummy argument that is declared twice or not at all."""
    text = re.sub(r"!.*", "", text)
    text = re.sub(r"&\s*\n\s*&?", " ", text)
    found = Source()
    for name, value in re.findall(r"integer\(c_int\), parameter, public :: (\w+) = (-?\d+)", text):
        found.constants[name] = int(value)
    for interfaces in re.findall(r"abstract interface\n(.*?)end interface", text, re.S):
        for kind, name, arguments, result, body in re.findall(
            r"(function|subroutine) (\w+)\((.*?)\)(?: result\((\w+)\))? bind\(C\)\n(.*?)end \1 \2", interfaces, re.S
        ):
            found.functions[name] = _function(name, arguments, result if kind == "function" else "", body)
    for name, body in re.findall(r"type, bind\(C\)(?:, public)? :: (\w+)\n(.*?)end type", text, re.S):
        found.structures[name] = _declarations(body)
    return found


def _function(name: str, arguments: str, result: str, body: str) -> Function:
    declared = _declarations(body)
    returned = declared.pop(result) if result else "void"
    names = re.findall(r"\w+", arguments)
    if sorted(names) != sorted(declared):
        raise ValueError(f"{name}: arguments {names}, declarations of {sorted(declared)}")
    return Function(names, declared, returned)


def _declarations(body: str) -> Declarations:
    """What is declared, shapes included: "character(kind=c_char),intent(in)(*)"."""
    found: Declarations = {}
    for kind, names in re.findall(r"^\s*(\S.*?) :: (.*)$", body, re.M):
        if kind == "import":
            continue
        for name, shape in re.findall(r"(\w+)(\(\w+\)|\(\*\))?(?: = [-\w]+)?(?:, |\s*$)", names):
            if name in found:
                raise ValueError(f"{name} is declared twice")
            found[name] = kind.replace(" ", "") + shape
    return found


class Headers:
    """NVIDIA's headers: C prototypes by name, and a compiler that sees them."""

    def __init__(self, include: list[str], folders: list[Path]) -> None:
        """``include`` such as ["cudnn.h"]; raises CalledProcessError when they cannot be preprocessed."""
        self.lines = "".join(f"#include <{name}>\n" for name in ["stddef.h", *include])
        # The headers of half precision need more packages, and declare nothing that we use
        self.command = ["gcc", "-std=gnu11", "-D__CUDA_FP16_H__", "-D__CUDA_BF16_H__"]
        for folder in folders:
            self.command += ["-isystem", str(folder)]
        # For want of a package with NVIDIA's compiler annotations, which mean nothing to gcc
        self.command += ["-idirafter", str(Path(__file__).with_name("nvidia_headers"))]
        text = self.preprocess(self.lines)
        self.text = re.sub(r"__attribute__\s*\(\(.*?\)\)|\bextern\b", "", " ".join(text.split()))

    def preprocess(self, text: str) -> str:
        """What the preprocessor makes of a text."""
        command = [*self.command, "-E", "-P", "-x", "c", "-"]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    def value_of(self, macro: str) -> int | None:
        """The number that a macro stands for; None when it is no number, or not defined."""
        value = self.preprocess(self.lines + macro).split()[-1]
        return int(value) if value.isdigit() else None

    def prototype(self, function: str) -> tuple[str, list[tuple[str, str]]]:
        """The type that it returns, and the type and the name of every parameter; KeyError when there is none."""
        match = re.search(rf"[;}}]\s*((?:const )?\w+\s*\**)\s*\b{function}\s*\(([^()]*)\)\s*;", self.text)
        if not match:
            raise KeyError(f"{function} is not in the headers")
        parameters = []
        for parameter in match.group(2).split(","):
            if parameter.strip() not in ("", "void"):
                parts = re.fullmatch(r"\s*(.*?)(\w+)\s*", parameter)
                assert parts, parameter
                parameters.append((parts.group(1).strip(), parts.group(2)))
        return match.group(1).strip(), parameters

    def compile(self, assertions: list[str]) -> list[str]:
        """The messages of those that do not hold; AssertionError for any other error of the compiler."""
        program = self.lines + HELPERS + "\n".join(assertions) + "\nint main(void) { return 0; }\n"
        done = subprocess.run(
            [*self.command, "-fsyntax-only", "-Werror", "-fmax-errors=0", "-x", "c", "-"],
            input=program, capture_output=True, text=True, check=False,
            env=os.environ | {"LC_ALL": "C"},
        )
        failed = re.findall(r'static assertion failed: "(.*?)"', done.stderr)
        errors = re.findall(r"error: (?!static assertion failed)(.*)", done.stderr)
        return failed + errors


#: Classes of types; an enumeration counts as the int that it is passed as
HELPERS = """
#define POINTER(T) (__builtin_classify_type((T)0) == 5)
#define INT(T) (__builtin_classify_type((T)0) == 1 && sizeof(T) == 4)
#define SAME(T, U) __builtin_types_compatible_p(T, U)
#define TARGET(T) __typeof__(*(T)0)
#define WRITABLE(T) (sizeof(*(T)0 = *(T)0) > 0)
"""

#: What a declaration asks of the C type T
RULES = {
    "type(c_ptr),value": "POINTER({T})",
    "integer(c_int),value": "INT({T})",
    "integer(c_size_t),value": "SAME({T}, size_t)",
    # Fortran has no unsigned kinds: of the same size, and flags are small numbers
    "integer(c_long_long),value": "SAME({T}, unsigned long long)",
    "integer(c_int64_t),value": "SAME({T}, int64_t)",
    "integer(c_int64_t),intent(out)": "SAME({T}, int64_t *)",
    "real(c_double),value": "SAME({T}, double)",
    "type(c_ptr),intent(out)": "POINTER({T}) && POINTER(TARGET({T})) && WRITABLE({T})",
    "type(c_ptr),intent(in)(*)": "SAME({T}, void **)",
    "integer(c_int),intent(out)": "POINTER({T}) && INT(TARGET({T})) && WRITABLE({T})",
    "integer(c_size_t),intent(out)": "SAME({T}, size_t *)",
    "character(kind=c_char),intent(in)(*)": "SAME({T}, const char *)",
    "character(kind=c_char),intent(out)(max_size)": "SAME({T}, char *)",
    "character(kind=c_char),intent(out)(len)": "SAME({T}, char *)",
    "type(dim3_type),value": "SAME({T}, dim3)",
    "type(cuda_pointer_attributes_type),intent(out)": "SAME({T}, struct cudaPointerAttributes *)",
}
RESULTS = {
    "void": "SAME({T}, void)",
    "integer(c_int)": "INT({T})",
    "integer(c_size_t)": "SAME({T}, size_t)",
    "type(c_ptr)": "SAME({T}, const char *)",
}

#: Our structures and NVIDIA's
STRUCTURES = {
    "dim3_type": ["dim3"],
    "cuda_pointer_attributes_type": ["struct cudaPointerAttributes"],
}
C_TYPES = {
    "integer(c_int)": "int",
    "integer(c_long)": "long",
    "integer(c_size_t)": "size_t",
    "real(c_float)": "float",
    "type(c_ptr)": "void *",
}


def problems(source: Source, headers: Headers) -> list[str]:
    """Where the source and the headers differ, in words; an empty list when they agree."""
    found, assertions = [], []
    for name, value in source.constants.items():
        assertions.append(f'_Static_assert({name} == {value}, "{name} is not {value}");')
    for name, function in source.functions.items():
        try:
            returned, parameters = headers.prototype(name)
        except KeyError as error:
            found.append(error.args[0])
            continue
        names = [snake(parameter) for _, parameter in parameters]
        if names != function.arguments:
            found.append(f"{name}: arguments {function.arguments}, expected {names}")
        assertions += _prototype(name, function, returned, [kind for kind, _ in parameters])
    for name, components in source.structures.items():
        for theirs in STRUCTURES[name]:
            assertions += _structure(name, components, theirs)
    return found + headers.compile(assertions)


def _prototype(name: str, function: Function, returned: str, types: list[str]) -> list[str]:
    """That the headers were read rightly, then every argument by its place, as C sees it."""
    signature = f"{returned} ({', '.join(types) or 'void'})"
    lines = [f'_Static_assert(SAME(__typeof__({name}), {signature}), "{name}: misread");']
    if len(types) != len(function.arguments):
        return [f'_Static_assert(0, "{name}: {len(function.arguments)} arguments, expected {len(types)}");']
    rules = [(RESULTS, function.result, returned, "result")]
    rules += [
        (RULES, function.declarations[argument], kind, argument)
        for argument, kind in zip(function.arguments, types, strict=True)
    ]
    for table, declared, kind, what in rules:
        # dim3 by value, say: a cast of 0 is no constant, so the comparison must come alone
        condition = table.get(declared, "0").replace("{T}", _plain(kind))
        if declared == "type(c_ptr),value" and not _address(kind, what):
            condition = "0"
        lines.append(f'_Static_assert({condition}, "{name}: {what} is {declared}, expected {kind}");')
    return lines


def _address(kind: str, argument: str) -> bool:
    """Is it a handle, or the address of numbers? What a function sets is intent(out), unless we always pass null."""
    target = re.sub(r"\bconst\b|\*$", "", kind).strip()
    return "*" not in kind or target in ("void", "float", "double") or "_option" in argument or argument == "extra"


def _plain(kind: str) -> str:
    """Without const of the parameter itself: it does not belong to the type of a function."""
    return kind if "*" in kind else kind.replace("const ", "")


def _structure(name: str, components: Declarations, theirs: str) -> list[str]:
    """Size, and the places of all components."""
    ours = f"struct ours_{name}_{re.sub(r'[^A-Za-z0-9]', '_', theirs)}"
    body = ""
    for component, declared in components.items():
        kind, shape = re.fullmatch(r"(\w+\(\w+\))(?:\((\d+)\))?", declared).groups()
        body += f"{C_TYPES[kind]} {component}{f'[{shape}]' if shape else ''}; "
    lines = [f"{ours} {{ {body}}};"]
    for component in components:
        field_name = re.sub(r"_(\w)", lambda match: match.group(1).upper(), component)
        place = f"offsetof({theirs}, {field_name}) == offsetof({ours}, {component})"
        width = f"sizeof((({theirs} *)0)->{field_name}) == sizeof((({ours} *)0)->{component})"
        lines.append(f'_Static_assert({place} && {width}, "{name}: {component} is elsewhere in {theirs}");')
    lines.append(f'_Static_assert(sizeof({theirs}) == sizeof({ours}), "{name}: not as large as {theirs}");')
    return lines
