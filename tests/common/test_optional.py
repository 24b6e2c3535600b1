# SPDX-License-Identifier: MIT
"""Without a package that only some of the work needs: one clear error, with the command that installs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.common.errors import BridgeError
from bridge.common.optional_packages import INSTALLED, require
from tests import ROOT

#: Run with a package as if it were not installed
WITHOUT = """
import importlib.machinery
find = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None: None if name == {package!r} else find(name, path, target))
import numpy as np, bridge
{code}
"""
NET = "net = bridge.Network(bridge.Model((bridge.Conv2d('a', 1, 1, (1, 1)),)))\n"


def said(package: str, code: str) -> str:
    """The last line of what a program says that is run without a package."""
    done = subprocess.run([sys.executable, "-c", WITHOUT.format(package=package, code=code)], capture_output=True,
                          text=True, check=False, cwd=ROOT)
    return done.stderr.strip().split("\n")[-1] if done.returncode else done.stdout.strip()


@pytest.mark.parametrize(("code", "expected"), [
    (NET + "net.to_torch()", "BridgeError: PyTorch is not installed, and to_torch makes a torch.nn.Module: pip"),
    ("bridge.Network.from_torch(None)", "BridgeError: PyTorch is not installed, and from_torch takes a torch.nn.Mod"),
    ("import bridge.validate.self_test",
     "BridgeError: PyTorch is not installed, and the self-test's programs are PyTorch: pip"),
    ("import reference.export", "ModuleNotFoundError: reference: the package torch is missing in "),
    ("import bridge.data\nprint(bridge.data.Batches.__name__)", "Batches"),
    (NET + "print(net.step(np.ones((1, 1, 2, 2), 'f4'), np.ones((1, 1, 2, 2), 'f4'), lr=0.5))", "1.0"),
])
def test_without_torch(code: str, expected: str) -> None:
    """What needs no torch works without."""
    assert expected in said("torch", code)


def test_commands_are_those_of_the_project(root: Path) -> None:
    """The versions are the ones that pyproject.toml asks for."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    assert all(re.search(rf'"{re.escape(requirement)}[;"]', text) for _, requirement in INSTALLED.values())
    assert all(re.split(r"[><=]", requirement)[0] == package for package, (_, requirement) in INSTALLED.items())


def test_what_is_there_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require("torch", "this is a test")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BridgeError, match=r"^PyTorch is not installed, and this is a test: pip install 'torch>=2\.5'$"):
        require("torch", "this is a test")
