# SPDX-License-Identifier: MIT
"""Network: the order of calls, steps beside torch, NaN and zero."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import bridge
from tests.helpers.cases import batch, check, network_step, one_layer, three_layers, torch_step


def test_order_of_calls() -> None:
    """forward, loss, backward, update: anything out of order is refused and says what comes first."""
    net = bridge.Network.from_torch(three_layers(1, 3))
    x, target = batch((2, 1, 5, 6), "float32", 1), batch((2, 1, 5, 6), "float32", 2)

    def refused(*expected: str) -> None:
        calls = {"loss": lambda: net.loss(target), "backward": net.backward, "update": lambda: net.update(lr=0.1),
                 "output_gradient": lambda: net.output_gradient("conv2")}
        for name in expected:
            with pytest.raises(bridge.EngineError, match=f"^{name}: no .* yet, call .* first"):
                calls[name]()

    with pytest.raises(bridge.EngineError, match="does not exist yet: call forward"):
        net.output("conv1")
    refused("loss", "backward", "update", "output_gradient")
    net.forward(x)
    refused("backward", "update", "output_gradient")
    net.loss(target)
    refused("update", "output_gradient")
    net.backward()
    net.update(lr=0.1)
    net.output_gradient("conv2")
    refused("loss", "backward", "update")
    net.forward(x)
    net.loss(target)
    net.backward()
    net.forward(x)
    refused("backward", "update", "output_gradient")
    net.loss(target)
    net.backward()
    assert np.array_equal(net.backward(), net.output_gradient("input"))


def test_wrong_shapes_leave_the_network_usable() -> None:
    """A refused target or input names both shapes; the right one works afterwards."""
    net = bridge.Network.from_torch(three_layers(1, 3))
    x = batch((2, 1, 5, 6), "float32", 1)
    y = net.forward(x)
    for shape in ((2, 1, 6, 5), (1, 1, 5, 6), (2, 3, 5, 6)):
        message = re.escape(f"target: float32 {shape}, expected the output's float32 (2, 1, 5, 6)")
        with pytest.raises(bridge.EngineError, match=message):
            net.loss(np.ones(shape, np.float32))
    assert net.loss(y) == 0
    with pytest.raises(bridge.EngineError, match=r"layer conv1 .*: conv2d: input \(2, 3, 5, 6\) has 3 channels"):
        net.forward(np.ones((2, 3, 5, 6), np.float32))
    assert np.array_equal(net.forward(x), y)


def test_names_that_do_not_exist() -> None:
    """An unknown layer or parameter is refused with what there is."""
    net = one_layer()
    net.step(np.ones((1, 1, 2, 3), np.float32), np.ones((1, 2, 2, 3), np.float32), lr=0)
    for name in ("b", "", "input", "a.weight"):
        with pytest.raises(bridge.ArgumentError, match=f"layer: '{name}', expected one of a, r"):
            net.output(name)
    with pytest.raises(KeyError):
        net.parameters["a.bia"]
    assert net.output_gradient("input").shape == (1, 1, 2, 3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("device", ["cpu", "naive"])
def test_batches_of_other_shapes(dtype: str, device: str) -> None:
    """Larger, smaller, wider: no shape leaves anything behind for the next."""
    net = bridge.Network.from_torch(three_layers(1, 3), dtype=dtype, device=device)
    shapes = [(3, 7, 9), (1, 7, 9), (4, 7, 9), (4, 9, 7), (1, 4, 5), (2, 70, 80), (3, 7, 9), (2, 1, 1)]
    for seed, (n, h, w) in enumerate(shapes):
        shape = (n, 1, h, w)
        x, target = batch(shape, dtype, seed), batch(shape, dtype, seed + 50)
        judged = torch_step(net, x, target)
        value, bound = judged.pop("loss")
        assert abs(net.step(x, target, lr=2.0**-6) - value) <= bound
        check(network_step(net), judged, dtype)


@pytest.mark.parametrize("device", ["cpu", "naive"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_is_never_hidden(dtype: str, device: str) -> None:
    """A NaN weight gives NaN outputs, through the ReLU, in the loss and in the gradients; others stay finite."""
    net = bridge.Network(one_layer().model, dtype, device)
    net.parameters["a.weight"][...] = np.array([1, np.nan]).reshape(2, 1, 1, 1)
    y = net.forward(np.ones((2, 1, 3, 4), dtype))
    assert np.all(y[:, 0] == 1) and np.isnan(y[:, 1]).all() and np.isnan(net.output("a")[:, 1]).all()
    assert np.isnan(net.loss(np.zeros((2, 2, 3, 4), dtype)))
    assert np.isnan(net.backward()).all()
    assert np.isnan(net.output_gradient("a")[:, 1]).all() and np.isnan(net.gradients["a.weight"][1]).all()
    assert np.isfinite(net.gradients["a.weight"][0]).all()
    before = net.parameters["a.bias"].copy()
    with pytest.raises(bridge.common.errors.DivergenceError, match=r"the gradient of a\.weight holds NaN"):
        net.update(lr=0.1)
    assert net.parameters["a.bias"].tobytes() == before.tobytes()


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_relu_at_zero_has_gradient_zero(zero: float) -> None:
    """At exactly 0 nothing passes, as in torch; just above it everything does."""
    net = one_layer()
    net.parameters["a.bias"][...] = [zero, np.finfo(np.float32).tiny]
    net.forward(np.ones((1, 1, 2, 3), np.float32))
    net.loss(np.ones((1, 2, 2, 3), np.float32))
    net.backward()
    assert np.all(net.output_gradient("a")[:, 0] == 0) and np.all(net.output_gradient("r") != 0)
    assert np.array_equal(net.output_gradient("a")[:, 1], net.output_gradient("r")[:, 1])


FREED = """
import numpy as np, bridge
net = bridge.Network(bridge.Model((bridge.Conv2d("a", 1, 1, (1, 1)), bridge.Relu("r"))))
net.parameters["a.weight"][...] = 1
shape = (4, 1, 256, 256)
def refused(call):
    try:
        return call()
    except bridge.EngineError as error:
        return str(error)
for attempt in range(20):
    x = np.full(shape, 2, np.float32)
    said = refused(lambda: net.step(x, np.ones((4, 1, 255, 256), np.float32), lr=0.1))
    assert "expected the output's" in said, said
    del x
    trash = [np.full(shape, 7, np.float32) for _ in range(4)]
    del trash
    loss = refused(lambda: net.loss(np.zeros(shape, np.float32)))
    gradient = refused(net.backward)
    if not isinstance(loss, str):
        assert loss == 4 and np.all(gradient == 4 / np.prod(shape))
        assert net.gradients["a.weight"].item() == 8, net.gradients["a.weight"]
"""


def test_a_refused_step_reads_no_freed_memory() -> None:
    """Fortran has the input's address when the target is refused: it may say no afterwards, or use what is alive."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=False, timeout=120,
                          env=environment)
    assert (done.returncode, done.stderr) == (0, "")


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python >= 3.12 warns of forks beside threads
import numpy as np, bridge
x = np.ones((4, 8, 128, 128), np.float32)
w = np.ones((8, 8, 3, 3), np.float32)
if sys.argv[1] == "used":
    bridge.conv2d(x, w)
child = os.fork()
if child == 0:
    try:
        print("sum", bridge.conv2d(x, w).max(), flush=True)
    except bridge.EngineError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
if sys.argv[1] == "used":
    bridge.conv2d(x, w)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="skipped, because there is no fork here")
@pytest.mark.parametrize(("when", "said"), [("used", "start method 'spawn', or import bridge after the fork"),
                                            ("unused", "sum 72.0")])
def test_a_forked_process_never_hangs(when: str, said: str) -> None:
    """OpenMP's threads do not survive a fork: the child is told, unless the library starts in the child."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), OMP_NUM_THREADS="4")
    # A group of its own, so that a child that hangs ends with its parent
    process = subprocess.Popen([sys.executable, "-c", FORK, when], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=environment, start_new_session=True)
    try:
        out, errors = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
    assert (process.returncode, errors) == (0, "")
    assert said in out
