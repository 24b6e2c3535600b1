# SPDX-License-Identifier: MIT
"""What a training was made with, by which a continuation can tell that it is another one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from bridge.data import Batches
from bridge.data.digest import digests
from bridge.exchange.hdf5_values import printable, several, shortened
from bridge.exchange.model import Model


@dataclass(frozen=True)
class Used:
    """The words of a configuration, and the files that they meant.

    Attributes
    ----------
    model : str
        As the configuration names it.
    data, validation : str
        Tables of the configuration as JSON.
    files : str
        A line for each file, "HASH TABLE.SIDE NAME", in the order of the images; see `bridge.data.digest`.

    All are empty where nobody has said, as in checkpoints of earlier versions.
    """

    model: str = ""
    data: str = ""
    validation: str = ""
    files: str = ""

    def differences(self, now: Used) -> list[str]:
        """Return what is another now, each in words.

        Examples
        --------
        >>> before = Used("a:b", '{"batch": 2}', files="00 data.inputs 1.npy\\n01 data.inputs 2.npy\\n")
        >>> now = Used("a:b", '{"batch": 3}', files="07 data.inputs 2.npy\\n08 data.inputs 3.npy\\n")
        >>> before.differences(now)
        ['data.batch was 2, found 3', '1.npy is gone', '3.npy is new', '2.npy has another content']
        """
        found = [] if self.model in ("", now.model) else [f"model was {self.model!r}, found {now.model!r}"]
        for table in ("data", "validation"):
            before, after = getattr(self, table), getattr(now, table)
            if before:
                found += _changed_keys(table, json.loads(before), json.loads(after or "{}"))
        return found + (_changed_files(self.files, now.files) if self.files else [])


def used_by(model: str, data: str, validation: str, batches: Mapping[str, Batches | None]) -> Used:
    """Return what a configuration uses; `batches` by their tables."""
    lines = [f"{one} {table}.{side} {name}\n" for table, some in batches.items() if some is not None
             for side, images in zip(("inputs", "targets"), some.data.sources(), strict=False)
             for name, one in digests(images)]
    return Used(printable(model), data, validation, "".join(lines))


def model_differences(used: Model, now: Model) -> list[str]:
    """Return what is another in a model now, in words."""
    found = [] if (used.loss, used.mean) == (now.loss, now.mean) else [
        f"loss was {used.loss} ({'mean' if used.mean else 'sum'}), found {now.loss} ({'mean' if now.mean else 'sum'})"]
    before, after = ({one.name: one for one in model.graph.nodes} for model in (used, now))
    if list(before) != list(after):
        found.append(f"the model had the layers {shortened(', '.join(before))}, found {shortened(', '.join(after))}")
    else:
        found += [f"layer {name} of the model was {shortened(one)}, found {shortened(after[name])}"
                  for name, one in before.items() if one != after[name]][:1]
    return found


def _changed_keys(table: str, before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    return [f"{table}.{key} was {before.get(key, 'not given')!r}, found {after.get(key, 'not given')!r}"
            for key in sorted({*before, *after}) if before.get(key) != after.get(key)]


def _changed_files(before: str, after: str) -> list[str]:
    """New ones, those that are gone, those with other contents, or another order."""
    old, new = ({name: one for one, _, name in (line.partition(" ") for line in text.splitlines())}
                for text in (before, after))
    kinds = {"gone": [name for name in old if name not in new], "new": [name for name in new if name not in old]}
    found = [f"{several([_file(name) for name in names])} {'are' if len(names) > 1 else 'is'} {what}"
             for what, names in kinds.items() if names]
    if others := [_file(name) for name in old if name in new and new[name] != old[name]]:
        found.append(f"{several(others)} {'have' if len(others) > 1 else 'has'} another content")
    return found or (["the files have another order"] if list(old) != list(new) else [])


def _file(name: str) -> str:
    """Without the side."""
    return name.partition(" ")[2]

