#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Copy the compiled module `cnn` to where programs find it: copy_module.py FROM TO, as meson's install script."""

import os
import shutil
import sys
from pathlib import Path

source, target = sys.argv[1:]
destination = Path(os.environ.get("DESTDIR", "") + target)
destination.mkdir(parents=True, exist_ok=True)
shutil.copy2(Path(source) / "cnn.mod", destination)
