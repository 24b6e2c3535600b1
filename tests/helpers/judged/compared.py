# SPDX-License-Identifier: MIT
"""Results of which parts are compared."""

from __future__ import annotations

from reference.settings import ExportSettings

PLAIN = ExportSettings(height=12, width=15, batch=2, steps=3, threads=1)


def is_weight(name: str) -> bool:
    return "/weights/" in name
