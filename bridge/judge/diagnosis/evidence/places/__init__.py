# SPDX-License-Identifier: MIT
"""Where an error is: borders, planes, tiles, neighbours, and how far it reaches."""
