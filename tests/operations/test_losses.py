# SPDX-License-Identifier: MIT
"""Losses: torch's numbers within bounds that are a few roundings wide, and what is no loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bridge.common.errors import BridgeError, FileError
from bridge.engine.library import extension
from bridge.gradcheck.cases import LOSS_CASES
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.operations.losses import LOSSES, PairLoss, loss_from
from tests.helpers.instruction_sets import EACH_LEVEL, choose
from tests.helpers.loops import looped

Array = np.ndarray
#: Every loss of pairs, and the cross entropy of 4 classes, with all settings that go together
TEXTS = [text for kind, texts in LOSS_CASES.items() for text in texts if kind != "cross_entropy"]
ENTROPIES = LOSS_CASES["cross_entropy"]
DTYPES = ("float32", "float64")


def drawn(text: str, dtype: str, seed: int) -> tuple[Array, Array]:
    """Outputs that the loss can take, and targets, some of them 0 and 1."""
    rng = np.random.default_rng(seed)
    y = 3 * rng.standard_normal((3, 4, 7, 5))
    if text == "bce":
        y = 1 / (1 + np.exp(-4 * y))
    if "class_indices" in text:
        t = np.moveaxis(np.eye(4)[rng.integers(0, 4, (3, 7, 5))], -1, 1)
        t[:, :, 0] = 0
        return y.astype(dtype), np.ascontiguousarray(t, dtype)
    t = rng.uniform(-0.5, 1.5, y.shape).clip(0, 1)
    return y.astype(dtype), t.astype(dtype)


def bounded(text: str, y: Array, t: Array, mean: bool) -> tuple[Bounded, Bounded]:
    """Loss and gradient, with bounds."""
    arithmetic, loss = Arithmetic(total_roundoff(y.dtype.name)), loss_from(text, mean)
    output, target = Bounded(y, 0.0, arithmetic), Bounded(t, 0.0, arithmetic)
    with np.errstate(all="ignore"):
        return loss.forward(output, target), loss.backward(output, target)


def torchs(text: str, y: Array, t: Array, mean: bool) -> tuple[Array, Array]:
    """The same in torch."""
    output = torch.from_numpy(y).requires_grad_()
    loss = loss_from(text, mean).torch_forward(output, torch.from_numpy(t))
    loss.backward()
    assert output.grad is not None
    return loss.detach().numpy(), output.grad.numpy()


def worst(found: Array, right: Bounded) -> float:
    """The largest error in units of the bound; infinite where what is not finite differs."""
    with np.errstate(all="ignore"):
        value = right.value.astype(found.dtype)
        same = (found == value) | (np.isnan(found) & np.isnan(value))
        return float(np.where(same, 0.0, np.nan_to_num(np.abs(found - right.value) / right.error, nan=np.inf)).max())


def test_every_loss_is_tried() -> None:
    assert {text.split()[0] for text in TEXTS} == {kind for kind, one in LOSSES.items() if kind != "cross_entropy"}
    assert all(issubclass(LOSSES[text.split()[0]], PairLoss) for text in TEXTS if text != "mse")


@looped("mean", [True, False])
@looped("dtype", DTYPES)
@looped("text", [*TEXTS, *ENTROPIES])
def test_torch_is_inside_the_bounds(text: str, dtype: str, mean: bool) -> None:
    """They are no wider than they must be: a hundredth is used, and a few hundred roundings are outside."""
    most = 0.0
    for seed in range(5):
        y, t = drawn(text, dtype, seed)
        right, found = bounded(text, y, t, mean), torchs(text, y, t, mean)
        assert worst(found[0], right[0]) <= 1
        assert worst(found[1], right[1]) <= 1
        most = max(most, worst(found[1], right[1]))
        u = float(np.finfo(dtype).eps)
        assert worst(found[0] * (1 + (1e4 if dtype == "float32" else 1e5) * u), right[0]) > 1
        wrong = found[1] * (1 + 2000 * u)
        # Beside 0 and 1 the divisor of bce is what rounding leaves of it
        some = (np.abs(y - 0.5) < 0.4) if text == "bce" else np.ones(y.shape, bool)
        assert worst(wrong[some], Bounded(right[1].value[some], right[1].error[some], right[1].arithmetic)) > 1
    # Where nothing else is rounded torch's numbers are the oracle's
    assert most > 0.01 or dtype == "float64" or not mean or text in ("l1", "smooth_l1 beta=0")


@looped("dtype", DTYPES)
@looped("text", TEXTS)
def test_special_numbers_are_torchs(text: str, dtype: str) -> None:
    """One at a time: where torch refuses what is no probability the loss is NaN. Torch's sign of NaN is 0, ours NaN."""
    edges = [0.0, -0.0, 1.0, 0.3, 1.3, -0.7, 1e-30, 90.0, -90.0, 1000.0, -1000.0, np.inf, -np.inf, np.nan]
    for one in edges:
        for target in (0.0, 1.0, 0.5):
            y, t = (np.array([[number]], dtype) for number in (one, target))
            right = bounded(text, y, t, False)
            if text == "bce" and not 0 <= one <= 1:
                assert np.isnan(right[0].value)
                continue
            found = torchs(text, y, t, False)
            said = f"{one} {target} {found} {right[0].value} {right[1].value}"
            assert worst(found[0], right[0]) <= 1, said
            assert worst(found[1], right[1]) <= 1 or (np.isnan(one) and text in ("l1", "smooth_l1 beta=0")), said


@looped("dtype", DTYPES)
def test_the_derivatives_of_both_logarithms_are_inside_the_bounds(dtype: str) -> None:
    """As automatic differentiation has the binary cross entropy: where output and target are nearly equal they cancel,
    and round more than torch's formula does."""
    rng, most = np.random.default_rng(3), 0.0
    for mean in (True, False):
        y = rng.uniform(0.01, 0.99, (4, 3, 8, 8)).astype(dtype)
        t = (y + 1e-6 * rng.standard_normal(y.shape)).clip(0, 1).astype(dtype)
        output = torch.from_numpy(y).requires_grad_()
        one, target = (torch.from_numpy(array) for array in (y, t))
        terms = -(target * output.log() + (1 - target) * (1 - output).log())
        (terms.mean() if mean else terms.sum()).backward()
        right, found = bounded("bce", y, t, mean)[1], output.grad
        assert found is not None and worst(found.numpy(), right) <= 1
        most = max(most, float((np.abs(found.numpy() - right.value) / right.error).max()))
        alone = torch.autograd.grad(torch.nn.functional.binary_cross_entropy(one.requires_grad_(), target), one)[0]
        assert worst(alone.numpy() * (1 if mean else y.size), right) <= 1
    assert most > 0.1


@looped("text", [*TEXTS, *ENTROPIES])
def test_a_text_comes_back(text: str) -> None:
    found = loss_from(text, False)
    assert loss_from(found.text, False) == found and not found.mean


@pytest.mark.parametrize(("text", "message"), [
    ("hinge", "model: loss 'hinge', expected one of bce, bce_with_logits, cross_entropy, huber, l1, mse, smooth_l1"),
    ("", "model: loss '', expected one of"),
    ("huber delta=0", "model: loss huber has delta 0, expected a number larger than 0"),
    ("huber delta=-1", "model: loss huber has delta -1, expected a number from 0 on"),
    ("huber delta=1,2", "model: loss huber has delta (1, 2), expected a number from 0 on"),
    ("huber delta=much", "model: loss huber has delta 'much', expected numbers"),
    ("huber delta", "model: loss huber has delta '', expected numbers"),
    ("huber beta=1", "model: loss huber has the unknown attribute 'beta'"),
    ("mse delta=1", "model: loss mse has the unknown attribute 'delta'"),
    ("cross_entropy weight=1,-2", "model: loss cross_entropy has weight (1, -2), expected 1 to 4096 numbers from 0 on"),
    ("cross_entropy label_smoothing=1.5",
     "model: loss cross_entropy has label_smoothing 1.5, expected 0 to 1"),
    ("cross_entropy ignore_index=2",
     "model: loss cross_entropy has ignore_index 2, expected class_indices 1 beside it: probabilities have no class"),
    ("cross_entropy class_indices=1 ignore_index=1.5",
     "model: loss cross_entropy has ignore_index 1.5, expected an integer from 0 to 65536"),
    ("cross_entropy class_indices=2", "model: loss cross_entropy has class_indices 2, expected 0 or 1"),
])
def test_what_is_no_loss(text: str, message: str) -> None:
    with pytest.raises(FileError) as error:
        loss_from(text)
    assert str(error.value).startswith(message)


def computed(device: str, text: str, y: Array, t: Array, reduction: str = "mean") -> tuple[Array, Array]:
    """A loss and its gradient, by Fortran, which reads the text."""
    gradient, axes = np.full_like(y, 7), y.shape[::-1]
    extent = np.array([*axes, *[1] * (8 - y.ndim)], np.int32)
    loss = extension.call("loss_pass", device, text, reduction, extension.DTYPES[y.dtype.name], y.ndim, extent,
                          *map(extension.address, (y, t, gradient)))
    return np.asarray(loss), gradient


@looped("device", ["cpu", "naive"])
@looped("dtype", DTYPES)
@looped("text", [*TEXTS, *ENTROPIES])
def test_fortran_is_inside_the_bounds(text: str, dtype: str, device: str) -> None:
    for seed in range(3):
        y, t = drawn(text, dtype, seed)
        for mean in (True, False):
            right, found = bounded(text, y, t, mean), computed(device, text, y, t, "mean" if mean else "sum")
            assert worst(found[0], right[0]) <= 1
            assert worst(found[1], right[1]) <= 1


@pytest.mark.parametrize("level", EACH_LEVEL)
def test_every_instruction_set(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many elements, which no vector and no run divides: the mean loses no digits, and any threads give the same."""
    choose(level, monkeypatch)
    for dtype in DTYPES:
        for text in TEXTS:
            rng = np.random.default_rng(1)
            y, t = (rng.uniform(0.01, 0.99, (1, 1, 97, 1031)).astype(dtype) for _ in range(2))
            loss, gradient = computed("cpu", text, y, t)
            expected = torchs(text, *(array.astype(np.float64) for array in (y, t)), True)
            u = np.finfo(dtype).eps
            # A setting is rounded to float32
            close = 1e-14 if dtype == "float64" else u if "=" in text else 0.1 * u
            assert abs(loss - expected[0]) <= close * expected[0], text
            np.testing.assert_allclose(gradient, expected[1], rtol=0, atol=8 * u * np.abs(expected[1]).max())
            assert computed("cpu", text, y, t)[0] == loss


@looped("dtype", DTYPES)
@looped("text", TEXTS)
def test_fortran_has_torchs_special_numbers(text: str, dtype: str) -> None:
    edges = [0.0, 1.0, 0.3, 1.3, 1e-30, 90.0, -90.0, 1000.0, -1000.0, np.inf, -np.inf, np.nan]
    for one in edges:
        for target in (0.0, 1.0, 0.5):
            # As many as vectors take at once
            y, t = (np.full((1, 35), number, dtype) for number in (one, target))
            loss, gradient = computed("cpu", text, y, t)
            if text == "bce" and not 0 <= one <= 1:
                assert np.isnan(loss)
                continue
            expected, slope = torchs(text, y, t, True)
            said, rtol = f"{one} {target}", 16 * float(np.finfo(dtype).eps)
            with np.errstate(over="ignore"):
                np.testing.assert_allclose(loss.astype(dtype), expected, rtol=rtol, atol=rtol, err_msg=said)
            if not (np.isnan(one) and text in ("l1", "smooth_l1 beta=0")):
                np.testing.assert_allclose(gradient, slope, rtol=rtol, atol=rtol, err_msg=said)


@looped("dtype", DTYPES)
@looped("text", [one for one in ENTROPIES if "class_indices" in one])
def test_a_class_that_is_ruled_out_may_be_minus_infinity(text: str, dtype: str) -> None:
    """As torch has it of indices: what is no target is not looked at, and what is ignored does not count."""
    for seed in range(3):
        y, t = drawn(text, dtype, seed)
        y[(t == 0) & (np.random.default_rng(seed).random(t.shape) < 0.2)] = -np.inf
        # An ignored pixel whose numbers are none
        y[:, :, 0, 1] = np.nan
        expected = torchs(text, y, t, True)
        assert np.isinf(expected[0]) == ("smoothing" in text and "weight" not in text) or np.isnan(expected[0])
        for loss, gradient in (computed("cpu", text, y, t), [one.value for one in bounded(text, y, t, True)]):
            near = 1e-5 if dtype == "float32" else 1e-13
            np.testing.assert_allclose(loss, expected[0], rtol=near, err_msg=text)
            np.testing.assert_allclose(gradient, expected[1], rtol=near, atol=near)


@looped("text", ["class_indices=1", "class_indices=1 ignore_index=1", "class_indices=1 weight=1,0,2,1"])
def test_a_mean_over_nothing_is_torchs(text: str) -> None:
    """0 by 0: the gradient is 0 where pixels are ignored, and NaN where only their weights are 0."""
    y, t = drawn("l1", "float64", 1)
    t = np.zeros_like(t)
    t[:, 1] = len(text) > len("class_indices=1")
    loss, gradient = computed("cpu", f"cross_entropy {text}", y, t)
    expected = torchs(f"cross_entropy {text}", y, t, True)
    assert np.isnan(loss) and np.isnan(expected[0])
    np.testing.assert_array_equal(gradient, expected[1])


@pytest.mark.parametrize(("text", "message"), [
    ("hinge", "model: loss is hinge with the reduction mean, expected one of bce, bce_with_logits, cross_entropy, "
     "huber, l1, mse, smooth_l1 with mean or sum"),
    ("huber delta=0", "model: loss huber has delta 0, expected a number larger than 0"),
    ("huber delta=-1", "model: loss huber has delta -1.0, expected a number from 0 on"),
    ("huber delta=1,2", "model: loss huber has delta 1.0, 2.0, expected a number from 0 on"),
    ("mse delta=1", "model: loss mse has the unknown attribute 'delta'"),
    ("cross_entropy weight=1,-2", "model: loss cross_entropy has weight 1.0, -2.0, expected numbers from 0 on"),
    ("cross_entropy label_smoothing=1.5",
     "model: loss cross_entropy has label_smoothing 1.5, expected 0 to 1"),
    ("cross_entropy ignore_index=2",
     "model: loss cross_entropy has ignore_index 2, expected class_indices 1 beside it: probabilities have no class"),
    ("cross_entropy class_indices=1 ignore_index=1.5",
     "model: loss cross_entropy has ignore_index 1.5, expected an integer from 0 to 65536"),
    ("cross_entropy class_indices=2", "model: loss cross_entropy has class_indices 2.0, expected 0 or 1"),
    ("cross_entropy weight=1,2,3", "loss cross_entropy: 3 weights, and the output has 2 channels"),
])
def test_fortran_refuses_the_same(text: str, message: str) -> None:
    y = np.ones((1, 2), np.float32)
    with pytest.raises(BridgeError) as error:
        computed("cpu", text, y, y)
    assert message in str(error.value)
