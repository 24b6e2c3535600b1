# SPDX-License-Identifier: MIT
"""Functions of one number that are another one, or left out."""

from __future__ import annotations

import math
from typing import Any

from bridge.judge.diagnosis.altered.alteration import Alteration, Alterations, Extents, alters, near
from bridge.judge.diagnosis.altered.calls import Call

#: What is taken for what
OTHERS = {"exp": ("expm1", "sigmoid"), "expm1": ("exp",), "log": ("log1p",), "log1p": ("log",), "erf": ("tanh",),
          "tanh": ("sigmoid", "erf"), "sigmoid": ("tanh", "exp"), "sqrt": ("squared",),
          "sin": ("cos", "tanh"), "cos": ("sin",)}
#: Factors of arguments and results: logarithms and powers of other bases, angles of other units
BASES = {"exp": (("2**x", math.log(2.0), 1.0), ("10**x", math.log(10.0), 1.0)),
         "log": (("the binary logarithm", 1.0, 1 / math.log(2.0)), ("the decimal logarithm", 1.0, 1 / math.log(10.0))),
         "sin": (("the sine of degrees", math.pi / 180.0, 1.0), ("the sine of turns", 2.0 * math.pi, 1.0)),
         "cos": (("the cosine of degrees", math.pi / 180.0, 1.0), ("the cosine of turns", 2.0 * math.pi, 1.0))}


@alters("exp", "expm1", "log", "log1p", "erf", "tanh", "sigmoid", "sqrt", "squared", "sin", "cos")
def other_functions(call: Call, extents: Extents) -> Alterations:
    """Yield other functions of the same number."""
    name, x = call.primitive, call.first.label
    shown = {"squared": "square", "sqrt": "root"}.get(name, name)
    yield Alteration("function", f"{x} in place of its {shown}", lambda method, x, *rest: x)
    yield Alteration("function", f"the {shown} of -({x})", lambda method, x, *rest: method(-x, *rest))
    yield Alteration("function", f"the {shown} of {x}, negated", lambda method, x, *rest: -method(x, *rest))
    if name != "sqrt":
        for said, factor in (("2", 2.0), ("1/2", 0.5)):
            yield Alteration("function", f"the {shown} of {said} * ({x})",
                             lambda method, x, *rest, factor=factor: method(x * factor, *rest))
    for other in OTHERS.get(name, ()):
        yield Alteration("function", f"{other} of {x} in place of {shown}",
                         lambda method, x, *rest, other=other: getattr(x, other)())
    for said, inside, outside in BASES.get(name, ()):
        def change(method: Any, x: Any, *rest: Any, inside: float = inside, outside: float = outside) -> Any:
            found = method(x * inside if inside != 1.0 else x, *rest)
            return found * outside if outside != 1.0 else found
        yield Alteration("function", f"{said} in place of the {shown} of {x}", change)
    if name == "sigmoid":
        yield Alteration("function", f"the sigmoid of {x} + 1", lambda method, x: method(x + 1.0))
        for said, slope in (("x/5", 0.2), ("x/6", 1 / 6)):
            yield Alteration("function", f"the hard sigmoid 1/2 + {said} of {x} in place of its sigmoid",
                             lambda method, x, slope=slope: (x * slope + 0.5).clipped(0.0, 1.0), f"hard {said}")
    if name in ("log", "log1p") and len(call.operands) > 1:
        yield Alteration("function", f"the {shown} of {x} is not limited to {call.second.label}",
                         lambda method, x, *rest: method(x), "not limited")
    if name in ("log", "sqrt"):
        yield Alteration("function", f"the {shown} of |{x}|", lambda method, x, *rest: method(abs(x), *rest))
    if name == "squared":
        yield Alteration("function", f"the absolute value of {x} in place of its square", lambda method, x: abs(x))
        yield Alteration("function", f"the cube of {x} in place of its square", lambda method, x: method(x) * x)


@alters("__neg__")
def signs(call: Call, extents: Extents) -> Alterations:
    """Yield a number that is not negated."""
    yield Alteration("term", f"{call.first.label} with the other sign", lambda method, x: x)


@alters("__abs__")
def absolutes(call: Call, extents: Extents) -> Alterations:
    """Yield a number with its sign."""
    yield Alteration("function", f"{call.first.label} in place of its absolute value", lambda method, x: x)
    yield Alteration("function", f"the square of {call.first.label} in place of its absolute value",
                     lambda method, x: x.squared())


@alters("clipped")
def limits(call: Call, extents: Extents) -> Alterations:
    """Yield a number that is not limited at one side, or at both."""
    x = call.first.label
    low, high = (one.number if one.number is not None else math.nan for one in call.operands[1:3])
    for said, bounds in (("is not limited below", (-math.inf, high)), ("is not limited above", (low, math.inf)),
                         ("is not limited", (-math.inf, math.inf))):
        if bounds != (low, high):
            yield Alteration("function", f"{x} {said}", lambda method, x, low, high, bounds=bounds: near(
                x, x.value.clip(*bounds)))
