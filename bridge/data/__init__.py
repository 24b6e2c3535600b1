# SPDX-License-Identifier: MIT
"""Images from files of any size: nothing is read whole."""

from bridge.data.images import BadFile, Images
from bridge.data.sources.stack import Stack

__all__ = ["BadFile", "Images", "Stack"]
