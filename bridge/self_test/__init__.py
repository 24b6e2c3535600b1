# SPDX-License-Identifier: MIT
"""Does the validator find what it is there to find? Planted faults of all 41 kinds, and right programs.

Wrong programs are written here in torch and numpy float32, the way somebody would get them wrong. Nothing of
`bridge.diagnosis`, which predicts the same faults in float64, takes part in making them.
"""

from bridge.errors import BridgeError

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError:
    raise BridgeError(
        "PyTorch is not installed, and the self-test's programs are PyTorch: pip install 'torch>=2.5'"
    ) from None
