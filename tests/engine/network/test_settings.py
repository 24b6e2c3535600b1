# SPDX-License-Identifier: MIT
"""Settings that are refused: of convolutions, devices, models, file names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bridge
from bridge.engine.library import extension
from tests.helpers.cases import Case, one_layer, tensors

CASE = Case("arguments", (2, 3, 6, 7), (4, 3, 2, 5), padding=(1, 2))
X = CASE.x


@pytest.mark.parametrize(("groups", "w", "message"), [
    (2, (4, 2, 1, 1), "has 3 channels, weight .* with groups = 2 expects 4"),
    (3, (4, 1, 1, 1), "has 4 output channels, expected a multiple of groups = 3"),
    (3, (3, 3, 1, 1), "has 3 channels, weight .* with groups = 3 expects 9"),
    (40000, (4, 3, 1, 1), r"groups is \(40000\), expected values from 1 to 32767"),
])
def test_groups_that_do_not_fit(groups: int, w: tuple[int, ...], message: str) -> None:
    """Groups divide both channels."""
    with pytest.raises(bridge.EngineError, match=message):
        bridge.conv2d(np.ones(X, np.float32), np.ones(w, np.float32), groups=groups)


NOT_INTEGERS = (1.0, True, np.True_, None, 1j, np.float32(1), "1x", (1, 2.0), (1, None))
NOT_PAIRS = ((1,), (1, 1, 1), [], ())


@pytest.mark.parametrize("name", ["stride", "padding", "dilation", "groups"])
@pytest.mark.parametrize("function", ["conv2d", "conv2d_backward"])
def test_settings_of_a_convolution(name: str, function: str) -> None:
    """Not an integer, not a pair, too small, too large: each is refused with name, value and expectation."""
    t = tensors(CASE, "float32")
    arrays = (t["dy"], t["x"], t["w"]) if function == "conv2d_backward" else (t["x"], t["w"])

    def refused(value: object, kind: type[Exception] | tuple[type[Exception], ...], message: str) -> None:
        with pytest.raises(kind, match=rf"{name}( is|:) .*{message}"):
            getattr(bridge, function)(*arrays, **{name: value})

    wrong = (bridge.ArgumentError, bridge.ArgumentTypeError)
    for value in NOT_INTEGERS:
        refused(value, wrong, "expected")
    for value in NOT_PAIRS:
        refused(value, wrong, "expected an int")
    for value in (2**31, -2**31, 10**30, np.uint64(2**63)):
        refused(value, bridge.ArgumentError, r"expected a number below 2\*\*31")
    for value in (-1, 32768, 2**31 - 1, *(() if name == "padding" else (0,))):
        refused(value, bridge.EngineError, "expected values from [01] to 32767")
    if name != "groups":
        refused((1, -1), bridge.EngineError, r"\(1, -1\), expected values from")
        refused((-1, 1), bridge.EngineError, r"\(-1, 1\), expected values from")


@pytest.mark.parametrize(("given", "w"), [({"padding": "sane"}, (4, 3, 3, 3)), ({"padding": ""}, (4, 3, 3, 3)),
                                          ({"padding": "same", "stride": 2}, (4, 3, 3, 3)),
                                          ({"padding": "same"}, (4, 3, 2, 3)), ({"padding": "same"}, (4, 3, 3, 4))])
def test_names_of_paddings(given: dict[str, Any], w: tuple[int, ...]) -> None:
    """Only "valid", and "same" where both sides get the same."""
    with pytest.raises(bridge.ArgumentError, match=r"^padding: .*expected numbers, 'valid', or 'same'"):
        bridge.conv2d(np.ones(X, np.float32), np.ones(w, np.float32), **given)


@pytest.mark.parametrize(("device", "kind", "message"), [
    ("gpu", bridge.ArgumentError, "^device gpu: unknown, expected cpu or cuda$"),
    ("CPU", bridge.ArgumentError, "unknown"), ("", bridge.ArgumentError, "unknown"),
    ("cpü", bridge.ArgumentError, "^device cpü: unknown"), ("x" * 600, bridge.ArgumentError, "^device xxx"),
    ("cpu ", bridge.ArgumentError, "^device: 'cpu ', expected"), ("cpu\0", bridge.ArgumentError, "^device: "),
    (b"cpu", bridge.ArgumentTypeError, "^device: b'cpu', expected a text"), (0, bridge.ArgumentTypeError, "^device: 0"),
    ("cpu:0", bridge.ArgumentError, "^device cpu:0: unknown"), ("cudas", bridge.ArgumentError, "unknown"),
    ("cuda:", bridge.ArgumentError, '^device cuda:: the number after cuda: is "", expected 0 to 999999$'),
    ("cuda:-1", bridge.ArgumentError, '^device cuda:-1: the number after cuda: is "-1"'),
    ("cuda:1234567", bridge.ArgumentError, "the number after"), ("cuda:٣", bridge.ArgumentError, "the number after"),
    ("cpu,math=fp32", bridge.ArgumentError, '^device cpu,math=fp32: "math=fp32", but cpu has no options$'),
    ("cuda,math=tf16", bridge.ArgumentError, '^device .*: math is "tf16", expected fp32, tf32, fp16 or bf16$'),
    ("cuda,workspace=1e3", bridge.ArgumentError, 'workspace is "1e3", expected 0 to 999999, in MiB'),
    ("cuda,deterministic=", bridge.ArgumentError, 'deterministic is "", expected yes or no'),
    ("cuda,algorithm=fast", bridge.ArgumentError, 'algorithm is "fast", expected heuristic or measured'),
    ("cuda:1,transforms=1", bridge.ArgumentError, 'transforms is "1", expected yes or no'),
    ("cuda,,math=fp32", bridge.ArgumentError, 'unknown option "", expected math=, algorithm=, deterministic='),
    ("cuda,math", bridge.ArgumentError, 'unknown option "math", expected'),
])
def test_devices(device: Any, kind: type[Exception], message: str) -> None:
    """A device that cannot be is refused everywhere in the same words."""
    t = tensors(CASE, "float32")
    for attempt in (lambda: bridge.conv2d(t["x"], t["w"], device=device), lambda: extension.check_device(device),
                    lambda: bridge.conv2d_backward(t["dy"], t["x"], t["w"], padding=(1, 2), device=device),
                    lambda: bridge.Network(one_layer().model, device=device)):
        with pytest.raises(kind, match=message):
            attempt()


def test_relu_of_a_convolution_is_a_bool() -> None:
    t = tensors(CASE, "float32")
    for wrong in (1, None, "yes"):
        with pytest.raises(bridge.ArgumentTypeError, match=f"^relu: {wrong!r}, expected a bool$"):
            bridge.conv2d(t["x"], t["w"], relu=wrong)


def layers(*given: Any) -> bridge.Model:
    """A model of these layers."""
    return bridge.Model(given)


@pytest.mark.parametrize(("model", "message"), [
    ("model", "^model: str, expected bridge.Model"), (layers(), "the network has no layers"),
    *((layers(bridge.Conv2d(name, 1, 1, (1, 1))), f"layer name {name!r}, expected 1 to 64 letters") for name in
      ("", "a b", "ä", ".a", "-a", "a/b", "a" * 65, "input")),
    (layers(bridge.Conv2d("a", 1, 1, (1, 1)), bridge.Relu("a")), "two layers are named a"),
    (layers(bridge.Conv2d("a", 3, 2, (1, 1), groups=2)), r"layer a .*: channels \(3, 2\) in 2 groups, expected mult"),
    (layers(bridge.Conv2d("a", 2, 2, (0, 1))), r"a has kernel_size \(0, 1\), expected .*integers from 1"),
    (layers(bridge.Conv2d("a", 2, 2, (1, 1), stride=(0, 1))), r"a has stride \(0, 1\), expected .*integers from 1"),
    (layers(bridge.Conv2d("a", 2, 2, (1, 1), stride=(1, 40000))), r"layer a .*stride is \(1, 40000\), expected"),
])
def test_models(model: Any, message: str) -> None:
    """A description that is no network is refused with the layer's name."""
    with pytest.raises(bridge.common.errors.BridgeError, match=message):
        bridge.Network(model)
    for dtype in ("float16", "f4", "", None, np.float32):
        with pytest.raises(bridge.ArgumentError, match=r"^dtype: .*expected 'float32' or 'float64'"):
            bridge.Network(one_layer().model, dtype)


@pytest.mark.parametrize("path", ["", "a\0b", "a ", 3, None, b"a"], ids=str)
def test_file_names(path: Any) -> None:
    """Names that no file can have are refused before anything is written."""
    with pytest.raises((bridge.ArgumentError, bridge.ArgumentTypeError), match=r"^path: .*(usable file name|expected)"):
        one_layer().save(path)


@pytest.mark.parametrize("mask", [(), (True,), (True, True, True, True)])
def test_output_mask(mask: Any) -> None:
    """Three gradients, three answers."""
    t = tensors(CASE, "float32")
    with pytest.raises(bridge.ArgumentError, match=r"^output_mask: .*expected three bool"):
        bridge.conv2d_backward(t["dy"], t["x"], t["w"], padding=(1, 2), output_mask=mask)


@pytest.mark.parametrize("mask", [None, "abc", 3, (1, 1, 1), (True, True, None), (True, "no", False)], ids=str)
def test_an_output_mask_is_bool(mask: Any) -> None:
    t = tensors(CASE, "float32")
    with pytest.raises(bridge.ArgumentTypeError, match=r"^output_mask: .*expected three bool"):
        bridge.conv2d_backward(t["dy"], t["x"], t["w"], padding=(1, 2), output_mask=mask)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_optimiser_settings(dtype: str) -> None:
    """nesterov is a bool, and a number that the network's type cannot hold is refused, not made infinite."""
    net = bridge.Network(one_layer().model, dtype)
    x, y = np.ones((1, 1, 2, 3), dtype), np.ones((1, 2, 2, 3), dtype)
    net.step(x, y, lr=0.5)
    for attempt in (lambda **given: net.step(x, y, **given), lambda **given: net.update(**given)):
        for nesterov in ("no", 1, None, 0.0):
            with pytest.raises(bridge.ArgumentTypeError, match=r"^nesterov: .*expected a bool"):
                attempt(lr=0.1, momentum=0.5, nesterov=nesterov)
        for name in ("lr", "momentum", "dampening", "weight_decay") if dtype == "float32" else ():
            for value in (1e300, np.float64(-1e39), 10**40):
                with pytest.raises(bridge.ArgumentError, match=rf"^{name}: .*expected a number that float32 can hold"):
                    attempt(**({"lr": 0.1} | {name: value}))
    net.step(x, y, lr=0.1, momentum=np.float32(0.5), nesterov=np.True_)


def test_what_save_is_given(tmp_path: Path) -> None:
    with pytest.raises(bridge.ArgumentTypeError, match=r"^optimizer: 3, expected bridge\.Sgd"):
        one_layer().save(tmp_path / "a.h5", 3)  # type: ignore[arg-type]
    with pytest.raises(bridge.ArgumentTypeError, match=r"^nesterov: 'no'"):
        one_layer().save(tmp_path / "a.h5", bridge.Sgd(0.1, nesterov="no"))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("given", "message"), [
    ({"step": 1.7}, "^step: 1.7, expected an int"), ({"step": "a"}, "^step: 'a', expected an int"),
    ({"step": True}, "^step: True"), ({"step": None}, "^step: None"), ({"step": 10**12}, "^step: 1000000000000, exp"),
    ({"step": -1}, "^step: -1, expected a number from 0"), ({"path": None}, "^path: None, expected a file name"),
    ({"path": 3}, "^path: 3, expected a file name"), ({"dtype": ["a"]}, r"^dtype: \['a'\], expected 'float32'"),
    ({"dtype": ""}, "^dtype: '', expected 'float32'"), ({"device": "\ud800"}, "^device: .*, expected a text"),
    ({"path": "\ud800"}, "^path: .* cannot be encoded"),
])
def test_what_from_file_is_given(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Wrong arguments are refused by name, whatever their type."""
    path = tmp_path / "a.h5"
    one_layer().save(path)
    with pytest.raises((bridge.ArgumentError, bridge.ArgumentTypeError), match=message):
        bridge.Network.from_file(**({"path": path} | given))


def test_half_a_surrogate_is_no_file_name(tmp_path: Path) -> None:
    for name in ("\ud800", "\udfff\ud800"):
        with pytest.raises(bridge.ArgumentError, match=r"^path: .* cannot be encoded"):
            one_layer().save(tmp_path / name)
        with pytest.raises(bridge.ArgumentError, match=r"^fixture: .* cannot be encoded"):
            extension.run_file(name, tmp_path / "r.h5")


@pytest.mark.parametrize(("model", "message"), [
    (bridge.Model((3,)), "^model: layer 0 is 3, expected an operation of bridge.operations"),  # type: ignore[arg-type]
    (bridge.Model(3), "^model: layers 3"),  # type: ignore[arg-type]
    (bridge.Model((bridge.Conv2d("a", 1, 1, (1, 1)),), loss="l2"), "loss 'l2', expected one of bce"),
    (layers(bridge.Conv2d("a", "1", 1, (1, 1))), "has in_channels '1', expected an integer"),  # type: ignore[arg-type]
    (bridge.Model((bridge.Conv2d("a", 1, 1, (1, 1)),), "sum"), "mean 'sum', expected"),  # type: ignore[arg-type]
])
def test_models_of_wrong_types(model: bridge.Model, message: str) -> None:
    with pytest.raises((bridge.ArgumentError, bridge.ArgumentTypeError), match=message):
        bridge.Network(model)
