# SPDX-License-Identifier: MIT
"""Networks read from the graph of ATen operations that torch.export gives."""
