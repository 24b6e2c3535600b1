# SPDX-License-Identifier: MIT
"""The run: rates, cells in their order, memory, what is written after each, and what is said at the end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from benchmarks.frameworks.gpu import CHEAP, REFERENCE, framework
from benchmarks.gpu import cells, tables
from benchmarks.gpu.document import JSON_VERSION, cell_of, clocks, faults, goals
from benchmarks.gpu.runs import RUN_SECONDS, Runs, interrupted, workers
from benchmarks.harness.children import Clock
from benchmarks.harness.gpu_device import Seen, head, skip
from benchmarks.harness.processes import LostError, Processes
from benchmarks.harness.roofline import H200, Rates, roofline
from benchmarks.harness.tables import goals as goals_table
from bridge.common.atomic_file import write_json
from bridge.common.cli import complain

Found = dict[str, Any]
#: Nothing new is begun with less time left
LEAST_SECONDS = 5.0
#: Of what is left, for the driver's view of memory
SHARE_OF_TIME = 0.25


@dataclass(frozen=True)
class Request:
    """What the command line says.

    Attributes
    ----------
    path : of the JSON
    clock, minutes : for everything
    device, index : "cuda:N" as it was given, and N
    precisions, names : of frameworks
    quick : few sizes, few runs, nothing that is compiled
    pretended : nothing is a GPU
    environment : variables of the processes
    """

    path: Path
    clock: Clock
    minutes: float
    device: str
    index: int
    precisions: tuple[str, ...]
    names: tuple[str, ...]
    quick: bool
    pretended: bool
    environment: dict[str, str]


class Bench:
    """One run.

    Parameters
    ----------
    request : what is asked for
    seen : what the doctor says of the device
    console : for what is printed
    """

    def __init__(self, request: Request, seen: Seen, console: Console) -> None:
        self._request, self._console = request, console
        self._sizes = cells.PRETENDED if request.pretended else cells.QUICK if request.quick else cells.FULL
        size, batch = self._sizes.mission
        self._document: Found = {
            "json_version": JSON_VERSION,
            **head("pretended: software device and CPU" if request.pretended else "GPU", request.device, seen),
            "pretended": request.pretended, "quick": request.quick, "minutes": request.minutes,
            "clocks": {"before": {} if request.pretended else clocks(request.index), "after": {}},
            "mission": {"size": size, "batch": batch}, "sizes": list(self._sizes.sizes),
            "batches": list(self._sizes.batches), "precisions": list(request.precisions),
            "data_sheet": {"bandwidth": H200["fp32"].bandwidth,
                           "arithmetic": {name: one.arithmetic for name, one in H200.items()}},
            "cells": [], "driver_memory": {}, "not_measured": []}

    def run(self, *, require: bool) -> int:
        """Exit code."""
        request = self._request
        with workers("cpu" if request.pretended else f"cuda:{request.index}", request.environment) as processes:
            try:
                why = self._measure_device(processes)
            except LostError as lost:
                return complain("gpu-bench", f"failed: {lost}", 1)
            if why:
                skip("gpu-bench", why, self._console)
                return int(require)
            self._console.print(tables.rates(self._document), "", tables.rooflines(self._document), "")
            self._jobs(processes)
        return self._end()

    def _measure_device(self, processes: Processes) -> str:
        """Facts, rates and roofline bounds; why there are none, or nothing."""
        request, process = self._request, processes[framework(REFERENCE).process]
        facts = process.ask("facts", 60.0, request.clock.left)
        if not facts.get("usable"):
            return facts.get("why") or facts["failed"]
        measured = process.ask("rates", 120.0, request.clock.left, precisions=list(request.precisions),
                               small=request.pretended)
        if "failed" in measured:
            raise LostError(measured["failed"])
        process.ask("forget", 30.0)
        self._rates = {one: Rates(measured["bandwidth"], measured["arithmetic"][one]) for one in request.precisions}
        size, batch = self._sizes.mission
        self._document |= {"gpu": facts, "rates": measured, "rooflines": {
            one: roofline(cells.Cell(size, batch, one).net.layers, one, rates).as_dict()
            for one, rates in self._rates.items()}}
        return ""

    def _jobs(self, processes: Processes) -> None:
        """All cells while there is time; memory after the mission's size has been measured in full."""
        request, memory = self._request, self._document["gpu"]["memory"]
        runs = Runs(processes, request.clock, self._rates, memory,
                    RUN_SECONDS / 50 if request.pretended else RUN_SECONDS)
        jobs = cells.schedule(self._sizes, request.precisions, quick=request.quick or request.pretended)
        mission = [job for job in jobs if (job.cell.size, job.cell.batch) == self._sizes.mission]
        first = next((number for number, job in enumerate(jobs) if job not in mission), len(jobs))
        for one in map(framework, request.names):
            if one.cost <= max(job.cost for job in jobs):
                processes[one.process].start()
        for number, job in enumerate(jobs):
            if number == first:
                self._driver(runs)
            why = cells.too_large(job.cell, memory)
            if not why and request.clock.left < LEAST_SECONDS:
                why = "the time was up"
            if why:
                self._missing(job.cell, why)
                continue
            self._keep(runs.cell(job, request.names))
            self._write()
        if first == len(jobs):
            self._driver(runs)

    def _keep(self, found: Found) -> None:
        """In the place of an older result for the cell, unless the time was up in the middle of it."""
        all_cells = self._document["cells"]
        old = cell_of(all_cells, found["size"], found["batch"], found["precision"])
        self._console.print(tables.cell(found), "")
        if old is None:
            all_cells.append(found)
        elif not interrupted(found):
            all_cells[all_cells.index(old)] = found

    def _missing(self, cell: cells.Cell, why: str) -> None:
        """Once, and only where nothing was measured."""
        missing = self._document["not_measured"]
        there = cell_of(self._document["cells"], cell.size, cell.batch, cell.precision) is not None
        if not there and cell.name not in [one["cell"] for one in missing]:
            missing.append({"cell": cell.name, "reason": why})

    def _driver(self, runs: Runs) -> None:
        """What each framework takes from the driver at the mission's size, in a process that does nothing else."""
        if self._request.pretended or self._request.quick:
            return
        precision = self._request.precisions[0]
        cell = cells.Cell(*self._sizes.mission, precision)
        done = cell_of(self._document["cells"], cell.size, cell.batch, precision) or {"results": {}}
        names = [name for name, one in done["results"].items() if "median" in one and framework(name).cost == CHEAP]
        # Starting processes takes time that the other sizes need
        found = runs.driver(cell, names, SHARE_OF_TIME * self._request.clock.left)
        self._document["driver_memory"][precision] = found
        self._write()

    def _write(self) -> None:
        request, document = self._request, self._document
        some = goals(document["cells"], self._sizes.mission, request.precisions)
        document |= {"goals": [one.as_dict() for one in some],
                     "seconds": round(60 * request.minutes - request.clock.left, 1)}
        write_json(request.path, document)

    def _end(self) -> int:
        request, document = self._request, self._document
        if not request.pretended:
            document["clocks"]["after"] = clocks(request.index)
        self._write()
        wrong = faults(document["cells"], self._sizes.mission, request.precisions)
        met = [goal["met"] is True for goal in document["goals"]]
        words = f"failed: {'; '.join(wrong)}" if wrong else \
            f"{len(document['cells'])} cells measured, {sum(met)} of {len(met)} goals met"
        document |= {"words": ("pretended: " if request.pretended else "") + words, "exit_code": int(bool(wrong))}
        self._write()
        mission = document["mission"]
        for precision in request.precisions:
            case = cell_of(document["cells"], mission["size"], mission["batch"], precision)
            if case is not None and document["driver_memory"].get(precision):
                self._console.print(tables.cell(case, document["driver_memory"][precision]), "")
        self._console.print(tables.sweep(document), "", goals_table(document["goals"]))
        self._pictures()
        self._console.print(Text(f"gpu-bench: {document['words']}; {request.path}"), soft_wrap=True)
        return document["exit_code"]

    def _pictures(self) -> None:
        """They are no reason to fail: the JSON is there, and --draw makes them of it."""
        try:
            from benchmarks.gpu.pictures import draw

            for path in draw(self._document, self._request.path):
                self._console.print(f"written: {path}", highlight=False, soft_wrap=True)
        except Exception as failure:
            self._console.print(Text(f"no pictures: {failure}; --draw makes them of the JSON"), soft_wrap=True)
