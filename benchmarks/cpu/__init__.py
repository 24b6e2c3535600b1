# SPDX-License-Identifier: MIT
"""The sections of ``python -m benchmarks``, a module each.

A section has ``measure(options, console)``, which gives its part of the JSON and its goals, ``tables(document)``,
which gives what is printed, and where there is something to see ``draw(document, folder)``, which gives the pictures.
"""

from __future__ import annotations

import importlib
from types import ModuleType

#: In the order in which they run: name, and what it says
SECTIONS = {
    "step": "a training step beside PyTorch and JAX: time and peak memory",
    "networks": "a step of a U-Net and of ResNet-18, and what its operations take",
    "sequences": "a step of a GPT, an LSTM and a Fourier operator",
    "layers": "the layers as a share of what the machine can do, with the roofline",
    "fortran": "a layer beside neural-fortran's and athena's",
    "operations": "operations of graphs beside PyTorch, the bandwidth and OpenBLAS",
    "moves": "operations that only move numbers beside PyTorch and the bandwidth",
    "volumes": "convolutions of volumes beside PyTorch",
    "sweep": "many shapes of convolutions beside PyTorch, pass by pass",
    "growth": "how time and memory grow with size, channels, batch and threads",
    "calls": "what a call from Python into Fortran costs",
    "files": "HDF5 reading and writing beside plain h5py",
    "data": "batches for training from files beside dd, and memory over 259 GB",
    "training": "denoisers from files to the last update, beside PyTorch's loop",
    "examples": "losses of the examples in Fortran beside their Python programs'",
    "ranks": "a step on several ranks: adding up gradients, and a model of many",
    "validate": "how long python -m bridge.validate takes, stage by stage",
}


def module(name: str) -> ModuleType:
    """The module of a section."""
    return importlib.import_module(f"benchmarks.cpu.{name}")
