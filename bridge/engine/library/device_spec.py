# SPDX-License-Identifier: MIT
"""The name of a device with its options, as one text: what a user writes after ``--device`` or as ``device=``.

======================= ==============================================================================================
``cpu``                 kernels of ours, in threads
``naive``               plain loops, slow, for tests
``cuda``, ``cuda:1``    an NVIDIA GPU with cuDNN, and options after commas, as in ``cuda:1,math=tf32,workspace=512``:
``math``                fp32 (default; no tensor cores), tf32, fp16, bf16: how float32 operands are multiplied
``algorithm``           heuristic (default; cuDNN's own choice), measured (all are tried once for each shape)
``deterministic``       yes (default; the same bits in every run), no
``workspace``           MiB that one convolution may use (default 256)
``transforms``          no (default), yes: FFT and Winograd too, which round differently from a sum of products
``compile``             no (default), yes: an engine that cuDNN compiles for each shape, too, which takes many seconds
``direct``              yes (default): convolutions of 3 x 3 by our own kernels where they are faster, in float32
                        whatever ``math`` allows; no: all of them by cuDNN
``capture``             yes (default): steps of the same shapes are captured as a CUDA graph and replayed, no
======================= ==============================================================================================

Fortran reads the text once more, in cnn_core_device_name, and says the same of what is wrong with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bridge.common.errors import ArgumentError, ArgumentTypeError

#: Values that an option may have, as a pattern and in words
OPTIONS = {
    "math": ("fp32|tf32|fp16|bf16", "fp32, tf32, fp16 or bf16"),
    "algorithm": ("heuristic|measured", "heuristic or measured"),
    "deterministic": ("yes|no", "yes or no"),
    "workspace": ("[0-9]{1,6}", "0 to 999999, in MiB"),
    "transforms": ("yes|no", "yes or no"),
    "compile": ("yes|no", "yes or no"),
    "direct": ("yes|no", "yes or no"),
    "capture": ("yes|no", "yes or no"),
}


#: For the help of programs, which end with `OPTIONS_HELP`
HELP = ("cpu (default); cuda, cuda:1, ...: an NVIDIA GPU, with options as in cuda,math=tf32 (see below); naive: plain "
        "loops, slow, for tests")
OPTIONS_HELP = """

options of a CUDA device, after commas as in cuda:1,math=tf32,workspace=512;
the first value is the default:
  math=fp32|tf32|fp16|bf16      how float32 operands are multiplied
  algorithm=heuristic|measured  cuDNN's choice, or the fastest in a trial
  deterministic=yes|no          the same bits in every run
  workspace=256                 MiB that one convolution may use
  transforms=no|yes             FFT and Winograd, which round differently
  compile=no|yes                engines compiled for each shape; takes seconds
  direct=yes|no                 our kernels for 3 x 3 where faster, float32
  capture=yes|no                repeat equal steps as a CUDA graph"""


@dataclass(frozen=True)
class DeviceSpec:
    """A device that was asked for; whether there is such a device is for the library to say.

    Attributes
    ----------
    kind : "cpu", "naive" or "cuda"
    index : which of several CUDA devices, from 0
    text : all of it, as it was given

    Examples
    --------
    >>> DeviceSpec.parse("cuda:1,math=tf32")
    DeviceSpec(kind='cuda', index=1, text='cuda:1,math=tf32')
    """

    kind: str
    index: int
    text: str

    @classmethod
    def parse(cls, text: object) -> DeviceSpec:
        """Read and check a text.

        Raises
        ------
        ArgumentTypeError, ArgumentError
            Naming what was found and what is expected.
        """
        if not isinstance(text, str):
            raise ArgumentTypeError(f"device: {text!r}, expected a text such as 'cpu' or 'cuda:0'")
        if text != text.strip() or not text.isprintable():
            raise ArgumentError(f"device: {text!r}, expected a text such as 'cpu' or 'cuda:0'")
        name, *options = text.split(",")
        kind, colon, number = name.partition(":")
        if kind not in ("cpu", "naive", "cuda") or (colon and kind != "cuda"):
            raise ArgumentError(f"device {text}: unknown, expected cpu or cuda")
        if colon and not re.fullmatch("[0-9]{1,6}", number):
            raise ArgumentError(f'device {text}: the number after cuda: is "{number}", expected 0 to 999999')
        for option in options:
            _check_option(text, kind, option)
        return cls(kind, int(number or 0), text)

    @property
    def on_gpu(self) -> bool:
        """Return whether arrays lie in the memory of a CUDA device."""
        return self.kind == "cuda"

    @property
    def repeatable(self) -> bool:
        """Return whether two runs give the same bits: nothing is added up in the order of arrival, and no algorithm is
        chosen by time.

        >>> DeviceSpec.parse("cuda,deterministic=no").repeatable
        False
        """
        options = dict(one.split("=") for one in self.text.split(",")[1:])
        return options.get("deterministic") != "no" and options.get("algorithm") != "measured"

    @property
    def memory(self) -> str:
        """Return where arrays lie, without the options of the computation: "cuda:1", or the kind."""
        return f"cuda:{self.index}" if self.on_gpu else self.kind


def _check_option(text: str, kind: str, option: str) -> None:
    if kind != "cuda":
        raise ArgumentError(f'device {text}: "{option}", but {kind} has no options')
    name, _, value = option.partition("=")
    if name not in OPTIONS or "=" not in option:
        raise ArgumentError(f'device {text}: unknown option "{option}", expected math=, algorithm=, deterministic=, '
                            "workspace=, transforms=, compile=, direct= or capture=")
    pattern, words = OPTIONS[name]
    if not re.fullmatch(pattern, value):
        raise ArgumentError(f'device {text}: {name} is "{value}", expected {words}')
