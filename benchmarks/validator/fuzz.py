# SPDX-License-Identifier: MIT
"""``python -m benchmarks.fuzz``: thousands of broken and hostile files for the readers in Python and in Fortran.

Every file must end with a verdict or with exit code 2 and one line, soon and in little memory, and a changed value
must never pass. Prints what happened by kind of mutation, and writes it as JSON.
"""

from __future__ import annotations

import argparse
import platform
import random
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import h5py
import numpy as np
from rich.table import Table

from benchmarks.harness.document import RESULTS
from bridge.common.atomic_file import write_json
from bridge.common.cli import Output, new_parser, run
from bridge.common.command_files import check_files
from bridge.common.progress import stage
from bridge.engine.library import extension
from bridge.engine.library.programs import cnn_step
from tests.helpers.hostile import Answer, Judge, run_program, small_pair
from tests.helpers.mutations import KINDS, VALUES_WRONG, mutate


@dataclass(frozen=True)
class Case:
    """One file: which program reads it, what it is, and how it was spoilt."""

    reader: str
    role: str
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.reader}, {self.role}, {self.kind} {self.seed}"


@dataclass
class Tally:
    """What the files of one kind did."""

    codes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    mib: float = 0.0

    def add(self, answer: Answer) -> None:
        """Count one."""
        self.codes["hung" if answer.code is None else str(answer.code)] += 1
        self.seconds, self.mib = max(self.seconds, answer.seconds), max(self.mib, answer.mib)


def cases(files: int, seed: int) -> Iterator[Case]:
    """All kinds in turn, half of them fixtures, the Fortran reader for every third of these."""
    generator = random.Random(seed)
    for i in range(files):
        kind = KINDS[i % len(KINDS)]
        turn = i // len(KINDS)
        role = "result" if kind in VALUES_WRONG or turn % 2 else "fixture"
        reader = "cnn_step" if role == "fixture" and turn % 3 == 0 else "compare"
        yield Case(reader, role, kind, generator.randrange(2**32))


def run_case(case: Case, pair: tuple[Path, Path], folder: Path, judge: Judge) -> tuple[Answer, list[str]]:
    """Make the file, show it to its reader; what the reader did, and what of it was wrong."""
    fixture, result = pair
    spoilt = folder / "spoilt.h5"
    mutate(result if case.role == "result" else fixture, spoilt, case.kind, case.seed)
    if case.reader == "compare":
        answer = judge.ask(fixture, spoilt) if case.role == "result" else judge.ask(spoilt, result)
        wrong = answer.complaints((0, 1, 2, 3, 4))
        if case.kind in VALUES_WRONG and answer.code == 0:
            wrong.append("a wrong value passed")
        return answer, wrong
    out = folder / "out.h5"
    answer = run_program(cnn_step(), spoilt, out)
    wrong = answer.complaints((0, 2))
    found = [path for path in folder.iterdir() if path != spoilt]
    if [path.name for path in found] != (["out.h5"] if answer.code == 0 else []):
        wrong.append("half a result")
    for path in found:
        path.unlink()
    return answer, wrong


def fuzz(files: int, seed: int, jobs: int, keep: Path | None) -> tuple[dict[tuple[str, str], Tally], list[str]]:
    """Tallies by (reader, kind), and the violations as texts."""
    tallies: dict[tuple[str, str], Tally] = defaultdict(Tally)
    violations: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        pair = small_pair(Path(name))
        judges: SimpleQueue[tuple[Judge, Path]] = SimpleQueue()
        for i in range(jobs):
            (Path(name) / str(i)).mkdir()
            judges.put((Judge(), Path(name) / str(i)))

        def one(case: Case) -> tuple[Case, Answer, list[str]]:
            judge, folder = judges.get()
            try:
                answer, wrong = run_case(case, pair, folder, judge)
                if wrong and keep:
                    shutil.copyfile(folder / "spoilt.h5", keep / f"{case}.h5".replace(" ", "_"))
                return case, answer, wrong
            finally:
                judges.put((judge, folder))

        with stage(Output(stderr=True), f"fuzz with {files} files") as progress, ThreadPoolExecutor(jobs) as pool:
            for done, (case, answer, wrong) in enumerate(pool.map(one, cases(files, seed)), 1):
                tallies[case.reader, case.kind].add(answer)
                words = " | ".join(answer.errors[-3:]).replace(name, "")[:200]
                violations += [f"{case}: {', '.join(wrong)}: {words}"] if wrong else []
                progress(done, files)
        for _ in range(jobs):
            judges.get()[0].__exit__()
    return dict(tallies), violations


def table(tallies: dict[tuple[str, str], Tally]) -> Table:
    """Mutation by exit code."""
    codes = sorted({code for tally in tallies.values() for code in tally.codes})
    found = Table("reader", "mutation", *(f"exit {code}" for code in codes), "worst s", "worst MiB", box=None)
    for (reader, kind), tally in sorted(tallies.items()):
        counts = (str(tally.codes[code] or "") for code in codes)
        found.add_row(reader, kind, *counts, f"{tally.seconds:.1f}", f"{tally.mib:.0f}" if tally.mib else "-")
    return found


EXAMPLES = """exit codes:
  0    every file was answered as it should be
  1    a file made a program do anything else
  2    bad usage
  130  interrupted

examples:
  python -m benchmarks.fuzz --files 200 --json fuzz.json
  python -m benchmarks.fuzz --seed 7 --keep found"""


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write."""
    p = new_parser("benchmarks.fuzz", str(__doc__), EXAMPLES)
    p.add_argument("--files", type=int, default=2000, metavar="N", help="how many files (default 2000)")
    p.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the mutations (default 0)")
    p.add_argument("--jobs", type=int, default=2, metavar="N", help="files that are read at a time (default 2)")
    p.add_argument("--json", type=Path, default=RESULTS / "fuzz.json", metavar="FILE",
                   help="where the counts go (default benchmarks/results/fuzz.json)")
    p.add_argument("--keep", type=Path, metavar="FOLDER", help="keep files that made a program do wrong (default: none "
                   "is kept)")
    a = p.parse_args(arguments)
    return run("benchmarks.fuzz", lambda: _main(a))


def _main(a: argparse.Namespace) -> int:
    check_files([], [("--json", a.json)])
    if a.keep:
        a.keep.mkdir(parents=True, exist_ok=True)
    tallies, violations = fuzz(a.files, a.seed, a.jobs, a.keep)
    Output().print(table(tallies))
    for violation in violations:
        print(violation)
    print(f"{a.files} files, {len(violations)} violations")
    document = {
        "files": a.files, "seed": a.seed, "violations": violations,
        "kinds": [{"reader": reader, "mutation": kind, "exit_codes": dict(sorted(tally.codes.items())),
                   "worst_seconds": round(tally.seconds, 2), "worst_mib": round(tally.mib)}
                  for (reader, kind), tally in sorted(tallies.items())],
        "versions": {"bridge": extension.fortran_version(), "h5py": h5py.__version__,
                     "hdf5_of_h5py": h5py.version.hdf5_version, "numpy": np.__version__,
                     "python": platform.python_version()},
    }
    write_json(a.json, document)
    return 1 if violations else 0
