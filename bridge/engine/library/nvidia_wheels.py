# SPDX-License-Identifier: MIT
"""Where NVIDIA's wheels (``pip install nvidia-cudnn-cu13`` and the like; torch brings them) keep their libraries."""

from __future__ import annotations

import importlib.util
import os

#: Where Fortran looks, after CNN_CUDA_PATH and before the system's folders
VARIABLE = "CNN_CUDA_WHEELS"

#: Below site-packages/nvidia
FOLDERS = ("cudnn/lib", "cu13/lib", "cuda_runtime/lib", "cublas/lib")


def name_wheels() -> None:
    """Say where the CUDA libraries of NVIDIA's wheels lie, in CNN_CUDA_WHEELS; a user's own setting stays.

    Nothing of the wheels is imported, and nothing is opened before a CUDA device is asked for.
    """
    if VARIABLE in os.environ:
        return
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        spec = None
    places = (spec.submodule_search_locations if spec else None) or ()
    found = [folder for place in places for part in FOLDERS if os.path.isdir(folder := os.path.join(place, part))]
    if found:
        os.environ[VARIABLE] = os.pathsep.join(found)
