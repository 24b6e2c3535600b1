# SPDX-License-Identifier: MIT
"""What every other package may use, and what knows none of them: errors, the command line, progress, threads, files."""
