# SPDX-License-Identifier: MIT
"""The command line of ``python -m reference.export``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from reference.ending import Ended, end_by, signals_raise
from reference.errors import InputError, one_line
from reference.fixture import ExportReport, export
from reference.inputs import Inputs
from reference.losses import LOSSES
from reference.settings import DEFAULT_LR, PRECISIONS, REDUCTIONS, ExportSettings
from reference.version import add_version

DESCRIPTION = """\
Train a CNN in PyTorch for a few steps and write every tensor of every step into
one HDF5 file, a fixture: images, weights, outputs of all layers, loss and all
gradients, each also as computed in float64, its twin. Another implementation of
the same network is compared with it.

Without options: three convolutions of 3x3 (1 -> 16 -> 16 -> 1 channels) with
ReLUs between, 3 SGD steps on 2 synthetic micrographs of 1024 x 1024 pixels
each; 5.5 GB and half a minute.

size of the file for the default network, 2 images, 3 steps:
  --size      64      128     256     512      1024
  on disk     39 MB   156 MB  622 MB  1.39 GB  5.55 GB
that is batch * height * width * (532 * steps + 1048 * twins) bytes. Every step
has a twin where a batch has at most 131072 pixels, else the first step has one.
--whole-steps 1 and --oracle-steps 0 leave most of it out.
"""

EPILOG = """\
examples:
  python -m reference.export small.h5 --size 24x32 --batch 3    (seconds, 11 MB)
  python -m reference.export mine.h5 --image stack_01.mrc --size 512
  python -m reference.export mine.h5 --model mypackage.nets:make
                                       (a chain of Conv2d and ReLU, or a graph)
  python -m reference.export probe.h5 --probe

what to run next:
  cnn_step FILE RESULT                  the same steps in Fortran
  python -m bridge.compare FILE RESULT  is RESULT right, and what is wrong?

An exact probe (--probe) has images and weights of -1, 0 and 1, and targets that
make every number of the step a small integer times a power of two. Nothing is
rounded: any difference is a bug. With --steps above 1 the learning rate is 0,
so that errors in what a program keeps from step to step show. Algorithms that
transform their input (Winograd beyond F(2x2), FFT) round here too, and cannot
be judged by it.

exit codes:
  0    the file is written
  2    bad input or usage; nothing is written
  130  interrupted; nothing is written
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (--help shows the options)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; those of the process where left out.

    Returns
    -------
    code : int
        0 written; 2 bad input or usage, said in one line on standard error; 130 interrupted.
    """
    # Huge pages halve the time of a full-size export, most of which goes into fresh memory (a float64
    # convolution takes 2.4 GB of it). torch reads this at its first large tensor; the values are the same.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    try:
        path, settings = _settings(argv)
        with signals_raise():
            report = export(path, settings, quiet=False)
    except InputError as error:
        return _complain(str(error), 2)
    except KeyboardInterrupt:
        return _complain("interrupted, nothing is written", 130)
    except Ended as ended:
        code = _complain(f"ended by {ended}, nothing is written", 2)
        end_by(ended.number)
        return code
    except (MemoryError, RuntimeError) as error:
        # torch says "can't allocate memory" with a RuntimeError; any other is a bug and keeps its traceback.
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        return _complain(f"not enough memory: smaller --size or --batch ({one_line(error)})", 2)
    print(_summary(report))
    return 0


def _complain(text: str, code: int) -> int:
    print(f"reference.export: {' '.join(text.split())}", file=sys.stderr)
    return code


def _summary(report: ExportReport) -> str:
    losses = ", ".join(f"{loss:.6g}" for loss in report.losses)
    left_out = f"; not in the file: {', '.join(report.left_out)}" if report.left_out else ""
    return (
        f"wrote {report.path}: {report.size / 1e6:.1f} MB in {report.seconds:.1f} s; loss per step {losses}{left_out}"
    )


def _settings(argv: Sequence[str] | None) -> tuple[str, ExportSettings]:
    options = vars(_parser().parse_args(argv))
    path = options.pop("file")
    size, steps = PROBE if options["probe"] else FULL
    if options["shape"] is not None and options["size"] is not None:
        raise InputError("--size is given, and --shape, which has a size, expected one of both")
    for name in ("size", "batch"):
        if options["input"] is not None and options[name] is not None:
            raise InputError(f"--{name} is given, and --input, whose arrays have their own, expected one of both")
    options["height"], options["width"] = options.pop("size") or size
    options["betas"] = tuple(options["betas"])
    options["batch"] = BATCH if options["batch"] is None else options["batch"]
    if options["steps"] is None and options["input"] is None:
        options["steps"] = steps
    return path, ExportSettings(**options)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m reference.export",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version(parser, "reference.export")
    parser.add_argument("file", metavar="FILE", help="the fixture to write, replaced if it is there")
    _add_data_options(parser.add_argument_group("images"))
    _add_training_options(parser.add_argument_group("model and training"))
    _add_run_options(parser.add_argument_group("computing"))
    return parser


# Size in pixels and steps, where they are not asked for.
FULL, PROBE = ((1024, 1024), 3), ((64, 128), 1)
BATCH = 2


def _add_data_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--size",
        type=_size,
        metavar="HxW",
        help="height x width in pixels, or one number for both (default 1024; a probe: 64x128)",
    )
    group.add_argument(
        "--shape",
        type=_shape,
        metavar="C,H,W",
        help="channels, height and width of one image, in place of --size (default: the channels of the model's first "
        "convolution); or the shape of one sample of anything else, of which normal numbers are drawn: 12 of vectors, "
        "1,16,16,16 of volumes, \"x=1,64,64 t=\" of two inputs, the second one number",
    )
    group.add_argument("--batch", type=int, metavar="N", help=f"images in a batch (default {BATCH})")
    group.add_argument(
        "--steps", type=int, metavar="K", help="training steps, each with its own batch (default 3; a probe: 1; "
        "of --input as many as it has)"
    )
    group.add_argument("--seed", type=int, default=0, metavar="S", help="seed of images and first weights (default 0)")
    group.add_argument(
        "--image",
        metavar="MICROGRAPH",
        help="cut the images out of this file: .mrc, .npy, .h5 (or FILE.h5:/dataset), .png or .tif (default: "
        "synthetic images)",
    )
    for name, shape in (("input", "of any shape (n, ...) that the model takes"),
                        ("target", "of the shape of the model's output, or classes")):
        group.add_argument(
            f"--{name}", metavar="NPY",
            help=f"{'batches of your own' if name == 'input' else 'and their targets'}, {shape}: a .npy file for all "
            f"steps, or a folder with one for each{'; of several inputs .npz' if name == 'input' else ''}",
        )


def _add_training_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model",
        metavar="PACKAGE.MODULE:FACTORY",
        help="function or class that returns your torch module, a chain of Conv2d and ReLU or what consists of "
        "known operations (default: the three convolutions above)",
    )
    group.add_argument(
        "--output", metavar="WHICH", type=lambda text: int(text) if text.isdecimal() else text,
        help="which output is trained, where the module gives several: a number from 0, or a name",
    )
    group.add_argument(
        "--loss", metavar="LOSS", default="mse", help=f"one of {', '.join(LOSSES)}, perhaps with settings, "
        '"huber delta=0.5" (default mse, the squared differences of output and target, which version 1 of the file has)'
    )
    group.add_argument(
        "--reduction", choices=REDUCTIONS, default="mean", help="the loss is a mean or a sum "
        "(default mean)"
    )
    group.add_argument(
        "--optimizer", choices=tuple(DEFAULT_LR), default="sgd", help="torch's optimiser (default sgd); version 2 of "
        "the file has the others"
    )
    group.add_argument(
        "--lr", type=float, metavar="X", help="learning rate (default 0.0625, of Adam and AdamW 0.001; a probe: what "
        "keeps it exact)"
    )
    group.add_argument(
        "--schedule", metavar="CALL", help='how the learning rate changes from step to step: a class of '
        'torch.optim.lr_scheduler, "StepLR(step_size=2, gamma=0.5)" (default: it stays)'
    )
    group.add_argument("--betas", type=float, nargs=2, default=(0.9, 0.999), metavar="X", help="of Adam and AdamW "
                       "(default 0.9 0.999)")
    group.add_argument("--eps", type=float, default=1e-8, metavar="X", help="of Adam and AdamW (default 1e-8)")
    group.add_argument("--momentum", type=float, default=0.0, metavar="X", help="momentum of SGD (default 0)")
    group.add_argument("--dampening", type=float, default=0.0, metavar="X", help="dampening of momentum (default 0)")
    group.add_argument("--weight-decay", type=float, metavar="X", help="weight decay (default 0, of AdamW 0.01)")
    group.add_argument("--nesterov", action="store_true", help="Nesterov's momentum (needs --momentum)")


def _add_run_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--probe", action="store_true", help="write an exact probe (see below)")
    group.add_argument("--precision", choices=PRECISIONS, default="float32", help="precision of the training "
                       "(default float32)")
    group.add_argument(
        "--oracle-steps",
        type=int,
        metavar="N",
        help="the first N steps get float64 twins (default: all of a small fixture, 1 of a large one; at the full "
        "size a twin takes 10 s)",
    )
    group.add_argument(
        "--whole-steps",
        type=int,
        metavar="N",
        help="the first N steps keep their tensors of the images' size; of later ones only weights, loss and parameter "
        "gradients are written (default: all; the comparison needs 1)",
    )
    group.add_argument("--threads", type=int, metavar="N", help="threads of torch (default: torch's choice)")


def _shape(text: str) -> tuple[int, ...] | Inputs:
    """A shape from "3,512,768", or those of several inputs from "x=1,64,64 t="."""
    try:
        return Inputs.of_text(text) if "=" in text else tuple(int(one) for one in text.split(","))
    except (ValueError, InputError):
        raise argparse.ArgumentTypeError(
            f"expected C,H,W, or other numbers with commas between them, or \"x=1,64,64 t=\", found '{text}'") from None


def _size(text: str) -> tuple[int, int]:
    """Height and width from "512x768" or "512"."""
    height, cross, width = text.lower().partition("x")
    try:
        return int(height), int(width if cross else height)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected HxW or one number, found '{text}'") from None
