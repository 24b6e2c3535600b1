# SPDX-License-Identifier: MIT
"""Where a fixture's batches come from: micrographs, and arrays of the user's own."""
