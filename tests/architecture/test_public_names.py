# SPDX-License-Identifier: MIT
"""What `bridge` shows to users, and that its types are theirs too."""

from __future__ import annotations

from importlib.metadata import files, version

import bridge


def test_dir_shows_what_is_for_users() -> None:
    assert dir(bridge) == sorted(bridge.__all__)
    assert all(hasattr(bridge, name) for name in bridge.__all__)
    assert {"Network", "conv2d", "gradcheck", "__version__"} <= set(dir(bridge))
    assert not {"check_requirements", "common", "version"} & set(dir(bridge))


def test_the_version_is_that_of_the_package() -> None:
    assert bridge.__version__ == version("fortran-torch-bridge")


def test_type_checkers_find_the_types() -> None:
    """The marker is installed (PEP 561)."""
    assert "bridge/py.typed" in map(str, files("fortran-torch-bridge") or ())
