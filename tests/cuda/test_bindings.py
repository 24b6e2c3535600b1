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
from tests.helpers.cuda import nvidia_packages
from tests.helpers.cuda.sources import Headers, Source, problems, read_source, short_name

FOLDER = ROOT / "fortran" / "cuda" / "bindings"

#: Header -> our files
LIBRARIES = {
    "cuda_runtime_api.h": ("cudart", "cudart_enums", "cudart_interfaces", "cudart_graph_interfaces"),
    "cuda.h": ("driver",),
    "cudnn.h": (
        "cudnn", "cudnn_enums", "cudnn_handle_interfaces", "cudnn_graph", "cudnn_graph_enums", "cudnn_graph_interfaces",
    ),
}


def text_of(header: str) -> str:
    """Our files for a header."""
    return "".join((FOLDER / f"{name}.f90").read_text(encoding="utf-8") for name in LIBRARIES[header])


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
    """Between our files, with one change, and the header."""
    text = text_of(header)
    assert text.count(old) == 1 or not old, f"{old!r} is there {text.count(old)} times"
    return problems(read_source(text.replace(old, new) if old else text), headers(header))


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
    assert len(source.functions) == text.count(") bind(C)\n") > 0
    assert len(source.structures) == text.count("type, bind(C)")
    assert len(source.pointers) == text.count("pointer, nopass ::")
    assert len(source.symbols) == text.count("call c_f_procpointer(")


@pytest.mark.parametrize("header", LIBRARIES)
def test_tables_hold_every_function_under_its_name(header: str) -> None:
    """A pointer, its interface and the symbol that it is set to are the same function."""
    assert disorder(read_source(text_of(header))) == []


def disorder(source: Source) -> list[str]:
    """Pointers whose interface, symbol or name is not that of one function, and functions without a pointer."""
    found = [
        f"{pointer}: interface {function}, symbol {source.symbols.get(pointer)}"
        for pointer, function in source.pointers.items()
        if source.symbols.get(pointer) != function or short_name(function) != pointer
    ]
    return found + sorted(set(source.functions) ^ set(source.pointers.values()))



#: header, what our files say, what they would say by mistake, and the report
MISTAKES = {
    "two values swapped": (
        "cudnn.h", "CUDNN_CROSS_CORRELATION = 1", "CUDNN_CROSS_CORRELATION = 0", "CUDNN_CROSS_CORRELATION is not 0",
    ),
    "a value of another version": (
        "cudnn.h", "CUDNN_STATUS_BAD_PARAM = 2000", "CUDNN_STATUS_BAD_PARAM = 3", "CUDNN_STATUS_BAD_PARAM is not 3",
    ),
    "arguments of different types swapped": (
        "cuda_runtime_api.h", "cudaMemsetAsync(dev_ptr, value, count, stream)",
        "cudaMemsetAsync(dev_ptr, count, value, stream)",
        "cudaMemsetAsync: count is integer(c_size_t),value, expected int",
    ),
    "bytes in 32 bits": (
        "cuda_runtime_api.h",
        "type(c_ptr), intent(out) :: ptr\n         !> Size, in bytes\n         integer(c_size_t), value",
        "type(c_ptr), intent(out) :: ptr\n         integer(c_int), value",
        "cudaMallocHost: size is integer(c_int),value, expected size_t",
    ),
    "value forgotten": (
        "cuda_runtime_api.h", "integer(c_int), value :: device\n         integer(c_int) :: status\n"
        "      end function cudaSetDevice", "integer(c_int), intent(in) :: device\n         integer(c_int) :: status\n"
        "      end function cudaSetDevice", "cudaSetDevice: device is integer(c_int),intent(in), expected int",
    ),
    "value where an address is due": (
        "cudnn.h", "type(c_ptr), intent(out) :: handle", "type(c_ptr), value :: handle",
        "cudnnCreate: handle is type(c_ptr),value, expected cudnnHandle_t *",
    ),
    "an argument too few": (
        "cuda.h", "cuModuleGetFunction(hfunc, hmod, name)", "cuModuleGetFunction(hfunc, hmod)", None,
    ),
    "a wrong result": (
        "cudnn.h", "integer(c_size_t) :: version\n      end function cudnnGetVersion",
        "integer(c_int) :: version\n      end function cudnnGetVersion",
        "cudnnGetVersion: result is integer(c_int), expected size_t",
    ),
    "a function that is not there": (
        "cuda.h", "function cuInit(flags) result(status) bind(C)\n         import :: c_int\n         implicit none\n"
        "         !> Must be 0\n         integer(c_int), value :: flags\n         integer(c_int) :: status\n"
        "      end function cuInit",
        "function cuInnit(flags) result(status) bind(C)\n         integer(c_int), value :: flags\n"
        "         integer(c_int) :: status\n      end function cuInnit", "cuInnit is not in the headers",
    ),
    "two handles swapped": (
        "cuda_runtime_api.h", "cudaGraphInstantiate(p_graph_exec, graph, flags)",
        "cudaGraphInstantiate(graph, p_graph_exec, flags)",
        "cudaGraphInstantiate: arguments ['graph', 'p_graph_exec', 'flags'], "
        "expected ['p_graph_exec', 'graph', 'flags']",
    ),
    "flags in 32 bits": (
        "cuda_runtime_api.h", "integer(c_long_long), value :: flags", "integer(c_int), value :: flags",
        "cudaGraphInstantiate: flags is integer(c_int),value, expected unsigned long long",
    ),
    "a handle where an address is due": (
        "cuda_runtime_api.h", "type(c_ptr), intent(out) :: p_graph\n", "type(c_ptr), value :: p_graph\n",
        "cudaStreamEndCapture: p_graph is type(c_ptr),value, expected cudaGraph_t *",
    ),
    "the mode of capture of all threads": (
        "cuda_runtime_api.h", "cudaStreamCaptureModeThreadLocal = 1", "cudaStreamCaptureModeThreadLocal = 0",
        "cudaStreamCaptureModeThreadLocal is not 0",
    ),
    "too short a structure": (
        "cuda_runtime_api.h", "reserved(8)", "reserved(7)",
        "cuda_pointer_attributes_type: not as large as struct cudaPointerAttributes",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    """Each of them compiles, or nearly, and would go to NVIDIA's libraries as it is."""
    header, old, new, report = MISTAKES[mistake]
    if report is None:
        headers(header)
        with pytest.raises(ValueError, match="cuModuleGetFunction: arguments"):
            differences(header, old, new)
    else:
        assert report in differences(header, old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('symbol("cudnnBackendFinalize"), self%', 'symbol("cudnnBackendExecute"), self%'),
        ("procedure(cudnnGetVersion), pointer", "procedure(cudnnGetCudartVersion), pointer"),
        ("pointer, nopass :: set_stream", "pointer, nopass :: get_stream"),
        ("self%create)", "self%destroy)"),
    ],
)
def test_a_wrong_table_is_found(old: str, new: str) -> None:
    """The functions of the pairs have like interfaces: the compiler is content."""
    text = text_of("cudnn.h")
    assert text.count(old) == 1
    assert disorder(read_source(text.replace(old, new))) != []
