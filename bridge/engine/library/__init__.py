# SPDX-License-Identifier: MIT
"""The compiled library and its programs, loaded, and what devices there are."""
