# SPDX-License-Identifier: MIT
"""A judgement for people and for programs: terminal, JSON, HTML, JUnit. Nothing is decided here."""

from bridge.report.json_report import to_dict
from bridge.report.terminal import print_report

__all__ = ["print_report", "to_dict"]
