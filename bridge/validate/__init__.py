# SPDX-License-Identifier: MIT
"""``python -m bridge.validate``: is our Fortran step right? Its experiments and its self-test."""
