# SPDX-License-Identifier: MIT
"""What a module of torch consists of: read, proved, described, and computed in other ways."""
