# SPDX-License-Identifier: MIT
"""The commands of the project."""

from __future__ import annotations

from tests import ROOT

#: Processes that a command starts for itself
WORKERS = {"benchmarks.cpu.tools.worker", "benchmarks.gpu.worker", "bridge.judge.diagnosis.background",
           "bridge.doctor.isolated_child"}


def command_names() -> list[str]:
    """Modules that ``python -m`` runs, packages by their own name."""
    paths = [path for package in ("bridge", "reference", "benchmarks") for path in (ROOT / package).rglob("*.py")
             if '\nif __name__ == "__main__":\n' in path.read_text(encoding="utf-8")]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__") for path in paths}
    return sorted(names - WORKERS)
