# SPDX-License-Identifier: MIT
"""Several processes that train together, ranks: who they are, and what they tell each other."""
