# SPDX-License-Identifier: MIT
"""Terms and factors that are missing, there twice, inverted or of the other sign; other counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.judge.diagnosis.altered.alteration import Alteration, Alterations, Extents, alters
from bridge.judge.diagnosis.altered.calls import Call
from bridge.judge.oracle.bounded import Bounded

Two = Callable[[Any, Any], Any]


def _with(change: Two) -> Callable[..., Any]:
    """What is made of the two operands in place of the call, in the shape that both have together."""

    def changed(method: Any, a: Bounded, b: Any) -> Any:
        found, right = change(a, b), method(a, b)
        found = found if isinstance(found, Bounded) else right.constant(found)
        return found if found.shape == right.shape else found.broadcast(right.shape)

    return changed


@alters("__add__")
def added(call: Call, extents: Extents) -> Alterations:
    """Yield sums of two numbers, other terms of them."""
    a, b = call.first.label, call.second.label
    yield Alteration("term", f"{b} is not added to {a}", _with(lambda x, y: x), "missing")
    yield Alteration("term", f"{b} alone, without {a}", _with(lambda x, y: y))
    yield Alteration("term", f"{b} is added to {a} twice", _with(lambda x, y: x + y + y))
    yield Alteration("term", f"{a} is taken twice where {b} is added to it", _with(lambda x, y: x + y + x))
    yield Alteration("term", f"{b} is subtracted from {a}, not added", _with(lambda x, y: x - y))
    yield Alteration("term", f"{a} is subtracted from {b}, not added", _with(lambda x, y: y - x))
    yield Alteration("term", f"{a} is multiplied by {b}, not added", _with(lambda x, y: x * y))


@alters("__sub__", "__rsub__")
def subtracted(call: Call, extents: Extents) -> Alterations:
    """Yield differences, other terms of them."""
    back = call.primitive == "__rsub__"
    a, b = (call.second.label, call.first.label) if back else (call.first.label, call.second.label)

    def of(change: Two) -> Callable[..., Any]:
        return _with((lambda x, y: change(y, x)) if back else change)

    yield Alteration("term", f"{b} is not subtracted from {a}", of(lambda x, y: x), "missing")
    yield Alteration("term", f"-{b} alone, without {a}", of(lambda x, y: -y if isinstance(
        y, Bounded) else -1.0 * y))
    yield Alteration("term", f"{b} is subtracted from {a} twice", of(lambda x, y: x - y - y))
    yield Alteration("term", f"{a} is taken twice where {b} is subtracted from it", of(lambda x, y: x - y + x))
    yield Alteration("term", f"{b} is added to {a}, not subtracted", of(lambda x, y: x + y))
    yield Alteration("term", f"{a} is subtracted from {b}, not {b} from {a}", of(lambda x, y: y - x))
    yield Alteration("term", f"the absolute value of {a} - {b}", of(lambda x, y: abs(x - y)))


@alters("__mul__")
def multiplied(call: Call, extents: Extents) -> Alterations:
    """Yield products, other factors of them."""
    a, b = call.first.label, call.second.label
    yield Alteration("factor", f"{a} is not multiplied by {b}", _with(lambda x, y: x), "missing")
    yield Alteration("factor", f"{b} is not multiplied by {a}", _with(lambda x, y: y))
    yield Alteration("factor", f"{a} is multiplied by {b} twice", _with(lambda x, y: x * y * y))
    yield Alteration("factor", f"{b} is multiplied by {a} twice", _with(lambda x, y: x * y * x))
    yield Alteration("factor", f"{a} is divided by {b}, not multiplied", _with(lambda x, y: x / y))
    yield Alteration("factor", f"{b} is divided by {a}, not multiplied", _with(lambda x, y: y / x))
    yield Alteration("term", f"{b} is added to {a}, not multiplied", _with(lambda x, y: x + y))
    yield Alteration("factor", f"{a} is multiplied by -{b}", _with(lambda x, y: -(x * y)), unlikely=True)


@alters("__truediv__", "__rtruediv__")
def divided(call: Call, extents: Extents) -> Alterations:
    """Yield quotients by tensors, and of constants, that are another thing."""
    back = call.primitive == "__rtruediv__"
    a, b = (call.second, call.first) if back else (call.first, call.second)
    if b.number is not None:
        return

    def of(change: Two) -> Callable[..., Any]:
        return _with((lambda x, y: change(y, x)) if back else change)

    yield Alteration("factor", f"{a.label} is not divided by {b.label}", of(lambda x, y: x))
    yield Alteration("factor", f"{a.label} is multiplied by {b.label}, not divided", of(lambda x, y: x * y))
    yield Alteration("factor", f"{b.label} is divided by {a.label}, not {a.label} by {b.label}", of(
        lambda x, y: y / x))
    yield Alteration("factor", f"{a.label} is divided by {b.label} twice", of(lambda x, y: x / y / y))
    yield Alteration("factor", f"{a.label} is divided by -{b.label}", of(lambda x, y: -(x / y)))


@alters("__truediv__", "averaged")
def counts(call: Call, extents: Extents) -> Alterations:
    """Yield quotients by another count."""
    count = call.second.number
    what = call.first.label
    # A setting is no count, even if it is a whole number
    if count is None or not count.is_integer() or call.second.label != f"{count:g}":
        if count is not None:
            yield Alteration("factor", f"{what} is not divided by {call.second.label}", lambda method, x, *rest: x)
            yield Alteration("factor", f"{what} is multiplied by {call.second.label}, not divided",
                             lambda method, x, n, *rest: x * n)
        return
    usual = {count + 1: f"{count:g} + 1", **{float(n): name for n, name in extents.products.items()}}
    usual |= {count - 1: f"{count:g} - 1", 1.0: "nothing"}
    odd = {count**2: f"{count:g}**2"}
    odd |= {float(n + by): f"{name} {sign} 1" for n, name in extents.products.items() for by, sign in (
        (1, "+"), (-1, "-"))}
    for value, said in (odd | usual).items():
        if value > 0 and value != count:
            words = f"divided by {said} = {value:g}" if value != 1 else "not divided"
            instead = f"in place of {count:g}" if value != 1 else f"by {count:g}: it is a sum, not a mean"
            yield Alteration("count", f"{what} is {words} {instead}",
                             lambda method, x, n, *rest, value=value: method(x, value, *rest), words,
                             value not in usual or value in (count / 2, 2 * count))
