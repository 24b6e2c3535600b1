# SPDX-License-Identifier: MIT
"""A training step on the strict software device or the CPU, which says what was called: for a process of its own."""

from __future__ import annotations

#: The function of cuDNN that computes
GRAPHS = "cudnnBackendExecute"
PROGRAM = """
import json, sys
import numpy as np
from bridge.engine.arrays.transfer import to_host
from tests.helpers.cuda.stream_checks import DeviceArray, Network, batch, strict
path, device, keep, poison = sys.argv[1:]
net = Network.from_file(path, device=device, keep_activations=keep or True)
x, y = batch(1), batch(2)
if poison == "NaN":
    x[0, 0, 2, 3] = np.nan
if device != "cpu":
    x, y = DeviceArray.from_numpy(x), DeviceArray.from_numpy(y)
if poison == "NaN":  # a step would refuse it
    net.forward(x)
    loss = net.loss(y)
else:
    loss = net.step(x, y, lr=0.25)
names = json.loads(sys.stdin.read())
weights = [to_host(one).ravel().tolist() for one in net.parameters.values()]
print(json.dumps({"counts": {name: strict.counter(name) for name in names}, "loss": loss, "weights": weights}))
"""
