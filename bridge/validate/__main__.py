# SPDX-License-Identifier: MIT
"""``python -m bridge.validate``: is our Fortran step right?

Exports a PyTorch fixture, runs ``cnn_step`` on it (a process without Python), repeats the steps through the
extension (both must agree to the bit), compares every tensor with float64 truth, and decides. The exit code is
the verdict.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bridge.common.cli import BAD_INPUT, Output, new_parser, run
from bridge.common.command_files import image_file, size_text
from bridge.common.errors import BridgeError
from bridge.common.stages import attempt
from bridge.common.threads import brief_waits, keep_freed_memory
from bridge.compare import EXIT_CODES
from bridge.engine.library import extension
from bridge.engine.library.device_spec import HELP, OPTIONS_HELP, DeviceSpec
from bridge.exchange.optimizers import OPTIMIZERS
from bridge.judge.judge import Judgement
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict, unanswered
from bridge.operations.losses import LOSSES
from bridge.report import print_report
from bridge.report.outputs import add_output_arguments, check_outputs, finish
from bridge.validate import experiments, precision_study
from bridge.validate import run as validation
from bridge.validate.options import Files, Options
from bridge.validate.plots import check_plot, drawn, plot_precisions
from bridge.validate.workspace import workspace

EXAMPLES = """

examples:
  python -m bridge.validate                    2 images of 1024 x 1024, 3 steps
  python -m bridge.validate --size 64x96       a quick look
  python -m bridge.validate --image stack.mrc  on a real micrograph
  python -m bridge.validate --size 128 --momentum 0.9 --steps 10
                                               faults of what is kept between
                                               steps show where they begin

experiments, each with a conclusion in one line:
  python -m bridge.validate --size 128 --precision float64
                                               the error falls by 2^29 if it is
                                               rounding, and stays if a bug
  python -m bridge.validate --sizes 64,128,256,512 --plot sizes.png
                                               does it grow like rounding?
  python -m bridge.validate --probe            nothing is rounded: equal to the
                                               bit, or a bug
  python -m bridge.validate --checks           identities; needs no reference"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = new_parser(
        "bridge.validate",
        "Train a network for a few steps in PyTorch and in Fortran, compare every tensor of every step with a float64 "
        "computation and with the largest error that rounding can cause in each of its elements, and decide: rounding, "
        "lower precision than declared, or a bug, and which.", EXIT_CODES + EXAMPLES + OPTIONS_HELP)
    _add_data_options(p.add_argument_group("data and model (as python -m reference.export)"))
    _add_optimiser_options(p.add_argument_group("optimiser (torch.optim.SGD)"))
    fortran = p.add_argument_group("the Fortran side")
    fortran.add_argument("--device", default="cpu", help=HELP)
    fortran.add_argument("--precision", default="float32", choices=("float32", "float64"),
                         help="of the Fortran step (default float32); float64 runs float32 too, and says by how much "
                         "the error falls")
    fortran.add_argument("--keep", metavar="DIR", help="keep fixture.h5 and result.h5 in this folder, and replace "
                         "older ones (default: they are removed at the end)")
    _add_experiments(p.add_argument_group("experiments, in place of the comparison (examples below)"))
    add_output_arguments(p)
    return p


def _add_data_options(group: argparse._ArgumentGroup) -> None:
    """Nothing has a default here: a single run has those of `options.DEFAULTS`, an experiment its own."""
    group.add_argument("--size", metavar="HxW", help="height x width of the images in pixels, or one number for "
                       "both (default 1024)")
    group.add_argument("--shape", metavar="C,H,W", help="channels, height and width of one image, in place of --size; "
                       "or the shape of one sample of anything else: 12 of vectors, 1,16,16,16 of volumes, \"x=1,64,64 "
                       "t=\" of two inputs, the second one number")
    group.add_argument("--output", metavar="WHICH", help="which output is trained, where the module gives several: a "
                       "number from 0, or a name")
    group.add_argument("--batch", type=int, metavar="N", help="images in a batch (default 2)")
    group.add_argument("--steps", type=int, metavar="K", help="training steps, each with its own batch (default 3; "
                       "with --sizes 1)")
    group.add_argument("--seed", type=int, metavar="S", help="seed of weights and images (default 0)")
    group.add_argument("--image", metavar="MICROGRAPH", help="cut the images out of this file: .mrc, .npy, .h5, .png "
                       "or .tif (default: synthetic images)")
    group.add_argument("--model", metavar="PACKAGE.MODULE:FACTORY", help="function or class that returns "
                       "a torch module, a chain of Conv2d and ReLU or what consists of known operations "
                       "(default: 1 -> 16 -> 16 -> 1 channels, 3x3)")
    group.add_argument("--loss", metavar="LOSS", help=f"one of {', '.join(LOSSES)}, perhaps with settings, "
                       '"huber delta=0.5" (default mse)')
    group.add_argument("--reduction", choices=("mean", "sum"), help="the loss is a mean or a sum (default mean)")


def _add_optimiser_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--optimizer", choices=tuple(OPTIMIZERS), help="torch's (default sgd)")
    group.add_argument("--lr", type=float, metavar="X", help="learning rate (default 0.0625, of Adam and AdamW 0.001; "
                       "a small one hides errors of the gradient in the rounding of the new weights)")
    group.add_argument("--schedule", metavar="CALL", help='of the learning rate: a class of torch.optim.lr_scheduler, '
                       '"StepLR(step_size=2, gamma=0.5)" (default: it stays)')
    for name in ("momentum", "dampening"):
        group.add_argument(f"--{name}", type=float, metavar="X", help=f"{name} (default 0)")
    group.add_argument("--weight-decay", type=float, metavar="X", help="weight decay (default 0, of AdamW 0.01)")
    group.add_argument("--nesterov", action="store_true", help="Nesterov momentum (needs --momentum)")


def _add_experiments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--sizes", type=_sizes, metavar="S,S,...", help="validate at each of these sizes (two or more, "
                       "as --size), and fit how the error grows with the number of pixels")
    group.add_argument("--probe", action="store_true", help="exact probes: all numbers are small integers, nothing is "
                       "rounded, and any difference is a bug. Three: the default network, what it keeps between steps, "
                       "and strides, dilations and groups; with --size, --model, ... the one that these describe")
    group.add_argument("--checks", action="store_true", help="identities that need no reference: scaled inputs, a "
                       "second run, output memory full of NaN, differences with step 1, adjoint identities")
    group.add_argument("--self-test", action="store_true", help="judge the validator: plant faults of all kinds, run "
                       "right programs, and count what is caught and named, and false alarms")
    group.add_argument("--quick", action="store_true", help="with --self-test: one small fixture only")
    group.add_argument("--plot", metavar="FILE", help="with --sizes or --precision float64: draw the result into "
                       "this .png, .svg or .pdf (needs matplotlib)")


def _sizes(text: str) -> list[str]:
    """From "64,128,48x64"; all are looked at before the first is run."""
    found = [part.strip() for part in text.split(",")]
    if len(set(found)) < 2 or len(set(found)) < len(found) or not all(found):
        raise argparse.ArgumentTypeError(f"expected two or more different sizes, S,S,..., found '{text}'")
    for one in found:
        if not re.fullmatch(r"0*[1-9][0-9]*(x0*[1-9][0-9]*)?", one, re.IGNORECASE):
            raise argparse.ArgumentTypeError(f"expected HxW or one number in each place, found '{one}'")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code, which is the verdict."""
    options = Options.of(parser().parse_args(arguments))
    return run("bridge.validate", lambda: _main(options))


def _main(options: Options) -> int:
    keep_freed_memory()
    brief_waits()
    # Refused here, before minutes of work
    extension.check_device(options.device)
    experiments.refuse_together(options)
    check_plot(options.plot)
    check_outputs(options.files, [("--image", image_file(options.image))],
                  [("--plot", options.plot), *options.kept_files()])
    for name, path in options.kept_files():
        if path.exists():
            raise BridgeError(f"{name} {path}: is there already, expected a folder without it")
    if options.self_test:
        # PyTorch is optional, and the programs of the self-test are PyTorch
        from bridge.validate.self_test.run import main as self_test

        return self_test(short=options.quick, files=options.files)
    if options.sizes:
        return experiments.sizes(options)
    if options.checks:
        return experiments.checks(options)
    return experiments.probes(options) if options.probe else _single(options.filled())


def _single(options: Options) -> int:
    start, console, errors = time.monotonic(), Output(), Output(stderr=True)
    with workspace(options.keep, options.bytes_needed()) as folder:
        files = Files.of(folder)
        fate = "kept" if options.keep else "removed afterwards; --keep DIR keeps them"
        # For another net only its export knows, and says it
        fate += "" if options.model else f"; at most {size_text(options.bytes_needed())}"
        errors.print(f"files in {folder} ({fate})", style="dim", highlight=False, soft_wrap=True)
        console.print(validation.export(files, options), highlight=False, markup=False, soft_wrap=True)
        with validation.run_and_judge(files, options, errors) as (pair, judgement):
            return _reported(pair, judgement, files, options, (console, errors, start))


def _reported(pair: FilePair, judgement: Judgement, files: Files, options: Options,
              consoles: tuple[Output, Output, float]) -> int:
    """Everything that follows a judgement; the exit code."""
    console, errors, start = consoles
    comparison, verdict = judgement
    failed, unplotted = list[str](), list[str]()
    again = attempt(failed, "the same steps through the Python extension",
                    lambda: validation.repeated(pair, options.device, errors), None)
    if failed:
        verdict = unanswered(verdict, failed)
    elif again and again[1] and DeviceSpec.parse(options.device).repeatable:
        verdict = validation.disagreement(again[1], verdict)
    print_report(console, comparison, verdict, every_step=options.every_step)
    extra: dict[str, Any] = {}
    if again is not None:
        compared, different = again[0], len(again[1])
        agree = f"{compared - different} of {compared}"
        console.print(f"  cnn_step and the Python extension agree to the bit in {agree} tensors.", highlight=False)
        extra["bitwise"] = {"compared": compared, "differing": different}
    if options.precision == "float64":
        double = Judgement(comparison, verdict)
        both = attempt(failed, "the same in float32",
                       lambda: _in_float32_too(pair, double, files, options, (console, errors), unplotted), None)
        if both is None:
            console.print(f"MISSING: {failed[-1]}", style="yellow", highlight=False, markup=False)
        extra["float64_test"], verdict = both or (None, unanswered(verdict, failed[-1:]))
        verdict.missing.extend(unplotted)
    extra["seconds"] = round(validation.print_end(console, start), 2)
    code = finish("bridge.validate", options.files, pair, Judgement(comparison, verdict), **extra)
    return code or BAD_INPUT * bool(unplotted)


def _in_float32_too(pair: FilePair, double: Judgement, files: Files, options: Options, consoles: tuple[Output, Output],
                    unplotted: list[str]) -> tuple[dict[str, Any], Verdict]:
    """The same fixture in float32, and what the two together say; a verdict against float32 counts, too."""
    console, errors = consoles
    single = validation.judged_in_float32(pair, files, options, errors)
    found = precision_study.falls(single.comparison, double.comparison)
    console.print(precision_study.table(found))
    console.print(precision_study.conclusion(found), style="bold", highlight=False)
    if (plot := options.plot) is not None:
        unplotted += drawn(console, plot, lambda: plot_precisions(plot, found))
    verdict = single.verdict
    if double.verdict.outcome is not Outcome.ROUNDING or verdict.outcome is Outcome.ROUNDING:
        return precision_study.to_dict(found), double.verdict
    return precision_study.to_dict(found), replace(verdict, words=f"In float32: {verdict.words}")


if __name__ == "__main__":
    sys.exit(main())
