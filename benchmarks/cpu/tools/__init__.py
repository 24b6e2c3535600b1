# SPDX-License-Identifier: MIT
"""What several sections use: processes that measure, shapes, pictures, the machine's peak."""
