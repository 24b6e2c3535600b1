# SPDX-License-Identifier: MIT
"""All hypotheses about one tensor: faults of the operation that makes it, and faults of what came out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from bridge.judge.diagnosis.altered.engine import as_a_whole
from bridge.judge.diagnosis.altered.formulas import Evaluated
from bridge.judge.diagnosis.faults.carried_state import carried_state
from bridge.judge.diagnosis.faults.convolution_faults import data_faults, filter_faults, forward_faults, rare_faults
from bridge.judge.diagnosis.faults.graph_faults import formula_faults, sum_faults
from bridge.judge.diagnosis.faults.layouts import layouts
from bridge.judge.diagnosis.faults.lowered import in_lower_precision, with_one_operand_lowered
from bridge.judge.diagnosis.faults.other_faults import (
    bias_gradient_faults,
    criterion_faults,
    loss_faults,
    loss_gradient_faults,
    previous_mask,
    relu_backward_faults,
    relu_faults,
)
from bridge.judge.diagnosis.faults.other_operands import other_operands
from bridge.judge.diagnosis.faults.rows import miscounted_rows
from bridge.judge.diagnosis.faults.update_faults import update_faults
from bridge.judge.diagnosis.predictions.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.predictions.elementwise import (
    BiasGradient,
    LossGradient,
    Rectified,
    ReluBackward,
    SquaredError,
)
from bridge.judge.diagnosis.predictions.formulas import Criterion, Formula, Joined
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, Hypothesis, hypothesis
from bridge.judge.diagnosis.predictions.operations import Given, Predicted, Prediction
from bridge.judge.diagnosis.predictions.step_graph import INPUT, TARGET, StepGraph
from bridge.judge.diagnosis.predictions.updating import Updating
from bridge.judge.diagnosis.wrong_operations.normalization import by_statistics_of
from bridge.operations.normalization import BatchNorm2d

Array = np.ndarray

#: Other layers whose outputs are tried, the nearest first
MOST_OTHERS = 8

#: Settings that say how many pixels belong together
WINDOWS = ("kernel_size", "scale_factor", "output_size")

#: Numbers of a tensor up to which operations with other settings and operands are tried before other faults
MOST_AT_ONCE = 2**17

#: Images of a batch up to which parts of it are tried
MOST_IMAGES = 8


@dataclass
class Case:
    """One wrong tensor.

    Attributes
    ----------
    name : of the tensor
    graph : its step
    right : the operation that should have made it
    found : what the candidate has, float64
    before : the step before; None at the first step
    earlier : what the tensor was at earlier steps, by description
    updating : of new weights, what they follow from
    """

    name: str
    graph: StepGraph
    right: Prediction
    found: Array
    before: StepGraph | None = None
    earlier: dict[str, Array] = field(default_factory=dict)
    updating: Updating | None = None

    @property
    def dimensions(self) -> dict[str, int]:
        """Return numbers by name: N elements of the output, B images, C channels, and so on."""
        n, c, *size = self.graph.pair.batch_shape
        found = {"N": int(np.prod(self.graph.pair.output_shape)), "B": n, "Cin": c}
        if isinstance(self.right, SquaredError | LossGradient) and len(self.graph.pair.output_shape) == 4:
            size = [*self.graph.pair.output_shape[2:]]
        # What is no image has no such extents
        if len(size) == 2:
            found |= {"H*W": math.prod(size), "H": size[0], "W": size[1]}
        part = self.right.parts[0] if isinstance(self.right, Joined) else self.right
        if isinstance(part, Formula):
            # Its own extents explain a factor better than others of the same size
            found = {name: math.prod(value) for name, value in vars(part.node).items()
                     if isinstance(value, tuple) and name in WINDOWS} | found
        if isinstance(self.right, Filter | BiasGradient):
            pixels = self.right.dz.value[0, 0].size
            if pixels != math.prod(size):
                found["P*Q"] = pixels
        shape = self.right.shape
        if len(shape) == 4 and self.name.endswith("/weight"):
            found |= {"K": shape[0], "C": shape[1], "R*S": shape[2] * shape[3]}
        elif len(shape) == 4:
            found |= {"C": shape[1]}
        return found


def operation_faults(case: Case) -> Hypotheses:
    """Yield the faults inside the operation."""
    right = case.right
    if case.updating is not None:
        yield from update_faults(case.updating)
    elif isinstance(right, Formula):
        yield from formula_faults(right)
        if math.prod(right.shape) <= MOST_AT_ONCE:
            yield from as_a_whole(Evaluated(right))
        yield from in_lower_precision(right)
        yield from _other_dropout(case, right)
        yield from _statistics_before(case, right)
        yield from _earlier_inputs(case, right)
        yield from carried_state(right, case.before)
        yield from _inputs_of_others(case, right)
    elif isinstance(right, Joined):
        yield from sum_faults(right, lambda part: operation_faults(replace(case, right=part)))
    elif isinstance(right, Forward):
        yield from _other_inputs(case, right)
        yield from forward_faults(right)
        yield from _other_weights(case, right)
        yield from other_operands(case.graph, case.name, right)
    elif isinstance(right, Data):
        yield from data_faults(right)
        yield from _other_weights(case, right)
        yield from other_operands(case.graph, case.name, right)
    elif isinstance(right, Filter):
        yield from filter_faults(right)
        yield from _earlier_operands(case, right, ("x", "dz"))
        yield from other_operands(case.graph, case.name, right)
    elif isinstance(right, BiasGradient):
        yield from bias_gradient_faults(right)
        yield from _earlier_operands(case, right, ("dz",))
        yield from other_operands(case.graph, case.name, right)
    elif isinstance(right, Rectified):
        yield from relu_faults(right, case.found)
        yield from _bias_afterwards(case, right)
    elif isinstance(right, ReluBackward):
        yield from relu_backward_faults(right, case.found, case.graph, case.name)
        yield from _previous_mask(case, right)
    elif isinstance(right, SquaredError):
        yield from loss_faults(right)
        yield from _earlier_target(case, right)
    elif isinstance(right, LossGradient):
        yield from loss_gradient_faults(right, case.found)
        yield from _earlier_target(case, right)
    elif isinstance(right, Criterion):
        yield from criterion_faults(right)
        if math.prod(right.y.value.shape) <= MOST_AT_ONCE:
            yield from as_a_whole(Evaluated(right))
        yield from _earlier_target(case, right)


def rare_operation_faults(case: Case) -> Hypotheses:
    """Yield faults inside the operation that are tried where no other one explains the tensor."""
    right = case.right
    if case.updating is None and isinstance(right, Forward | Data | Filter):
        yield from rare_faults(right)
    if case.updating is None:
        yield from with_one_operand_lowered(right)
    if isinstance(right, Filter | BiasGradient):
        yield from miscounted_rows(right, case.found)


def _other_weights(case: Case, right: Forward | Data) -> Hypotheses:
    """Weights of the step before or after, or of the first."""
    layer = right.layer.name
    pair, step = case.graph.pair, case.graph.step
    others = {step - 1: "the weights of the step before", step + 1: "the weights after the update"}
    for other, said in ({0: "the weights of step 0"} | others if step > 1 else others).items():
        found = pair.parameters(pair.candidate, other) if other >= 0 else None
        if found is None or not all(np.isfinite(w).all() for w in found.values()):
            continue
        w = found[f"{layer}/weight"].astype(np.float64)
        if isinstance(right, Forward) and right.b is not None:
            b = found[f"{layer}/bias"].astype(np.float64)
            yield hypothesis("previous_step", said, right.replaced(w=w, b=b))
            yield hypothesis("previous_step", f"{said}, the bias excepted", right.replaced(w=w))
        else:
            yield hypothesis("previous_step", said, right.replaced(w=w))


def _other_inputs(case: Case, right: Forward | Filter) -> Hypotheses:
    """The batch of another step."""
    graph = case.graph
    if INPUT not in graph.inputs(case.name):
        return
    others = {graph.step - 1: "the input of the step before", graph.step + 1: "the input of the next step"}
    for step, said in (others | {0: "the input of step 0"} if graph.step > 1 else others).items():
        if 0 <= step < graph.pair.steps:
            other = StepGraph(graph.pair, step, graph.weights).value(INPUT)
            yield hypothesis("previous_step", said, right.replaced(x=other))


def _earlier_operands(case: Case, right: Filter | BiasGradient, operands: tuple[str, ...]) -> Hypotheses:
    """An operand of the step before, or the next batch."""
    if isinstance(right, Filter):
        yield from _other_inputs(case, right)
    if case.before is None:
        return
    names = case.graph.inputs(case.name)
    for operand, name in zip(operands, names[-len(operands) :], strict=True):
        old = case.before.own(name) if name != INPUT else case.before.value(name).value
        if old is not None:
            said = "the input of the step before" if operand == "x" else "dz of the step before"
            if name != INPUT:
                yield hypothesis("previous_step", said, right.replaced(**{operand: Predicted(old)}))
            yield from _some_images(right, operand, old)


def _some_images(right: Filter | BiasGradient, operand: str, old: Array) -> Hypotheses:
    """The first or the last images alone are those of the step before."""
    own = getattr(right, operand)
    for i in range(1, len(old)) if len(old) <= MOST_IMAGES else ():
        for images, said in ((slice(i), f"first {i}"), (slice(i, None), f"last {len(old) - i}")):
            mixed, error = own.value.copy(), None if own.error is None else own.error.copy()
            mixed[images] = old[images]
            if error is not None:
                error[images] = 0
            name = "the input" if operand == "x" else "dz"
            yield hypothesis("previous_step", f"{name} of the {said} images is that of the step before",
                             right.replaced(**{operand: Predicted(mixed, error)}))


def _earlier_target(case: Case, right: SquaredError | LossGradient | Criterion) -> Hypotheses:
    if case.before is not None:
        yield hypothesis("other_target", "the targets of the step before",
                         right.replaced(target=case.before.value(TARGET).value))
    if case.graph.step > 1:
        first = StepGraph(case.graph.pair, 0, case.graph.pair.start)
        yield hypothesis("other_target", "the targets of step 0", right.replaced(target=first.value(TARGET).value))


def _bias_afterwards(case: Case, right: Rectified) -> Hypotheses:
    """The bias of the convolution before it is added to what the ReLU gives."""
    layer = case.graph.inputs(case.name)[0].partition("/")[2]
    b = case.graph.weights.get(f"{layer}/bias")
    if b is not None and right.z.value.ndim == 4:
        wide, z = b[:, None, None], right.z.value
        error = 4 * case.graph.arithmetic.u * (np.abs(z) + 2 * np.abs(wide))
        error = error if right.z.error is None else error + right.z.error
        after = Given(right.shape, np.maximum(z - wide, 0) + wide, error)
        yield hypothesis("bias", "added after the ReLU, which is of the convolution alone", after)


def _other_dropout(case: Case, right: Formula) -> Hypotheses:
    """The mask of another step, of another image, or read in another order."""
    mask = right.parameters["mask"] if right.node.has_mask else None
    if mask is not None and mask.ndim == 4 and len(mask) > 1:
        for said, other in ((f"the mask of image {i} for every image", np.broadcast_to(mask[i], mask.shape))
                            for i in (0, len(mask) - 1)):
            yield hypothesis("activation", said, right.replaced(parameters={"mask": other}))
        for said, by in (("before", 1), ("after", -1)):
            rolled = right.replaced(parameters={"mask": np.roll(mask, by, 0)})
            yield hypothesis("activation", f"for each image the mask of the one {said} it, around the end", rolled)
        channel = right.replaced(parameters={"mask": np.broadcast_to(mask[:, :1], mask.shape)})
        yield hypothesis("activation", "the mask of channel 0 for every channel", channel)
        for layout in layouts(mask.shape, "nchw", "common"):
            read = right.replaced(parameters={"mask": layout(mask)})
            yield Hypothesis(layout.kinds, f"the mask: {layout.detail}", read, layout=layout)
    if mask is not None:
        yield from _own_mask(case, right, mask)
    for step, said in ((case.graph.step - 1, "before"), (case.graph.step + 1, "after")):
        if right.node.has_mask and 0 <= step < case.graph.pair.steps:
            mask = case.graph.pair.masks(step)[f"{right.node.name}/mask"]
            yield hypothesis("previous_step", f"the mask of the step {said}", right.replaced(parameters={"mask": mask}))


def _own_mask(case: Case, right: Formula, mask: Array) -> Hypotheses:
    """A mask that is drawn anew: what is there tells it, and must then be what it keeps."""
    kept = case.found.reshape(right.shape) != 0
    of_channels = mask.shape != kept.shape
    if of_channels:
        kept = kept.any((2, 3), keepdims=True)
    # Single zeros among what was kept may be anything, whole channels are not
    if kept.all() or not (of_channels or (kept & (mask < 1)).any()) or np.array_equal(kept, mask > 0):
        return
    said = "another mask than that of the file, as if drawn anew"
    yield hypothesis("activation", said, right.replaced(parameters={"mask": kept.astype(np.float64)}), fitted=True)


def _statistics_before(case: Case, right: Formula) -> Hypotheses:
    """A batch normalised by the statistics of the one before, which are constants."""
    node = right.node
    if not (isinstance(node, BatchNorm2d) and node.training) or right.state or case.before is None:
        return
    (source,) = node.inputs
    old = case.before.value(INPUT).value if source == INPUT else case.before.own(f"forward/{source}")
    if old is not None:
        yield hypothesis("statistics", "mean and variance of the batch before", right.replaced(
            node=by_statistics_of(node, old)))


def _earlier_inputs(case: Case, right: Formula) -> Hypotheses:
    """An input of the step before, as of a skip connection whose buffer is late."""
    for i, name in enumerate(right.node.inputs):
        tensor = name if name == INPUT else f"forward/{name}"
        old = None if case.before is None or right.dy is not None else (
            case.before.value(INPUT).value if name == INPUT else case.before.own(tensor))
        if old is not None:
            inputs = (*right.inputs[:i], Predicted(old), *right.inputs[i + 1 :])
            yield hypothesis("previous_step", f"{name} of the step before", right.replaced(inputs=inputs))


def _inputs_of_others(case: Case, right: Formula) -> Hypotheses:
    """An output of another layer in the place of an input."""
    graph = case.graph
    nodes = [node.name for node in graph.model.graph.nodes]
    # Buffers are mixed up with those of the next layers, and of layers of the same type
    alike = {name for node in graph.model.graph.nodes if node.kind == right.node.kind for name in node.inputs}
    others = (name for name in nodes if graph.given(f"forward/{name}") and name not in right.node.inputs)
    near = sorted(others, key=lambda name: (
        name not in alike, abs(nodes.index(name) - nodes.index(right.node.name))))[:MOST_OTHERS]
    for i, own in enumerate(right.inputs):
        for name in near:
            tensor = f"forward/{name}"
            # Forward nothing is known yet of what comes after
            if graph.pair.shapes[tensor] == own.value.shape and (
                    right.dy is not None or nodes.index(name) < nodes.index(right.node.name)):
                inputs = (*right.inputs[:i], graph.value(tensor), *right.inputs[i + 1 :])
                yield hypothesis("other_layer", f"{tensor} in place of {right.node.inputs[i]}",
                                 right.replaced(inputs=inputs))


def _previous_mask(case: Case, right: ReluBackward) -> Hypotheses:
    source = case.graph.inputs(case.name)[1]
    old = case.before.own(source) if case.before is not None else None
    if old is not None:
        yield from previous_mask(right, old)


def base_of(operation: Prediction) -> Hypothesis:
    """Return the right operation, on which faults of the output are built."""
    return Hypothesis((), "", operation)
