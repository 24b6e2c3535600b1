# SPDX-License-Identifier: MIT
"""The generator of random numbers, against its published numbers and its distributions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.library.cnn_library import printed
from tests.helpers.library.fortran_program import build

PROGRAM = """
program numbers
   use cnn_core_kinds, only : dp, i8
   use cnn_library_random, only : generator_type
   implicit none
   type(generator_type) :: generator
   real(dp) :: u
   integer :: i
   do i = 1, 3
      call generator%uniform(u)
      print "(es24.16)", u
   end do
   call generator%seed(7_i8)
   do i = 1, 4000
      call generator%uniform(u)
      print "(es24.16)", u
      call generator%normal(u)
      print "(es24.16)", u
   end do
   call generator%seed(8_i8)
   call generator%uniform(u)
   print "(es24.16)", u
   call generator%seed(7_i8, 1_i8)
   call generator%uniform(u)
   print "(es24.16)", u
   call generator%seed(7_i8)
   call generator%uniform(u)
   print "(es24.16)", u
end program numbers
"""


def reference(count: int) -> list[float]:
    """MRG32k3a in Python's integers, from the state that L'Ecuyer's RngStreams begins with."""
    first, second, found = [12345] * 3, [12345] * 3, []
    for _ in range(count):
        one = (1403580 * first[1] - 810728 * first[0]) % 4294967087
        two = (527612 * second[2] - 1370589 * second[0]) % 4294944443
        first, second = [*first[1:], one], [*second[1:], two]
        found.append(((one - two) % 4294967087 or 4294967087) / 4294967088)
    return found


def test_numbers(tmp_path: Path) -> None:
    source = tmp_path / "numbers.f90"
    source.write_text(PROGRAM, encoding="utf-8")
    found = [float(line) for line in printed(build(source, tmp_path))]
    # The first number of RngStreams, as its authors print it
    bits = reference(6)
    assert bits[0] == pytest.approx(0.127011122046577, abs=1e-15)
    assert found[:3] == pytest.approx([(bits[i] + bits[i + 1] * 2**-24) % 1 for i in (0, 2, 4)], abs=1e-15)
    uniform, normal = np.array(found[3:-3:2]), np.array(found[4:-3:2])
    assert 0 < uniform.min() < 0.001 and 0.999 < uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
    assert abs(normal.mean()) < 0.06 and abs(normal.std() - 1) < 0.05 and 3 < abs(normal).max() < 5.5
    assert abs(np.corrcoef(uniform[:-1], uniform[1:])[0, 1]) < 0.05
    other, stream, again = found[-3:]
    assert again == found[3] and len({other, stream, again}) == 3
