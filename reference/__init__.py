# SPDX-License-Identifier: MIT
"""The PyTorch side: a small CNN and the writer of fixtures.

Needs torch, numpy, h5py and rich, and knows nothing of the Fortran side: the two meet in the exchange file
alone (`docs/exchange-file.md`). Start with ``python -m reference.export --help``.
"""
# ruff: noqa: E402  What is missing is said before it is imported

from reference.ending import interrupt_ends_imports

interrupt_ends_imports()

from reference.requirements import check_requirements

check_requirements()
