# SPDX-License-Identifier: MIT
"""Right programs among subnormal numbers: PyTorch's operations, losses and optimisers are inside the bounds there, too.

A product of two numbers that are that small is rounded to a whole multiple of the smallest one, whatever its size: no
relative error bounds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from bridge.exchange.model import Conv2d, Model, Relu
from bridge.exchange.optimizers import Adam, AdamW, Optimizer, Sgd
from bridge.gradcheck.cases import CASES, LOSS_CASES, LOSS_SHAPE, Setup, draw_loss
from bridge.judge.measure.error_statistics import measure
from bridge.judge.measure.updates import OTHER_ORDER
from bridge.judge.oracle import reductions, update
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import SMALLEST, SMALLEST_NORMAL, Arithmetic, total_roundoff
from bridge.judge.oracle.step import step_of_image
from bridge.operations.losses import loss_from
from tests.helpers.loops import looped

Array = np.ndarray
Tensors = dict[str, Array]
DTYPES = ("float32", "float64")
ELEMENTS = 400

# --- what optimisers remember ---------------------------------------------------------------------------------------

RULES: list[Optimizer] = [
    Sgd(1e-4, 0.9), Sgd(0.1, 0.9, 0.3), Sgd(0.5, 0.8, 0.0, 0.02, True), Sgd(1e-3, 0.9, 0.0, 0.1, True),
    Sgd(0.1, 0, 0, 0.1), Sgd(4.4 * SMALLEST["float32"]),
    Adam(1e-4), Adam(0.1, 0.5, 0.9, 1e-3, 0.2), Adam(1e-3, eps=1e-30), AdamW(0.001, weight_decay=0.01),
]


def of_torch(settings: Optimizer, w: Array, memory: dict[str, Array]
             ) -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
    """A parameter, and its optimiser after 1000 steps."""
    parameter = torch.nn.Parameter(torch.from_numpy(w.copy()))
    state: dict[str, Any] = {name: torch.from_numpy(one.copy()) for name, one in memory.items()}
    if isinstance(settings, Adam):
        kind = torch.optim.AdamW if isinstance(settings, AdamW) else torch.optim.Adam
        made: torch.optim.Optimizer = kind([parameter], settings.lr, (settings.beta1, settings.beta2), settings.eps,
                                           settings.weight_decay)
        made.state[parameter] = state | {"step": torch.tensor(1000.0)}
        return parameter, made
    made = torch.optim.SGD([parameter], settings.lr, settings.momentum, settings.dampening, settings.weight_decay,
                           settings.nesterov)
    made.state[parameter] = {"momentum_buffer": state["momentum"]}
    return parameter, made


def remembered(settings: Optimizer, optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter
               ) -> dict[str, Array]:
    """By the names of exchange files."""
    state = optimizer.state[parameter]
    return {name: state["momentum_buffer" if name == "momentum" else name].numpy().copy() for name in settings.memory}


def small(rng: np.random.Generator, dtype: str, units: int) -> Array:
    """Whole multiples of the smallest number, of either sign, some of them 0."""
    return (rng.integers(-units, units + 1, ELEMENTS) * SMALLEST[dtype]).astype(dtype)


@looped("dtype", DTYPES)
@looped("settings", RULES)
def test_memory_that_decays_to_subnormal_numbers_is_inside_the_bounds(settings: Optimizer, dtype: str) -> None:
    """From a known memory and from one that is followed, without gradients (a dead filter) and with tiny ones."""
    arithmetic, most = Arithmetic(total_roundoff(dtype)), 0.0
    for seed, (units, gradient, weight) in enumerate((
            (20, 0, 1.0), (3000, 0, 0.0), (3000, 50, 2 * SMALLEST[dtype]), (10**6, 10**6, SMALLEST_NORMAL[dtype]))):
        rng = np.random.default_rng(seed)
        w = (weight * rng.integers(-20, 20, ELEMENTS)).astype(dtype)
        memory = {name: small(rng, dtype, units) for name in settings.memory}
        if "exp_avg_sq" in memory:
            memory["exp_avg_sq"] = np.abs(memory["exp_avg_sq"])
        parameter, optimizer = of_torch(settings, w, memory)
        followed = update.memory_of(settings, {"a": update.Remembered(
            {name: one.astype(float) for name, one in memory.items()}, 1000)})
        for k in range(3):
            known = update.memory_of(settings, {"a": update.Remembered(
                {name: one.astype(float) for name, one in memory.items()}, 1000 + k)})
            g, none = small(rng, dtype, gradient), np.zeros(ELEMENTS)
            if settings.lr < SMALLEST_NORMAL["float32"]:
                g = (gradient * rng.standard_normal(ELEMENTS)).astype(dtype)
            parameter.grad = torch.from_numpy(g)
            optimizer.step()
            after, memory = parameter.detach().numpy().copy(), remembered(settings, optimizer, parameter)
            for one in (known, followed):
                direction = one.direction(settings, "a", w.astype(float), (g.astype(float), none), arithmetic)
                assert measure(after, *update.new_weights(settings, w.astype(float), direction, arithmetic)).t <= 1
                seen = update.taken(settings, w, after, direction, arithmetic)
                assert measure(seen.step, seen.expected, seen.bound).t <= 1
                for name, right in one.bounded("a").items():
                    most = max(most, measure(memory[name], *right).t)
            w = after
    assert most <= 1, most
    # In float64 the oracle rounds as the program does
    assert most > 0.1 * min(1.0, settings.lr) or dtype == "float64" or not settings.remembers, most


@looped("settings", [one for one in RULES if one.remembers])
def test_memory_that_does_not_decay_is_a_bug(settings: Optimizer) -> None:
    """What is remembered of a dead filter, of the sizes that float32 has all digits of: left as it is, by another
    factor, or forgotten."""
    arithmetic, zero = Arithmetic(total_roundoff("float32")), np.zeros(ELEMENTS)
    for size in (2.0**-110, 2.0**-60, 1.0):
        old = size * np.random.default_rng(1).uniform(1, 2, ELEMENTS)
        memory = update.memory_of(settings, {"a": update.Remembered(dict.fromkeys(settings.memory, old), 1000)})
        memory.direction(settings, "a", zero, (zero, zero), arithmetic)
        for value, bound in memory.bounded("a").values():
            assert measure(value.astype("f"), value, bound).t <= 1
            for wrong in (old, 0 * old, value * (1 + 1e-5)):
                assert measure(wrong.astype("f"), value, bound).t > OTHER_ORDER


def test_a_weight_that_never_had_a_gradient_stays() -> None:
    """Where nothing is multiplied nothing is lost."""
    arithmetic, zero, w = Arithmetic(total_roundoff("float32")), np.zeros(3), np.ones(3)
    for settings in (Sgd(0.1, 0.9, nesterov=True), Adam(0.1)):
        memory = update.memory_of(settings)
        for _ in range(2):
            direction = memory.direction(settings, "a", w, (zero, zero), arithmetic)
            _, bound = update.new_weights(settings, w, direction, arithmetic)
            assert not bound.any() and not any(e.any() for _, e in memory.bounded("a").values())


def test_flushed_memory_is_inside_the_bounds_of_flushing_alone() -> None:
    """A program whose processor flushes: the average of the squares of a dead filter is 0 at once."""
    zero, old = np.zeros(ELEMENTS), np.full(ELEMENTS, SMALLEST_NORMAL["float32"])
    for settings in (Sgd(0.1, 0.9), Adam(1e-3)):
        for flushes in (False, True):
            arithmetic = Arithmetic(total_roundoff("float32"), flushes=flushes)
            memory = update.memory_of(settings, {"a": update.Remembered(dict.fromkeys(settings.memory, old), 1000)})
            memory.direction(settings, "a", zero, (zero, zero), arithmetic)
            worst = max(measure(zero, *right).t for right in memory.bounded("a").values())
            assert worst <= 1 if flushes else worst > OTHER_ORDER


# --- operations, losses and chains -----------------------------------------------------------------------------------

#: Powers of 2 that all numbers are scaled by at once, and each tensor alone: products of two are subnormal, one is, and
#: it is the smallest number
TOGETHER = {"float32": (-75, -100, -135, -147), "float64": (-525, -1050)}
ALONE = {"float32": (-126, -149), "float64": (-1060,)}
#: Of what is no factor of anything
UNSCALED = ("mask", "class")


def scalings(names: list[str], dtype: str) -> list[dict[str, int]]:
    """Exponents by name, 0 for what is left out."""
    return [*(dict.fromkeys(names, one) for one in TOGETHER[dtype]),
            *({name: one} for name in names for one in ALONE[dtype])]


def scaled(arrays: Tensors, exponents: dict[str, int], dtype: str) -> Tensors:
    """Tensors times powers of 2, rounded to numbers of this type."""
    return {name: np.ldexp(one, exponents.get(name, 0)).astype(dtype) for name, one in arrays.items()}


def mixed(arrays: Tensors, dtype: str, rng: np.random.Generator) -> Tensors:
    """Every number times its own power of 2, of all sizes down to the smallest."""
    lowest = ALONE[dtype][-1]
    return {name: one.astype(dtype) if name in UNSCALED else
            np.ldexp(one, rng.integers(lowest, 1, one.shape)).astype(dtype) for name, one in arrays.items()}


def worst(found: Array, right: Bounded) -> float:
    """T of what PyTorch has: what overflows on the way is not asked for, and where the bound says nothing it is 0."""
    found, value, error = (np.atleast_1d(one) for one in (found, right.value, right.error))
    asked = np.isfinite(found) & np.isfinite(error)
    return measure(found[asked], value[asked], error[asked]).t if asked.any() else 0.0


def tensors_of(case: Setup, rng: np.random.Generator) -> Tensors:
    """Inputs "x0", ..., parameters and state by name, and "dy"."""
    node = case.node
    found = {f"x{i}": case.draw(rng, shape) for i, shape in enumerate(case.shapes)}
    found |= {name: rng.standard_normal(shape) for name, shape in node.parameter_shapes().items()}
    found |= {name: rng.uniform(0.5, 2.0, shape) for name, shape in node.state_shapes().items()}
    if node.has_mask:
        found["mask"] = (rng.random(node.mask_shape(case.shapes[0])) < 0.6).astype(float)
    return found | {"dy": rng.standard_normal(node.output_shape(*case.shapes))}


def judged(case: Setup, given: Tensors) -> dict[str, float]:
    """T of the output and of every gradient of PyTorch's."""
    node, inputs = case.node, [f"x{i}" for i in range(len(case.shapes))]
    parameters = [name for name in given if name not in (*inputs, "dy")]
    tensors = {name: torch.from_numpy(one.copy()) for name, one in given.items()}
    learned = [*inputs, *node.parameter_shapes()]
    for name in learned:
        tensors[name].requires_grad_()
    y = node.torch_forward([tensors[name] for name in inputs], {name: tensors[name] for name in parameters})
    gradients = torch.autograd.grad(y, [tensors[name] for name in learned], tensors["dy"], allow_unused=True)
    arithmetic = Arithmetic(total_roundoff(given["dy"].dtype.name))
    numbers = {name: Bounded(one, 0.0, arithmetic) for name, one in given.items()}
    of_inputs, of_parameters = [numbers[name] for name in inputs], {name: numbers[name] for name in parameters}
    with np.errstate(all="ignore"):
        value = node.forward(of_inputs, of_parameters)
        dx, dw = node.backward(numbers["dy"], of_inputs, of_parameters)
        state = node.new_state(of_inputs, of_parameters)
    right = dict(zip(inputs, dx, strict=True)) | dw
    found = {name: worst(one.numpy(), right[name]) for name, one in zip(learned, gradients, strict=True)
             if one is not None}
    found |= {name: worst(tensors[name].numpy(), one) for name, one in state.items()}
    return found | {"y": worst(y.detach().numpy(), value)}


@looped("dtype", DTYPES)
@looped("case", [case for cases in CASES.values() for case in cases])
def test_operations_are_inside_the_bounds(case: Setup, dtype: str) -> None:
    """Of tensors that are all tiny, of one alone, of numbers of all sizes, and behind large inputs."""
    rng = np.random.default_rng(1)
    arrays = tensors_of(case, rng)
    # Whole numbers that choose something are no smaller ones
    whole = [f"x{i}" for i in case.node.without_gradient if case.node.takes_whole_numbers]
    names = [name for name in arrays if name not in (*UNSCALED, *whole)]
    large = {"dy": ALONE[dtype][0]} | {name: 6 for name in names if name.startswith("x")}
    for exponents in (*scalings(names, dtype), large):
        found = judged(case, scaled(arrays, exponents, dtype))
        assert max(found.values()) <= 1, (exponents, found)
    found = judged(case, mixed(arrays, dtype, rng) | {name: arrays[name].astype(dtype) for name in whole})
    assert max(found.values()) <= 1, found


@looped("dtype", DTYPES)
@looped("mean", (True, False))
@looped("text", [text for texts in LOSS_CASES.values() for text in texts])
def test_losses_are_inside_the_bounds(text: str, mean: bool, dtype: str) -> None:
    rng, arithmetic, loss = np.random.default_rng(3), Arithmetic(total_roundoff(dtype)), loss_from(text, mean)
    target = "class" if "class_indices" in text else "t"
    arrays = dict(zip(("y", target), draw_loss(text, rng, LOSS_SHAPE), strict=True))
    names = [name for name in arrays if name not in UNSCALED]
    drawn = [scaled(arrays, exponents, dtype) for exponents in scalings(names, dtype)]
    for given in (*drawn, mixed(arrays, dtype, rng)):
        y = torch.from_numpy(given["y"].copy()).requires_grad_()
        found = loss.torch_forward(y, torch.from_numpy(given[target]))
        found.backward()
        assert y.grad is not None
        numbers = [Bounded(one, 0.0, arithmetic) for one in (given["y"], given[target])]
        with np.errstate(all="ignore"):
            right = loss.forward(*numbers), loss.backward(*numbers)
        assert worst(found.detach().numpy(), right[0]) <= 1, given
        assert worst(y.grad.numpy(), right[1]) <= 1, given


CHAIN = Model((Conv2d("a", 2, 3, (3, 2), padding=(1, 1)), Relu("r"), Conv2d("b", 3, 2, (2, 3), stride=(2, 1))))
#: Of its tensors, with input and target
SHAPES = {"x": (1, 2, 7, 6), **CHAIN.parameter_shapes(), "t": (1, 2, 3, 5)}


@looped("dtype", DTYPES)
@looped("mean", (True, False))
def test_chains_are_inside_the_bounds(mean: bool, dtype: str) -> None:
    rng = np.random.default_rng(2)
    arrays = {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}
    drawn = [scaled(arrays, exponents, dtype) for exponents in scalings(list(arrays), dtype)]
    for given in (*drawn, mixed(arrays, dtype, rng)):
        found = _chain_of_torch(given, mean)
        for name, right in _chain_of_the_oracle(given, mean, found):
            assert worst(found[name], right) <= 1, (name, given)


def _chain_of_torch(given: Tensors, mean: bool) -> Tensors:
    t = {name: torch.from_numpy(one.copy()).requires_grad_(name != "t") for name, one in given.items()}
    z = functional.conv2d(t["x"], t["a/weight"], t["a/bias"], padding=1)
    r = functional.relu(z)
    y = functional.conv2d(r, t["b/weight"], t["b/bias"], stride=(2, 1))
    loss = functional.mse_loss(y, t["t"], reduction="mean" if mean else "sum")
    seen = {"grads/b/output": y, "grads/r/output": r, "grads/a/output": z, "grads/input": t["x"],
            **{f"grads/{name}": t[name] for name in CHAIN.parameter_shapes()}}
    made = dict(zip(seen, torch.autograd.grad(loss, list(seen.values())), strict=True))
    made |= {"forward/a": z, "forward/r": r, "forward/b": y, "loss": loss}
    return {name: one.detach().numpy() for name, one in made.items()}


def _chain_of_the_oracle(given: Tensors, mean: bool, found: Tensors) -> list[tuple[str, Bounded]]:
    """Every tensor with its bound, by the whole step and by its own inputs."""
    arithmetic, size = Arithmetic(total_roundoff(given["x"].dtype.name)), given["t"].size
    scale, right = 1 / size if mean else 1.0, list[tuple[str, Bounded]]()

    def add(name: str, value: Any, bound: Array | float) -> None:
        right.append((name, Bounded(np.array(value).reshape(found[name].shape), np.array(bound), arithmetic)))

    def visit(name: str, value: Array, bound: Array, *local: reductions.Truth) -> Array:
        add(name, value, np.broadcast_to(bound, value.shape)[None])
        for one in local:
            add(name, one.value, np.broadcast_to(one.bound, value.shape)[None])
        return found[name][0]

    weights = {name: given[name].astype(float) for name in CHAIN.parameter_shapes()}
    sums = step_of_image(CHAIN, weights, given["x"][0], given["t"][0].astype(float), scale, arithmetic, visit)
    add("loss", *reductions.loss_bound(sums, scale, size, arithmetic))
    local = reductions.local_loss_bound(sums, scale, size, arithmetic)
    assert local is not None
    add("loss", local.value, local.bound.reshape(()))
    for name, parts in sums.gradients.items():
        add(f"grads/{name}", *reductions.gradient_bound(parts, arithmetic))
        own = reductions.local_gradient_bound(parts, arithmetic)
        assert own is not None
        add(f"grads/{name}", own.value, own.bound)
    return right
