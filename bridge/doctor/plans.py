# SPDX-License-Identifier: MIT
"""``python -m bridge.doctor --plans``: which plan of cuDNN's graph API each operation of a training step has.

For the GPU that is here, or for one that is not, whose properties cuDNN takes from JSON.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from bridge.common.errors import BridgeError
from bridge.doctor.cpu import LAYERS
from bridge.doctor.isolated import ask
from bridge.engine.arrays.operand import extent_of
from bridge.engine.library import extension
from bridge.engine.library.device_spec import DeviceSpec

#: As fortran/cuda/plans/request.f90 numbers them
OPERATIONS = {"forward": 1, "data gradient": 2, "filter gradient": 3, "bias gradient": 4}
LAYOUTS = {"NCHW": 1, "NHWC": 2}

#: What a training step needs of a layer: name, operation, and what is fused with it: bias, ReLU, mask
STEP = (("forward with bias and ReLU", "forward", (1, 1, 0)), ("forward with bias", "forward", (1, 0, 0)),
        ("data gradient", "data gradient", (0, 0, 0)), ("data gradient with the mask", "data gradient", (0, 0, 1)),
        ("filter gradient", "filter gradient", (0, 0, 0)), ("bias gradient", "bias gradient", (0, 0, 0)))

#: Descriptions of GPUs that come with the package
KNOWN = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.json"))}


@dataclass(frozen=True)
class Wanted:
    """What is asked.

    Attributes
    ----------
    device : "cuda", with options
    gpu : of `KNOWN`, or a file; empty for the GPU of `device`
    size, batch : of the images
    dtype : of the tensors
    """

    device: str = "cuda"
    gpu: str = ""
    size: int = 1024
    batch: int = 2
    dtype: str = "float32"


@dataclass(frozen=True)
class LayerPlan:
    """An operation of a layer, and the plan it has in each layout; "" where cuDNN has none."""

    layer: str
    operation: str
    plans: dict[str, str]


def find_plans(wanted: Wanted, limit: float) -> list[LayerPlan]:
    """Ask cuDNN in a child process, which may crash.

    Raises
    ------
    BridgeError
        If cuDNN is not there or says what is wrong, the description cannot be read, or the child ended otherwise.
    """
    if not DeviceSpec.parse(wanted.device).on_gpu:
        raise BridgeError(f"--plans {wanted.device}: has no plans of cuDNN, expected cuda, with options")
    question = "plans:" + json.dumps(asdict(wanted) | {"gpu": _description(wanted.gpu)})
    answer = ask([question], limit)[question]
    if answer.error:
        raise BridgeError(answer.why("while asking cuDNN for plans"))
    return [LayerPlan(**one) for one in answer.value]


def _description(gpu: str) -> str:
    """The JSON text; empty for no GPU."""
    if not gpu:
        return ""
    path = KNOWN.get(gpu, Path(gpu))
    try:
        text = path.read_text(encoding="utf-8")
        json.loads(text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BridgeError(f"--gpu {gpu}: {why}, expected {', '.join(KNOWN)} or a file with a description in "
                          "JSON") from None
    return text


def facts(text: str) -> list[dict[str, Any]]:
    """Return a line for each operation of each layer; called in the child.

    Raises
    ------
    EngineError
        With cuDNN's words.
    """
    wanted = json.loads(text)
    found = []
    for number, (layer, (channels, filters)) in enumerate(LAYERS.items()):
        for name, operation, fused in STEP:
            # There is no ReLU behind the last layer, and nobody asks for the gradient of the image
            last = number == len(LAYERS) - 1
            if (operation == "forward" and bool(fused[1]) == last) or (number == 0 and operation == "data gradient"):
                continue
            plans = {layout: _plan(wanted, operation, LAYOUTS[layout], fused, channels, filters) for layout in LAYOUTS}
            found.append(asdict(LayerPlan(layer, name, plans)))
    return found


def _plan(wanted: dict[str, Any], operation: str, layout: int, fused: tuple[int, ...], channels: int,
          filters: int) -> str:
    shapes = ((wanted["batch"], channels, *[wanted["size"]] * 2), (filters, channels, 3, 3))
    said = extension.call("plan_text", wanted["device"], wanted["gpu"], OPERATIONS[operation],
                          extension.ALL_DTYPES[wanted["dtype"]], layout, np.array(fused, np.int32),
                          np.ones(7, np.int32), *map(extent_of, shapes))
    return (said.decode() if isinstance(said, bytes) else str(said)).strip()


#: Below the table
LEGEND = ("none: cuDNN offers no engine that the options allow; its calls or our kernels do the work. "
          "NHWC is for networks with keep_activations=False and math=tf32, fp16 or bf16, NCHW for all others")


def title(wanted: Wanted) -> str:
    """Return the title above the table."""
    where = f" for {wanted.gpu}, which need not be here" if wanted.gpu else ""
    return (f"cuDNN's plans on {wanted.device}{where}: {wanted.batch} x {wanted.size} x {wanted.size}, "
            f"{wanted.dtype}")


def table(plans: list[LayerPlan]) -> Table:
    """Return the table as it is printed."""
    made = Table(box=None, pad_edge=False)
    for heading in ("layer", "operation", *LAYOUTS):
        made.add_column(heading, overflow="fold")
    before = ""
    for plan in plans:
        made.add_row("" if plan.layer == before else plan.layer, plan.operation,
                     *(plan.plans[layout] or "none" for layout in LAYOUTS))
        before = plan.layer
    return made
