# SPDX-License-Identifier: MIT
"""How well the validator judges: published mistakes, right programs, broken files."""
