#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Copy compiled modules to where programs find them: copy_module.py NAMES FROM TO, as meson's install script.

NAMES is a pattern of files, FROM a folder, which is searched with all below it.
"""

import os
import shutil
import sys
from pathlib import Path

names, source, target = sys.argv[1:]
destination = Path(os.environ.get("DESTDIR", "") + target)
destination.mkdir(parents=True, exist_ok=True)
for path in Path(source).rglob(names):
    shutil.copy2(path, destination)
