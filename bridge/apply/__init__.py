# SPDX-License-Identifier: MIT
"""A trained network applied to images of any size, tile by tile, equal to the whole image; see docs/apply.md."""

from bridge.apply.network import TiledNetwork, apply

__all__ = ["TiledNetwork", "apply"]
