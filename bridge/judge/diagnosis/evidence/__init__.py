# SPDX-License-Identifier: MIT
"""What is seen of an error that no known fault explains: where it is, and what stands there instead."""
