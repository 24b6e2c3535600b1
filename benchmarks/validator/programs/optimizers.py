# SPDX-License-Identifier: MIT
"""Mistakes in Adam and AdamW."""

from __future__ import annotations

import torch

from bridge.exchange.optimizers import Adam
from bridge.validate.self_test.graph_candidate import GraphOperations


class Coupled(GraphOperations):
    """AdamW's decay is added to the gradient."""

    def adam(self, name: str, w: torch.Tensor, g: torch.Tensor, adam: Adam) -> torch.Tensor:
        m, v = self.averages(name, g + adam.weight_decay * w, adam)
        c1, c2 = self.corrections(adam)
        return w - adam.lr / c1 * m / ((v / c2).sqrt() + adam.eps)


class Uncorrected(GraphOperations):
    """Averages that began with 0 are taken as they are."""

    def corrections(self, adam: Adam) -> tuple[float, float]:
        return 1.0, 1.0


class EpsInside(GraphOperations):
    """Eps is added below the root."""

    def adam(self, name: str, w: torch.Tensor, g: torch.Tensor, adam: Adam) -> torch.Tensor:
        m, v = self.averages(name, g, adam)
        c1, c2 = self.corrections(adam)
        return w - adam.lr / c1 * m / (v / c2 + adam.eps).sqrt()
