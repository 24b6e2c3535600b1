# SPDX-License-Identifier: MIT
"""Several inputs by name in Fortran: what is built, and what a file of PyTorch's names has."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import nn

from bridge import Network, Sgd
from tests.helpers.library.cnn_library import PROGRAMS, compiled, printed


class Timed(nn.Module):
    """An image, and one number for it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.of_time = nn.Conv2d(1, 2, 3), nn.Linear(1, 2)

    def forward(self, noisy: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.conv(noisy) * self.of_time(t[:, None])[:, :, None, None]


def test_inputs_have_names(tmp_path: Path) -> None:
    net = Network.from_torch(Timed(), example={"noisy": (2, 1, 4, 6), "t": (2,)})
    net.save(tmp_path / "torch.h5")
    shutil.copy(tmp_path / "torch.h5", tmp_path / "damaged.h5")
    with h5py.File(tmp_path / "damaged.h5", "r+") as file:
        file["model"].attrs["inputs"] = "noisy=1,4,6 t"
    program = compiled(PROGRAMS / "inputs.f90", tmp_path)
    assert printed(program, "torch.h5", "damaged.h5") == [
        "inputs: there is no z",
        "input v: 4 dimensions, expected (3, 2)",
        "input v: the shape (2, 2), expected (3, 2)",
        "inputs: packed has the shape (43, 2), expected (44, 2)",
        "input t: the shape (1), expected (2)",
        "network: add_inputs is given no inputs, expected one or more",
        "network: add_inputs is called twice, expected all inputs in one call",
        "layer zero (reshape): shape (0, 2), expected integers from 1 on, or -1 for one of them if it is not fixed",
        "none: ''", "noisy 6 4 1", "t", "25",
        "inputs: 't', expected a name, =, and numbers from 1 on with commas between them"]
    again, built = (Network.from_file(tmp_path / name) for name in ("again.h5", "built.h5"))
    assert again.inputs == net.inputs and built.inputs is not None
    assert built.inputs.text == "x=2,4,5 t= v=3"
    given = {"x": ((np.arange(1, 81) * 7 % 23 - 11) / 8).reshape(2, 2, 4, 5), "t": np.array([0.5, 0.25]),
             "v": ((np.arange(1, 7) * 5 % 19 - 9) / 8).reshape(2, 3)}
    y = built.forward(given)
    assert y.tobytes() == (tmp_path / "y.bin").read_bytes()
    leaves = {name: torch.tensor(one, requires_grad=True) for name, one in given.items()}
    weights = {name: torch.tensor(one) for name, one in built.parameters.items()}
    places = (leaves["v"] @ weights["of_v.weight"].T + weights["of_v.bias"]
              + leaves["t"][:, None] @ weights["of_t.weight"].T + weights["of_t.bias"])
    of_torch = nn.functional.conv2d(leaves["x"], weights["conv.weight"], weights["conv.bias"],
                                    padding=1) * places[:, :, None, None]
    of_torch.backward(torch.tensor(y))
    np.testing.assert_allclose(y, of_torch.detach().numpy(), 0, 1e-14)
    found = np.fromfile(tmp_path / "dx.bin")
    wanted = [leaves[name].grad.numpy().ravel() for name in ("x", "t")]  # type: ignore[union-attr]
    np.testing.assert_allclose(found, np.concatenate(wanted), 0, 1e-13)


def test_what_names_nothing_has_none(tmp_path: Path) -> None:
    net = Network.from_torch(nn.Sequential(nn.Linear(3, 2)))
    net.save(tmp_path / "one.h5", Sgd(0.1))
    assert Network.from_file(tmp_path / "one.h5").inputs is None
