# SPDX-License-Identifier: MIT
"""Known faults, by what they are of: each yields what it would make of a tensor."""
