# SPDX-License-Identifier: MIT
"""The catalogue of planted faults."""

from __future__ import annotations

from bridge.validate.self_test.plants import (
    classifier,
    corruption,
    formulas,
    geometry,
    graphs,
    layouts,
    memory,
    numbers,
    operands,
    optimiser,
    relus,
    residual,
    splines,
    sums,
    under_algorithms,
    unknown,
)
from bridge.validate.self_test.plants.record import Plant, Scene

_MODULES = (layouts, geometry, sums, relus, memory, corruption, numbers, optimiser, operands,
            under_algorithms, graphs, residual, classifier, splines, formulas)

CATALOGUE: tuple[Plant, ...] = tuple(
    sorted((plant for module in _MODULES for plant in module.PLANTS), key=lambda plant: plant.kind)
)

#: Mistakes that are of no kind
UNKNOWN: tuple[Plant, ...] = tuple(unknown.PLANTS)

__all__ = ["CATALOGUE", "UNKNOWN", "Plant", "Scene"]
