# SPDX-License-Identifier: MIT
"""Predictions of the tensors of a step, right or with a fault, at some elements or as a whole."""
