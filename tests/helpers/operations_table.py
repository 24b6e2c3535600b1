# SPDX-License-Identifier: MIT
"""docs/operations.md, made of the registries: `python -m tests.helpers.operations_table` writes it anew."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch.nn import functional

from bridge.gradcheck.cases import CASES, LOSS_CASES
from bridge.judge.diagnosis.predictions.hypothesis import Hypothesis
from bridge.operations import OPERATIONS
from bridge.operations.losses import LOSSES
from bridge.operations.table import Row, families, rows
from tests import ROOT
from tests.helpers.judged.named_faults import of_loss, of_operation

PATH = ROOT / "docs/operations.md"
#: What everything is computed in, and where; tests/operations/test_registry.py tries each
DTYPES, DEVICES = ("float32", "float64"), ("cpu", "cuda")

ABOUT = """---
hide: [toc]
---

# Operations and losses

What networks are made of, by the types in an [exchange file](exchange-file.md). This page is made of the table of
operations and the registries (`python -m tests.helpers.operations_table`). tests/operations/test_registry.py fails
while an operation or a loss lacks what a column says.

*Hyperparameters*: torch's, in torch's order. One with a number in brackets may be left out. The
[exchange file](exchange-file.md#model) says more of those of windows, shapes and axes.
*Gradients*: the inputs and parameters with respect to which the backward pass gives them. *Checked*: cases of
`python -m bridge.gradcheck`, by central differences and beside the float64 oracle
([how](numerics.md#gradients-by-central-differences)). *Faults*: the numbers in [faults.md](faults.md) of what is
recomputed to name a mistake in the operation or its gradients; what any tensor may suffer (operands of another layer, a
factor, few bits, ...) is not repeated here.
"""
HEAD = ("", "hyperparameters", "in torch", "gradients", "precisions", "devices", "checked", "faults")


#: By an operation or loss, of its network or of each of its cases: hypotheses by the names of the tensors
Faults = dict[str, list[dict[str, list[Hypothesis]]]]


def all_faults(folder: Path) -> Faults:
    """What the judge recomputes of each operation and loss; fixtures are written into the folder."""
    return {kind: [of_operation(kind, folder)] for kind in OPERATIONS} | {
        kind: [of_loss(text, folder) for text in LOSS_CASES[kind]] for kind in LOSSES}


def document(faults: Faults) -> str:
    """The whole page."""
    table = {kind: row for family in families() for kind, row in rows(family).items()}
    operations = [_row(kind, table[kind], _in_torch(kind, one.torch_forward), _gradients(kind), _cases(kind), faults)
                  for kind, one in OPERATIONS.items()]
    losses = [_row(kind, rows("losses")[kind], _in_torch(kind, one.torch_forward), ["output"], _texts(kind), faults)
              for kind, one in LOSSES.items()]
    return "\n".join([ABOUT, *_table("operation", operations), "", *_table("loss", losses), ""])


def _table(first: str, rows: list[tuple[str, ...]]) -> list[str]:
    """Lines."""
    return ["| " + " | ".join(cells) + " |" for cells in ((first, *HEAD[1:]), ("---",) * len(HEAD), *rows)]


def _row(kind: str, row: Row, in_torch: str, gradients: Iterable[str], checked: str,
         faults: Faults) -> tuple[str, ...]:
    numbers = sorted({one.kinds[0].number for of_tensors in faults[kind] for some in of_tensors.values()
                      for one in some})
    cells = [f"`{kind}`", ", ".join(_settings(row)), in_torch, ", ".join(gradients), ", ".join(DTYPES),
             ", ".join(DEVICES), checked, ", ".join(map(str, numbers))]
    return tuple(cells)


def _settings(row: Row) -> Iterator[str]:
    """Each with torch's default, where it may be left out; flags are 0 or 1."""
    for name, one in row.get("settings", {}).items():
        default = one.get("default", "needed")
        said = f"{default:g}" if isinstance(default, (bool, float)) else str(default)
        if isinstance(default, list):
            said = ",".join(map(str, default)) or "none"
        yield f"`{name}`" if said == "needed" else f"`{name}` ({said})"


def _in_torch(kind: str, forward: Callable[..., object]) -> str:
    """What the docstring says that it returns; of many the function of the operation's name."""
    said = (forward.__doc__ or "").partition("\n")[0].removeprefix("Return ").removesuffix(".")
    if "torch's function of that name" in said:
        where = "torch.nn.functional" if hasattr(functional, kind) else "torch"
        assert hasattr(torch, kind) or hasattr(functional, kind), kind
        return said.replace("torch's function of that name", f"`{where}.{kind}`")
    return re.sub("``", "`", said)


def _gradients(kind: str) -> list[str]:
    node = CASES[kind][0].node
    inputs = ["input"] if len(CASES[kind][0].shapes) == 1 else ["both inputs" if node.arity else "all inputs"]
    if node.without_gradient:
        inputs = ["first input"] if node.arity > 1 else []
    return [*inputs, *node.parameter_shapes()]


def _cases(kind: str) -> str:
    about = [case.about for case in CASES[kind] if case.about]
    return f"{len(CASES[kind])}: also {'; '.join(about)}" if about else "1"


def _texts(kind: str) -> str:
    """Each as a mean and as a sum."""
    settings = sorted({word.partition("=")[0] for text in LOSS_CASES[kind] for word in text.split()[1:]})
    return f"{2 * len(LOSS_CASES[kind])}: mean, sum" + "".join(f", `{name}`" for name in settings)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        PATH.write_text(document(all_faults(Path(made))), encoding="utf-8")
