# SPDX-License-Identifier: MIT
"""The library as Fortran programs use it: every number beside `bridge.Network`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from bridge import Adam, DeviceArray, Network, Sgd
from bridge.exchange.model import Conv2d, Model
from bridge.operations import OPERATIONS
from tests import ROOT
from tests.helpers.library.cnn_library import PROGRAMS, SANITIZED, compiled, printed


@pytest.fixture(scope="module")
def beside_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(PROGRAMS / "beside_python.f90", tmp_path_factory.mktemp("library"))


def host(array: Any) -> np.ndarray:
    """A copy of an array on a device, or the array."""
    return array.numpy() if isinstance(array, DeviceArray) else np.asarray(array)


def compare(program: Path, device: str, lines: list[str]) -> None:
    """Every number that the program has printed and written is that of `bridge.Network` on the same device."""
    losses = [float(line.split()[1]) for line in lines]
    count = 3 * 8 * 10
    x, target = (((np.arange(1, count + 1) * a % b - c) / 8).astype(np.float32).reshape(3, 1, 8, 10)
                 for a, b, c in ((7, 23, 11), (5, 19, 9)))
    net = Network.from_file(program.parent / "before.h5", device=device)
    x, target = (one if device == "cpu" else DeviceArray.from_numpy(one, device) for one in (x, target))
    assert losses[:3] == [net.step(x, target, Sgd(0.125, momentum=0.5)) for _ in range(3)]
    folder = program.parent
    assert (folder / "gradient.bin").read_bytes() == host(net.gradients["conv1.weight"]).tobytes()
    net.save(folder / "again.h5")
    with h5py.File(folder / "after.h5") as ours, h5py.File(folder / "again.h5") as theirs:
        names: list[str] = []
        ours["steps"].visititems(lambda name, one: names.append(name) if isinstance(one, h5py.Dataset) else None)
        assert len(names) == 8 and all(
            ours["steps"][name][()].tobytes() == theirs["steps"][name][()].tobytes() for name in names)
    y = net.forward(x)
    assert (folder / "y.bin").read_bytes() == host(y).tobytes()
    if len(losses) > 3:
        assert (folder / "act.bin").read_bytes() == host(net.output("act")).tobytes()
        assert losses[3] == net.loss(target)
    gradient = np.fromfile(folder / "dx.bin", np.float32).reshape(x.shape)
    module = Network.from_file(folder / "after.h5").to_torch().double()
    leaf = torch.tensor(host(x), dtype=torch.float64, requires_grad=True)
    module(leaf).backward(torch.tensor(host(target), dtype=torch.float64))
    assert leaf.grad is not None and np.abs(gradient - leaf.grad.numpy()).max() < 1e-5


def test_every_number_is_that_of_python(beside_python: Path) -> None:
    compare(beside_python, "cpu", printed(beside_python, "cpu"))


def test_every_number_is_that_of_python_on_cuda(beside_python: Path, cuda: str) -> None:
    """Host arrays are copied there and back."""
    compare(beside_python, cuda, printed(beside_python, cuda))


def test_every_number_is_that_of_python_from_c(tmp_path: Path) -> None:
    """By cnn.h, without a leak; and what is wrong is said there, too."""
    program = compiled(PROGRAMS / "from_c.c", tmp_path, *SANITIZED)
    said = printed(program)
    compare(program, "cpu", said[:3])
    assert said[3:] == [
        "1 y: the shape (4), expected (3, 1, 8, 10)", "1 network: a null pointer, expected one of cnn_new",
        "1 optimizer sgd rate=1: no setting rate with one number", "1 none.h5: no such file", "1",
        "1 x: a null pointer, expected an array", "1 target: a null pointer, expected an array",
        "1 conv1.weight: a null pointer, expected an array", "0", "0",
        "1 optimizer sgd lr=abc: lr is no number, expected one",
        "1 optimizer sgd lr=1 lr=2: lr is there twice, expected once",
        "1 the name of the file is empty, expected one",
        "1 set_gradients: no gradients yet, call compute_gradients or pull_back first",
        "1 model: layer twice has the attribute 'padding' twice, expected once",
        "1 y: int64, expected the network's float32",
        "1 x: int32 on a device, expected it in host memory",
        "1 layer table (embedding): number 6 of its input is 7, expected a whole number from 0 to 4"]


def test_integers_are_taken(tmp_path: Path) -> None:
    """Words and classes, with the same bits as the same numbers that are real; what these cannot hold is said."""
    assert printed(compiled(PROGRAMS / "whole_numbers.f90", tmp_path, *SANITIZED), "cpu") == INTEGERS


def test_integers_are_taken_on_cuda(tmp_path: Path, cuda: str) -> None:
    """As real numbers they are copied there."""
    said = printed(compiled(PROGRAMS / "whole_numbers.f90", tmp_path), cuda)
    assert said == [one for one in INTEGERS if "layer table" not in one]


#: Of programs/whole_numbers.f90
INTEGERS = [
    "forward of int32:  0.0E+00", "forward of int64:  0.0E+00", "forward of float64:  0.0E+00", "losses:  0.0E+00",
    "weights after a step:  0.0E+00", "pulled back:  0.0E+00", "gradients there: T",
    "x: number 2 is 16777217, expected at most 16777216 in a network of float32",
    "x: number 1 is -9007199254740993, expected at most 9007199254740992 in a network of float64",
    "layer table (embedding): number 1 of its input is 12, expected a whole number from 0 to 10",
    "packed:  0.0E+00", "input word: number 3 is 16777217, expected at most 16777216 in a network of float32",
    "input word: 1 dimensions, expected (3)", "x: it has no memory, expected an array that is allocated",
    "input word: the shape (2), expected (3)"]

#: Of programs/gradients.f90
IN_PARTS = [
    "not built: network: it is not built, expected build or load first", "numbers 77",
    "no gradients: update: no gradients yet, call forward, loss and backward first",
    "another shape: gradients: the shape (5), expected (77)",
    "another kind: gradients: float64, expected the network's float32",
    "set  0.00E+00", "loss  0.00E+00 steps 0", "order  0.00E+00 0.00E+00", "weights  0.00E+00",
    "used up: update: no gradients yet, call forward, loss and backward first", "parts  T T", "diverged T",
    "not a number: step 3: the loss is NaN: the training diverges (a smaller lr?), and there are no gradients",
    "none: update: no gradients yet, call forward, loss and backward first"]


def check_parts(said: list[str]) -> None:
    assert said == IN_PARTS


@pytest.mark.parametrize("kinds", [(), ("-fdefault-integer-8",)])
def test_a_step_in_parts(kinds: tuple[str, ...], tmp_path: Path) -> None:
    """The same bits as a whole step; gradients of parts of a batch add up to those of the batch."""
    check_parts(printed(compiled(PROGRAMS / "gradients.f90", tmp_path, *SANITIZED, *kinds), "cpu"))


def test_a_step_in_parts_on_cuda(tmp_path: Path, cuda: str) -> None:
    """The vector is in host memory."""
    check_parts(printed(compiled(PROGRAMS / "gradients.f90", tmp_path), cuda))


def test_arrays_on_the_device(tmp_path: Path, cuda: str, cuda_libraries: Any) -> None:
    """They are worked on where they are, with the same bits as copies of host arrays."""
    (runtime,) = Path(cuda_libraries.folder).glob("libcudart.so.*")
    program = compiled(PROGRAMS / "device_arrays.f90", tmp_path, str(runtime))
    said = printed(program, CNN_CUDA_PATH=cuda_libraries.folder, LD_LIBRARY_PATH=cuda_libraries.folder)
    assert said == [*(f"{name}  0.00E+00" for name in ("loss", "output", "gradient", "weight")),
                    "x: it has no memory, expected an array that is allocated",
                    "x: float64, expected the network's float32"]


def test_the_example_with_arrays_on_the_device(tmp_path: Path, cuda: str, cuda_libraries: Any) -> None:
    """In Fortran and in Python."""
    (runtime,) = Path(cuda_libraries.folder).glob("libcudart.so.*")
    example = ROOT / "examples/8_gpu_arrays/gpu_arrays"
    program = compiled(example.with_suffix(".f90"), tmp_path, str(PROGRAMS / "cuda_memcpy.c"), str(runtime))
    variables = {"CNN_CUDA_PATH": cuda_libraries.folder, "LD_LIBRARY_PATH": cuda_libraries.folder}
    python = subprocess.run([sys.executable, example.with_suffix(".py")], env=os.environ | variables | {
        "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True).stdout.splitlines()
    for said in (printed(program, **variables), python):
        assert said[-1].startswith("largest difference between cpu and cuda ")
        assert float(said[-1].split()[-1]) < 1e-6


def test_first_values(tmp_path: Path) -> None:
    """Of 250,000 numbers: mean, deviation and largest are those of their distribution; another seed, other numbers."""
    source = tmp_path / "first.f90"
    source.write_text(FIRST, encoding="utf-8")
    rows = {line.split()[0]: [float(one) for one in line.split()[1:]] for line in printed(compiled(source, tmp_path))}
    fan_in, fan_out = 100 * 9, 280 * 9
    for name, deviation, most in (
            ("torch", (1 / 3 / fan_in) ** 0.5, fan_in**-0.5), ("he", (2 / fan_in) ** 0.5, np.inf),
            ("xavier", (2 / (fan_in + fan_out)) ** 0.5, (6 / (fan_in + fan_out)) ** 0.5)):
        mean, found, largest, bias, other = rows[name]
        assert abs(mean) < 5 * deviation / 252000**0.5 and found == pytest.approx(deviation, rel=0.01)
        assert 0.99 * min(most, 4 * deviation) < largest <= most
        assert (0 < bias <= fan_in**-0.5) if name == "torch" else bias == 0
        assert other > deviation


def test_first_values_of_splines(tmp_path: Path) -> None:
    """Coefficients and scales of bases each by their own number of products, other scales 1."""
    source = tmp_path / "first.f90"
    source.write_text(FIRST_OF_SPLINES, encoding="utf-8")
    rows = {line.split()[0]: [float(one) for one in line.split()[1:]] for line in printed(compiled(source, tmp_path))}
    # Of 40 features 9 splines each, to 50 outputs
    for name, coefficient, base in (
            ("torch", (1 / 3 / 360) ** 0.5, (1 / 3 / 40) ** 0.5), ("he", (2 / 360) ** 0.5, (2 / 40) ** 0.5),
            ("xavier", (2 / (360 + 450)) ** 0.5, (2 / 90) ** 0.5)):
        assert rows[name][:2] == [pytest.approx(coefficient, rel=0.02), pytest.approx(base, rel=0.05)]
        assert rows[name][2:] == [1, 1]

def test_first_values_of_embeddings(tmp_path: Path) -> None:
    """As torch draws them: of variance 1, and the row that is not learned is 0."""
    source = tmp_path / "first.f90"
    source.write_text(FIRST_OF_EMBEDDINGS, encoding="utf-8")
    mean, deviation, row, same = map(float, printed(compiled(source, tmp_path))[0].split())
    assert abs(mean) < 0.05 and deviation == pytest.approx(1, rel=0.05) and row == 0 and same == 0

def test_first_values_of_complex_matrices(tmp_path: Path) -> None:
    """An element is a sum of 40 complex products, of however many places there are."""
    source = tmp_path / "first.f90"
    source.write_text(FIRST_OF_MATRICES, encoding="utf-8")
    most, total = map(float, printed(compiled(source, tmp_path))[0].split())
    assert 0.99 * 80**-0.5 < most <= 80**-0.5 and total == pytest.approx((80 * 3) ** -0.5, rel=0.02)


FIRST_OF_MATRICES = """
program first
   use cnn
   implicit none
   type(network_type) :: net
   type(error_type), allocatable :: error
   real(dp) :: weight(2, 7, 50, 40)
   call net%add("c", layer("complex_linear", "in_channels=40 out_channels=50 places=7"))
   call net%build(error, precision="float64", seed=1)
   call net%get("c.weight", weight, error)
   print "(2es24.16)", maxval(abs(weight)), sqrt(sum(weight**2)/size(weight))
end program first
"""

FIRST_OF_EMBEDDINGS = """
program first
   use cnn
   implicit none
   type(network_type) :: net
   type(error_type), allocatable :: error
   real(dp) :: table(50, 300), y(50, 2, 3)
   call net%add("e", embedding(300, 50, padding_idx=7))
   call net%build(error, precision="float64", seed=1)
   call net%get("e.weight", table, error)
   call net%forward(reshape(real([7, 0, 299, 1, 2, 3], dp), [2, 3]), y, error)
   print "(4es24.16)", sum(table)/size(table), sqrt(sum(table**2)/size(table)), maxval(abs(table(:, 8))), &
      & maxval(abs(y(:, 1, 2) - table(:, 300)))
end program first
"""

FIRST_OF_SPLINES = """
program first
   use cnn
   implicit none
   character(len=6), parameter :: names(3) = [character(len=6) :: "torch", "he", "xavier"]
   type(network_type) :: net
   type(error_type), allocatable :: error
   real(dp) :: coefficient(9, 40, 50), scale_base(40, 50), scale_spline(40, 50)
   integer :: i
   call net%add("s", layer("spline", "in_features=40 out_features=50 order=4"))
   do i = 1, 3
      call net%build(error, precision="float64", initialization=trim(names(i)), seed=int(i, i8))
      call net%get("s.coefficient", coefficient, error)
      call net%get("s.scale_base", scale_base, error)
      call net%get("s.scale_spline", scale_spline, error)
      print "(a, 4es24.16)", names(i), sqrt(sum(coefficient**2)/size(coefficient)), &
         & sqrt(sum(scale_base**2)/size(scale_base)), minval(scale_spline), maxval(scale_spline)
   end do
end program first
"""

FIRST = """
program first
   use cnn
   implicit none
   character(len=6), parameter :: names(3) = [character(len=6) :: "torch", "he", "xavier"]
   type(network_type) :: net
   type(error_type), allocatable :: error
   real(dp), allocatable :: w(:, :, :, :), other(:, :, :, :), b(:)
   integer :: i
   allocate (w(3, 3, 100, 280), other(3, 3, 100, 280), b(280))
   call net%add("c", conv2d(100, 280, kernel_size=3))
   do i = 1, 3
      call net%build(error, precision="float64", initialization=trim(names(i)), seed=int(i, i8))
      call net%get("c.weight", w, error)
      call net%get("c.bias", b, error)
      call net%build(error, precision="float64", initialization=trim(names(i)), seed=int(i + 1, i8))
      call net%get("c.weight", other, error)
      print "(a, 5es24.16)", names(i), sum(w)/size(w), sqrt(sum(w**2)/size(w)), maxval(abs(w)), maxval(abs(b)), &
         & sqrt(sum((w - other)**2)/size(w))
   end do
end program first
"""


def test_every_operation_can_be_a_layer(tmp_path: Path) -> None:
    """By its type and the hyperparameters of a file, with what it learns drawn or 1 and 0."""
    settings = {
        "avg_pool2d": "kernel_size=2,2 stride=2,2", "batch_norm2d": "num_features=2", "dropout": "p=0.5",
        "dropout2d": "p=0.5", "adaptive_avg_pool2d": "output_size=4,5", "adaptive_max_pool2d": "output_size=4,5",
        "constant_pad": "pad=1,-2,0,1 value=0.5", "circular_pad": "pad=1,1", "interpolate": "degree=3 size=4,7",
        "conv2d": "in_channels=2 out_channels=3 kernel_size=2,3", "linear": "in_features=6 out_features=4 bias=0",
        "conv_transpose2d": "in_channels=2 out_channels=3 kernel_size=2,3", "leaky_relu": "negative_slope=0.5",
        "group_norm": "num_groups=1 num_channels=2 eps=0.1", "layer_norm": "normalized_shape=6,6 bias=0",
        "max_pool3d": "kernel_size=2,2,2 stride=2,2,2", "avg_pool3d": "kernel_size=2,2,2 stride=2,2,2",
        "complex_linear": "in_channels=2 out_channels=3 places=18",
        "embedding": "num_embeddings=5 embedding_dim=3", "gru": "hidden_size=4", "lstm": "hidden_size=3 reverse=1",
        "rnn": "hidden_size=12 relu=1 bias=0",
        "conv3d": "in_channels=2 out_channels=3 kernel_size=2,3,1", "adaptive_avg_pool3d": "output_size=2,4,5",
        "conv_transpose3d": "in_channels=2 out_channels=3 kernel_size=1,2,3",
        "upsample_nearest3d": "scale_factor=1,2,3", "upsample_trilinear3d": "scale_factor=1,2,3",
        "max_pool2d": "kernel_size=2,2 stride=2,2", "reflection_pad2d": "padding=1,0,0,1",
        "replication_pad2d": "padding=1,0,0,1", "reshape": "shape=3,-1", "sum": "dim=1",
        "mean": "dim=2,3 keepdim=1", "amax": "dim=-1", "amin": "dim=1,2,3", "max": "dim=1", "min": "dim=-2 keepdim=1",
        "transpose": "dim0=1 dim1=-1", "permute": "dims=0,2,1,3", "slice": "dim=1 start=1", "flip": "dims=1,-1",
        "index_select": "dim=2 indices=3,0,0,5", "parameter": "shape=2,3",
        "roll": "shifts=1,-2 dims=2,3", "expand": "shape=2,6,6", "pixel_shuffle": "upscale_factor=1",
        "pixel_unshuffle": "downscale_factor=2",
        "upsample_bilinear2d": "scale_factor=2,2 align_corners=1",
        "spline": "in_features=6 out_features=4 grid=3 order=2 low=-2",
        "upsample_nearest2d": "scale_factor=2,2", "zero_pad2d": "padding=1,0,0,1"}
    source = tmp_path / "layers.f90"
    calls = "\n".join(f'   call try("{kind}", "{settings.get(kind, "")}")' for kind in OPERATIONS)
    source.write_text(LAYERS.replace("   ! calls", calls), encoding="utf-8")
    assert printed(compiled(source, tmp_path)) == [f"{kind} good" for kind in OPERATIONS]

LAYERS = """
program layers
   use cnn
   implicit none
   real(sp) :: x(6, 6, 2, 3)
   call random_number(x)
   ! calls
contains
   subroutine try(kind, settings)
      character(len=*), intent(in) :: kind
      character(len=*), intent(in) :: settings
      type(network_type) :: net
      type(error_type), allocatable :: error
      real(dp) :: loss
      real(sp) :: none(1), given(6, 6, 2, 3)
      given = x
      ! These take whole numbers
      if (any(kind == [character(len=11) :: "embedding", "gather_rows"])) given = 1
      if (any(kind == [character(len=4) :: "gru", "lstm", "rnn"])) call net%add("times", layer("reshape", "shape=6,12"))
      if (kind == "complex_linear") call net%add("pairs", layer("reshape", "shape=2,18,2"))
      if (index(kind, "3d") > 0) call net%add("volumes", layer("reshape", "shape=2,2,3,6"))
      if (any(kind == [character(len=8) :: "add", "concat", "divide", "matmul", "multiply", "subtract"])) then
         call net%add("it", layer(kind), inputs="input,input")
      else if (kind == "attention") then
         call net%add("it", layer(kind, "is_causal=1"), inputs="input,input,input")
      else if (kind == "gather_rows") then
         call net%add("table", layer("reshape", "shape=12,6"))
         call net%add("it", layer(kind), inputs="table,input")
      else
         call net%add("it", layer(kind, settings))
      end if
      call net%build(error)
      if (.not. allocated(error)) call net%evaluate(given, none, loss, error)
      if (allocated(error)) then
         ! Its output has another shape than one number: the layer has computed it
         if (index(error%message, "target: float32 (1, 1, 1, 1), expected the output's") == 1) deallocate (error)
      end if
      if (allocated(error)) then
         print "(a)", kind//" "//error%message
      else
         print "(a)", kind//" good"
      end if
   end subroutine try
end program layers
"""

#: What a checkpoint of Adam has lost, and what is then said after its name
LOST: dict[str, tuple[Any, str]] = {
    "all": (lambda file: file.__delitem__("steps/0/optimizer"), "/steps/0/optimizer/conv1/weight is missing"),
    "a layer": (lambda file: file.move("steps/0/optimizer/conv2", "steps/0/optimizer/conv3"),
                "/steps/0/optimizer/conv2/weight is missing"),
    "a parameter": (lambda file: file.__delitem__("steps/0/optimizer/conv1/bias"),
                    "/steps/0/optimizer/conv1/bias is missing"),
    "the first average": (lambda file: file.__delitem__("steps/0/optimizer/conv2/weight/exp_avg"),
                          "/steps/0/optimizer/conv2/weight is missing"),
    "the second average": (lambda file: file.__delitem__("steps/0/optimizer/conv2/weight/exp_avg_sq"),
                           "/steps/0/optimizer/conv2/weight/exp_avg_sq is missing"),
    "updates": (lambda file: file["steps/0/optimizer/conv1/weight"].attrs.__delitem__("updates"),
                "attribute updates of /steps/0/optimizer/conv1/weight is missing"),
}


def test_a_checkpoint_that_has_lost_its_memory(tmp_path: Path) -> None:
    """Is not loaded; but where a parameter was frozen, and of an optimiser that remembers nothing, or nothing yet, it
    may be so.
    """
    model = Model((Conv2d("conv1", 1, 4, (3, 3)), Conv2d("conv2", 4, 1, (3, 3))))
    program, x = compiled(PROGRAMS / "load.f90", tmp_path), np.ones((1, 1, 8, 8), np.float32)
    adam, momentum = Adam(0.01), Sgd(0.01, momentum=0.5)
    for name, frozen, first, then in (
            ("adam", (), adam, adam), ("frozen", ("conv1.weight",), adam, adam), ("sgd", (), Sgd(0.01), Sgd(0.01)),
            ("momentum", (), momentum, momentum), ("another", (), Sgd(0.01), adam), ("a third", (), momentum, adam)):
        net = Network(model)
        net.frozen = frozen
        net.step(x, np.zeros((1, 1, 4, 4), np.float32), first)
        net.save(tmp_path / f"{name}.h5", then)
        assert printed(program, f"{name}.h5") == ["good"], name
        net.frozen = ()
        net.save(tmp_path / f"{name}.h5", then)
        assert printed(program, f"{name}.h5") == ["good"], f"{name}, thawed"
    for what, (lose, says) in LOST.items():
        shutil.copy(tmp_path / "adam.h5", tmp_path / "lost.h5")
        with h5py.File(tmp_path / "lost.h5", "r+") as file:
            lose(file)
        said = printed(program, "lost.h5")
        assert len(said) == 1 and said[0].startswith(f"lost.h5: {says}"), what
