# SPDX-License-Identifier: MIT
"""Does the validator find what it is there to find? planted faults of all kinds, and right programs.

Wrong programs are written here in torch and numpy float32, the way somebody would get them wrong. Nothing of
`bridge.judge.diagnosis`, which predicts the same faults in float64, takes part in making them.
"""

from bridge.common.optional_packages import require

require("torch", "the self-test's programs are PyTorch")
