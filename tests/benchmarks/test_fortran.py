# SPDX-License-Identifier: MIT
"""``python -m benchmarks fortran``: a library's own sources are compiled in order, and what it computes is judged."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.cpu import fortran
from benchmarks.harness.document import Options
from benchmarks.harness.errors import NotHere

#: A library with the layer of neural-fortran's names, as slow as the definition
NAIVE = {
    "nf_activation.f90": """
module nf_activation
   type :: relu
   end type relu
end module nf_activation
""",
    "nf_conv2d_layer.f90": """
module nf_conv2d_layer
   use nf_activation, only : relu
   implicit none
   type :: conv2d_layer
      integer :: width
      real, allocatable :: kernel(:, :, :, :), biases(:), output(:, :, :), gradient(:, :, :), dw(:, :, :, :), db(:)
   contains
      procedure :: init
      procedure :: forward
      procedure :: backward
   end type conv2d_layer
   interface conv2d_layer
      module procedure new
   end interface conv2d_layer
   interface
      module subroutine backward(self, x, dy)
         class(conv2d_layer), intent(inout) :: self
         real, intent(in) :: x(:, :, :), dy(:, :, :)
      end subroutine backward
   end interface
contains
   function new(filters, kernel, activation, stride) result(layer)
      integer, intent(in) :: filters, kernel, stride(:)
      type(relu), intent(in) :: activation
      type(conv2d_layer) :: layer
      allocate (layer%db(filters))
      layer%width = kernel
   end function new
   subroutine init(self, shape)
      class(conv2d_layer), intent(inout) :: self
      integer, intent(in) :: shape(3)
      allocate (self%gradient(shape(1), shape(2), shape(3)))
      allocate (self%kernel(size(self%db), shape(1), self%width, self%width))
      allocate (self%dw, mold=self%kernel)
   end subroutine init
   subroutine forward(self, x)
      class(conv2d_layer), intent(inout) :: self
      real, intent(in) :: x(:, :, :)
      integer :: k, i, j, r
      r = size(self%kernel, 3) - 1
      if (.not. allocated(self%output)) allocate (self%output(size(self%db), size(x, 2) - r, size(x, 3) - r))
      do concurrent(k=1:size(self%db), i=1:size(self%output, 2), j=1:size(self%output, 3))
         self%output(k, i, j) = max(0.0, sum(self%kernel(k, :, :, :)*x(:, i:i + r, j:j + r)) + self%biases(k))
      end do
   end subroutine forward
end module nf_conv2d_layer
""",
    "nf_a_submodule.f90": """
submodule (nf_conv2d_layer) nf_a_submodule
contains
   module subroutine backward(self, x, dy)
      class(conv2d_layer), intent(inout) :: self
      real, intent(in) :: x(:, :, :), dy(:, :, :)
      integer :: k, i, j, r
      real :: d
      r = size(self%kernel, 3) - 1
      self%gradient = 0.0
      self%dw = 0.0
      self%db = 0.0
      do k = 1, size(self%db)
         do j = 1, size(dy, 3)
            do i = 1, size(dy, 2)
               d = merge(dy(k, i, j), 0.0, self%output(k, i, j) > 0.0)
               self%gradient(:, i:i + r, j:j + r) = self%gradient(:, i:i + r, j:j + r) + d*self%kernel(k, :, :, :)
               self%dw(k, :, :, :) = self%dw(k, :, :, :) + FACTOR*d*x(:, i:i + r, j:j + r)
               self%db(k) = self%db(k) + d
            end do
         end do
      end do
   end subroutine backward
end submodule nf_a_submodule
"""}


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
def test_a_library_is_compiled_and_held_against_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *,
                                                     wrong: bool) -> None:
    sources = tmp_path / "src" / "nf"
    sources.mkdir(parents=True)
    (tmp_path / "fpm.toml").write_text('name = "naive"\nversion = "1.2.3"\n', encoding="utf-8")
    for name, text in NAIVE.items():
        assert text.count("FACTOR") == (name == "nf_a_submodule.f90")
        (sources / name).write_text(text.replace("FACTOR", "0.5" if wrong else "1.0"), encoding="utf-8")
    monkeypatch.setenv("NEURAL_FORTRAN", str(tmp_path))
    monkeypatch.delenv("ATHENA", raising=False)
    content, _ = fortran.measure(Options(quick=True, runs=1), Console(quiet=True))
    assert content["libraries"] == {"neural-fortran": "1.2.3"}
    forward, backward = (case["results"] for case in content["cases"])
    assert forward["neural-fortran"]["errors"]["y"] < 1e-6
    errors = backward["neural-fortran"]["errors"]
    assert {name for name, error in errors.items() if error > 1e-6} == ({"dw"} if wrong else set())
    assert forward["athena"] == {"skipped": "the environment variable ATHENA names no folder with its sources"}
    printed = Console(file=StringIO(), record=True, width=200)
    for made in fortran.tables(content):
        printed.print(made)
    assert ("dw by 50%" in printed.export_text()) is wrong


def test_what_cannot_be_compiled_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURAL_FORTRAN", str(tmp_path))
    with pytest.raises(NotHere, match=r"no files src/nf/nf_\*\.f90$"):
        fortran.compiled(fortran.LIBRARIES[0], tmp_path)
    source = tmp_path / "src" / "nf" / "nf_activation.f90"
    source.parent.mkdir(parents=True)
    source.write_text("module nf_activation\n", encoding="utf-8")
    with pytest.raises(NotHere, match=r"^gfortran cannot compile "):
        fortran.compiled(fortran.LIBRARIES[0], tmp_path)
