# SPDX-License-Identifier: MIT
"""What makes a tensor of a step, right or with a fault: operations that can be computed at some elements or as a whole."""
