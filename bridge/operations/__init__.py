# SPDX-License-Identifier: MIT
"""The operations that networks are made of, by their type in an exchange file; each stands in one class."""
# ruff: noqa: F403  A class is known here as soon as it stands in the module of its family

from __future__ import annotations

from bridge.operations.arithmetic import *
from bridge.operations.elementary import *
from bridge.operations.joins import *
from bridge.operations.normalization import *
from bridge.operations.operation import Operation as Operation
from bridge.operations.pads import *
from bridge.operations.pointwise import *
from bridge.operations.pooling import *
from bridge.operations.products import *
from bridge.operations.rearrangement import *
from bridge.operations.recurrence import *
from bridge.operations.reductions import *
from bridge.operations.resizing import *
from bridge.operations.softmax import *
from bridge.operations.spline import *
from bridge.operations.stored import *
from bridge.operations.volumes.pooling import *
from bridge.operations.volumes.products import *
from bridge.operations.volumes.resizing import *

OPERATIONS: dict[str, type[Operation]] = dict(sorted(
    (one.kind, one) for one in tuple(globals().values())
    if isinstance(one, type) and issubclass(one, Operation) and "kind" in vars(one)))
