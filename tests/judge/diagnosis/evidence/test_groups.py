# SPDX-License-Identifier: MIT
"""Groups of channels, and strides that leave pixels out, are described."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from bridge.judge.diagnosis.evidence.places.neighbours import neighbours
from bridge.judge.diagnosis.evidence.view import AXES, View
from bridge.judge.diagnosis.predictions.operations import Predicted
from tests.helpers.judged.diagnosed import Lab, make
from tests.helpers.judged.evidence import at, seen


@pytest.fixture(scope="module")
def strided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A layer of two groups, and one whose stride leaves pixels that no output reaches."""
    def model() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Conv2d(2, 6, 1), torch.nn.Conv2d(6, 4, 3, padding=1, groups=2),
                                   torch.nn.Conv2d(4, 3, 1, stride=2))

    lab = Lab(*make(tmp_path_factory.mktemp("strided"), model=model, height=16, width=18))
    yield lab
    lab.close()


def test_groups_that_are_written_at_the_offsets_of_the_other_side(strided: Lab) -> None:
    """Groups of 3 inputs and 2 outputs: the data gradient is written 2 channels apart, over what is there."""
    right = strided.right("grads/0/output")
    found = np.zeros_like(right)
    found[:, :3], found[:, 2:5] = right[:, :3], right[:, 3:]
    seen_there = seen(strided, "grads/0/output", found)
    assert seen_there is not None and seen_there.exact
    assert "each group is written over what is there, 2 channels after the group before it, not 3" in seen_there.said


@pytest.mark.parametrize("name", ["forward/1", "grads/0/output"])
def test_groups_with_the_filters_of_another_are_described(strided: Lab, name: str) -> None:
    right = strided.graph().operation(name)
    of_first = right.replaced(w=np.concatenate([right.w[:2]] * 2)).values()
    found = seen(strided, name, of_first)
    assert found is not None and found.exact and "all groups use the filters of group 0" in found.said, found


@pytest.mark.parametrize(("operand", "said"), [("x", "input channels"), ("dz", "channels of dz")])
def test_filter_gradients_by_the_channels_of_another_group_are_described(
    strided: Lab, operand: str, said: str
) -> None:
    right = strided.graph().operation("grads/1/weight")
    x = getattr(right, operand).value
    of_first = np.concatenate([x[:, : x.shape[1] // 2]] * 2, 1)
    found = seen(strided, "grads/1/weight", right.replaced(**{operand: Predicted(of_first)}).values())
    assert found is not None and found.exact and f"all groups use the {said} of group 0" in found.said, found


def test_copies_where_nothing_belongs_are_no_sum(strided: Lab) -> None:
    """A pixel of a stride of 2 that is divided without the test whether it is even."""
    right = strided.right("grads/1/output")
    assert not right[:, :, 1::2].any()
    found = seen(strided, "grads/1/output", right[:, :, np.arange(16) // 2 * 2][..., np.arange(18) // 2 * 2])
    assert found is not None and found.exact and "without the test whether a pixel lies on the stride" in found.said
    odd = at(right, np.s_[:, :, 1::2], right[:, :, ::2])
    view = View(odd, right, np.full(1, 1e-12), AXES["nchw"])
    assert ["1 above" in one.said and "should be exactly 0" in one.said for one in neighbours(view)] == [True]
    mixed = right + at(np.zeros_like(right), np.s_[..., 1::2], 0.5 * right[..., ::2]) + 0.5 * odd * (right == 0)
    assert not any("sum" in one.said for one in neighbours(View(mixed, right, np.full(1, 1e-12), AXES["nchw"])))
