# SPDX-License-Identifier: MIT
"""Exchange files of version 1, which nothing writes any more: the model is JSON, momenta are a group of their own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py

from bridge.exchange.file import ExchangeFile
from bridge.exchange.model import Conv2d, Model
from bridge.operations.hyperparameters import fields


def model_json(model: Model) -> str:
    """The text of ``/model``, of a chain."""
    layers: list[dict[str, object]] = []
    for layer in model.layers:
        kept = {one.name: getattr(layer, one.name) for one in fields(layer)} if isinstance(layer, Conv2d) else {}
        layers.append({"name": layer.name, "type": layer.kind} | kept)
    return json.dumps({"layers": layers, "loss": {"type": "mse", "reduction": "mean" if model.mean else "sum"}})


def as_version_1(source: Path, target: Path) -> Path:
    """The same file of a chain as version 1."""
    with ExchangeFile(source) as file:
        assert file.model is not None
        text = model_json(file.model)
    shutil.copyfile(source, target)
    with h5py.File(target, "r+") as file:
        file.attrs["format_version"] = 1
        del file["model"]
        file["model"] = text
        for step in file["steps"].values():
            for layer, parameters in step.get("optimizer", {}).items():
                for name in parameters:
                    step[f"momenta/{layer}/{name}"] = parameters[name]["momentum"]
            if "optimizer" in step:
                del step["optimizer"]
    return target
