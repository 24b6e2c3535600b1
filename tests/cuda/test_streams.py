# SPDX-License-Identifier: MIT
"""Streams, waits, devices and what is kept between steps: stream_checks.py says what each check asks for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.helpers.cuda.children import environment, skip_without_kernels
from tests.helpers.tiers import few_rows

#: The checks, and which of CUDA's runtimes they are for: without the functions that load kernels, "old", there are none
CHECKS = {
    "steady": ("new",), "steady_without_kernels": ("old",), "first_step": ("new", "old"), "copies": ("new",),
    "large_copies": ("new",), "streams_in_order": ("new", "old"), "chain_over_streams": ("new",),
    "two_networks": ("new", "old"), "destroyed_streams": ("new", "old"), "chosen_again": ("new",),
    "errors_are_marked": ("new",), "failures_to_change": ("new", "old"), "two_devices": ("new",),
    "trials_give_memory_back": ("new",), "threads": ("new",), "other_devices": ("new", "old"),
    "memory_of_the_other_device": ("new",), "errors_are_not_left_behind": ("new",),
    "opened_and_closed": ("new", "old"), "options_make_plans": ("new",), "descriptors_are_few": ("old",),
    "half_done_steps": ("new", "old"), "more_than_all_memory": ("new",),
    "recorded_steps": ("new",), "recorded_steps_are_steps": ("new", "old"), "two_networks_recorded": ("new", "old"),
    "what_cannot_be_recorded": ("new", "old"), "fed_steps": ("new", "old"),
    "feeding_does_not_wait_for_a_step": ("new",), "lean_steps_are_fused_steps": ("new", "old"),
    "masks_may_be_refused": ("new",), "recordings_follow_memory": ("new",), "steps_go_on_after_failures": ("new",),
}  # fmt: skip


@pytest.mark.parametrize(("name", "cudart"), few_rows(
    ((name, one) for name, which in CHECKS.items() for one in which),
    lambda row: row[0] in ("steady", "two_networks", "recorded_steps", "fed_steps") and row[1] == "new"))
def test_check(name: str, cudart: str, fixture: Path) -> None:
    """In a process of its own, which the device ends if a wait is missing or anything leaks."""
    skip_without_kernels(cudart)
    done = subprocess.run([sys.executable, "-m", "tests.helpers.cuda.stream_checks", name, fixture],
                          capture_output=True, text=True, check=False, timeout=120,
                          env=environment(cudart, STRICT_AT_EXIT="2", STRICT_DEVICES="2"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_every_check_is_run() -> None:
    """Those of stream_checks.py that take no argument."""
    tree = ast.parse((ROOT / "tests/helpers/cuda/stream_checks.py").read_text(encoding="utf-8"))
    found = {one.name for one in tree.body if isinstance(one, ast.FunctionDef) and not one.args.args}
    assert found - {"made_stream", "device_now", "destroy"} == set(CHECKS)
