# SPDX-License-Identifier: MIT
"""A network as a graph of operations, checked once: names, inputs, shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bridge.common.errors import FileError
from bridge.operations.operation import Operation, Shape

#: Name of the network's input among the inputs of nodes
INPUT = "input"


class Graph:
    """Operations in the order of their computation; the last one's output is the network's.

    Parameters
    ----------
    nodes : each takes outputs of nodes before it; without `inputs` that of the one right before

    Attributes
    ----------
    nodes : the same, each with its inputs by name

    Raises
    ------
    FileError
        If two nodes have one name, a node takes what is not computed before it, or its output is used by nobody.

    Examples
    --------
    >>> from bridge.operations import Add, Relu
    >>> Graph([Relu("a"), Add("b", inputs=("a", "input"))]).shapes((1, 2, 3, 3))["b"]
    (1, 2, 3, 3)
    """

    def __init__(self, nodes: Sequence[Operation]) -> None:
        if not nodes:
            raise FileError("the network has no layers, expected one or more")
        self.nodes: tuple[Operation, ...] = ()
        known, last = [INPUT], INPUT
        for node in nodes:
            if node.name in known:
                raise FileError(f"two layers are named {node.name}" if node.name != INPUT else
                                f"a layer is named {INPUT}, which names the network's input")
            inputs = node.inputs or (last,)
            _check_inputs(node, inputs, known, {one.name for one in nodes})
            self.nodes += (replace(node, inputs=inputs),)
            known.append(node.name)
            last = node.name
        used = {name for node in self.nodes for name in node.inputs}
        if unused := [node.name for node in self.nodes[:-1] if node.name not in used]:
            raise FileError(f"layer {unused[0]}: no layer takes its output, and it is not the last")

    @property
    def is_path(self) -> bool:
        """Return whether every node takes the output of the one before it and nothing else: outputs have one reader.

        >>> from bridge.operations import Add, Relu
        >>> Graph([Relu("a"), Relu("b")]).is_path, Graph([Relu("a"), Add("b", inputs=("a", "a"))]).is_path
        (True, False)
        """
        names = (INPUT, *(node.name for node in self.nodes))
        return all(node.inputs == (before,) for node, before in zip(self.nodes, names, strict=False))

    def consists_of(self, *kinds: type[Operation]) -> bool:
        """Return whether all nodes are of these kinds."""
        return all(isinstance(node, kinds) for node in self.nodes)

    def shapes(self, shape: Shape) -> dict[str, Shape]:
        """Return the shape of every node's output by name, and of the input, for an input of this shape.

        Raises
        ------
        FileError
            If a node cannot take the shapes of its inputs; names the node and them.
        """
        found = {INPUT: shape}
        for node in self.nodes:
            found[node.name] = node.output_shape(*(found[name] for name in node.inputs))
        return found

    def state_shapes(self) -> dict[str, Shape]:
        """Return the shapes of all that is kept from step to step and not learned, by name (``norm1/running_mean``)."""
        return {f"{node.name}/{name}": shape for node in self.nodes for name, shape in node.state_shapes().items()}

    def masked(self) -> list[str]:
        """Return the names of the nodes that take a mask with each batch."""
        return [node.name for node in self.nodes if node.has_mask]

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return the shapes of all parameters by name, ``conv1/weight``, ..., in the order of the nodes."""
        return {f"{node.name}/{name}": shape for node in self.nodes for name, shape in node.parameter_shapes().items()}


def _check_inputs(node: Operation, inputs: tuple[str, ...], before: list[str], names: set[str]) -> None:
    for name in inputs:
        if name not in before:
            why = "which is computed from it or after it" if name in names else "and no layer has that name"
            raise FileError(f"layer {node.name}: it takes {name}, {why}")
    if (node.arity > 0 and len(inputs) != node.arity) or (not node.arity and len(inputs) < 2):
        expected = str(node.arity) if node.arity else "two or more"
        raise FileError(f"layer {node.name} ({node.kind}): {len(inputs)} inputs, expected {expected}")
