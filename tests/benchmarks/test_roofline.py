# SPDX-License-Identifier: MIT
"""`benchmarks.harness.roofline`, held against counts by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.roofline import H200, Rates, operations, predictions, roofline
from benchmarks.harness.workloads import Conv, Net

#: Pixels of the mission's two images
PIXELS = 2 * 1024 * 1024
#: Tensors of one channel that each operation of the mission's step moves, counted by hand: reads, then writes
MOVED = {
    "forward 1": (1, 16), "forward 2": (16, 16), "forward 3": (16, 1), "loss": (1 + 1, 1),
    "data gradient 3": (1 + 16, 16), "filter gradient 3": (16 + 1, 0),
    "data gradient 2": (16 + 16, 16), "filter gradient 2": (16 + 16, 0), "filter gradient 1": (1 + 16, 0),
    "update": (0, 0),
}  # fmt: skip
#: Products of each pixel: channels in, channels out, nine taps
PRODUCTS = {"1": 1 * 16 * 9, "2": 16 * 16 * 9, "3": 16 * 1 * 9}


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("tf32", 4), ("bf16", 2)])
def test_the_missions_step_is_what_was_counted_by_hand(precision: str, size: int) -> None:
    found = operations(Net().layers, precision)
    assert [one.name for one in found] == list(MOVED)
    for one in found:
        reads, writes = MOVED[one.name]
        # Parameters: 2625 of them, read or written in part by each operation
        assert 0 <= one.read - size * PIXELS * reads <= 8 * 2625, one.name
        assert 0 <= one.written - size * PIXELS * writes <= 4 * 2625, one.name
        assert one.flop == 2 * PIXELS * PRODUCTS.get(one.name[-1], 0), one.name


def test_the_missions_step_in_short() -> None:
    """32.0 GFLOP, 216 tensors of one channel, 1.81 GB."""
    found = roofline(Net().layers, "fp32", Rates(1.0, 1.0))
    assert round(found.flop / 1e9, 1) == 32.0 and found.flop == Net().flop
    assert found.bytes // (4 * PIXELS) == sum(map(sum, MOVED.values())) == 216
    assert round(found.bytes / 1e9, 2) == 1.81


def test_parameters_are_counted_by_hand() -> None:
    """One convolution of 2 to 3 channels, 1 x 2: 12 filters' values and 3 of the bias."""
    one = Conv(n=1, c=2, h=5, w=7, k=3, r=1, s=2)
    x, y, filters, bias = 4 * 2 * 5 * 7, 4 * 3 * 5 * 6, 4 * 12, 4 * 3
    assert [(each.name, each.read, each.written) for each in operations([one])] == [
        ("forward 1", x + filters + bias, y), ("loss", 2 * y, y), ("filter gradient 1", x + y, filters + bias),
        ("update", 2 * (filters + bias), filters + bias)]


def test_bytes_of_parameters_do_not_shrink_with_the_tensors() -> None:
    net = Net(size=8)
    wide, narrow = (sum(one.bytes for one in operations(net.layers, precision)) for precision in ("fp32", "bf16"))
    tensors = 216 * 2 * 8 * 8
    assert wide - 4 * tensors == narrow - 2 * tensors > 0


def test_a_longer_chain_with_strides_and_groups() -> None:
    """Each layer but the first has three passes; sizes follow the layers."""
    first = Conv(n=2, c=4, h=9, w=11, k=8, r=3, s=3, stride=(2, 2), padding=(1, 1))
    second = Conv(n=2, c=8, h=5, w=6, k=6, r=3, s=1, padding=(1, 0), groups=2)
    found = {one.name: one for one in operations([first, second])}
    assert found["data gradient 2"].read == 4 * (2 * 6 * 5 * 6 + 6 * 4 * 3 + 2 * 8 * 5 * 6)
    assert found["data gradient 2"].written == 4 * 2 * 8 * 5 * 6
    assert found["filter gradient 1"].read == 4 * (2 * 4 * 9 * 11 + 2 * 8 * 5 * 6)
    assert found["forward 2"].flop == 2 * 2 * 6 * 5 * 6 * 4 * 3
    assert "data gradient 1" not in found


def test_layers_that_do_not_fit_are_refused() -> None:
    one = Conv(n=1, c=2, h=5, w=7, k=3, r=1, s=2)
    for layers in ([], [one, one]):
        with pytest.raises(ValueError, match="layers"):
            operations(layers)


def test_each_operation_has_its_own_limit() -> None:
    """The sum is never below the whole, and both are what their parts say."""
    for precision, rates in H200.items():
        found = roofline(Net().layers, precision, rates)
        assert found.each == pytest.approx(sum(one["seconds"] for one in found.limits))
        assert found.whole <= found.each * (1 + 1e-12)
        for one in found.limits:
            parts = {"arithmetic": one["flop"] / rates.arithmetic, "memory": one["bytes"] / rates.bandwidth}
            assert one["seconds"] == parts[one["limit"]] == max(parts.values())
    found = roofline(Net().layers, "fp32", H200["fp32"])
    limited = {one["name"] for one in found.limits if one["limit"] == "arithmetic"}
    assert limited == {"forward 2", "data gradient 2", "filter gradient 2"}


def test_the_document_has_these_predictions(root: Path) -> None:
    text = (root / "docs" / "gpu-bench.md").read_text(encoding="utf-8")
    head = "| operation | GFLOP | MB, float32 | float32 | TF32 | bfloat16 |\n"
    table = text.partition(head)[2].partition("\n\n")[0].split("\n")[1:]
    assert table == predictions()
