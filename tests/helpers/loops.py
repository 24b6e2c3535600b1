# SPDX-License-Identifier: MIT
"""Many small cases in one test: what a thousand tests of a millisecond each would cost is mostly pytest's own work."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


class CasesError(AssertionError):
    """Cases of a loop failed; the first one's error is the cause."""

    def __init__(self, names: list[str]) -> None:
        super().__init__("failed: " + "; ".join(names))
        self.names = names


def looped(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each of these values of one or more of its arguments: all of them, and those that fail are named.

    In the place of `pytest.mark.parametrize`, whose arguments these are; several make every combination. A case cannot
    be skipped, which would take all others with it.

    Examples
    --------
    >>> @looped("a", (1, 2))
    ... @looped(("b", "c"), [(0, 0), (1, 0), (1, 1)])
    ... def test(a, b, c):
    ...     assert a > b + c
    >>> test()
    Traceback (most recent call last):
    CasesError: failed: a=1, b=1, c=0; a=1, b=1, c=1; a=2, b=1, c=1
    """
    listed = tuple(names.replace(" ", "").split(",")) if isinstance(names, str) else names
    cases = [dict(zip(listed, value if len(listed) > 1 else (value,), strict=True)) for value in values]
    assert cases, "a loop over nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(*positional: Any, **given: Any) -> None:
            failed, causes = list[str](), list[BaseException]()
            for case in cases:
                name = ", ".join(f"{key}={value}" for key, value in case.items())
                try:
                    test(*positional, **given, **case)
                except CasesError as error:
                    failed += [f"{name}, {inner}" for inner in error.names]
                    causes.append(error.__cause__ or error)
                except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
                    failed.append(name)
                    causes.append(error)
            if failed:
                raise CasesError(failed) from causes[0]

        del run.__wrapped__  # type: ignore[attr-defined]
        whole = inspect.signature(test)
        left = [one for name, one in whole.parameters.items() if name not in listed]
        run.__signature__ = whole.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate
