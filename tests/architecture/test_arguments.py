# SPDX-License-Identifier: MIT
"""Every dummy argument of every Fortran procedure says what it is, in a comment above its own declaration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.library.fortran_arguments import undescribed, with_bodies

#: Sources, templates, and what is included in them; kernels for CUDA
KINDS = ("*.f90", "*.f90.in", "*.inc", "*.cuf")

#: Below fortran/: what is still to be described. A file without a gap must not stay here.
TO_DO: list[str] = []

DESCRIBED = '''
   !> y = a*x
   pure function scaled(a, x, &
         & n) result(y)
      !> A factor! Without unit
      real, intent(in) :: a
      !> Elements
      integer, intent(in) :: n
      !> Any numbers, of which
      !  each is scaled
      real, intent(in), &
         & contiguous :: x(:, size([n, 2]))
      real :: y(n), total
   end function scaled
'''

KERNEL = '''
   attributes(global) subroutine turn(rows, from) bind(C, name="cnn_turn_"//suffix)
      integer(i8), value :: rows
      !> *Device*
      real(wp), device, intent(in) :: from(rows, 2)
   end subroutine turn
'''

INSIDE = '''
   subroutine outer(a)
      !> Of the outer one
      integer, intent(in) :: a
   contains
      logical function inner(b)
         integer, intent(in) :: b
         inner = b > 0
      end function inner
   end subroutine outer
'''

INTERFACE = '''
   abstract interface
      type(c_ptr) function cudaThing(p) bind(C)
         import :: c_ptr
         implicit none
         type(c_ptr), value :: p
      end function cudaThing
   end interface
'''


def test_every_argument_is_described(root: Path) -> None:
    gaps: dict[str, list[str]] = {}
    for path in sorted(path for kind in KINDS for path in (root / "fortran").rglob(kind)):
        if found := undescribed(with_bodies(path)):
            gaps[path.relative_to(root / "fortran").as_posix()] = found
    assert {path: found for path, found in gaps.items() if path not in TO_DO} == {}
    assert sorted(set(TO_DO) - set(gaps)) == []


@pytest.mark.parametrize(("old", "new", "missing"), [
    ("", "", []),
    ("      !> Elements\n", "", ["n"]),
    ("!> Elements", "! Elements", ["n"]),
    ("!> Elements\n", "!> Elements\n\n", ["n"]),
    ("      real, intent(in) :: a\n      !> Elements\n      integer, intent(in) :: n", "real, intent(in) :: a, n",
     ["a", "n"]),
    ("      !  each is scaled\n", "", []),
    ("real, intent(in) :: a", "real, intent(in) :: b", ["a"]),
    ("!> Any numbers, of which\n", "! Any numbers, of which\n", ["x"]),
])
def test_a_missing_description_would_be_found(old: str, new: str, missing: list[str]) -> None:
    assert old in DESCRIBED
    found = undescribed(DESCRIBED.replace(old, new, 1) if old else DESCRIBED)
    assert [text.rpartition(" ")[2] for text in found] == missing


@pytest.mark.parametrize(("source", "missing"), [
    (KERNEL, ["2: turn: rows"]),
    (INSIDE, ["6: inner: b"]),
    (INTERFACE, ["3: cudaThing: p"]),
])
def test_kernels_interfaces_and_inner_procedures_are_read(source: str, missing: list[str]) -> None:
    assert undescribed(source) == missing


def test_a_body_belongs_to_the_procedure_that_includes_it(tmp_path: Path) -> None:
    (tmp_path / "body.inc").write_text("      !> Elements\n      integer, intent(in) :: n\n      real :: x(n)\n")
    (tmp_path / "others.inc").write_text("   subroutine other(m)\n      integer :: m\n   end subroutine other\n")
    source = tmp_path / "tiles.f90"
    source.write_text('   subroutine tile(n, x)\n      include "body.inc"\n   end subroutine tile\n'
                      '   include "others.inc"\n')
    assert undescribed(with_bodies(source)) == ["1: tile: x"]


def test_the_sources_are_read(root: Path) -> None:
    """Not a single argument would be missed, if there were none."""
    kernels = (root / "fortran").rglob("kernels.inc")
    text = "\n".join(path.read_text(encoding="utf-8") for path in kernels).replace("!>", "!")
    assert len(undescribed(text)) > 20
