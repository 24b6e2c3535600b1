# SPDX-License-Identifier: MIT
"""Identities that hold whatever the numbers are: no reference is needed."""
