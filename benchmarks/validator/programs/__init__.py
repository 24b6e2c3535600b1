# SPDX-License-Identifier: MIT
"""The networks of the examples in small, each with mistakes that people make when they write such a program."""
