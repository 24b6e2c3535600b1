# SPDX-License-Identifier: MIT
"""A capped process computes as on a processor that has no more, in every library."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests import ROOT
from tests.helpers.capped import CAPS
from tests.helpers.instruction_sets import X86, choose
from tests.helpers.tiers import few

#: What each library says of itself
PROGRAM = """
import json, numpy, torch
from numpy._core import _multiarray_umath as of_numpy
from tests.helpers.instruction_sets import facts
print(json.dumps({
    "ours": facts()["best"], "torch": torch.backends.cpu.get_cpu_capability(),
    "bfloat16": torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    "numpy": [one for one in of_numpy.__cpu_dispatch__ if of_numpy.__cpu_features__[one]]}))
"""


@pytest.mark.parametrize("level", few(CAPS, 1))
def test_no_library_uses_more(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy says on stderr which features it could not leave out."""
    if not X86:
        pytest.skip("only x86-64 has instruction sets to do without")
    choose(level, monkeypatch)
    monkeypatch.delenv("CNN_CPU_LEVEL")
    done = subprocess.run([sys.executable, "-m", "tests.helpers.capped", level, sys.executable, "-W", "always", "-c",
                           PROGRAM], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "NPY_DISABLE_CPU_FEATURES" not in done.stderr
    found = json.loads(done.stdout)
    assert found["ours"] == level and not found["bfloat16"]
    assert found["torch"] == {"avx2": "AVX2", "baseline": "DEFAULT"}[level]
    assert set(found["numpy"]) <= ({"AVX2", "FMA3", "F16C", "AVX", "X86_V3"} if level == "avx2" else set())


def test_an_unknown_level_is_refused() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.helpers.capped", "avx512", "true"], capture_output=True,
                          text=True, check=False, cwd=ROOT)
    assert done.returncode == 1 and done.stderr == "usage: python -m tests.helpers.capped baseline|avx2 COMMAND ...\n"
