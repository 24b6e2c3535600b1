# SPDX-License-Identifier: MIT
"""Formats of image files: what is in a file, from its header, and a reader of windows. One module for each format."""
