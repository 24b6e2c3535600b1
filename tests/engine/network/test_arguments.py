# SPDX-License-Identifier: MIT
"""What is refused, with which words; what is left alone; and that nothing is copied."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bridge
from bridge.engine.library import extension
from tests.helpers.cases import Array, Case, batch, one_layer, tensors
from tests.helpers.loops import looped

CASE = Case("arguments", (2, 3, 6, 7), (4, 3, 2, 5), padding=(1, 2))
X, W, B, Y = CASE.x, CASE.w, CASE.w[:1], CASE.y
#: Argument of a call, and its shape
TARGETS = ("input", "weight", "bias", "out", "grad_output", "forward input", "loss target", "step target")


def call(target: str, change: Callable[[Array], Any]) -> None:
    """Call a function of the library with one argument changed."""
    t = tensors(CASE, "float32")
    name = target.split()[-1]
    if target in ("input", "weight", "bias", "out"):
        given = {"input": t["x"], "weight": t["w"], "bias": t["b"], "out": np.zeros(Y, np.float32)}
        bridge.conv2d(**(given | {name: change(given[name])}), padding=(1, 2))
    elif target == "grad_output":
        bridge.conv2d_backward(change(t["dy"]), t["x"], t["w"], padding=(1, 2))
    else:
        net, x, y = one_layer(), batch((2, 1, 6, 7), "float32", 1), batch((2, 2, 6, 7), "float32", 2)
        if target == "forward input":
            net.forward(change(x))
        elif target == "step target":
            net.step(x, change(y), lr=0.1)
        else:
            net.forward(x)
            net.loss(change(y))


def misaligned(a: Array) -> Array:
    """The same values, one byte off."""
    return np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape)


def read_only(a: Array) -> Array:
    """The same memory."""
    seen = a.view()
    seen.flags.writeable = False
    return seen


def infinite(value: float) -> Callable[[Array], Array]:
    """The same values, but for the last."""
    return lambda a: np.concatenate([a.ravel()[:-1], np.full(1, value, a.dtype)]).reshape(a.shape)


WRONG_TYPES: dict[str, tuple[Callable[[Array], Any], str]] = {
    "int32": (lambda a: a.astype(np.int32), "int32"),
    "int64": (lambda a: a.astype(np.int64), "int64"),
    "bool": (lambda a: a > 0, "bool"),
    "float16": (lambda a: a.astype(np.float16), "float16"),
    "complex64": (lambda a: a.astype(np.complex64), "complex64"),
    "object": (lambda a: a.astype(object), "object"),
    "text": (lambda a: a.astype("U9"), "str"),
    "foreign byte order": (lambda a: a.astype(a.dtype.newbyteorder()), "float32 of foreign byte order"),
    "list": (lambda a: a.tolist(), "builtins.list"),
    "number": (lambda a: 1.0, "builtins.float"),
    "torch": (lambda a: torch.from_numpy(a), "torch.Tensor"),
    "masked": (lambda a: np.ma.masked_array(a, a > 0), "numpy.ma.*MaskedArray"),
}
WRONG_VALUES: dict[str, tuple[Callable[[Array], Any], str]] = {
    "too few dimensions": (lambda a: a[(0,) * min(a.ndim, 2)],
                           r"dimensions, shape .*expected|shape .*expected|\(\), expected"),
    "too many dimensions": (lambda a: a[None], r"dimensions, shape .*expected|shape .*expected"),
    "empty": (lambda a: a[:0], r"empty, shape .*expected|shape .*expected"),
}
WRONG_ORDER: dict[str, Callable[[Array], Any]] = {
    "Fortran order": np.asfortranarray,
    "sliced": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "transposed": lambda a: np.ascontiguousarray(a.swapaxes(0, -1)).swapaxes(0, -1),
    "negative strides": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
    "repeated": lambda a: np.broadcast_to(a[..., :1], a.shape),
    "misaligned": misaligned,
}


@looped(("target", "wrong"), [
    # Convolutions take tensors of torch: test_channels_last
    (target, wrong) for target in TARGETS for wrong in WRONG_TYPES if wrong != "torch" or " " in target])
def test_wrong_types(target: str, wrong: str) -> None:
    """Anything but a float32 or float64 array is a type error with the name, what was found, what was expected."""
    change, found = WRONG_TYPES[wrong]
    with pytest.raises(bridge.ArgumentTypeError, match=rf"^{target.split()[-1]}: {found}.*expected (numpy|float32)"):
        call(target, change)


@pytest.mark.parametrize("target", TARGETS[1:])
def test_mixed_precision(target: str) -> None:
    """All arrays have one type: the message says which."""
    with pytest.raises(bridge.ArgumentTypeError, match=rf"^{target.split()[-1]}: float64, expected float32$"):
        call(target, lambda a: a.astype(np.float64))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("wrong", WRONG_VALUES)
def test_wrong_shapes(target: str, wrong: str) -> None:
    """A wrong number of dimensions or an empty array is refused with both shapes."""
    change, message = WRONG_VALUES[wrong]
    pattern = rf"^{target.split()[-1]}: .*({message}|expected numpy)"
    with pytest.raises((bridge.ArgumentError, bridge.ArgumentTypeError), match=pattern):
        call(target, change)


@looped("target", TARGETS)
@looped("wrong", WRONG_ORDER)
def test_wrong_order(target: str, wrong: str) -> None:
    """What is not C-contiguous and aligned is refused, not copied: the message gives the strides, or what helps."""
    change = WRONG_ORDER[wrong]
    if target == "bias" and wrong in ("Fortran order", "transposed"):
        call(target, change)  # one dimension has one order
        return
    said = "its address .*expected an aligned" if wrong == "misaligned" else "strides .*expected a C-contiguous"
    with pytest.raises(bridge.ArgumentError, match=rf"^{target.split()[-1]}: {said}"):
        call(target, change)


@pytest.mark.parametrize("target", [one for one in TARGETS if one != "out"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite(target: str, value: float) -> None:
    """One NaN or infinity in the last place is found; large finite values are not mistaken for it."""
    with pytest.raises(bridge.ArgumentError, match=rf"^{target.split()[-1]}: holds NaN or infinity, expected finite"):
        call(target, infinite(value))
    call(target, infinite(3e38))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [4097, 8191, 8193, 65536 + 8192 * 3 + 37])
def test_not_finite_anywhere(size: int, value: float, dtype: str) -> None:
    """Arrays that the library searches in blocks, by one thread or several; large and tiny values are finite."""
    array = np.full(size, np.finfo(dtype).max, dtype)
    array[::3] = np.finfo(dtype).smallest_subnormal
    extension.check_array("x", array, finite=True)
    for place in (0, 31, 32, 4095, 4096, size // 2, size - 38, size - 32, size - 1):
        kept, array[place] = array[place], value
        with pytest.raises(bridge.ArgumentError, match=r"^x: holds NaN or infinity, expected finite values"):
            extension.check_array("x", array, finite=True)
        array[place] = kept


def test_what_was_good_once_is_looked_at_again() -> None:
    """Shapes, strides and settings are remembered: what only equals a good one, or has its shape, is still refused."""
    t = tensors(CASE, "float32")
    good: dict[str, Any] = {"input": t["x"], "weight": t["w"], "stride": (1, 1), "out": np.zeros(Y, np.float32)}
    wrong: dict[str, tuple[Any, ...]] = {
        "input": (misaligned(t["x"]), np.asfortranarray(t["x"]), t["x"].astype(">f4")),
        "weight": (misaligned(t["w"]), t["w"][::-1], t["w"].astype(np.float64)),
        "stride": ((True, 1), (1.0, 1), True, (1, 2**31)),
        "out": (read_only(good["out"]), misaligned(good["out"]), good["out"].astype(np.float64))}
    for name, values in wrong.items():
        for value in values:
            bridge.conv2d(**good, padding=(1, 2))
            with pytest.raises(bridge.common.errors.BridgeError, match=f"^{name}: "):
                bridge.conv2d(**(good | {name: value}), padding=(1, 2))


def test_what_is_not_read_may_be_anything() -> None:
    """The data gradient needs no input, the filter gradient no weight, the bias gradient neither."""
    t = tensors(Case("plain", (2, 3, 6, 5), (4, 3, 2, 2)), "float32")
    dy = np.ones((2, 4, 5, 4), np.float32)
    right = bridge.conv2d_backward(dy, t["x"], t["w"])
    nothing = {name: np.full_like(t[name], np.nan) for name in ("x", "w")}
    for place, (x, w) in enumerate([(nothing["x"], t["w"]), (t["x"], nothing["w"]), (nothing["x"], nothing["w"])]):
        mask = tuple(place == i for i in range(3))
        assert np.array_equal(bridge.conv2d_backward(dy, x, w, output_mask=mask)[place], right[place])
    needed = {(True, False, False): "weight", (False, True, False): "input", (True, True, True): "input"}
    for mask, name in needed.items():
        with pytest.raises(bridge.ArgumentError, match=f"^{name}: holds NaN"):
            bridge.conv2d_backward(dy, nothing["x"], nothing["w"], output_mask=mask)


@pytest.mark.parametrize(("name", "shape"), [
    ("weight", (4, 2, 2, 5)), ("weight", (4, 4, 2, 5)), ("weight", (4, 3, 9, 5)), ("weight", (4, 3, 2, 12)),
    ("weight", (4, 3, 0, 5)), ("bias", (3,)), ("bias", (4, 1)), ("out", (2, 4, 7, 8)), ("out", (2, 4, 7, 7, 1)),
    ("grad_output", (2, 4, 6, 7)), ("grad_output", (1, 4, 7, 7))])
def test_shapes_that_do_not_fit(name: str, shape: tuple[int, ...]) -> None:
    """The message names the argument and gives the shape that was found."""
    with pytest.raises(bridge.common.errors.BridgeError, match=rf"{name}.*{re.escape(str(shape))}"):
        call(name, lambda _: np.ones(shape, np.float32))


def test_out_must_be_writable_and_apart() -> None:
    """`out` may not be read-only, and may not share a byte with input, weight or bias."""
    t = tensors(Case("square", (1, 2, 5, 4), (2, 2, 1, 1)), "float32")
    fixed = np.zeros((1, 2, 5, 4), np.float32)
    fixed.flags.writeable = False
    with pytest.raises(bridge.ArgumentError, match=r"^out: read-only, expected an array that can be written to"):
        bridge.conv2d(t["x"], t["w"], out=fixed)
    memory = batch((44,), "float32", 1)
    for start in (0, 1, 4):
        with pytest.raises(bridge.ArgumentError, match=r"^out: shares memory with an input, expected separate memory"):
            bridge.conv2d(memory[:40].reshape(t["x"].shape), t["w"], out=memory[start:start + 40].reshape(1, 2, 5, 4))
    for given in ({"weight": memory[36:40].reshape(2, 2, 1, 1)}, {"weight": t["w"], "bias": memory[38:40]}):
        with pytest.raises(bridge.ArgumentError, match=r"^out: shares memory"):
            bridge.conv2d(t["x"], **given, out=memory[:40].reshape(1, 2, 5, 4))
    far = batch((80,), "float32", 1)
    bridge.conv2d(far[:40].reshape(1, 2, 5, 4), t["w"], out=far[40:].reshape(1, 2, 5, 4))


def test_inputs_are_read_only_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read-only inputs will do, keep every bit, and Fortran gets the addresses of the arrays themselves."""
    t, net = tensors(CASE, "float32"), one_layer()
    x, target = batch((2, 1, 6, 7), "float32", 1), batch((2, 2, 6, 7), "float32", 2)
    inputs = {**t, "nx": x, "target": target}
    for array in inputs.values():
        array.flags.writeable = False
    before = {name: array.tobytes() for name, array in inputs.items()}
    seen: dict[str, list[int]] = {}
    real = extension.call

    def record(name: str, *given: Any) -> Any:
        seen.setdefault(name, []).extend(value for value in given if isinstance(value, int))
        return real(name, *given)

    monkeypatch.setattr(extension, "call", record)
    out = np.empty(Y, np.float32)
    bridge.conv2d(t["x"], t["w"], t["b"], padding=(1, 2), out=out)
    grads = bridge.conv2d_backward(t["dy"], t["x"], t["w"], padding=(1, 2))
    net.forward(x)
    net.loss(target)
    net.step(x, target, lr=0.1)
    expected = {"conv2d_forward": (t["x"], t["w"], t["b"], out), "conv2d_backward": (t["x"], t["w"], t["dy"], *grads),
                "network_forward": (x,), "network_loss": (target,), "network_step": (x, target)}
    for name, arrays in expected.items():
        assert {array.ctypes.data for array in arrays} <= set(seen[name]), name
    assert before == {name: array.tobytes() for name, array in inputs.items()}


def test_input_of_forward_stays_alive() -> None:
    """The caller may forget the input before backward: the network holds on to it, and lets go of the one before."""
    net, x = one_layer(), batch((2, 1, 6, 7), "float32", 1)
    count = sys.getrefcount(x)
    net.forward(x)
    assert sys.getrefcount(x) == count + 1
    net.forward(x.copy())
    assert sys.getrefcount(x) == count


PEAK = """
import re, numpy as np, bridge
def peak(): return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
w = np.ones((2, 16, 3, 3), np.float32)
bridge.conv2d_backward(*bridge.conv2d(w, w)[None], w, w)
x, y = np.ones((1, 16, 1024, 1024), np.float32), np.ones((1, 2, 1022, 1022), np.float32)
start = peak()
bridge.conv2d(x, w, out=y)
forward = peak() - start
bridge.conv2d_backward(y, x, w)
print(x.nbytes, forward, peak() - start)
"""


def test_peak_memory() -> None:
    """A convolution of 64 MiB into `out` needs a quarter of that at most; backward its gradients and a quarter."""
    if not Path("/proc/self/status").is_file():
        pytest.skip("skipped, because the peak of memory can only be read on Linux")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    child = subprocess.run([sys.executable, "-c", PEAK], check=True, capture_output=True, text=True, env=environment)
    size, forward, backward = (int(number) for number in child.stdout.split())
    assert forward < size / 4
    assert backward < size + size / 4


def test_what_32_bits_cannot_count_is_refused() -> None:
    """One unfolded row of 40000 x 60000 elements would overflow the index, and did crash."""
    x, w = (np.zeros((1, 1, 1, width), np.float32) for width in (40000, 60000))
    with pytest.raises(bridge.EngineError, match=r"too large: an image, the weights, or one unfolded row has 2\*\*31"):
        bridge.conv2d(x, w, padding=(0, 32767))
