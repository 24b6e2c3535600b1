# SPDX-License-Identifier: MIT
"""Calls of ATen, PyTorch's operations, as an exchange file has them: read, checked, and computed by PyTorch.

The text is JSON (docs/exchange-file.md). It is nobody's program: an operation is looked up by its name among ATen's,
arguments are numbers, texts, lists and references, and what touches files, devices, random numbers or memory that was
not written is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from bridge.common.errors import FileError

Shape = tuple[int, ...]

#: Most calls, dimensions, and numbers of a tensor
MOST_CALLS, MOST_DIMENSIONS, MOST_NUMBERS = 1000, 8, 2**31
NAME = re.compile(r"aten\.([a-z_][A-Za-z0-9_]*)\.([A-Za-z0-9_]+)")
PART = re.compile(r"[A-Za-z0-9_]{1,64}")
#: A word ("tanh"), or the equation of an einsum
TEXT = re.compile(r"[A-Za-z0-9_,.> -]{0,200}")
#: Types by their names; "real" is the one that everything is computed in
INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")
TYPES = ("real", "complex", *INTEGERS)
#: Arguments that say where something is, or draw it
OUTSIDE = {"device", "generator", "layout", "pin_memory", "out"}
#: Names with an underscore before them are ATen's own, which may trust their arguments; these do not
OWN = ("_to_copy", "_unsafe_view", "_reshape_copy", "_softmax", "_safe_softmax", "_log_softmax", "_fft_r2c",
       "_fft_c2r", "_fft_c2c", "_weight_norm_interface",
       "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_weight_norm", "_trilinear", "_euclidean_dist",
       "_cdist_forward", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
#: Beginnings and parts of names of what touches more than its arguments
REFUSED = re.compile(r"empty|from_file|pin_memory|record_stream|cuda|cudnn|mkldnn|xnnpack|quantize|fbgemm|sparse|set_|"
                     r"resize|storage|nested|dispatch|as_strided|unsafe|^sym_|^item$|data_ptr")


@dataclass(frozen=True)
class Program:
    """Calls, one after the other; the last one's output is the result.

    Attributes
    ----------
    calls : name of the operation (``aten.roll.default``), arguments in their order, and those by name
    output : which of the last call's outputs, of several
    shape : of the result
    parameters, state : shapes of what it keeps and learns, and of what it keeps alone, by their names
    integers : positions of inputs that it takes as integers
    """

    calls: tuple[tuple[str, list[Any], dict[str, Any]], ...]
    output: int | None
    shape: Shape
    parameters: Mapping[str, Shape]
    state: Mapping[str, Shape]
    inputs: int
    integers: frozenset[int]

    @property
    def operations(self) -> tuple[str, ...]:
        """Return the names of the operations that it calls, each once."""
        return tuple(dict.fromkeys(name for name, *_ in self.calls))

    def run(self, inputs: Sequence[Any], stored: Mapping[str, Any]) -> Any:
        """Return what PyTorch computes of its tensors, all of one type of real numbers.

        Raises
        ------
        FileError
            If there is no such operation, it is none that may be called, or it fails.
        """
        import torch

        real = next(one.dtype for one in (*inputs, *stored.values()))
        types = {"real": real, "complex": {torch.float32: torch.complex64}.get(real, torch.complex128)}
        results: list[Any] = []

        def given(value: Any) -> Any:
            if isinstance(value, list):
                return [given(one) for one in value]
            if not isinstance(value, dict):
                return value
            if "type" in value:
                return types.get(value["type"]) or getattr(torch, value["type"])
            if "number" in value:
                return float(value["number"])
            found = (inputs[value["input"]] if "input" in value else
                     stored[value["stored"]] if "stored" in value else results[value["call"]])
            found = found[value["output"]] if "output" in value else found
            return found.to(getattr(torch, value["as"])) if "as" in value else found

        before = torch.get_default_dtype()
        torch.set_default_dtype(real)
        try:
            for name, args, kwargs in self.calls:
                operation = _operation(name)
                if torch.Tag.nondeterministic_seeded in operation.tags and not _draws_nothing(operation, args, kwargs):
                    raise FileError(f"{name} draws random numbers, and is refused")
                results.append(operation(*given(args), **{key: given(one) for key, one in kwargs.items()}))
        except FileError:
            raise
        except Exception as error:  # whatever PyTorch raises
            raise FileError(f"{name} fails in PyTorch: {' '.join(str(error).split())[:300]}") from None
        finally:
            torch.set_default_dtype(before)
        found = results[-1] if self.output is None else results[-1][self.output]
        if not isinstance(found, torch.Tensor) or tuple(found.shape) != self.shape or found.dtype != real:
            gives = getattr(found, "dtype", type(found).__name__)
            raise FileError(f"{self.calls[-1][0]} gives {tuple(getattr(found, 'shape', ()))} of {gives}, expected "
                            f"{self.shape} of {real}")
        return found


@cache
def read(text: str) -> Program:
    """Return the program of a text; its operations are looked up when they are called.

    Raises
    ------
    FileError
        If it is none.

    Examples
    --------
    >>> read('{"calls": [["aten.roll.default", [{"input": 0}, [1], [2]]]], "shape": [1, 2, 3, 4]}').operations
    ('aten.roll.default',)
    """
    try:
        found = json.loads(text)
        _expect(isinstance(found, dict) and set(found) <= {"calls", "output", "shape", "parameters", "state"},
                "it is an object of calls, output, shape, parameters and state")
        calls = found["calls"]
        _expect(isinstance(calls, list) and 0 < len(calls) <= MOST_CALLS, f"it has 1 to {MOST_CALLS} calls")
        kept = {kind: {_part(name): _shape(one) for name, one in found.get(kind, {}).items()}
                for kind in ("parameters", "state")}
        references, made = list[dict[str, Any]](), []
        for number, call in enumerate(calls):
            name, args, kwargs = (*call, {}) if len(call) == 2 else call
            _expect(isinstance(name, str) and NAME.fullmatch(name) is not None, f"{name!r:.60} is no operation's name")
            _expect(isinstance(args, list) and isinstance(kwargs, dict) and not set(kwargs) & OUTSIDE,
                    f"{name} has a list of arguments, and others by name, none of them {' or '.join(sorted(OUTSIDE))}")
            references += _references([*args, *kwargs.values()], number, {*kept["parameters"], *kept["state"]})
            made.append((name, args, kwargs))
        taken = [one["input"] for one in references if "input" in one]
        output = found.get("output")
        _expect(output is None or _whole(output), "output is a number from 0 on")
        integers = frozenset(one["input"] for one in references if "input" in one and "as" in one)
        return Program(tuple(made), output, _shape(found["shape"]), kept["parameters"], kept["state"],
                       max(taken, default=-1) + 1, integers)
    except FileError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(f"program: not the calls of an operation ({type(error).__name__}: {error!s:.100})") from None


def _references(value: Any, number: int, stored: set[str]) -> Iterator[dict[str, Any]]:
    """All references in an argument of a call, which is checked."""
    if isinstance(value, list):
        for one in value:
            yield from _references(one, number, stored)
        return
    kinds = set(value) if isinstance(value, dict) else set()
    if kinds == {"type"}:
        _expect(value["type"] in TYPES, f"{value!r:.60} is none of {', '.join(TYPES)}")
    elif kinds == {"number"}:
        _expect(value["number"] in ("inf", "-inf", "nan"), f"{value!r:.60} is no number")
    elif kinds:
        (kind,) = kinds - {"output", "as"} if len(kinds - {"output", "as"}) == 1 else ("",)
        there = (kind == "input" and _whole(value[kind])) or (kind == "stored" and value[kind] in stored) or (
            kind == "call" and _whole(value[kind]) and value[kind] < number)
        _expect(there and _whole(value.get("output", 0)) and value.get("as", "int64") in INTEGERS,
                f"{value!r:.60} refers to nothing")
        yield value
    else:
        _expect(value is None or isinstance(value, (bool, int, float)) or (
            isinstance(value, str) and TEXT.fullmatch(value) is not None), f"{value!r:.60} is no argument")


def _expect(true: bool, what: str) -> None:
    if not true:
        raise FileError(f"program: {what}")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _part(name: Any) -> str:
    _expect(isinstance(name, str) and PART.fullmatch(name) is not None, f"{name!r:.60} is no name of a parameter")
    return str(name)


def _shape(value: Any) -> Shape:
    _expect(isinstance(value, list) and len(value) <= MOST_DIMENSIONS and all(_whole(n) and n for n in value)
            and math.prod(value) <= MOST_NUMBERS, f"{value!r:.60} is no shape of up to {MOST_DIMENSIONS} dimensions")
    return tuple(value)


def _draws_nothing(operation: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether it is an attention or a recurrent network without dropout."""
    names = [one.name for one in operation._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    chance = next((one for one in ("dropout_p", "dropout") if one in names), None)
    return chance is not None and (given.get(chance, 0.0) == 0 or given.get("train", True) is False)


@cache
def _operation(name: str) -> Any:
    """PyTorch's operation, if it may be called."""
    import torch

    packet, overload = name.split(".")[1:]
    if REFUSED.search(packet) or "device" in overload or (packet.startswith("_") and packet not in OWN):
        raise FileError(f"{name} may touch more than its arguments, and is refused")
    found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    if not isinstance(found, torch._ops.OpOverload):
        raise FileError(f"{name} is no operation of PyTorch {torch.__version__}")
    if found._schema.is_mutable:
        raise FileError(f"{name} changes its arguments, and is refused")
    return found
