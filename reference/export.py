# SPDX-License-Identifier: MIT
"""Write a fixture: train a network in PyTorch for a few steps and keep every tensor.

``python -m reference.export FILE`` on the command line (`reference.cli` has the options), :func:`export`
from Python.
"""

from __future__ import annotations

import sys

from reference.cli import main
from reference.fixture import ExportReport as ExportReport
from reference.fixture import export as export
from reference.settings import ExportSettings as ExportSettings

if __name__ == "__main__":
    sys.exit(main())
