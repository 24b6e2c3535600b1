# SPDX-License-Identifier: MIT
"""Tables for the terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from benchmarks.frameworks.gpu import OURS
from benchmarks.harness.tables import caption, milliseconds, optional, table, times

Found = dict[str, Any]


def cell(found: Found, driver: dict[str, int | None] | None = None) -> Table:
    """A row for each framework of one cell."""
    least = found["roofline"]
    title = (f"{found['batch']} x 1 x {found['size']} x {found['size']}, {found['precision']}: "
             f"{least['flop'] / 1e9:.3g} GFLOP, {least['bytes'] / 1e9:.3g} GB; roofline bound "
             f"{milliseconds(least['each'])} ms, of the whole {milliseconds(least['whole'])} ms")
    made = table(title, "framework", "ms", "quartiles", "of roofline", "GFLOP/s", "torch's best / this", "peak MB",
                 "driver MB")
    best = found["results"].get(found.get("best_torch", ""), {}).get("median")
    for name, one in found["results"].items():
        if "median" not in one:
            continue
        driven = (driver or {}).get(name)
        made.add_row(name, *times(one), f"{100 * one['of_roofline']:.0f} %", f"{one['gflops']:.0f}",
                     f"{best / one['median']:.2f}" if best else "",
                     f"{one['allocated'] / 1e6:.0f}" if one.get("allocated") else "",
                     f"{driven / 1e6:.0f}" if driven is not None else "")
    reasons = [f"  {name}: {word}: {one[word]}" for name, one in found["results"].items()
               for word in ("failed", "disqualified", "skipped") if word in one]
    return caption(made, reasons)


def rates(document: Found) -> Table:
    """What the GPU reaches, beside its data sheet."""
    made = table("what this device reaches", "", "measured", "data sheet of an H200")
    measured, sheet = document["rates"], document["data_sheet"]
    made.add_row("memory, TB/s", f"{measured['bandwidth'] / 1e12:.3g}", f"{sheet['bandwidth'] / 1e12:.3g}")
    for precision, value in measured["arithmetic"].items():
        made.add_row(f"{precision}, TFLOP/s", f"{value / 1e12:.3g}", f"{sheet['arithmetic'][precision] / 1e12:.3g}")
    return made


def rooflines(document: Found) -> Table:
    """What each operation of the mission's step takes at least at the measured rates."""
    precisions = document["precisions"]
    size, batch = document["mission"]["size"], document["mission"]["batch"]
    made = table(f"the roofline bound at {batch} x 1 x {size} x {size}, microseconds (a: arithmetic takes longer than "
                 "memory)", "operation", "GFLOP", "MB", *precisions)
    columns = [document["rooflines"][one] for one in precisions]
    for parts in zip(*(one["limits"] for one in columns), strict=True):
        made.add_row(parts[0]["name"], f"{parts[0]['flop'] / 1e9:.2f}", f"{parts[0]['bytes'] / 1e6:.0f}",
                     *(f"{1e6 * one['seconds']:.1f}{' a' * (one['limit'] == 'arithmetic')}" for one in parts))
    for name, key in (("sum", "each"), ("of the whole", "whole")):
        made.add_row(name, "", "", *(f"{1e6 * one[key]:.1f}" for one in columns))
    return made


def sweep(document: Found) -> Table:
    """A row for each size and batch; for each precision our time, and the best of PyTorch over it."""
    precisions = document["precisions"]
    headings = [text for one in precisions for text in (f"{one} ms", "of roofline", "ratio")]
    made = table("bridge: time, share of the roofline bound, the best of PyTorch over it", "images", *headings)
    keys = dict.fromkeys((one["size"], one["batch"]) for one in document["cells"])
    by_key = {(one["size"], one["batch"], one["precision"]): one for one in document["cells"]}
    for size, batch in sorted(keys):
        cells = []
        for precision in precisions:
            one = by_key.get((size, batch, precision), {"results": {}})
            own = one["results"].get(OURS, {})
            ratio = one.get("ratios", {}).get(OURS)
            cells += [milliseconds(own["median"]) if "median" in own else "",
                      f"{100 * own['of_roofline']:.0f} %" if "median" in own else "",
                      optional(ratio)]
        made.add_row(f"{batch} x {size} x {size}", *cells)
    missing = [f"  {one['cell']}: {one['reason']}" for one in document["not_measured"]]
    return caption(made, missing)
