# SPDX-License-Identifier: MIT
"""What several files of tests share."""
