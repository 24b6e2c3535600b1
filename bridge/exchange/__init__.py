# SPDX-License-Identifier: MIT
"""The exchange file (docs/exchange-file.md): read with h5py, checked, described."""
