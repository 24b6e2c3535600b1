# SPDX-License-Identifier: MIT
"""Who takes part: names, which process they live in, how they compute, and how much it costs to start them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: Ours, that the goals are about: memory-efficient, with the step captured as a CUDA graph
OURS = "bridge"
#: PyTorch as it is, in float32 without TF32: what everybody's results are held against
REFERENCE = "torch eager"
PRECISIONS = ("fp32", "tf32", "bf16")
#: Costs of starting one: at once; seconds for each shape; a minute
CHEAP, COMPILES, TUNES = range(3)


@dataclass(frozen=True)
class Framework:
    """A framework.

    Attributes
    ----------
    name : in tables and in the JSON
    process : who lives in one process has one name here: a crash or a hang takes them all, and nobody else
    ours : of this project
    cost : CHEAP, COMPILES or TUNES
    how : for the module that builds it
    """

    name: str
    process: str
    ours: bool = False
    cost: int = CHEAP
    how: dict[str, Any] = field(default_factory=dict)

    @property
    def limit(self) -> float:
        """Seconds that its first step may take, with everything that comes before."""
        return (60.0, 120.0, 200.0)[self.cost]


def _ours(name: str, process: str = OURS, **how: Any) -> Framework:
    usual = {"keep_activations": False, "options": "", "waits": False}
    return Framework(name, process, True, CHEAP, usual | how)


def _torch(name: str, process: str, cost: int = CHEAP, **how: Any) -> Framework:
    usual = {"channels_last": False, "benchmark": False, "graph": False, "compile": ""}
    return Framework(name, process, False, cost, usual | how)


#: In the order of the tables. What PyTorch can do is combined, with cudnn.benchmark wherever there is more
FRAMEWORKS: tuple[Framework, ...] = (
    _ours(OURS),
    _ours("bridge after_relu", keep_activations="after_relu"),
    _ours("bridge direct=no", options="direct=no"),
    _ours("bridge direct=no,deterministic=no", options="direct=no,deterministic=no"),
    _ours("bridge, loss read", "bridge, loss read", waits=True),
    _ours("bridge capture=no", "bridge capture=no", options="capture=no"),
    _torch(REFERENCE, "torch"),
    _torch("torch channels_last", "torch", channels_last=True),
    _torch("torch benchmark", "torch", benchmark=True),
    _torch("torch benchmark channels_last", "torch", benchmark=True, channels_last=True),
    _torch("torch CUDA graph", "torch graph", benchmark=True, graph=True),
    _torch("torch CUDA graph channels_last", "torch graph", benchmark=True, graph=True, channels_last=True),
    _torch("torch.compile", "torch.compile", COMPILES, benchmark=True, compile="default"),
    _torch("torch.compile channels_last", "torch.compile", COMPILES, benchmark=True, compile="default",
           channels_last=True),
    _torch("torch.compile CUDA graph channels_last", "torch.compile", COMPILES, benchmark=True, compile="default",
           channels_last=True, graph=True),
    _torch("torch.compile max-autotune", "torch.compile max", TUNES, benchmark=True,
           compile="max-autotune"),
    _torch("torch.compile max-autotune channels_last", "torch.compile max", TUNES, benchmark=True,
           compile="max-autotune", channels_last=True),
)
NAMES = tuple(one.name for one in FRAMEWORKS)


def framework(name: str) -> Framework:
    """By its name.

    >>> framework("torch eager").process
    'torch'
    """
    return FRAMEWORKS[NAMES.index(name)]


def device_text(device: str, precision: str, how: dict[str, Any]) -> str:
    """What one of ours asks for.

    >>> device_text("cuda", "tf32", {"options": "capture=no"})
    'cuda,math=tf32,algorithm=measured,capture=no'
    """
    return ",".join(filter(None, (device, f"math={precision}", "algorithm=measured", how["options"])))
