# SPDX-License-Identifier: MIT
"""Gradient checking: is a hand-written backward pass the gradient of its forward pass?

`gradcheck` takes any two Python functions; ``python -m bridge.gradcheck`` runs it on every differentiable operation
of this package, or on the network of an exchange file.
"""

from bridge.gradcheck.check import gradcheck
from bridge.gradcheck.results import GradcheckReport, InputReport, Verdict

__all__ = ["GradcheckReport", "InputReport", "Verdict", "gradcheck"]
