# SPDX-License-Identifier: MIT
"""``python -m bridge.validate``: is our Fortran step right?

Exports a PyTorch fixture, runs ``cnn_step`` on it (a process without Python), repeats the steps through the
extension (both must agree to the bit), compares every tensor with float64 truth, and decides. The exit code is
the verdict.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bridge import engine
from bridge.command import Output, check_writable, run
from bridge.compare import EXIT_CODES, add_output_arguments, finish, judge
from bridge.judged import NotJudged
from bridge.memory import keep_freed_memory
from bridge.programs import export_fixture, run_cnn_step
from bridge.progress import stage
from bridge.report import print_report, to_dict
from bridge.rerun import differences
from bridge.verdict import Outcome, Verdict
from bridge.workspace import workspace

#: Options that are handed on to ``reference.export`` as they are
EXPORT_OPTIONS = ("size", "batch", "steps", "seed", "lr", "momentum", "dampening", "weight_decay", "reduction",
                  "image", "model")


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    p = argparse.ArgumentParser(
        prog="python -m bridge.validate", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Export a PyTorch fixture, run the Fortran step on it, compare every tensor of every step with\n"
                    "float64 truth and its rounding bound, and decide: rounding, lower precision, or a bug.",
        epilog=EXIT_CODES + """

examples:
  python -m bridge.validate                        2 images of 1024 x 1024, 3 steps
  python -m bridge.validate --size 64x96           a quick look
  python -m bridge.validate --image stack.mrc      on a real micrograph
  python -m bridge.validate --momentum 0.9 --steps 10 --size 128""")
    data = p.add_argument_group("data and model (as python -m reference.export)")
    data.add_argument("--size", default="1024", metavar="HxW", help="image size (default 1024)")
    data.add_argument("--batch", type=int, default=2, metavar="N", help="images in a batch (default 2)")
    data.add_argument("--steps", type=int, default=3, metavar="K", help="SGD steps, a batch each (default 3)")
    data.add_argument("--seed", type=int, default=0, metavar="S", help="of weights and images (default 0)")
    data.add_argument("--image", metavar="MICROGRAPH", help=".mrc, .npy, .h5, .png or .tif (default: synthetic)")
    data.add_argument("--model", metavar="PACKAGE.MODULE:FACTORY", help="a torch chain of Conv2d and ReLU "
                      "(default: 1->16->16->1, 3x3)")
    data.add_argument("--reduction", choices=("mean", "sum"), help="of the loss (default mean)")
    sgd = p.add_argument_group("optimiser (torch.optim.SGD)")
    sgd.add_argument("--lr", type=float, metavar="X", help="default 0.0625; a small one hides the gradient")
    for name in ("momentum", "dampening", "weight-decay"):
        sgd.add_argument(f"--{name}", type=float, metavar="X", help="default 0")
    sgd.add_argument("--nesterov", action="store_true", help="Nesterov momentum (needs --momentum)")
    run = p.add_argument_group("the Fortran side")
    run.add_argument("--device", default="cpu", choices=("cpu", "cuda", "naive"), help="default cpu")
    run.add_argument("--precision", default="float32", choices=("float32", "float64"), help="default float32")
    run.add_argument("--keep", metavar="DIR", help="keep fixture.h5 and result.h5 in this folder")
    add_output_arguments(p)
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code is the verdict."""
    a = parser().parse_args(arguments)
    return run("bridge.validate", lambda: _main(a))


def _main(a: argparse.Namespace) -> int:
    start = time.monotonic()
    keep_freed_memory()
    # Refused here, before minutes of work
    engine.check_device(a.device)
    check_writable("--json", a.json)
    with workspace(a.keep, _bytes_needed(a)) as folder:
        return _validate(a, folder, start)


def _validate(a: argparse.Namespace, folder: Path, start: float) -> int:
    console, errors = Output(), Output(stderr=True)
    fixture, result = folder / "fixture.h5", folder / "result.h5"
    fate = "kept" if a.keep else "removed afterwards; --keep DIR keeps them"
    errors.print(f"files in {folder} ({fate})", style="dim", highlight=False, soft_wrap=True)
    console.print(export_fixture(fixture, *_export_options(a)), highlight=False, markup=False, soft_wrap=True)
    with stage(errors, f"cnn_step --device {a.device} --precision {a.precision}"):
        run_cnn_step(fixture, result, a.device, a.precision)
    with stage(errors, "the same steps through the Python extension") as progress:
        compared, differing = differences(fixture, result, a.device, progress)
    with stage(errors, "compare with the float64 oracle") as progress:
        comparison, verdict = judge(fixture, result, progress)
    if differing:
        verdict = _disagree(differing, verdict)
    print_report(console, comparison, verdict, every_step=a.all or comparison.steps <= 3)
    agree = f"{compared - len(differing)} of {compared}"
    console.print(f"  cnn_step and the Python extension agree to the bit in {agree} tensors.", highlight=False)
    seconds = time.monotonic() - start
    console.print(f"  {seconds:.1f} s in all.", style="dim", highlight=False)
    bitwise = {"compared": compared, "differing": len(differing)}
    return finish("bridge.validate", a.json, to_dict(comparison, verdict, bitwise=bitwise, seconds=round(seconds, 2)))


def _export_options(a: argparse.Namespace) -> list[str]:
    options = ["--nesterov"] if a.nesterov else []
    for name in EXPORT_OPTIONS:
        value = getattr(a, name)
        if value is not None:
            options += [f"--{name.replace('_', '-')}", str(value)]
    return options


def _disagree(differing: list[NotJudged], verdict: Verdict) -> Verdict:
    first = differing[0]
    return Verdict(Outcome.BUG, (
        f"BUG: cnn_step and the Python extension disagree in {len(differing)} tensors, first in {first.name} of "
        f"step {first.step}: two runs of the same code must agree to the bit."), [verdict.words])


def _bytes_needed(a: argparse.Namespace) -> int:
    """Room for both files, reckoned for the default model: 66 channels of outputs and of gradients."""
    try:
        sides = [int(n) for n in a.size.lower().split("x")]
    except ValueError:
        return 0  # reference.export says what is wrong with it
    pixels = sides[0] * sides[-1] * a.batch
    width = 8 if a.precision == "float64" else 4
    steps = pixels * a.steps * 136
    twins = pixels * 136 * 8 * (a.steps if pixels <= 2**17 else 1)
    return steps * 4 + steps * width + twins + 2**20


if __name__ == "__main__":
    sys.exit(main())
