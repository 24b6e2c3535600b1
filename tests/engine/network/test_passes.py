# SPDX-License-Identifier: MIT
"""Single passes of operations: what a forward pass leaves for the backward pass, and shapes that calls share."""

from __future__ import annotations

import numpy as np
import pytest

from bridge.common.errors import EngineError
from bridge.engine.arrays.operand import extent_of
from bridge.engine.network import passes
from bridge.operations import BatchNorm2d


@pytest.mark.parametrize(("kept", "message"), [
    (6, "batch_norm2d: 6 numbers to keep, expected 8"), (0, "another number of tensors")])
def test_room_for_what_is_kept_is_asked_for(kept: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward pass reads it: too little room would be somebody else's memory."""
    monkeypatch.setattr(passes, "kept_numbers", lambda kind, channels: kept)
    norm = passes.OperationPasses(BatchNorm2d("norm", 3))
    with pytest.raises(EngineError, match=message):
        norm.forward([np.ones((2, 3, 4, 4))], {"weight": np.ones(3), "bias": np.zeros(3)})


def test_nobody_can_change_a_shape_that_many_share() -> None:
    """Operands of one shape are given the same array, which is made once."""
    shape = extent_of((2, 3))
    assert shape is extent_of((2, 3))
    with pytest.raises(ValueError, match="read-only"):
        shape[0] = 4
