# SPDX-License-Identifier: MIT
"""Every constant, function and structure of our CUDA interfaces, against NVIDIA's headers.

A wrong number or type in an interface is not noticed by any compiler, and seldom by a run: cuDNN takes
CUDNN_CONVOLUTION for CUDNN_CROSS_CORRELATION without a word.
"""

from __future__ import annotations

import shutil
from functools import cache

import pytest

from tests import ROOT
from tests.helpers.cuda import nvidia_packages, signatures
from tests.helpers.cuda.sources import Headers, problems, read_source

FOLDER = ROOT / "fortran" / "cuda" / "bindings"

#: Header -> the functions' library, and our files of constants
LIBRARIES = {
    "cuda_runtime_api.h": ("cudart", "cudart_enums"),
    "cuda.h": ("driver", "driver"),
    "cudnn.h": ("cudnn", "cudnn_enums", "cudnn_graph_enums"),
}
#: The end of a structure, which the template has for all libraries
STRUCTURE = "end type cuda_pointer_attributes_type\n"


def text_of(header: str, old: str = "", new: str = "") -> str:
    """Our Fortran for a header, with one change of what it is written from."""
    library, *files = LIBRARIES[header]
    texts = [path.read_text(encoding="utf-8")
             for path in (signatures.SIGNATURES, *(FOLDER / f"{name}.f90" for name in files))]
    if old:
        assert "".join(texts).count(old) == 1, f"{old!r} is there {''.join(texts).count(old)} times"
        texts = [text.replace(old, new) for text in texts]
    written = signatures.interfaces(library, texts[0])
    return "".join([written if library == "cudart" else written.partition(STRUCTURE)[2], *texts[1:]])


@cache
def headers(name: str) -> Headers:
    """NVIDIA's header, or a skipped test."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    found = Headers([name], nvidia_packages.require("include", name))
    # Structures grew and functions came since CUDA 12; the interfaces serve it too, as far as they go
    for macro in ("CUDA_VERSION", "CUDART_VERSION"):
        version = found.value_of(macro)
        if version is not None and version < 13000:
            pytest.skip(f"{name}: found {macro} {version}, the interfaces follow the headers of CUDA 13")
    return found


def differences(header: str, old: str = "", new: str = "") -> list[str]:
    """Between our Fortran, with one change of what it is written from, and the header."""
    return problems(read_source(text_of(header, old, new)), headers(header))


@pytest.mark.parametrize("header", LIBRARIES)
def test_we_say_what_the_headers_say(header: str) -> None:
    """Constants; results, arguments and their order; sizes and places in structures."""
    assert differences(header) == []


@pytest.mark.parametrize("header", LIBRARIES)
def test_nothing_is_left_unread(header: str) -> None:
    """What this test does not read, it does not check."""
    text = text_of(header)
    source = read_source(text)
    assert len(source.constants) == text.count("parameter, public ::")
    assert source.functions.keys() == signatures.functions(LIBRARIES[header][0]).keys()
    assert len(source.structures) == text.count("type, bind(C)")


#: header, what our files say, what they would say by mistake, and the report
MISTAKES = {
    "two values swapped": (
        "cudnn.h", "CUDNN_CROSS_CORRELATION = 1", "CUDNN_CROSS_CORRELATION = 0", "CUDNN_CROSS_CORRELATION is not 0",
    ),
    "a value of another version": (
        "cudnn.h", "CUDNN_STATUS_NOT_SUPPORTED = 3000", "CUDNN_STATUS_NOT_SUPPORTED = 9",
        "CUDNN_STATUS_NOT_SUPPORTED is not 9",
    ),
    "arguments of different types swapped": (
        "cuda_runtime_api.h", "dev_ptr pointer, value int, count size", "dev_ptr pointer, count size, value int",
        "cudaMemsetAsync: count is integer(c_size_t),value, expected int",
    ),
    "bytes in 32 bits": (
        "cuda_runtime_api.h", "\"ptr pointer*, size size\"", "\"ptr pointer*, size int\"",
        "cudaMallocHost: size is integer(c_int),value, expected size_t",
    ),
    "an address where a value is due": (
        "cuda_runtime_api.h", "cudaSetDevice = \"device int\"", "cudaSetDevice = \"device int[]\"",
        "cudaSetDevice: device is integer(c_int),intent(in)(*), expected int",
    ),
    "value where an address is due": (
        "cudnn.h", "cudnnCreate = \"handle pointer*\"", "cudnnCreate = \"handle pointer\"",
        "cudnnCreate: handle is type(c_ptr),value, expected cudnnHandle_t *",
    ),
    "an argument too few": (
        "cuda.h", "hmod pointer, name char[]\"", "hmod pointer\"",
        "cuModuleGetFunction: 2 arguments, expected 3",
    ),
    "a wrong result": (
        "cudnn.h", "cudnnGetVersion = \"-> size\"", "cudnnGetVersion = \"\"",
        "cudnnGetVersion: result is integer(c_int), expected size_t",
    ),
    "a function that is not there": ("cuda.h", "cuInit = ", "cuInnit = ", "cuInnit is not in the headers"),
    "two handles swapped": (
        "cuda_runtime_api.h", "p_graph_exec pointer*, graph pointer, flags",
        "graph pointer, p_graph_exec pointer*, flags",
        "cudaGraphInstantiate: arguments ['graph', 'p_graph_exec', 'flags'], "
        "expected ['p_graph_exec', 'graph', 'flags']",
    ),
    "flags in 32 bits": (
        "cuda_runtime_api.h", "flags long_long", "flags int",
        "cudaGraphInstantiate: flags is integer(c_int),value, expected unsigned long long",
    ),
    "a handle where an address is due": (
        "cuda_runtime_api.h", "p_graph pointer*", "p_graph pointer",
        "cudaStreamEndCapture: p_graph is type(c_ptr),value, expected cudaGraph_t *",
    ),
    "the mode of capture of all threads": (
        "cuda_runtime_api.h", "cudaStreamCaptureModeThreadLocal = 1", "cudaStreamCaptureModeThreadLocal = 0",
        "cudaStreamCaptureModeThreadLocal is not 0",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    """Each of them compiles, or nearly, and would go to NVIDIA's libraries as it is."""
    header, old, new, report = MISTAKES[mistake]
    assert report in differences(header, old, new)


def test_too_short_a_structure_is_found() -> None:
    text = text_of("cuda_runtime_api.h")
    assert text.count("reserved(8)") == 1
    found = problems(read_source(text.replace("reserved(8)", "reserved(7)")), headers("cuda_runtime_api.h"))
    assert "cuda_pointer_attributes_type: not as large as struct cudaPointerAttributes" in found
