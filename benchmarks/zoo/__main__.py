# SPDX-License-Identifier: MIT
"""``python -m benchmarks.zoo``: networks of other people's packages, read, judged and trained.

Each is asked in its own process: whether `bridge.Network.from_torch` reads it, and outputs and a step are PyTorch's;
whether `reference.export` writes it, and a right program is judged RIGHT. What is missing is said. Prints the table,
writes it as JSON, and with ``--document`` as docs/zoo.md. Packages that are not installed are left out.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks.harness.document import RESULTS, versions
from benchmarks.harness.processes import ROOT
from benchmarks.harness.tables import table
from benchmarks.zoo.ask import Found, ask
from benchmarks.zoo.networks import NETWORKS, Entry
from bridge.common import cli
from bridge.common.atomic_file import write_json, write_text
from bridge.common.command_files import check_files
from bridge.common.progress import stage

DOCUMENT = ROOT / "docs" / "zoo.md"
PACKAGES = ("torch", "timm", "torchvision", "segmentation-models-pytorch", "monai", "deepinv", "vit-pytorch")
EXAMPLES = """exit codes:
  0    every network was asked
  2    bad usage
  130  interrupted

examples:
  python -m benchmarks.zoo --only vit
  python -m benchmarks.zoo --sample 5
  python -m benchmarks.zoo --jobs 2 --document
  python -m benchmarks.zoo --again --document"""


def run(entries: list[Entry], errors: Console, jobs: int = 1, path: str | None = None,
        known: Sequence[Found] = ()) -> list[Found]:
    """Ask about all of them, each in a new process. A file has what is known as soon as it is, in the order of all
    networks.
    """
    found = list(known)
    place = {one.name: i for i, one in enumerate(NETWORKS)}
    with stage(errors, f"{len(entries)} networks") as report, ExitStack() as last:
        threads = ThreadPoolExecutor(jobs)
        # Who interrupts it does not want the rest
        last.callback(threads.shutdown, cancel_futures=True)
        for done, answer in enumerate(as_completed([threads.submit(alone, one) for one in entries]), 1):
            found.append(answer.result())
            report(done, len(entries))
            found.sort(key=lambda one: place.get(one.name, len(place)))
            write(path, found)
    return found


def alone(entry: Entry) -> Found:
    """Ask in a process of its own: one that dies is said to have died, and takes no other with it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        try:
            return process.submit(ask, entry).result()
        except BrokenProcessPool:
            return Found(entry.name, "its process died", "its process died")


def right(path: str) -> list[Found]:
    """Return the answers of a file of which both are yes."""
    found = [Found(**{**one, "estimated": tuple(one["estimated"])})
             for one in json.loads(Path(path).read_text(encoding="utf-8"))["networks"]]
    names = {one.name for one in NETWORKS}
    return [one for one in found if one.judged == one.trained == "yes" and one.name in names]


def write(path: str | None, found: list[Found]) -> None:
    """Write the answers as JSON, where there is a file for them."""
    if path:
        write_json(Path(path), {"counts": counts(found), "versions": versions(PACKAGES),
                                "networks": [asdict(one) for one in found]})


def counts(found: list[Found]) -> dict[str, int]:
    """Return how many there are, are judged, and are trained.

    >>> counts([Found("a", "yes", "yes"), Found("b", "yes", "it lacks roll")])
    {'networks': 2, 'judged': 2, 'trained': 1}
    """
    return {"networks": len(found), "judged": sum(one.judged == "yes" for one in found),
            "trained": sum(one.trained == "yes" for one in found)}


def document(found: list[Found], versions: dict[str, str]) -> str:
    """Return docs/zoo.md."""
    total = counts(found)
    rows = [f"| {one.name} | {_cell(one.judged)} | {_cell(one.trained)} | {', '.join(one.estimated)} |"
            for one in found]
    missing = Counter(call for one in found for call in one.estimated)
    often = ", ".join(f"`{name}` ({n})" for name, n in missing.most_common(12))
    left = len(NETWORKS) - total["networks"]
    whole = f" {left} networks more were not asked yet (`--again` asks them)." if left > 0 else ""
    text = f"""# Networks of other packages

`python -m benchmarks.zoo` asks of {total['networks']} networks of public packages, small ones on small images,
whether they are read, judged and trained. Weights are drawn by a seed, and nothing else is random. A network is
*judged* where a right program, PyTorch's in float64 written as float32, is RIGHT. It is *trained* where the
library's outputs in training and evaluation in float32, and parameters, buffers and outputs after a step in float64,
are PyTorch's to 1e-4 of the largest number. Operations that the table lacks have
[estimated bounds](numerics.md#operations-that-the-table-lacks).{whole}

Judged: {total['judged']} of {total['networks']}. Trained: {total['trained']} of {total['networks']}.

Most often estimated: {often or 'none'}.

Versions: {', '.join(f'{name} {one}' for name, one in versions.items())}.

| network | judged | trained | estimated |
| --- | --- | --- | --- |
"""
    return text + "\n".join(rows) + "\n"


def _cell(said: str) -> str:
    """What is missing, short, without paths of files."""
    text = re.sub(r"\(/\S+, line", "(line", said).replace("|", "/")
    return text if len(text) <= 160 else text[:157] + "..."


def main(arguments: list[str] | None = None) -> int:
    """Ask, print, write."""
    p = cli.new_parser("benchmarks.zoo", str(__doc__), EXAMPLES)
    p.add_argument("--only", metavar="TEXT", default="", help="networks whose name has this text")
    p.add_argument("--sample", type=int, metavar="N", help="so many, drawn at random")
    p.add_argument("--seed", type=int, default=0, metavar="S", help="of the sample (default 0)")
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at a time (default 1)")
    p.add_argument("--json", metavar="FILE",
                   help="where the answers go (default: benchmarks/results/zoo.json, where all networks are asked)")
    p.add_argument("--again", action="store_true", help="ask only networks of which FILE does not say yes and yes")
    p.add_argument("--document", action="store_true", help="write docs/zoo.md, too")
    a = p.parse_args(arguments)
    return cli.run("benchmarks.zoo", lambda: _main(a))


def _main(a: argparse.Namespace) -> int:
    entries = [one for one in NETWORKS if a.only in one.name and one.installed]
    if a.sample is not None:
        entries = random.Random(a.seed).sample(entries, min(a.sample, len(entries)))
    path = a.json or (str(RESULTS / "zoo.json") if len(entries) == len(NETWORKS) else None)
    if path:
        check_files([], [("--json", path)])
    known = right(path) if a.again and path and Path(path).exists() else []
    entries = [one for one in entries if one.name not in {of.name for of in known}]
    found = run(entries, cli.Output(stderr=True), a.jobs, path, known)
    made = table("", "network", "judged", "trained", "estimated")
    for one in found:
        made.add_row(one.name, one.judged[:60], one.trained[:60], str(len(one.estimated)))
    cli.Output().print(made)
    cli.Output().print(" ".join(f"{name}: {n}" for name, n in counts(found).items()), highlight=False)
    write(path, found)
    if a.document:
        write_text(DOCUMENT, document(found, versions(PACKAGES)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
