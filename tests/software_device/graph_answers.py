# SPDX-License-Identifier: MIT
"""What a cuDNN says of graphs, asked without running one."""

from __future__ import annotations

from ctypes import CDLL

from tests import ROOT
from tests.software_device import graphs as names
from tests.software_device.graphs import BEST, CHAR, INT64, PART, REAL8, Graphs, W, X, Y


def answers(g: Graphs) -> dict[str, object]:
    """Statuses, counts and orders."""
    device = g.device((ROOT / "bridge" / "doctor" / "h200.json").read_bytes())
    x, w, y = g.tensor(X, (2, 16, 8, 8)), g.tensor(W, (8, 16, 3, 3)), g.tensor(Y, (2, 8, 8, 8))
    conv = g.convolution(padding=(1, 1))
    operation = g.convolve(names.FORWARD, conv, (x, w, y))
    fresh = g.create(names.TENSOR)
    said: dict[str, object] = {
        "set after finalize": g.set(x, 906, INT64, [7]), "and it is as before": g.get(x, 906, INT64, 1),
        "finalized twice": g.finalize(x), "an attribute of another": g.set(fresh, 104, INT64, [1]),
        "another type": g.set(fresh, 902, REAL8, [1, 1, 1, 1]), "two for one": g.set(fresh, 906, INT64, [1, 2]),
        "null": g.finalize(None), "nothing set": g.finalize(fresh),
        "read before finalize": g.get(fresh, 906, INT64, 1)[0],
        "room": [g.get(x, 902, INT64, room) for room in (0, 2, 8)], "read as another": g.get(x, 902, REAL8, 4)[0],
        "an operation that is not finalized": g.set(g.create(names.OPERATIONGRAPH), 801, PART,
                                                    [g.create(names.FORWARD)]),
        "version": g.c.cudnnGetVersion(),
    }  # fmt: skip
    for part in (x, w, y, conv):
        destroy(g, part)
    graph = g.graph(operation)
    destroy(g, operation)
    heuristic = g.heuristic(graph, BEST, device)
    said["results"] = [g.fill(heuristic, names.RESULTS, [g.create(names.ENGINECFG) for _ in range(n)]) for n in (0, 3)]
    engine = g.engines(graph, BEST, device)[0]
    said["finalize what was filled"] = g.finalize(engine.configuration)
    destroy(g, graph)
    plan = g.plan(engine, device=device)
    said["workspace too early"] = g.get(plan, names.WORKSPACE_SIZE, INT64, 1)[0]
    said["a plan without its graph"] = g.finalize(plan)
    said["workspace"] = [g.get(plan, names.WORKSPACE_SIZE, INT64, room)[:1] for room in (0, 1)]
    said.update(of_no_engine(g, device))
    return said


def destroy(g: Graphs, part: object) -> None:
    """It is no longer needed, if it was copied."""
    g.check(g.c.cudnnBackendDestroyDescriptor(part), "destroy")


def of_no_engine(g: Graphs, device: object) -> dict[str, object]:
    """How it is said that there is none; and a device that is none."""
    heuristic = g.heuristic(g.graph(g.sum(g.tensor(Y, (2, 8, 8, 8)), g.tensor(W, (1, 8, 1, 1)))), BEST, device)
    toaster = g.filled(names.DEVICEPROP, [(2702, CHAR, b'{"deviceName": "a toaster"}')])
    return {"none": g.fill(heuristic, names.RESULTS, [g.create(names.ENGINECFG)]), "toaster": g.finalize(toaster)}


def tell(libraries: list[str]) -> dict[str, object]:
    """In that process."""
    return {name: repr(answer) for name, answer in answers(Graphs([CDLL(path) for path in libraries][-1])).items()}
