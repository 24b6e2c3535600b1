# SPDX-License-Identifier: MIT
"""The files that are written: whole, or not there."""
