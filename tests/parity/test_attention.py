# SPDX-License-Identifier: MIT
"""Attention, whose matrix of all weights is never in memory: beside torch, in blocks, and of long sequences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import bridge
from bridge.engine.network.passes import OperationPasses
from bridge.operations import Attention
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.networks.beside_torch import assert_right, train_beside

CLOSE = {"float32": 2e-5, "float64": 1e-13}


class Heads(nn.Module):
    """Four heads of their own queries, keys and values, each with 4 features, of (n, length, 16)."""

    def __init__(self, is_causal: bool, scale: float | None = None) -> None:
        super().__init__()
        self.given, self.found = nn.Linear(16, 48), nn.Linear(16, 16)
        self.is_causal, self.scale = is_causal, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.unflatten(-1, (4, 4)).transpose(1, 2) for one in self.given(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal, scale=self.scale)
        found: torch.Tensor = self.found(y.transpose(1, 2).flatten(2))
        return found


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("is_causal", "scale"), [(False, None), (True, None), (True, 0.3)])
def test_three_steps_are_torchs(is_causal: bool, scale: float | None, device: str, dtype: str) -> None:
    torch.manual_seed(0)
    module = Heads(is_causal, scale)
    layers = bridge.Network.from_torch(module, example=(2, 7, 16)).model.layers
    (it,) = (one for one in layers if isinstance(one, Attention))
    assert (it.is_causal, it.scale) == (is_causal, scale or 0.0) and "softmax" not in {one.kind for one in layers}
    train_beside(module, (2, 7, 16), device, dtype)


#: Rows and sequences that are found together are 2**18 weights in host memory: some rows of one sequence, all rows of
#: several, and all rows of all
BLOCKS = [(2, 700, 4, 6), (3, 100, 5, 3), (40, 100, 2, 2), (1, 513, 3, 3)]


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("sequences", "length", "features", "width"), BLOCKS)
def test_rows_are_found_in_blocks(sequences: int, length: int, features: int, width: int, is_causal: bool,
                                  dtype: str) -> None:
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((1, sequences, length, features)).astype(dtype) for _ in range(2))
    v, dy = (rng.standard_normal((1, sequences, length, width)).astype(dtype) for _ in range(2))
    passes = OperationPasses(Attention("it", is_causal, inputs=("q", "k", "v")), "cpu")
    given = [torch.from_numpy(one).double().requires_grad_() for one in (q, k, v)]
    expected = functional.scaled_dot_product_attention(given[0], given[1], given[2], is_causal=is_causal)
    expected.backward(torch.from_numpy(dy).double())
    np.testing.assert_allclose(passes.forward([q, k, v], {}), expected.detach().numpy(), 0, CLOSE[dtype])
    found, _ = passes.backward(dy, [q, k, v], {})
    for one, of in zip(found, given, strict=True):
        assert of.grad is not None
        np.testing.assert_allclose(one, of.grad.numpy(), 0, 10 * CLOSE[dtype])


#: In a process of its own, whose most memory was no other test's: KiB that a step takes
LONG = """
import resource
import numpy as np
from bridge import Model, Network
from bridge.operations import Attention, Linear
net = Network(Model((Linear("a", 4, 4), Attention("it", True, inputs=("a", "a", "a")))))
x = np.random.default_rng(0).standard_normal((1, 8192, 4)).astype(np.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
net.step(x, x, lr=0.1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_long_sequences_take_little_memory() -> None:
    """All weights of 8192 numbers would take 256 MiB, and as much again in the backward pass."""
    said = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, check=True).stdout
    assert int(said) < 64 * 1024, said


@pytest.mark.parametrize("shapes", [((2, 5, 4), (2, 6, 4), (2, 6, 4)), ((2, 5, 4), (2, 5, 3), (2, 5, 4)),
                                    ((2, 5), (2, 5), (2, 5)), ((2, 3, 5, 4), (2, 3, 5, 4), (2, 5, 4))])
def test_other_shapes_are_refused(shapes: Any) -> None:
    with pytest.raises(bridge.FileError, match=r"it \(attention\): the shapes .*, expected twice \(n, \.\.\., len"):
        Attention("it", inputs=("q", "k", "v")).output_shape(*shapes)


def test_a_causal_attention_is_judged_right(tmp_path: Path, device: str) -> None:
    fixture = export(tmp_path / "f.h5", ExportSettings(
        model=lambda: Heads(True), shape=(9, 16), batch=2, steps=2, lr=0.1, threads=1)).path
    assert_right(fixture, tmp_path / "r.h5", device)


def test_what_is_no_sequences_own_is_written_with_others() -> None:
    """Keys of another sequence, masks, and dropout of the weights."""
    class Other(Heads):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.scaled_dot_product_attention(self.found(x), x[:, :3], x[:, :3])

    net = bridge.Network.from_torch(Other(False), example=(2, 7, 16))
    kinds = {one.kind for one in net.model.layers}
    assert {"matmul", "softmax"} <= kinds and "attention" not in kinds
