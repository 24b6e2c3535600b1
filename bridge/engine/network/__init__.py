# SPDX-License-Identifier: MIT
"""Networks and convolutions with the face of torch."""
