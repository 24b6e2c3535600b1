# SPDX-License-Identifier: MIT
"""The doctor's JSON, and its rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.doctor.__main__ import main


def report(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON."""
    code = main(["--json", "-", *options])
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == code
    return code, document


def section(document: dict[str, Any], title: str) -> list[dict[str, str]]:
    (found,) = (one["rows"] for one in document["sections"] if one["title"] == title)
    return found


def row(document: dict[str, Any], title: str, name: str) -> dict[str, str]:
    return next(one for one in section(document, title) if one["name"] == name)
