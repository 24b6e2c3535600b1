# SPDX-License-Identifier: MIT
"""A lab of a right result, for all searches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from bridge.common.threads import one_core
from tests.helpers.judged.diagnosed import Lab, make


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """All single tensors of a right result; quiet, because hypotheses may overflow."""
    found = Lab(*make(tmp_path_factory.mktemp("lab")))
    with one_core(), np.errstate(all="ignore"):
        yield found
    found.close()
