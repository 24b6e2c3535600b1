# SPDX-License-Identifier: MIT
"""Ways that only large tensors go: written and read by several threads, convolved in strips, measured in parts."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.common import parallel
from bridge.common.errors import FileError
from bridge.compare import main
from bridge.engine.library import extension
from bridge.exchange import file as exchange
from bridge.exchange import hdf5_values
from bridge.exchange.file import ExchangeFile
from bridge.judge.measure import error_statistics
from reference.export import export
from reference.files import writer
from reference.network import strips
from reference.network.strips import StripConv2d
from reference.settings import ExportSettings

CONVOLUTIONS = {
    "plain": nn.Conv2d(3, 4, 3, padding=1),
    "strided": nn.Conv2d(3, 6, (3, 2), stride=(2, 1), padding=(1, 2)),
    "grouped, dilated": nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2),
    "strips of nothing but padding": nn.Conv2d(2, 3, (2, 3), padding=(5, 1)),
    "without bias": nn.Conv2d(2, 3, (1, 4), stride=(3, 2), bias=False),
    "gaps between rows": nn.Conv2d(2, 2, (2, 1), stride=(3, 3), padding="valid"),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_strips_equal_the_layer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strips, "STRIP", 300)
    layer = CONVOLUTIONS[name].double()
    generator = torch.Generator().manual_seed(3)
    value = torch.randn(2, layer.in_channels, 13, 11, generator=generator, dtype=torch.float64)
    found = []
    for module in (layer, StripConv2d("a", layer)):
        start = value.clone().requires_grad_()
        y = module(start)
        upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
        found.append([y, *torch.autograd.grad(y, [start, *layer.parameters()], upstream)])
    threads = torch.get_num_threads()
    for strip, whole in zip(*found, strict=True):
        torch.testing.assert_close(strip, whole, rtol=0, atol=1e-12)
    assert torch.get_num_threads() == threads


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every tensor be large, and larger than a piece."""
    for module in (writer, exchange):
        monkeypatch.setattr(module, "LARGE", 0)
    for module in (writer, hdf5_values):
        monkeypatch.setattr(module, "PIECE", 100)


@pytest.mark.deep
@pytest.mark.usefixtures("large")
def test_a_fixture_is_the_same_and_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ExportSettings(height=12, width=14, batch=2, steps=2)
    export(tmp_path / "threads.h5", settings)
    extension.run_file(tmp_path / "threads.h5", tmp_path / "result.h5")
    assert main([str(tmp_path / "threads.h5"), str(tmp_path / "result.h5")]) == 0, capsys.readouterr()
    monkeypatch.setattr(writer, "LARGE", 2**40)
    export(tmp_path / "h5py.h5", settings)
    with h5py.File(tmp_path / "threads.h5") as one, h5py.File(tmp_path / "h5py.h5") as other:
        names: list[str] = []
        one.visit(names.append)
        others: list[str] = []
        other.visit(others.append)
        assert names == others
        for name in names:
            if isinstance(one[name], h5py.Dataset):
                assert one[name].dtype == other[name].dtype
                assert np.array_equal(one[name][()], other[name][()]), name


@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8"])
@pytest.mark.usefixtures("large")
def test_tensors_are_read_as_h5py_reads_them(tmp_path: Path, kind: str) -> None:
    """Chunks and foreign byte orders, which lie in the file otherwise than in memory, too."""
    values = np.random.default_rng(0).standard_normal((3, 4, 5, 7)).astype(kind)
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=512) as file:
        file.attrs.update({"format": "cnn-exchange", "format_version": 1})
        file["plain"] = values
        file.create_dataset("chunks", data=values, chunks=(1, 2, 5, 7))
        file.create_dataset("packed", data=values, compression="gzip")
    with ExchangeFile(tmp_path / "a.h5") as file:
        for name in ("plain", "chunks", "packed"):
            assert np.array_equal(file.read(name, values.shape), values)
            for part in (0, 2):
                found = file.read(name, values.shape, part)
                assert np.array_equal(found, values[part])
                assert found.dtype.isnative


@pytest.mark.parametrize("name", ["plain", "chunks", "scalar"])
@pytest.mark.usefixtures("large")
def test_the_bits_of_a_tensor(tmp_path: Path, name: str) -> None:
    """A zero has a sign, NaN is itself, and another element type never has the same bits."""
    values = np.random.default_rng(0).standard_normal((3, 4, 5, 7)).astype(np.float32)
    values[0, 0, 0, :2], values[2, 3, 4, 6] = (0.0, np.nan), 1.0
    values = values[2, 3, 4, 6] if name == "scalar" else values
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs.update({"format": "cnn-exchange", "format_version": 1})
        file.create_dataset(name, data=values, chunks=(1, 2, 5, 7) if name == "chunks" else None)
    with ExchangeFile(tmp_path / "a.h5") as file:
        assert file.same_bits(name, values) and not file.same_bits(name, values.astype(np.float64))
        for place in [()] if name == "scalar" else [(0, 0, 0, 0), (0, 0, 0, 1), (2, 3, 4, 6)]:
            other = np.array(values)
            other[place] = -other[place]
            assert not file.same_bits(name, other), place
        with pytest.raises(FileError, match="has the shape"):
            file.same_bits(name, np.zeros((3, 4, 5, 8), np.float32))


@pytest.mark.deep
@pytest.mark.usefixtures("large")
def test_a_file_cut_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.attrs.update({"format": "cnn-exchange", "format_version": 1})
        file["x"] = np.zeros((2, 3, 40, 50))
    with ExchangeFile(path) as file:
        file.tensor("x", (2, 3, 40, 50))
        os.truncate(path, os.path.getsize(path) - 1000)
        with pytest.raises(FileError, match=r"x cannot be read .*the file ends before the tensor does"):
            file.read("x", (2, 3, 40, 50))
        with pytest.raises(FileError, match=r"x cannot be read .*the file ends before the tensor does"):
            file.same_bits("x", np.zeros((2, 3, 40, 50)))


def test_a_statistic_does_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "GRAIN", 1 << 10)
    monkeypatch.setattr(parallel, "BLOCK", 1 << 8)
    rng = np.random.default_rng(1)
    value = rng.standard_normal((5, 40, 60))
    candidate, bound = (value + 1e-7 * rng.standard_normal(value.shape)).astype(np.float32), 1e-6 * np.abs(value)
    threads = error_statistics.measure(candidate, value, bound)
    alone = parallel.alone(lambda _: error_statistics.measure(candidate, value, bound))(0)
    assert threads == alone
    ratio = np.abs(candidate - value) / bound
    assert threads.t == ratio.max()
    assert threads.at == np.unravel_index(ratio.argmax(), ratio.shape)
    # The first of what is not finite, wherever the largest ratio is
    candidate[1, 2, 3] = candidate[4, 0, 0] = np.nan
    found = error_statistics.measure(candidate, value, bound)
    assert (found.at, found.nonfinite) == ((1, 2, 3), 2)
