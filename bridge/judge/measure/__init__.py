# SPDX-License-Identifier: MIT
"""A result file measured against the oracle: every tensor of every step."""
