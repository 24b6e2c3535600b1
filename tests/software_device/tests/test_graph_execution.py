# SPDX-License-Identifier: MIT
"""Wrong plans, variant packs and executions on the strict software device, and graphs that no engine takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from ctypes import c_void_p
from pathlib import Path

import pytest

from tests import ROOT
from tests.software_device import graphs as names
from tests.software_device.calls import DOUBLE, FLOAT, HALF, NCHW, NHWC, Calls, moved
from tests.software_device.graph_misuse import (
    BAD,
    H200,
    NOT_FINALIZED,
    NULL,
    OTHER_KIND,
    OTHER_VERSION,
    UNSUPPORTED,
    Small,
    refused,
)
from tests.software_device.graphs import INT64, PART, POINTER, W, X, Y

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def cuda(folder: Path) -> Calls:
    """The device: one stream for all of these tests."""
    return Calls(folder)


def damaged(text: bytes) -> bytes:
    """With one digit changed."""
    return text[:600] + (b"1" if text[600:601] == b"0" else b"0") + text[601:]


PLANS: dict[str, tuple[int, str, Callable[[Small], int]]] = {
    "a plan for no device": (BAD, "found neither", lambda s: s.lacking(
        names.EXECUTION_PLAN, [(401, PART, [s.engines[4].configuration])])),
    "a plan for two devices": (BAD, "found both", lambda s: s.lacking(
        names.EXECUTION_PLAN, [(400, names.HANDLE, [s.cuda.handle]), (407, PART, [s.g.device(H200)]),
                               (401, PART, [s.engines[4].configuration])])),
    "a plan of nothing": (BAD, "found neither", lambda s: s.lacking(
        names.EXECUTION_PLAN, [(400, names.HANDLE, [s.cuda.handle])])),
    "a handle that is none": (BAD, "is no cuDNN handle", lambda s: s.g.set(
        s.g.create(names.EXECUTION_PLAN), 400, names.HANDLE, [c_void_p(4096)])),
    "half of a text": (BAD, "not all of it", lambda s: s.restored(s.text()[:500])),
    "a text and more": (BAD, "not all of it", lambda s: s.restored(s.text() + b" ")),
    "no text of a plan": (BAD, "no text of one", lambda s: s.restored(b"{}")),
    "a damaged text": (BAD, "damaged", lambda s: s.restored(damaged(s.text()))),
    "another engine's text": (BAD, "damaged", lambda s: s.restored(
        s.text().replace(b'"engineId": 4', b'"engineId": 5'))),
    "a handle destroyed": (BAD, "was destroyed", lambda s: s.execute(handle=s.without_handle())),
    "a pack in the place of a plan": (OTHER_KIND, "expected execution plan",
                                      lambda s: s.execute(plan=s.g.pack(s.data))),
    "a plan not finalized": (NOT_FINALIZED, "not finalized", lambda s: s.execute(
        plan=s.g.plan(s.engines[4], handle=s.cuda.handle))),
    "a pack not finalized": (NOT_FINALIZED, "not finalized",
                             lambda s: s.execute(pack=s.g.create(names.VARIANT_PACK))),
    "a plan destroyed": (BAD, "was destroyed", lambda s: s.execute(plan=s.gone(s.plan))),
    "a plan for a described device": (BAD, "only described", lambda s: s.execute(plan=s.described())),
    "an id twice": (BAD, "tensor 2 is in it twice", lambda s: s.packed([X, W, Y, W])),
    "more ids than pointers": (BAD, "4 unique ids, 3 data pointers", lambda s: s.packed([X, W, Y, 4], n=3)),
    "a null pointer": (NULL, "tensor 1 == nullptr", lambda s: s.lacking(
        names.VARIANT_PACK, [(1000, INT64, [X]), (1001, POINTER, [None]), (1003, POINTER, [None])])),
    "a tensor is missing": (BAD, "tensor 4 (bias) is missing",
                            lambda s: s.execute(pack=s.g.pack({i: s.data[i] for i in (X, W, Y)}))),
    "a tensor too many": (BAD, "no tensor 5", lambda s: s.execute(pack=s.g.pack(s.data | {5: s.data[X]}))),
    "a virtual tensor": (BAD, "tensor 8 is virtual", lambda s: s.execute(pack=s.g.pack(s.data | {8: s.data[X]}))),
    "host memory": (BAD, "x: found pinned host memory", lambda s: s.execute(x=s.cuda.pinned(384))),
    "freed memory": (BAD, "was freed", lambda s: s.execute(w=s.freed(540))),
    "y is too short": (BAD, "y: 640 bytes at byte 0 of an allocation of 639",
                       lambda s: s.execute(y=s.cuda.malloc(639))),
    "misaligned": (2003, "multiple of 16", lambda s: s.execute(x=moved(s.cuda.malloc(400), 8))),
    "in place": (BAD, "overlaps", lambda s: s.execute(x=s.data[Y])),
    "y ends in the bias": (BAD, "overlaps", lambda s: s.overlapping()),
    "no workspace": (NULL, "workspace == nullptr", lambda s: s.execute(plan=s.spacious)),
    "a small workspace": (BAD, "workspace: 66304 bytes at byte 0 of an allocation of 66303",
                          lambda s: s.execute(plan=s.spacious, space=s.cuda.malloc(66303))),
    "a workspace on the host": (BAD, "workspace: found pinned", lambda s: s.execute(
        plan=s.spacious, space=s.cuda.pinned(1 << 17))),
    "a workspace in x": (BAD, "overlaps", lambda s: s.execute(plan=s.spacious, space=s.space, x=s.space)),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_wrong_plans_and_packs(cuda: Calls, name: str) -> None:
    """Plans of nothing, texts that are damaged, packs that do not fit, memory that is not there."""
    refused(cuda, *PLANS[name])


def test_a_text_is_of_one_version_and_gpu(cuda: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NVIDIA says: plans are not kept over either."""
    small = Small(cuda)
    text = small.text()
    assert small.restored(text) == 0
    for name, value, status in (("CUDNN_VERSION", "92000", OTHER_VERSION), ("CAPABILITY", "100", UNSUPPORTED)):
        with monkeypatch.context() as setting:
            setting.setenv(f"STRICT_{name}", value)
            assert small.restored(text) == status
    assert small.restored(text) == 0


def test_a_plan_belongs_to_its_device(cuda: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle of another one cannot run it, nor can its own handle there."""
    monkeypatch.setenv("STRICT_DEVICES", "2")
    small = Small(cuda)
    cuda.ok("cudaSetDevice", 1)
    other = cuda.make("cudnnCreate")
    assert small.execute(handle=other) == BAD
    assert "plan of device 0, handle of device 1" in cuda.report()
    assert small.execute() == BAD
    assert "handle of device 0, current device 1" in cuda.report()
    cuda.ok("cudnnDestroy", other)
    cuda.ok("cudaSetDevice", 0)
    assert small.execute() == 0
    cuda.wait()


def test_a_plan_outlives_its_graph_and_handle(cuda: Calls) -> None:
    """What a finalized descriptor refers to may go; the plan runs with another handle of the device."""
    small, own = Small(cuda), cuda.make("cudnnCreate")
    plan = small.g.plan(small.engines[4], handle=own)
    small.g.check(small.g.finalize(plan), "plan")
    small.g.made.remove(plan)
    small.g.destroy()
    cuda.ok("cudnnDestroy", own)
    assert small.execute(plan=plan) == 0
    cuda.wait()


LEAK = """
from tests.software_device.calls import *
from tests.software_device.graphs import *
graphs = Graphs(Calls(sys.argv[1]).c)
graphs.tensor(1, (1, 1, 1, 1))
if len(sys.argv) > 2: graphs.destroy()
"""


def test_descriptors_left_over_are_leaks(folder: Path) -> None:
    """At the end of the process, with STRICT_AT_EXIT=2."""
    command = [sys.executable, "-c", f"import sys{LEAK}", str(folder)]
    done = [subprocess.run([*command, *more], capture_output=True, text=True, check=False,
                           cwd=ROOT,
                           env=os.environ | {"STRICT_AT_EXIT": "2"}) for more in ([], ["destroy"])]  # fmt: skip
    assert [each.returncode for each in done] == [99, 99]  # a stream and a handle are left in any case
    assert ["1 graph descriptor alive" in each.stderr for each in done] == [True, False], done[0].stderr


def test_planted_failures(cuda: Calls) -> None:
    """Each of the functions can be made to fail; destroying destroys in any case."""
    small = Small(cuda)
    calls = {"CreateDescriptor": lambda: small.cuda.status("cudnnBackendCreateDescriptor", 17, c_void_p()),
             "SetAttribute": lambda: small.g.set(small.g.create(17), 906, INT64, [1]),
             "Finalize": lambda: small.g.finalize(small.g.create(17)),
             "GetAttribute": lambda: small.g.get(small.plan, names.WORKSPACE_SIZE, INT64, 1)[0],
             "Execute": small.execute,
             "DestroyDescriptor": lambda: small.cuda.status("cudnnBackendDestroyDescriptor", small.t[X])}  # fmt: skip
    for name, call in calls.items():
        cuda.c.strict_fail(f"cudnnBackend{name}".encode(), names.c_int64(1), 4000)
        assert call() == 4000, name
    assert small.g.set(small.t[X], 906, INT64, [1]) == BAD and "was destroyed" in cuda.reason()


#: Changes of the operands of a convolution
NOBODYS = {
    "mixed layouts": {"w_layout": NHWC},
    "mixed types": {"w_type": HALF},
    "sums in float64": {"compute": DOUBLE},
    "a virtual tensor in half": {"between": HALF},
    "a bias in float64": {"bias_type": DOUBLE},
    "a bias for each pixel": {"bias": (1, 5, 4, 4)},
    "a sum over a part": {"total": (2, 5, 1, 1)},
    "another order": {"turned": True},
}


@pytest.mark.parametrize("name", NOBODYS)
def test_what_no_engine_takes(cuda: Calls, name: str) -> None:
    """Such graphs stand, and nothing is offered for them; without the change something is."""
    changes = NOBODYS[name]
    assert offered(cuda, changes) == 0
    assert offered(cuda, {"total": (1, 5, 1, 1)} if "total" in changes else {}) > 0


def offered(cuda: Calls, changes: dict[str, object]) -> int:
    """How many engines there are for a convolution with bias, or for a sum."""
    g = names.Graphs(cuda.c)
    new = {"w_layout": NCHW, "w_type": FLOAT, "compute": FLOAT, "between": FLOAT, "bias_type": FLOAT,
           "bias": (1, 5, 1, 1), "turned": False} | changes  # fmt: skip
    y = g.tensor(Y, (2, 5, 4, 4), layout=NHWC if "total" in new else NCHW)
    if "total" in new:
        return len(g.engines(g.graph(g.sum(y, g.tensor(W, new["total"], layout=NHWC)))))
    x, bias = g.tensor(X, (2, 3, 4, 4)), g.tensor(names.BIAS, new["bias"], new["bias_type"])
    w, between = g.tensor(W, (5, 3, 3, 3), new["w_type"], new["w_layout"]), g.tensor(7, (2, 5, 4, 4), new["between"],
                                                                                     virtual=True)  # fmt: skip
    conv = g.convolution(padding=(1, 1), compute=new["compute"])
    operations = [g.convolve(names.FORWARD, conv, (x, w, between)),
                  g.pointwise(names.ADD, {751: between, 752: bias, 753: y})]  # fmt: skip
    return len(g.engines(g.graph(*operations[:: -1 if new["turned"] else 1])))
