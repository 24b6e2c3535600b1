# SPDX-License-Identifier: MIT
"""The library as Fortran programs use it: wrong calls, copies, threads."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest

from bridge.gradcheck.cases import CASES, Setup
from bridge.operations import OPERATIONS
from bridge.operations.hyperparameters import numbers
from bridge.operations.losses import LOSSES
from bridge.operations.normalization import BatchNorm2d
from bridge.operations.pooling import AvgPool2d, MaxPool2d
from bridge.operations.products import Conv2d, ConvTranspose2d
from bridge.operations.resizing import Interpolate
from bridge.operations.volumes.products import Conv3d
from tests.helpers.instruction_sets import LEVELS, facts
from tests.helpers.library.cnn_library import PROGRAMS, SANITIZED, compiled, printed

#: What each call says, without what it was
MESSAGES = {
    "not built": ["network: it is not built, expected build or load first"] * 5,
    "no layers": ["model: no layers, expected one or more"],
    "kernel of 0": ["model: layer conv has kernel_size 0.0, 0.0, expected (height, width), integers from 1 to 65536",
                    ] * 2,
    "kernel of a real number": [
        "model: layer conv has kernel_size NaN, NaN, expected (height, width), integers from 1 to 65536"],
    "an integer for a truth": ["model: layer conv has bias NaN, expected 0 or 1", "sgd: dampening is not finite",
                               "training: expected a logical"],
    "a text for a truth": ["frozen: expected a logical"],
    "unknown layer": ["model: layer a has type nothing, which is no operation that is known here"],
    "unknown device": ["device tpu: unknown, expected cpu or cuda"],
    "unknown precision": ["precision float16: unknown, expected float32 or float64"],
    "unknown memory": ["keep_activations 7: unknown, expected keep_all, keep_after_relu or keep_needed"],
    "unknown loss": [
        "model: loss is hinge with the reduction mean, expected one of bce, bce_with_logits, cross_entropy, huber, l1, "
        "mse, smooth_l1 with mean or sum"],
    "unknown initialization": ["initialization zeros: unknown, expected torch, he or xavier"],
    "good": ["no error"] * 2,
    "another kind": ["x: float64, expected the network's float32", "conv.weight: float64, expected float32"],
    "five dimensions": ["layer conv (conv2d): input (8, 8, 1, 2, 1), expected a shape (n, c, h, w)"],
    "no images": ["layer conv (conv2d): conv2d: empty tensor, input (8, 8, 1, 0), weight (3, 3, 1, 2)"],
    "three dimensions": ["layer conv (conv2d): input (8, 8, 2), expected a shape (n, c, h, w)"],
    "another shape": ["y: the shape (3, 3, 1, 2), expected (8, 8, 1, 2)",
                      "conv.weight: the shape (8, 8, 1, 2), expected (3, 3, 1, 2)"],
    "another target": ["target: float32 (3, 3, 1, 2), expected the output's float32 (8, 8, 1, 2)"],
    "negative rate": ["sgd: lr is -0.10000000000000001, expected a finite value >= 0"],
    "device array": ["x: an array on a device, expected one in host memory, where the network is"],
    "no parameter": [
        f"network: it has no {name}, expected the name of a layer, a dot, and weight, bias or what it keeps"
        for name in ("conv.weigth", "last")],
    "no layer": ["network: it has no layer relu"],
    "no gradient yet": ["gradient of conv: there is none yet, or the network does not keep it"],
    "no file": ["none.h5: no such file"],
    "no folder": ["/none/none.h5: the file cannot be created, there is no such folder"],
    "infinite": ["step 0: the gradient of conv.weight holds NaN or infinity, lr = 0.1: the training diverges (a "
                 "smaller lr?), and weights and momenta stay as they were before this step"],
    "diverges": ["step 0: the loss is NaN, lr = 0.1: the training diverges (a smaller lr?), and weights and momenta "
                 "stay as they were before this step"],
    "late layer": ["network: the layer late is added after build, expected before"],
}


@pytest.mark.parametrize("kinds", [(), ("-fdefault-integer-8",)])
def test_a_wrong_call_is_one_clear_error(kinds: tuple[str, ...], tmp_path: Path) -> None:
    """And the network is as good as before."""
    found: dict[str, list[str]] = {}
    for line in printed(compiled(PROGRAMS / "wrong_calls.f90", tmp_path, *SANITIZED, *kinds)):
        what, _, message = line.partition(": ")
        found.setdefault(what, []).append(message)
    assert found == MESSAGES


def test_integers_and_logicals_of_every_kind(tmp_path: Path) -> None:
    """A logical of one byte, as C's, is not taken for false."""
    assert printed(compiled(PROGRAMS / "kinds.f90", tmp_path, *SANITIZED)) == ["outputs T", "weights T"]


def test_arrays_are_used_where_they_are(tmp_path: Path) -> None:
    """Those of assumed shape, too, of which gfortran makes a copy for a contiguous argument: here of 64 MB."""
    memory, *said = printed(compiled(PROGRAMS / "in_place.f90", tmp_path))
    assert memory.startswith("assumed shape ") and int(memory.split()[-1]) < 8192
    assert said == ["x: it has no memory, expected an array that is allocated", "seed: expected an integer", "good"]


def test_networks_are_values(tmp_path: Path) -> None:
    """Nothing is lost or freed twice, by the address sanitizer, and threads do not disturb each other."""
    said = printed(compiled(PROGRAMS / "copies.f90", tmp_path, *SANITIZED), OMP_NUM_THREADS="4")
    assert said == [
        "untouched  0.00E+00", "copy  0.00E+00 steps 0", "weights  0.00E+00",
        "network: it is not built, expected build or load first", "built twice  0.00E+00",
        "of its own  0.00E+00", "learns T",
        "resumed  0.00E+00", "masks  0.00E+00", "evaluation  0.00E+00", "state T",
        "c1.weight n1.weight n1.bias u.weight u.bias l.weight l.bias", "threads  0.00E+00"]


def test_copies_that_the_compiler_makes(tmp_path: Path) -> None:
    """Of elements, components, results of functions: the right network, or words for it; their memory comes back."""
    said = printed(compiled(PROGRAMS / "compiler_copies.f90", tmp_path, *SANITIZED), OMP_NUM_THREADS="4",
                   ASAN_OPTIONS="quarantine_size_mb=1")
    copied = "network: a copy that the compiler has made on its own, and what it is of {}, expected an assignment of " \
        "the network itself (a%net = b%net)"
    assert said == [f"{name} T" for name in (
        "itself", "in brackets", "reversed", "shifted", "by a list", "empty", "result", "component", "learns apart",
        "result with a component", "allocated", "constructor", "array of types", "each thread")] + [
        f"changed: {copied.format('has changed since')}", f"gone: {copied.format('is no more')}", "memory T"]


def test_a_network_that_threads_share(tmp_path: Path) -> None:
    """Inference is right in each; of what changes the network the second call is refused, and no number is lost."""
    program = compiled(PROGRAMS / "shared.f90", tmp_path, *SANITIZED)
    said = printed(program, OMP_NUM_THREADS="4")
    assert said == [
        "forward  0.00E+00", "evaluate  0.00E+00",
        "outputs: network: several threads have computed at the same time, expected one, or a copy for each, where "
        "outputs and gradients of layers are asked for", "alone: no error", "steps T", "weights  0.00E+00",
        "refused: network: another call is at work on it, expected one thread at a time, or a copy for each"]


def test_a_network_that_threads_of_c_share(tmp_path: Path) -> None:
    """POSIX threads, of which OpenMP knows nothing."""
    said = printed(compiled(PROGRAMS / "shared.c", tmp_path, *SANITIZED), OMP_NUM_THREADS="2")
    assert said == ["wrong 0, told 400 of 400, some taken 1"]


#: What takes no negative numbers
POSITIVE = {"log", "log10", "log2", "reciprocal", "rsqrt", "sqrt"}
#: Cases of gradient checks are narrower than what a processor takes at a time
WIDE = [Setup(one, ((2, 2, 9, 37),)) for one in (
    Conv2d("it", 2, 3, (3, 3)), ConvTranspose2d("it", 2, 3, (2, 2)), MaxPool2d("it", (2, 2), (2, 2)),
    AvgPool2d("it", (2, 2), (2, 2)), BatchNorm2d("it", 2), Interpolate("it", 3, (18, 74)))
] + [Setup(Conv3d("it", 2, 3, (2, 3, 3)), ((2, 2, 3, 9, 37),))]


def write_cases(path: Path) -> int:
    """Cases of every operation, as programs/traps.f90 reads them; how many there are.

    Of each kind one at least: left out are those whose inputs have other numbers of images, or whose output has no
    second dimension; and what takes whole numbers, which refuses all others.
    """
    lines, kinds = list[str](), set[str]()
    for cases in (*CASES.values(), WIDE):
        for case in cases:
            kind, output = case.node.kind, case.node.output_shape(*case.shapes)
            other_images = len({shape[0] for shape in case.shapes}) > 1
            if case.node.takes_whole_numbers or other_images or min(map(len, (*case.shapes, output))) < 2:
                continue
            settings = " ".join(f"{name}={','.join(str(float(one)) for one in values)}"
                                for name, values in numbers(case.node).items())
            lines += [kind, settings, f"{len(case.shapes)} {case.shapes[0][0]} {math.prod(output[1:])} {output[0]} "
                                      f"{int(kind in POSITIVE)}"]
            lines += [f"{len(shape) - 1} {' '.join(map(str, shape[:0:-1]))}" for shape in case.shapes]
            kinds.add(kind)
    assert kinds == {kind for kind, one in OPERATIONS.items() if not one.takes_whole_numbers}
    count = sum(line in kinds for line in lines)
    path.write_text("\n".join([str(count), *lines, ""]), encoding="utf-8")
    return count


def test_no_call_ends_at_a_trap(tmp_path: Path) -> None:
    """Every operation, loss and optimiser, at every instruction set, in a program that has traps, then as before."""
    program = compiled(PROGRAMS / "traps.f90", tmp_path)
    count = write_cases(tmp_path / "cases.txt")
    for level, threads in product(LEVELS[:LEVELS.index(facts()["best"]) + 1], ("1", "3")):
        said = printed(program, CNN_CPU_LEVEL=level, OMP_NUM_THREADS=threads)
        assert said == [f"{8 * (2 * count + len(LOSSES))} computed", "as before T T"], level
