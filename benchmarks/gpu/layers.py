# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gpu.layers``: single convolutions on a GPU, by our own kernels and by cuDNN.

The times are those of all kernels of a call, as PyTorch's profiler sees them: what a call from Python takes on the host
is not in them. Both compute in float32 without tensor cores, and give the same bits in every run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

import bridge
from benchmarks.gpu.kernels import add_output, head, kernels
from benchmarks.harness.workloads import PASSES, Conv
from bridge.common.atomic_file import write_json
from bridge.common.cli import new_parser, run

EPILOG = """
examples:
  python -m benchmarks.gpu.layers --output layers.json

exit codes:
  0    measured, or there is no GPU
  2    bad usage
  130  interrupted"""
#: By what is added to the device's text
WAYS = {"bridge": "", "cuDNN": ",direct=no"}
CALLS = 5


def conv(n: int, c: int, k: int, size: int) -> Conv:
    """3 x 3 with padding 1 on images of size x size pixels.

    >>> conv(2, 16, 32, 8).output
    (2, 32, 8, 8)
    """
    return Conv(n=n, c=c, h=size, w=size, k=k, r=3, s=3, padding=(1, 1))


#: Those of the default net, of a U-Net of 32 channels and of ResNet-18
LAYERS = (conv(2, 16, 16, 1024), conv(2, 32, 32, 512), conv(2, 96, 32, 512), conv(2, 32, 64, 256),
          conv(2, 64, 64, 256), conv(2, 192, 64, 256), conv(2, 64, 128, 128), conv(2, 128, 128, 128),
          conv(8, 64, 64, 64), conv(128, 3, 64, 32), conv(128, 64, 64, 32), conv(128, 128, 128, 16),
          conv(128, 256, 256, 8), conv(128, 512, 512, 4))


def calls(layer: Conv, device: str) -> dict[str, Callable[[], object]]:
    """By pass, what computes it.

    Parameters
    ----------
    layer : which convolution
    device : with options
    """
    x, w, dy = (torch.randn(shape, device="cuda") for shape in (layer.input, layer.weight, layer.output))
    options: dict[str, Any] = {"padding": layer.padding, "device": device}

    def backward(*mask: bool) -> Callable[[], object]:
        return lambda: bridge.conv2d_backward(dy, x, w, **options, output_mask=mask)

    return {"forward": lambda: bridge.conv2d(x, w, **options), "data": backward(True, False, False),
            "filter": backward(False, True, False)}


def measured(call: Callable[[], object]) -> dict[str, Any]:
    """Microseconds of a call's kernels, and the one that takes longest."""
    for _ in range(2):
        call()
    found = kernels(call, CALLS)
    return {"us": round(sum(microseconds for microseconds, _ in found.values()), 1), "longest": next(iter(found), "")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write; without a GPU one line says so."""
    p = new_parser("benchmarks.gpu.layers", str(__doc__), EPILOG)
    add_output(p)
    a = p.parse_args(arguments)
    return run("gpu.layers", lambda: _main(a))


def _main(a: argparse.Namespace) -> int:
    document = head("gpu.layers", a)
    if not document:
        return 0
    document["layers"] = []
    for layer in LAYERS:
        one: dict[str, Any] = {"n": layer.n, "c": layer.c, "k": layer.k, "size": layer.h, "gflop": layer.flop / 1e9}
        for way, options in WAYS.items():
            ready = calls(layer, f"cuda,math=fp32,algorithm=measured{options}")
            one[way] = {which: measured(ready[which]) for which in PASSES}
        document["layers"].append(one)
        print(f"{layer.n} x {layer.c} x {layer.h} x {layer.w} -> {layer.k}:",
              {way: [one[way][which]["us"] for which in PASSES] for way in WAYS}, flush=True)
        write_json(a.output, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
