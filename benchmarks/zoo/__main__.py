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
import sys
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
from benchmarks.zoo.page import Answers, counts, document
from benchmarks.zoo.series import SEQUENCES
from bridge.common import cli
from bridge.common.atomic_file import write_json, write_text
from bridge.common.command_files import check_files
from bridge.common.progress import stage

DOCUMENT = ROOT / "docs" / "zoo.md"
PACKAGES = ("torch", "timm", "torchvision", "segmentation-models-pytorch", "monai", "deepinv", "vit-pytorch")
PACKAGES_OF_SEQUENCES = (
    "torch", "transformers", "x-transformers", "linformer", "nystrom-attention", "performer-pytorch",
    "perceiver-pytorch", "local-attention", "axial-attention", "conformer", "g-mlp-pytorch", "mlp-mixer-pytorch",
    "gateloop-transformer", "mambapy", "minGRU-pytorch", "ncps", "pytorch-tcn", "iTransformer", "neuraloperator")
#: Where the answers are, of networks of images and of sequences
FILES = (RESULTS / "zoo.json", RESULTS / "zoo_sequences.json")
EXAMPLES = """exit codes:
  0    every network was asked
  2    bad usage
  130  interrupted

examples:
  python -m benchmarks.zoo --only vit
  python -m benchmarks.zoo --sample 5
  python -m benchmarks.zoo --jobs 2 --document
  python -m benchmarks.zoo --again --document
  python -m benchmarks.zoo --sequences --jobs 2 --document"""


def run(entries: list[Entry], errors: Console, jobs: int = 1, path: str | None = None,
        known: Sequence[Found] = ()) -> list[Found]:
    """Ask about all of them, each in a new process. A file has what is known as soon as it is, in the order of all
    networks.
    """
    found = list(known)
    place = {one.name: i for i, one in enumerate((*NETWORKS, *_sequences()))}
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
    found = read(path)
    names = {one.name for one in (*NETWORKS, *_sequences())}
    return [one for one in found if one.judged == one.trained == "yes" and one.name in names]


def write(path: str | None, found: list[Found]) -> None:
    """Write the answers as JSON, where there is a file for them."""
    if path:
        names = {one.name for one in _sequences()}
        packages = PACKAGES_OF_SEQUENCES if any(one.name in names for one in found) else PACKAGES
        write_json(Path(path), {"counts": counts(found), "versions": versions(packages),
                                "networks": [asdict(one) for one in found]})


def read(path: str | Path) -> list[Found]:
    """Return the answers of a file; none where there is no such file."""
    if not Path(path).exists():
        return []
    return [Found(**{**one, "estimated": tuple(one["estimated"])})
            for one in json.loads(Path(path).read_text(encoding="utf-8"))["networks"]]


def _versions(path: str | Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(Path(path).read_text(encoding="utf-8"))["versions"] if Path(
        path).exists() else {}
    return found


def _sequences() -> list[Entry]:
    return [one for some in SEQUENCES.values() for one in some]


def main(arguments: list[str] | None = None) -> int:
    """Ask, print, write."""
    p = cli.new_parser("benchmarks.zoo", str(__doc__), EXAMPLES)
    p.add_argument("--only", metavar="TEXT", default="", help="networks whose name has this text")
    p.add_argument("--sequences", action="store_true",
                   help="networks of sequences and functions in place of those of images")
    p.add_argument("--sample", type=int, metavar="N", help="so many, drawn at random")
    p.add_argument("--seed", type=int, default=0, metavar="S", help="of the sample (default 0)")
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at a time (default 1)")
    p.add_argument("--json", metavar="FILE",
                   help="where the answers go (default: benchmarks/results/zoo.json, or zoo_sequences.json, where all "
                        "networks are asked)")
    p.add_argument("--again", action="store_true", help="ask only networks of which FILE does not say yes and yes")
    p.add_argument("--document", action="store_true", help="write docs/zoo.md, too")
    a = p.parse_args(arguments)
    return cli.run("benchmarks.zoo", lambda: _main(a))


def _main(a: argparse.Namespace) -> int:
    networks = _sequences() if a.sequences else NETWORKS
    entries = [one for one in networks if a.only in one.name and one.installed]
    if a.sample is not None:
        entries = random.Random(a.seed).sample(entries, min(a.sample, len(entries)))
    path = a.json or (str(FILES[a.sequences]) if len(entries) == len(networks) else None)
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
        packages = PACKAGES_OF_SEQUENCES if a.sequences else PACKAGES
        own = Answers(found, versions(packages), len(networks))
        file = FILES[not a.sequences]
        others = Answers(read(file), _versions(file), len(NETWORKS if a.sequences else _sequences()))
        write_text(DOCUMENT, document(others, own) if a.sequences else document(own, others))
    return 0


if __name__ == "__main__":
    sys.exit(main())
