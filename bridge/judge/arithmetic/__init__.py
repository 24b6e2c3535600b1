# SPDX-License-Identifier: MIT
"""Is this another arithmetic than direct sums in float32 with round to nearest? One question a file."""
