# SPDX-License-Identifier: MIT
"""What a call through the bridge costs, as ratios of one run: never in seconds."""

from __future__ import annotations

import cProfile
import pstats
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from bridge import Network, conv2d
from bridge.engine.library import extension
from bridge.exchange.model import Conv2d, Model

EXTENTS = [np.array(shape, np.int32)
           for shape in ([4, 4, *[1] * 6], [3, 3, *[1] * 6], [1, 1, 0, 0, 1, 1, 1], [0, 0, 0, 0])]

#: Calls that a convolution and a step made when they were counted, 155 and 79, and some room
CONV2D, STEP = 180, 100


def python_calls(work: Callable[[], object]) -> int:
    """Functions of Python and of numpy that are called, which does not depend on the machine's load."""
    work()
    profile = cProfile.Profile()
    profile.enable()
    work()
    profile.disable()
    # That of `disable` itself is counted, too
    return int(pstats.Stats(profile).total_calls) - 1  # type: ignore[attr-defined]


def test_the_engine_adds_little_to_f90wraps_call() -> None:
    """Itself, the look at a table, and at the arguments' types."""
    bare = python_calls(lambda: extension.api().conv2d_extent(*EXTENTS))
    ours = python_calls(lambda: extension.call("conv2d_extent", *EXTENTS))
    assert ours <= bare + 2


def test_checks_of_a_small_call_stay_few() -> None:
    """With every check that they make."""
    x, w = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32)
    network, target = Network(Model((Conv2d("a", 1, 1, (3, 3)),))), np.zeros((1, 1, 2, 2), np.float32)
    assert python_calls(lambda: conv2d(x, w)) <= CONV2D
    assert python_calls(lambda: network.step(x, target, lr=0.1)) <= STEP


INTERRUPTED = """
import signal, time
import numpy as np
import bridge
# As in a terminal: what a shell runs in the background ignores it
signal.signal(signal.SIGINT, signal.default_int_handler)
x, w = np.ones((1, 16, 512, 512), np.float32), np.ones((16, 16, 3, 3), np.float32)
before = signal.getsignal(signal.SIGINT)
first = bridge.conv2d(x, w)
assert signal.getsignal(signal.SIGINT) is before
end = time.monotonic() + 60
print("ready", flush=True)
try:
    while time.monotonic() < end:
        y = bridge.conv2d(x, w)
except KeyboardInterrupt:
    assert np.array_equal(bridge.conv2d(x, w), first)
    print("interrupted between two calls")
"""


def test_ctrl_c_waits_for_the_end_of_a_call() -> None:
    """It must not jump out of Fortran, whose threads and locks would stay as they are."""
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as child:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
            time.sleep(0.1)
            child.send_signal(signal.SIGINT)
            said, errors = child.communicate(timeout=120)
        assert (child.returncode, said) == (0, "interrupted between two calls\n"), errors
