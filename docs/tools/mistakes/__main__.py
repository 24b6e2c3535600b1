# SPDX-License-Identifier: MIT
"""``python -m docs.tools.mistakes FOLDER``, see `docs.tools.mistakes.page`."""

from __future__ import annotations

import sys

from docs.tools.mistakes.page import main

if __name__ == "__main__":
    main(sys.argv[1:])
