# SPDX-License-Identifier: MIT
"""What all answers together say: missed, named, false alarms, and the same of fixed tolerances."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.validate.self_test.fixed_tolerances import RULES
from bridge.validate.self_test.run_case import Healthily, Told

#: Share of caught faults that the first explanation must name
NAMED = 0.95
OURS = "this validator"


@dataclass
class Summary:
    """All answers.

    Attributes
    ----------
    told : of planted faults
    healthy : of right programs
    """

    told: list[Told] = field(default_factory=list)
    healthy: list[Healthily] = field(default_factory=list)

    @property
    def visible(self) -> list[Told]:
        """Return the faults that the data can show."""
        return [one for one in self.told if one.visible]

    @property
    def missed(self) -> list[Told]:
        """Return the faults that are visible and were not caught."""
        return [one for one in self.visible if not one.caught]

    @property
    def unnamed(self) -> list[Told]:
        """Return the faults that were caught and whose first explanation is another."""
        return [one for one in self.visible if one.caught and not one.named]

    @property
    def alarms(self) -> list[Healthily]:
        """Return the right programs of which something else was said than their arithmetic: mostly, than rounding."""
        return [one for one in self.healthy if one.alarm]

    @property
    def naming(self) -> float:
        """Return the share of visible, caught faults that were named first; 0 where there are none."""
        caught = [one for one in self.visible if one.caught]
        return sum(one.named for one in caught) / len(caught) if caught else 0.0

    @property
    def passed(self) -> bool:
        """Return whether something was tried, nothing missed, enough named, no false alarm."""
        tried = bool(self.visible and self.healthy)
        return tried and not self.missed and not self.alarms and self.naming >= NAMED

    def kinds(self) -> dict[int, dict[str, int]]:
        """Return counts by kind."""
        found: dict[int, dict[str, int]] = {}
        for one in sorted(self.told, key=lambda one: one.kind):
            row = found.setdefault(one.kind, dict.fromkeys(("plants", "caught", "named", "in_class", "not_visible"), 0))
            row["plants"] += 1
            row["caught"] += one.caught
            row["named"] += one.caught and one.named
            row["in_class"] += one.caught and one.in_class
            row["not_visible"] += not one.visible
        return found

    def tolerances(self) -> dict[str, dict[str, int]]:
        """Return by rule, ours first: faults missed (of all visible, and of those that are wrong in step 0), false
        alarms.

        Fixed tolerances read single runs, one step at a time: faults that show only in a second run are left out.
        """
        chosen = [one for one in self.visible if one.naive]
        start = [one for one in chosen if one.at_start]
        found = {
            OURS: {
                "missed": sum(not one.caught for one in chosen),
                "missed_at_start": sum(not one.caught for one in start),
                "false_alarms": len(self.alarms),
            }
        }
        for name, *_ in RULES:
            found[name] = {
                "missed": sum(one.naive[name] for one in chosen),
                "missed_at_start": sum(one.naive[name] for one in start),
                "false_alarms": sum(not one.naive[name] for one in self.healthy),
            }
        return found

    def numbers(self) -> dict[str, Any]:
        """Return the numbers for a file."""
        return {
            "passed": self.passed,
            "kinds": len(self.kinds()),
            "faults": len(self.told),
            "visible": len(self.visible),
            "caught": sum(one.caught for one in self.visible),
            "missed": len(self.missed),
            "named_first": round(self.naming, 4),
            "in_class": round(sum(one.in_class for one in self.visible) / max(1, len(self.visible)), 4),
            "healthy": len(self.healthy),
            "false_alarms": len(self.alarms),
            "fixed_tolerances": self.tolerances(),
            "by_kind": self.kinds(),
        }
