# SPDX-License-Identifier: MIT
"""What a candidate's file holds besides what the fixture asks for: a misspelt name must not go unseen."""

from __future__ import annotations

from bridge.judged import NO_STEP, Comparison
from bridge.pair import Pair

#: Further unknown names are counted, not listed
MOST_LISTED = 50


def list_unknown(pair: Pair, comparison: Comparison) -> None:
    """Put every dataset that belongs to no tensor of the model on the list of what was not judged.

    Batches and float64 twins are the fixture's business; copies of them in a result are not read.
    """
    known = {f"steps/{k}/{name}" for k in range(pair.steps) for name in pair.shapes}
    known |= {f"steps/{k}/weights/{name}" for k in range(pair.steps + 1) for name in pair.start}
    unknown = [
        name
        for name in pair.candidate.datasets()
        if name not in known and name != "model" and not name.startswith(("batches/", "oracle/"))
    ]
    for name in unknown[:MOST_LISTED]:
        comparison.skip(name, NO_STEP, "unknown name", unknown=True)
    if len(unknown) > MOST_LISTED:
        comparison.skip(f"{len(unknown) - MOST_LISTED} more", NO_STEP, "unknown name", unknown=True)
