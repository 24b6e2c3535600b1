# SPDX-License-Identifier: MIT
"""The tests lie as the code does: a file of tests is found by the path of what it tests.

``architecture`` is about the project as a whole, ``parity`` about every device alike, ``software_device`` about the
stand-in for CUDA that the others use. What several files share is in ``helpers``, imported by its whole name
(``from tests.helpers.cases import ...``); no file of tests imports from another.
"""

from pathlib import Path

#: The folder of the project
ROOT = Path(__file__).resolve().parents[1]
