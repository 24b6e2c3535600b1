# SPDX-License-Identifier: MIT
"""The tests lie as the code does: a file of tests is found by the path of what it tests.

``architecture`` is about the project as a whole, ``parity`` about every device alike, ``software_device`` about the
stand-in for CUDA that the others use. What several files share is in ``helpers``, imported by its whole name
(``from tests.helpers.cases import ...``); no file of tests imports from another.
"""

import os
from pathlib import Path

# Threads that wait for each other in a loop take the processor from the other processes of a run, which have the other
# cores. Read once, when the first library with OpenMP, and numpy's BLAS, is loaded
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

#: The folder of the project
ROOT = Path(__file__).resolve().parents[1]
