# SPDX-License-Identifier: MIT
"""Operations that the table has, hidden from it: estimated bounds beside proven ones, right programs and wrong ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from bridge import Model, Network
from bridge.common.errors import FileError
from bridge.judge.measure.error_statistics import measure
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.judge.oracle.from_own import FromOwn
from bridge.operations import (
    AvgPool2d,
    BatchNorm2d,
    Conv2d,
    Gelu,
    GroupNorm,
    LayerNorm,
    Linear,
    Matmul,
    Multiply,
    Operation,
    Softmax,
)
from bridge.operations.aten.operation import Aten
from tests.helpers.tiers import few

Array = np.ndarray
X = (3, 6, 10, 12)
ARITHMETIC = Arithmetic(total_roundoff("float32"))
#: Largest share of an estimated bound and the proven one, in the Euclidean norm
WIDEST = 10.0


@dataclass(frozen=True)
class Hidden:
    """An operation of the table, and the call of ATen that computes it.

    Attributes
    ----------
    node : in the table
    call : name and arguments
    by_numpy : the same in numpy's float32
    wrong : mistakes in it, as functions of torch's tensors
    inputs : their shapes
    """

    node: Operation
    call: list[Any]
    by_numpy: Callable[..., Array]
    wrong: list[Callable[..., torch.Tensor]]
    inputs: tuple[tuple[int, ...], ...] = (X,)
    named: dict[str, Any] = field(default_factory=dict)


def stored(name: str) -> dict[str, str]:
    return {"stored": name}


def normalised(x: Array, axes: tuple[int, ...], eps: float = 1e-5) -> Array:
    """In one pass: the mean of squares without the square of the mean."""
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt((x * x).mean(axes, keepdims=True) - mean * mean + np.float32(eps))


def by_taps(x: Array, w: Array, b: Array) -> Array:
    """A convolution of 3x3, one tap after the other."""
    padded, y = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), np.zeros((len(x), len(w), *x.shape[2:]), x.dtype)
    for r, s in np.ndindex(3, 3):
        y += np.einsum("kc,nchw->nkhw", w[:, :, r, s], padded[:, :, r:r + x.shape[2], s:s + x.shape[3]])
    return y + b[:, None, None]


def one_by_one(x: Array, w: Array, b: Array) -> Array:
    """A sum in the order of its terms."""
    y = np.broadcast_to(b, (*x.shape[:-1], len(w))).copy()
    for i in range(x.shape[-1]):
        y += x[..., i:i + 1] * w[:, i]
    return y


def gelu(x: Array) -> Array:
    return (np.float32(0.5) * x * (1 + np.vectorize(math.erf, otypes=[np.float32])(x / np.float32(math.sqrt(2))))
            ).astype(np.float32)


def softmax(x: Array) -> Array:
    made = np.exp(x)
    return made / made.sum(1, keepdims=True)


ONE, W, B = {"input": 0}, stored("weight"), stored("bias")
HIDDEN = {
    "conv2d": Hidden(Conv2d("a", 6, 8, (3, 3), padding=(1, 1)),
                     ["aten.conv2d.default", [ONE, W, B, [1, 1], [1, 1]]], by_taps,
                     [lambda x, w, b: functional.conv2d(x, w.flip(2), b, padding=1),
                      lambda x, w, b: functional.conv2d(x, w, padding=1)]),
    "linear": Hidden(Linear("a", 12, 7), ["aten.linear.default", [ONE, W, B]], one_by_one,
                     [lambda x, w, b: functional.linear(x[..., 1:], w[:, 1:], b),
                      lambda x, w, b: functional.linear(x, w.bfloat16().to(w.dtype), b)]),
    "matmul": Hidden(Matmul("a"), ["aten.matmul.default", [ONE, {"input": 1}]],
                     lambda x, y: np.einsum("ncik,nckj->ncij", x, y),
                     [lambda x, y: x @ y.roll(1, -1), lambda x, y: x.bfloat16().to(x.dtype) @ y],
                     ((2, 3, 20, 30), (2, 3, 30, 8))),
    "softmax": Hidden(Softmax("a"), ["aten.softmax.int", [ONE, 1]], softmax,
                      [lambda x: x.softmax(2), lambda x: x.exp() / (x.exp().sum(1, True) + 1e-4)]),
    "layer_norm": Hidden(LayerNorm("a", (12,)), ["aten.layer_norm.default", [ONE, [12], W, B, 1e-5]],
                         lambda x, w, b: normalised(x, (-1,)) * w + b,
                         [lambda x, w, b: functional.layer_norm(x, [12], w, b, 1e-4),
                          lambda x, w, b: (x - x.mean(-1, True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt() * w + b]),
    "group_norm": Hidden(GroupNorm("a", 2, 6), ["aten.group_norm.default", [ONE, 2, W, B, 1e-5]],
                         lambda x, w, b: (normalised(x.reshape(3, 2, -1), (2,)).reshape(x.shape) * w[:, None, None]
                                          + b[:, None, None]),
                         [lambda x, w, b: functional.group_norm(x, 3, w, b),
                          lambda x, w, b: functional.group_norm(x, 2, w, b, 1e-3)]),
    "batch_norm2d": Hidden(BatchNorm2d("a", 6),
                           ["aten.batch_norm.default", [ONE, W, B, None, None, True, 0.1, 1e-5, False]],
                           lambda x, w, b: normalised(x, (0, 2, 3)) * w[:, None, None] + b[:, None, None],
                           [lambda x, w, b: functional.batch_norm(x, None, None, w, b, True, eps=1e-3),
                            lambda x, w, b: functional.instance_norm(x, weight=w, bias=b)]),
    "gelu": Hidden(Gelu("a"), ["aten.gelu.default", [ONE]], gelu,
                   [lambda x: functional.gelu(x, approximate="tanh"), lambda x: x * (1.702 * x).sigmoid()]),
    "multiply": Hidden(Multiply("a"), ["aten.mul.Tensor", [ONE, {"input": 1}]], lambda x, y: x * y,
                       [lambda x, y: x * y.roll(1, 0), lambda x, y: x * y * (1 + 2e-5)], (X, X)),
    "avg_pool2d": Hidden(AvgPool2d("a", (3, 3), (2, 2)), ["aten.avg_pool2d.default", [ONE, [3, 3], [2, 2]]],
                         lambda x: np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2].sum(
                             (-2, -1)) / np.float32(9),
                         [lambda x: functional.avg_pool2d(x, 3, 2) * 8 / 9,
                          lambda x: functional.avg_pool2d(x.roll(1, -1), 3, 2)]),
}


def exact(array: Array) -> Bounded:
    return Bounded(array.astype(np.float64), 0.0, ARITHMETIC)


class Sides:
    """An operation with its operands, by both bounds: the output, then the gradients of inputs and parameters."""

    def __init__(self, case: Hidden, seed: int) -> None:
        rng, self.case = np.random.default_rng(seed), case
        self.inputs = [rng.standard_normal(shape).astype(np.float32) for shape in case.inputs]
        self.parameters = {name: rng.uniform(-1, 1, shape).astype(np.float32)
                           for name, shape in case.node.parameter_shapes().items()}
        shape = case.node.output_shape(*case.inputs)
        text = {"calls": [case.call], "shape": shape,
                "parameters": {name: list(one.shape) for name, one in self.parameters.items()}}
        self.dy = rng.standard_normal(shape).astype(np.float32)
        self.proven, self.estimated = self._by(case.node), self._by(Aten("a", json.dumps(text), inputs=("input",)))

    def _by(self, node: Operation) -> list[Bounded]:
        own = FromOwn(node, {name: exact(one) for name, one in self.parameters.items()})
        given = [exact(one) for one in self.inputs]
        inputs, parameters = own.backward(exact(self.dy), given)
        return [own.forward(given), *inputs, *parameters.values()]

    def by_torch(self, function: Callable[..., torch.Tensor], dtype: torch.dtype) -> list[Array]:
        """The same by a function of torch's tensors, as float32."""
        given = [torch.tensor(one, dtype=dtype, requires_grad=True)
                 for one in (*self.inputs, *self.parameters.values())]
        y = function(*given)
        found = torch.autograd.grad(y, given, torch.tensor(self.dy, dtype=dtype), allow_unused=True)
        return [np.zeros(x.shape, np.float32) if one is None else one.detach().float().numpy()
                for x, one in zip([y, *given], [y, *found], strict=True)]

    def right(self, *given: torch.Tensor) -> torch.Tensor:
        """What it computes, of torch."""
        n = len(self.inputs)
        named = dict(zip(self.parameters, given[n:], strict=True))
        found: torch.Tensor = self.case.node.torch_forward(given[:n], named)
        return found

    def by_fortran(self) -> list[Array]:
        """The output of the compiled library."""
        network = Network(Model((self.case.node,)))
        for name, one in self.parameters.items():
            network.parameters[f"a.{name}"][...] = one
        return [network.forward(self.inputs[0])]

    def t(self, found: list[Array]) -> list[float]:
        return [measure(one, truth.value, truth.error).t for one, truth in zip(found, self.estimated, strict=False)]


@pytest.fixture(scope="module", params=few(HIDDEN, 5))
def sides(request: pytest.FixtureRequest) -> list[Sides]:
    return [Sides(HIDDEN[request.param], seed) for seed in range(2)]


def test_estimated_bounds_are_about_as_wide_as_proven_ones(sides: list[Sides]) -> None:
    for one in sides:
        for mine, theirs in zip(one.estimated, one.proven, strict=True):
            assert mine.estimated and not theirs.estimated
            np.testing.assert_allclose(mine.value, theirs.value, rtol=1e-9, atol=1e-11)
            assert np.linalg.norm(mine.error) <= WIDEST * np.linalg.norm(theirs.error)


def test_right_programs_are_right(sides: list[Sides]) -> None:
    for one in sides:
        given = [*one.inputs, *one.parameters.values()]
        programs = {"torch": one.by_torch(one.right, torch.float32), "wider": one.by_torch(one.right, torch.float64),
                    "numpy": [one.case.by_numpy(*given).astype(np.float32)]}
        if len(one.inputs) == 1:
            programs["fortran"] = one.by_fortran()
        for name, found in programs.items():
            assert max(one.t(found)) <= 1, (name, one.t(found))


def test_wrong_programs_are_wrong(sides: list[Sides]) -> None:
    for one in sides:
        for wrong in one.case.wrong:
            assert max(one.t(one.by_torch(wrong, torch.float32))) > 10


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # of PyTorch's own compiler
def test_compiled_programs_are_right(sides: list[Sides]) -> None:
    for one in sides:
        assert max(one.t(one.by_torch(torch.compile(one.right), torch.float32))) <= 1


def program(*calls: list[Any], shape: tuple[int, ...] = X, **others: Any) -> Aten:
    return Aten("a", json.dumps({"calls": calls, "shape": shape, **others}), inputs=("input",))


@pytest.mark.parametrize("call", [
    ["aten.roll.default", [ONE, [1], [2]]], ["aten.neg.default", [ONE]],
    ["aten.constant_pad_nd.default", [ONE, [1, 0]]],
    ["aten.repeat.default", [ONE, [2, 1, 1, 1]]], ["aten.unfold.default", [ONE, 3, 4, 2]]])
def test_what_is_only_moved_is_exact(call: list[Any]) -> None:
    """And so is what each number gets back, but for the sum over where it went."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(X).astype(np.float32)
    given = torch.tensor(x, requires_grad=True)
    name = call[0].split(".")
    y = getattr(getattr(torch.ops.aten, name[1]), name[2])(given, *call[1][1:])
    node, dy = program(call, shape=tuple(y.shape)), rng.standard_normal(y.shape).astype(np.float32)
    found, (sent,) = node.forward([exact(x)], {}), node.backward(exact(dy), [exact(x)], {})[0]
    assert not found.error.any() and not found.estimated and not sent.estimated
    np.testing.assert_array_equal(found.value, y.detach().numpy())
    (back,) = torch.autograd.grad(y, given, torch.tensor(dy))
    assert measure(back.numpy(), sent.value, sent.error).t <= 1
    assert (sent.error > 0).any() == (call[0] in ("aten.repeat.default", "aten.unfold.default"))


def test_a_constant_sends_nothing_back() -> None:
    """Of numbers that are not 0 it is the identity."""
    x = np.ones(X, np.float32)
    x[0] = 0
    node = program(["aten.eq.Scalar", [ONE, 0]], ["aten.masked_fill.Scalar", [ONE, {"call": 0}, 0.0]])
    (sent,) = node.backward(exact(np.ones(X, np.float32)), [exact(x)], {})[0]
    assert not node.forward([exact(x)], {}).error.any() and not sent.value[0].any() and (sent.value[1:] == 1).all()


def test_integers_are_exact() -> None:
    rng = np.random.default_rng(0)
    node = program(["aten.embedding.default", [stored("weight"), {"input": 0, "as": "int64"}]], shape=(2, 3, 4),
                   parameters={"weight": [7, 4]})
    words, weight = exact(np.array([[0, 6, 6], [1, 2, 6]])), exact(rng.standard_normal((7, 4)).astype(np.float32))
    found = node.forward([words], {"weight": weight})
    assert not found.error.any() and (found.value[0, 1] == weight.value[6]).all()
    inputs, learned = node.backward(found, [words], {"weight": weight})
    assert not inputs[0].value.any() and (learned["weight"].value[6] == 3 * weight.value[6]).all()


def test_any_of_equal_numbers_may_be_chosen() -> None:
    rng = np.random.default_rng(0)
    x = np.maximum(rng.standard_normal((2, 4, 6, 6, 6)), 0).astype(np.float32)
    call = ["aten.max_pool3d.default", [ONE, [2, 2, 2], [2, 2, 2]]]
    node, dy = program(call, shape=(2, 4, 3, 3, 3)), rng.standard_normal((2, 4, 3, 3, 3)).astype(np.float32)
    (right,), _ = node.backward(exact(dy), [exact(x)], {})
    given = torch.tensor(x, requires_grad=True)
    last = functional.max_pool3d(given.flip(2, 3, 4), 2).flip(2, 3, 4)
    (found,) = torch.autograd.grad(last, given, torch.tensor(dy))
    assert (found.numpy() != right.value).any() and measure(found.numpy(), right.value, right.error).t <= 1
    assert measure(np.where(x > 1, 1.01, 1).astype(np.float32) * found.numpy(), right.value, right.error).t > 10


def test_behind_many_roundings_nothing_is_claimed() -> None:
    x = Bounded(np.ones(X), 1e-3, ARITHMETIC)
    assert np.isinf(program(["aten.sin.default", [ONE]]).forward([x], {}).error).all()
    assert (program(["aten.roll.default", [ONE, [1]]]).forward([x], {}).error == 1e-3).all()


REFUSED = {
    '["aten.from_file.default", ["secret"]]': "more than its arguments",
    '["aten._pin_memory.default", [{"input": 0}]]': "more than its arguments",
    '["aten.empty_like.default", [{"input": 0}]]': "more than its arguments",
    '["aten.to.device", [{"input": 0}, "cuda", {"type": "real"}]]': "more than its arguments",
    '["aten.rand_like.default", [{"input": 0}]]': "random numbers",
    '["aten.relu_.default", [{"input": 0}]]': "changes its arguments",
    '["aten.zeros.default", [[3]], {"device": "cuda"}]': "none of them device",
    '["aten.zeros.default", [[1000000000000]]]': "fails in PyTorch",
    '["aten.abs.default", [{"input": 0}], {"out": {"input": 0}}]': "none of them device",
    '["os.system.default", ["true"]]': "no operation's name",
    '["aten.__class__.mro", []]': "more than its arguments",
    '["aten.nothing.default", []]': "no operation of PyTorch",
    '["aten.abs.default", [{"call": 0}]]': "refers to nothing",
    '["aten.abs.default", [{"stored": "weight"}]]': "refers to nothing",
    '["aten.abs.default", [{"input": 0, "as": "object"}]]': "refers to nothing",
    '["aten.abs.default", [{"type": "float16"}]]': "none of real",
    '["aten.abs.default", ["$(true)"]]': "no argument",
    '["aten.sum.default", [{"input": 0}]]': "expected",
    '["aten.abs.default"': "not the calls",
    "[]": "not the calls",
}


@pytest.mark.parametrize("call", REFUSED)
def test_a_file_cannot_call_anything_else(call: str) -> None:
    node = Aten("a", f'{{"calls": [{call}], "shape": [3, 6, 10, 12]}}', inputs=("input",))
    with pytest.raises(FileError, match=REFUSED[call]):
        node.check()
        node.forward([exact(np.ones(X))], {})
