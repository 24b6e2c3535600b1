# SPDX-License-Identifier: MIT
"""Streams, waits, devices and what is kept between steps: stream_checks.py says what each check asks for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.helpers.cuda.children import environment
from tests.helpers.tiers import few

CHECKS = (
    "steady", "first_step", "copies", "large_copies", "streams_in_order", "chain_over_streams", "two_networks",
    "destroyed_streams", "chosen_again", "errors_are_marked", "failures_to_change", "two_devices",
    "trials_give_memory_back", "threads", "other_devices", "memory_of_the_other_device", "errors_are_not_left_behind",
    "opened_and_closed", "options_make_plans", "half_done_steps", "more_than_all_memory",
    "captured_steps", "captured_steps_are_steps", "two_networks_captured", "what_cannot_be_captured", "fed_steps",
    "feeding_does_not_wait_for_a_step", "efficient_steps_are_fused_steps", "masks_may_be_refused",
    "captured_graphs_follow_memory", "steps_go_on_after_failures",
)  # fmt: skip


@pytest.mark.parametrize("name", few(CHECKS, ("steady", "two_networks", "captured_steps", "fed_steps").__contains__))
def test_check(name: str, fixture: Path) -> None:
    """In a process of its own, which the device ends if a wait is missing or anything leaks."""
    done = subprocess.run([sys.executable, "-m", "tests.helpers.cuda.stream_checks", name, fixture],
                          capture_output=True, text=True, check=False, timeout=120,
                          env=environment(STRICT_AT_EXIT="2", STRICT_DEVICES="2"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_every_check_is_run() -> None:
    """Those of stream_checks.py that take no argument."""
    tree = ast.parse((ROOT / "tests/helpers/cuda/stream_checks.py").read_text(encoding="utf-8"))
    found = {one.name for one in tree.body if isinstance(one, ast.FunctionDef) and not one.args.args}
    assert found - {"made_stream", "device_now", "destroy"} == set(CHECKS)
