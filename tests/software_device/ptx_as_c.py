# SPDX-License-Identifier: MIT
"""PTX as C: the very text that a GPU's driver would get, made runnable on a CPU.

One C function for each entry, one statement for each instruction, so that what the tests run is what was generated
and not another translation of the same Fortran. It knows the instructions that our kernels have, and no more: any
other is an error. Registers are unsigned integers that hold bits; special registers are the arrays of
tests/software_device/host_kernels.c. Semantics from NVIDIA's PTX ISA, chapter "Instructions".
"""

from __future__ import annotations

import re

PRELUDE = """\
#include <math.h>
#include <stdint.h>
#include <string.h>
extern int cnn_host_tid[3], cnn_host_ctaid[3], cnn_host_ntid[3], cnn_host_nctaid[3];
#define REINTERPRET(name, to, from) \\
  static inline to name(from x) { to y; memcpy(&y, &x, sizeof y); return y; }
REINTERPRET(as_f32, float, uint32_t) REINTERPRET(of_f32, uint32_t, float)
REINTERPRET(as_f64, double, uint64_t) REINTERPRET(of_f64, uint64_t, double)
REINTERPRET(as_f16, _Float16, uint16_t) REINTERPRET(of_f16, uint16_t, _Float16)
/* As cvt.rzi does: the nearest that there is */
static inline int64_t truncated(double x) {
  return x != x ? INT64_MIN : x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : (int64_t)x;
}
/* The software device looks at every access */
#ifndef TOUCH
#define TOUCH(address, bytes, writes) (address)
#endif
/* Four numbers begin at a multiple of their bytes, or the GPU stops */
static inline const uint32_t *four(uint64_t address) {
  if (address % 16) __builtin_trap();
  return (const uint32_t *)TOUCH(address, 16, 0);
}
static inline int32_t truncated32(float x) {
  return x != x ? 0 : x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : (int32_t)x;
}
"""

C_TYPES = {"f16": "uint16_t", "f32": "uint32_t", "f64": "uint64_t", "pred": "uint8_t",
           **{f"{kind}{bits}": f"{'int' if kind == 's' else 'uint'}{bits}_t"
              for kind in "bsu" for bits in (8, 16, 32, 64)}}
LETTERS = {".f32": "f", ".f64": "d", ".u64": "i", ".u32": "w", ".b32": "w"}
PARAMETERS = {".f32": "float", ".f64": "double", ".u64": "uint64_t", ".u32": "uint32_t", ".b32": "uint32_t"}
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "div": "/", "rem": "%"}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
#: True for NaN: the opposites of what they are not
UNORDERED = {"ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<", "neu": "=="}
AXES = {"x": 0, "y": 1, "z": 2}


class UnknownInstructionError(Exception):
    """The translation knows only what our kernels have."""


def operand(text: str) -> str:
    """A register, special register, integer or floating-point constant as C; all are bits."""
    if special := re.fullmatch(r"%(tid|ctaid|ntid|nctaid)\.([xyz])", text):
        return f"(uint32_t)cnn_host_{special[1]}[{AXES[special[2]]}]"
    if re.fullmatch(r"%\w+", text):
        return text[1:]
    if constant := re.fullmatch(r"0([fd])([0-9A-F]+)", text):
        return f"UINT64_C(0x{constant[2]})" if constant[1] == "d" else f"UINT32_C(0x{constant[2]})"
    if re.fullmatch(r"0x[0-9A-F]+", text):
        return f"UINT64_C({text})"
    if re.fullmatch(r"-?\d+", text):
        return f"INT64_C({text})" if text != "-9223372036854775808" else "INT64_MIN"
    raise UnknownInstructionError(text)


def value(text: str, kind: str) -> str:
    """An operand seen as the PTX type `kind`."""
    return f"as_{kind}({operand(text)})" if kind[0] == "f" else f"({C_TYPES[kind]})({operand(text)})"


def address(text: str) -> str:
    """`[%rd1+4]` as C, not yet accessed."""
    found = re.fullmatch(r"\[%(rd\d+)(?:\+(-?\d+))?\]", text)
    if not found:
        raise UnknownInstructionError(text)
    return f"{found[1]} + INT64_C({found[2] or 0})"


def place(text: str, kind: str, *, writes: bool = False) -> str:
    """The number of this kind at an address as C."""
    return f"*({C_TYPES[kind]} *)TOUCH({address(text)}, {int(kind[1:])//8}, {int(writes)})"


def four(text: str) -> str:
    """`{%r1, %r2, %r3, %r4}, [%rd1+16]`, four numbers of 32 bits, as C."""
    found = re.fullmatch(r"\{(.*)\}, \[%(rd\d+)(?:\+(-?\d+))?\]", text)
    if not found:
        raise UnknownInstructionError(text)
    names, base, offset = found.groups()
    return " ".join(f"{operand(name.strip())} = four({base} + INT64_C({offset or 0}))[{i}];"
                    for i, name in enumerate(names.split(",")))


def arithmetic(name: str, kind: str, a: str, b: str) -> str:
    """`a OP b` of one kind; floating-point operations are rounded to nearest, each for itself."""
    if kind[0] == "f":
        return f"of_{kind}({value(a, kind)} {OPERATORS[name]} {value(b, kind)})"
    if kind == "pred":
        return f"{operand(a)} {OPERATORS[name]} {operand(b)}"
    # unsigned arithmetic wraps, as a GPU's does; only a division's result depends on the sign
    seen = kind if name in ("div", "rem") else f"u{kind[1:]}"
    return f"({C_TYPES[seen]})({value(a, seen)} {OPERATORS[name]} {value(b, seen)})"


def expression(opcode: str, sources: list[str]) -> str:
    """What an instruction computes, as bits."""
    name, *options = opcode.split(".")
    kind = options[-1]
    if name in OPERATORS and options[:-1] == (["rn"] if kind[0] == "f" else ["lo"] if name == "mul" else []):
        return arithmetic(name, kind, *sources)
    match name, options:
        case "mul", ["wide", _] if kind[0] in "us":
            twice = C_TYPES[f"{kind[0]}{2*int(kind[1:])}"]
            return " * ".join(f"({twice}){value(source, kind)}" for source in sources)
        case "fma", ["rn", "f32"]:
            return f"of_f32(fmaf({', '.join(value(source, kind) for source in sources)}))"
        case "mad", ["lo", _]:
            return f"{arithmetic('mul', kind, *sources[:2])} + {operand(sources[2])}"
        case "mul", ["hi", "s32"]:
            return f"({' * '.join(f'(int64_t){value(source, kind)}' for source in sources)}) >> 32"
        case "mul", ["hi", "u64"]:
            return f"({' * '.join(f'(unsigned __int128){value(source, kind)}' for source in sources)}) >> 64"
        case ("max" | "min"), [("s32" | "s64")]:
            a, b = (value(source, kind) for source in sources)
            return f"{a} {'>' if name == 'max' else '<'} {b} ? {a} : {b}"
        case ("max" | "min"), [("f32" | "f64")]:
            # A number where one of the two is NaN, as C's
            return f"of_{kind}(f{name}({', '.join(value(source, kind) for source in sources)}))"
        case "abs", [("s32" | "s64")]:
            unsigned = value(sources[0], f"u{kind[1:]}")
            return f"{value(sources[0], kind)} < 0 ? -{unsigned} : {unsigned}"
        case "copysign", [("f32" | "f64")]:
            # The sign comes first
            sign = f"(UINT64_C(1) << {int(kind[1:]) - 1})"
            return f"({operand(sources[1])} & ~{sign}) | ({operand(sources[0])} & {sign})"
        case ("abs" | "neg"), [("f32" | "f64")]:
            sign = f"(UINT64_C(1) << {int(kind[1:]) - 1})"
            return f"{operand(sources[0])} {f'& ~{sign}' if name == 'abs' else f'^ {sign}'}"
        case "sqrt", ["rn", ("f32" | "f64")]:
            return f"of_{kind}(sqrt{'f' if kind == 'f32' else ''}({value(sources[0], kind)}))"
        case "rcp", ["rn", ("f32" | "f64")]:
            return f"of_{kind}(1{'.0f' if kind == 'f32' else '.0'}/{value(sources[0], kind)})"
        case "mov" | "cvta", _:
            return operand(sources[0])
        case "not", [("b32" | "b64")]:
            return f"~{operand(sources[0])}"
        case "neg", [("s32" | "s64")]:
            return f"-{value(sources[0], f'u{kind[1:]}')}"
        case "not", ["pred"]:
            return f"!{operand(sources[0])}"
        case "selp", [_]:
            chosen, other = (f"(uint{kind[1:]}_t){operand(source)}" for source in sources[:2])
            return f"{operand(sources[2])} ? {chosen} : {other}"
        case "setp", [("nan" | "num") as relation, _]:
            a, b = (value(source, kind) for source in sources)
            return f"{'' if relation == 'nan' else '!'}({a} != {a} || {b} != {b})"
        case "setp", [("ne" | "equ") as relation, ("f32" | "f64")]:
            # Unlike C's, the first is false beside NaN; the second is its opposite
            a, b = (value(source, kind) for source in sources)
            return f"{'!' * (relation == 'equ')}({a} < {b} || {a} > {b})"
        case "setp", [relation, _] if relation in UNORDERED:
            return f"!({value(sources[0], kind)} {UNORDERED[relation]} {value(sources[1], kind)})"
        case "setp", [relation, _]:
            return f"{value(sources[0], kind)} {COMPARISONS[relation]} {value(sources[1], kind)}"
        case "shl", [_] if sources[1][0] == "%":
            places = value(sources[1], "u32")
            return f"{places} > {int(kind[1:]) - 1} ? 0 : {value(sources[0], kind)} << {places}"
        case ("shl" | "shr"), [_] if (places := int(sources[1])) < int(kind[1:]):
            return f"{value(sources[0], kind)} {'<<' if name == 'shl' else '>>'} {places}"
        case "cvt", ["rzi", "s64", "f64"]:
            return f"truncated({value(sources[0], kind)})"
        case "cvt", ["rzi", "s32", "f32"]:
            return f"truncated32({value(sources[0], kind)})"
        case "cvt", ["rn", ("f32" | "f64") as to, _] if kind[0] in "us":
            return f"of_{to}(({'float' if to == 'f32' else 'double'}){value(sources[0], kind)})"
        case "cvt", ["rn", ("f16" | "f32") as to, ("f32" | "f64")]:
            return f"of_{to}(({'_Float16' if to == 'f16' else 'float'}){value(sources[0], kind)})"
        case "cvt", [("f32" | "f64") as to, ("f16" | "f32")]:
            return f"of_{to}({value(sources[0], kind)})"
        case "cvt", [to, _] if to[0] in "us" and kind[0] in "us":
            return f"({C_TYPES[to]}){value(sources[0], kind)}"
    raise UnknownInstructionError(opcode)


def statement(line: str) -> str:
    """One line of a function's body as C."""
    if label := re.fullmatch(r"\$(\w+):", line):
        return f"{label[1]}: ;"
    if upper := re.fullmatch(r"\{ \.reg \.b16 tmp; mov\.b32 \{tmp, %(rs\d+)\}, %(r\d+); \}", line):
        return f"{upper[1]} = {upper[2]} >> 16;"
    found = re.fullmatch(r"(?:@%(p\d+)\s+)?([a-z][\w.]*)\s*(.*);", line)
    if not found:
        raise UnknownInstructionError(line)
    guard, opcode, rest = found.groups()
    operands = [part.strip() for part in rest.split(",")] if rest else []
    name, *options = opcode.split(".")
    if opcode in ("bra", "bra.uni"):
        text = f"goto {operands[0][1:]};"
    elif opcode == "ret":
        text = "return;"
    elif name == "ld" and options[0] == "param":
        text = f"memcpy(&{operand(operands[0])}, &{operands[1][1:-1]}, {int(options[1][1:])//8});"
    elif opcode in ("ld.global.v4.b32", "ld.global.nc.v4.b32"):
        text = four(rest)
    elif name == "ld" and options[0] == "global":
        # What comes through the read-only cache (nc) is the same
        text = f"{operand(operands[0])} = {place(operands[1], options[-1])};"
    elif opcode == "prefetch.global.L1":
        # Nothing that a program could notice, wherever it is
        text = f"(void)({address(rest)});"
    elif name == "st" and options[0] == "global":
        text = f"{place(operands[0], options[1], writes=True)} = {operand(operands[1])};"
    else:
        text = f"{operand(operands[0])} = {expression(opcode, operands[1:])};"
    return f"if ({guard}) {text}" if guard else text


def function(name: str, parameters: str, body: str) -> str:
    """One entry as a C function of the same name and arguments."""
    types = re.findall(r"\.param (\.\w+)(?: \.ptr(?: \.global)? \.align \d+)? (\w+)", parameters)
    lines = [f"void {name}({', '.join(f'{PARAMETERS[kind]} {label}' for kind, label in types)}) {{"]
    # A kernel need not read all that it is given
    lines.extend(f"  (void){label};" for _, label in types)
    for raw in body.splitlines():
        line = re.sub(r"\s+", " ", raw.split("//")[0]).strip()
        if not line or line.startswith(".pragma"):
            continue
        if registers := re.fullmatch(r"\.reg \.(\w+) %(\w+)<(\d+)>;", line):
            kind, prefix, count = registers.groups()
            names = ", ".join(f"{prefix}{i} = 0" for i in range(1, int(count)))
            lines.append(f"  {C_TYPES[kind]} {names};")
        else:
            lines.append(f"  {statement(line)}")
    return "\n".join([*lines, "}", ""])


def entries_of(ptx: str) -> list[tuple[str, str, str]]:
    """Name, parameters and body of each entry."""
    return re.findall(r"^\.visible \.entry (\w+)\((.*?)^\)\s*(?:^\.\w+ \d+\s*)*^\{(.*?)^\}", ptx,
                      re.MULTILINE | re.DOTALL)


def signature(parameters: str, body: str) -> str:
    """A letter for each argument: i, w integers of 8 and 4 bytes, d, f reals, p an array that is written, r another.

    An address is followed from the argument through every register that is computed from it to the instructions that
    access memory.
    """
    letters: dict[str, str] = {}
    arrays: dict[str, set[str]] = {}
    for kind, pointer, name in re.findall(r"\.param (\.\w+)( \.ptr)?[^,]*? (\w+)(?=,|\s*$)", parameters):
        letters[name] = "r" if pointer else LETTERS[kind]
        if pointer:
            arrays[name] = {name}
    lines = [re.sub(r"^@!?%p\d+\s+", "", line.strip()) for line in body.splitlines()]
    steps = [(re.findall(r"%\w+|\w+_param_\d+", line)) for line in lines
             if not line.startswith(("ld.global", "st.", "bra", "setp"))]
    grows = True
    while grows:
        grows = False
        for target, *sources in filter(None, steps):
            found = set().union(*(arrays.get(source, set()) for source in sources))
            if not found <= arrays.get(target, set()):
                arrays[target] = arrays.get(target, set()) | found
                grows = True
    for base in re.findall(r"\bst\.global\S*\s+\[(%\w+)", body):
        letters |= dict.fromkeys(arrays[base], "p")
    return "".join(letters.values())


def table_as_c(ptx: str) -> str:
    """The table of kernels that host_kernels.c launches from, each called with the addresses of its arguments."""
    lines, rows = ["#include <stdint.h>"], []
    for name, parameters, body in entries_of(ptx):
        types = [PARAMETERS[kind] for kind in re.findall(r"\.param (\.\w+)", parameters)]
        lines += [f"void {name}({', '.join(types)});",
                  f"static void call_{name}(void **a) {{ {name}("
                  f"{', '.join(f'*({kind} *)a[{i}]' for i, kind in enumerate(types))}); }}"]
        rows.append(f'{{"{name}", call_{name}, "{signature(parameters, body)}"}}')
    lines += ["const struct { const char *name; void (*kernel)(void **); const char *arguments; } cnn_host_table[] = {",
              ",\n".join(rows), "};", f"const int cnn_host_kernels = {len(rows)};", ""]
    return "\n".join(lines)


def ptx_as_c(ptx: str, header: str = "", which: slice = slice(None)) -> str:
    """All entries of a PTX text, or some, as C functions; `header` may say what is done with an access.

    Raises
    ------
    UnknownInstructionError
        If the text has an instruction that this translation does not know.
    """
    return f'#include "{header}"\n' * bool(header) + PRELUDE + "\n".join(
        function(*entry) for entry in entries_of(ptx)[which])
