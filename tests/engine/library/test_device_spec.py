# SPDX-License-Identifier: MIT
"""The text that names a device: Python and Fortran read it alike, and say the same of what is wrong with it."""

from __future__ import annotations

import subprocess

import pytest

from bridge.common.errors import ArgumentError, EngineError
from bridge.engine.library import extension
from bridge.engine.library.device_spec import OPTIONS, OPTIONS_HELP, DeviceSpec
from bridge.engine.library.programs import cnn_step
from tests.helpers.loops import looped

#: A number that no machine has, so that nothing is opened
FAR = "cuda:63"


def fortran_says(text: str) -> str:
    """What Fortran has against this device; empty when it has it."""
    try:
        extension.call("device_check", text)
    except EngineError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("text", [
    FAR, f"{FAR},math=fp32", f"{FAR},math=tf32,algorithm=measured,deterministic=no,workspace=0,transforms=yes",
    f"{FAR},workspace=999999", f"{FAR},compile=yes", f"{FAR},compile=no",
    f"{FAR},math=fp16,math=bf16", f"{FAR},capture=no",
])
def test_both_take_it(text: str) -> None:
    spec = DeviceSpec.parse(text)
    assert (spec.kind, spec.index, spec.text) == ("cuda", 63, text)
    said = fortran_says(text)
    assert "no usable GPU" in said or "not there" in said or "not found" in said


@pytest.mark.parametrize("text", ["cpu", "naive"])
def test_devices_without_options(text: str) -> None:
    assert fortran_says(text) == ""
    assert DeviceSpec.parse(text).memory == text


@looped("text", [
    "abacus", "", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1 ,math=fp32", "cuda:1234567", "CUDA", "cuda0",
    "cpu,math=fp32", "naive,workspace=1", "cuda,", "cuda,,", "cuda,math", "cuda,math=", "cuda,math=fp64",
    "cuda,math=fp3", "cuda,math=fp322", "cuda,algorithm=fast", "cuda,deterministic=1", "cuda,transforms=",
    "cuda,graphs=yes",
    "cuda,capture=maybe", "cuda,record=maybe", "cuda,record", "cuda,compile=", "cuda,compile=always",
    "cuda,workspace=-1", "cuda,workspace=1.5", "cuda,workspace=1e3", "cuda,workspace=1234567", "cuda,colour=red",
    "cuda,math=fp32,", "cuda,=fp32", "cuda;math=fp32",
])
def test_both_refuse_it_with_the_same_words(text: str) -> None:
    with pytest.raises(ArgumentError) as python:
        DeviceSpec.parse(text)
    assert str(python.value) == fortran_says(text)


@pytest.mark.parametrize("text", [" cuda", "cuda ", "cu\0da", "cpu\n"])
def test_what_fortran_never_sees(text: str) -> None:
    with pytest.raises(ArgumentError, match="expected a text such as"):
        DeviceSpec.parse(text)


def test_the_programs_say_every_option() -> None:
    """In their help, with its default first."""
    said = subprocess.run([cnn_step(), "--help"], capture_output=True, text=True, check=True).stdout
    for name in OPTIONS:
        assert f"{name}=" in said and f"{name}=" in OPTIONS_HELP, name
