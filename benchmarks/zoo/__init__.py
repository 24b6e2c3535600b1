# SPDX-License-Identifier: MIT
"""Networks of other people's packages, read, judged and trained: ``python -m benchmarks.zoo``."""
