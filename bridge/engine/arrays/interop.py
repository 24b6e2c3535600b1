# SPDX-License-Identifier: MIT
"""CUDA arrays of other libraries as operands: torch, cupy, ``__cuda_array_interface__``, DLPack.

torch and cupy are never imported here: who has one of their arrays has imported them.
"""

from __future__ import annotations

import sys
from typing import Any

from bridge.common.errors import ArgumentError, ArgumentTypeError
from bridge.engine.arrays import cuda_array_interface, dlpack
from bridge.engine.arrays.operand import ITEM_BYTES, Operand
from bridge.engine.library import extension

#: CUDA's legacy default stream, and how DLPack and the array interface call it
DEFAULT_STREAM, NAMED_DEFAULT_STREAM = 0, 1


def cuda_index(array: Any) -> int | None:
    """Return the CUDA device that an array of another library lies on; None if it is on none.

    >>> cuda_index([1.0]) is None
    True
    """
    if _is_from("torch", "Tensor", array):
        return array.device.index or 0 if array.is_cuda else None
    if _is_from("cupy", "ndarray", array):
        return int(array.device.id)
    interface = _attribute(array, "__cuda_array_interface__")
    if interface is not None:
        address = cuda_array_interface.first_address(interface)
        found = int(extension.call("device_of", address)) if address else -1
        return max(found, 0)
    device = _dlpack_device(array)
    return device[1] if device and device[0] in (dlpack.CUDA, dlpack.CUDA_MANAGED) else None


def operand_of(name: str, array: Any, stream: int | None = None) -> Operand:
    """Return a CUDA array as an operand; its memory is not looked at.

    Parameters
    ----------
    name : how messages call it
    stream : where the work will be queued, for libraries that want to be told; None if that is not known yet

    Raises
    ------
    ArgumentTypeError, ArgumentError
        If it is no CUDA array, needs a gradient, or has an element type that is not ours.
    """
    index = cuda_index(array)
    if index is None:
        raise ArgumentTypeError(f"{name}: {type_name(array)}, expected an array on a CUDA device ({advice(name)})")
    if _is_from("torch", "Tensor", array):
        return _from_torch(name, array, index)
    if _is_from("cupy", "ndarray", array):
        return _from_cupy(name, array, index)
    interface = _attribute(array, "__cuda_array_interface__")
    if interface is not None:
        return cuda_array_interface.operand_of(name, array, interface, index)
    return _from_dlpack(name, array, stream)


def empty_like(operand: Operand, shape: tuple[int, ...]) -> Operand | None:
    """Return a new array of the operand's library, element type and device; None if it is neither torch nor cupy."""
    if operand.origin == "torch":
        torch = sys.modules["torch"]
        array = torch.empty(shape, dtype=getattr(torch, operand.dtype), device=operand.array.device)
        return _from_torch("result", array, operand.index)
    if operand.origin == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(operand.index):
            array = cupy.empty(shape, dtype=operand.array.dtype)
        return _from_cupy("result", array, operand.index)
    return None


def is_torch(array: Any) -> bool:
    """Return whether it is a tensor of torch.

    >>> is_torch([1.0])
    False
    """
    return _is_from("torch", "Tensor", array)


def torch_as_numpy(name: str, tensor: Any) -> Any:
    """Return a tensor in host memory as an array of numpy, the same memory and strides.

    Raises
    ------
    ArgumentTypeError
        If it needs a gradient, or numpy has no such arrays.
    """
    _refuse_gradient(name, tensor)
    try:
        return tensor.numpy()
    except (TypeError, RuntimeError) as error:
        raise ArgumentTypeError(f"{name}: a torch tensor ({tensor.dtype}, {tensor.layout}) that numpy cannot take: "
                                f"{error}") from None


def torch_from_numpy(array: Any) -> Any:
    """Return an array as a tensor of torch, the same memory and strides."""
    return sys.modules["torch"].from_numpy(array)


def current_stream(library: str, index: int) -> tuple[int, Any]:
    """Return the number of the stream on which a library works now, and the object that keeps it alive."""
    if library == "torch":
        stream = sys.modules["torch"].cuda.current_stream(index)
        return int(stream.cuda_stream), stream
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(index):
        stream = cupy.cuda.get_current_stream()
    return int(stream.ptr), stream


def type_name(array: Any) -> str:
    """Return the type with its module, for messages; our own as users know them.

    >>> type_name([1.0])
    'builtins.list'
    """
    kind = type(array)
    module = "bridge" if kind.__module__.startswith("bridge.") else kind.__module__
    return f"{module}.{kind.__qualname__}"


def advice(name: str) -> str:
    """Return how to get a CUDA array."""
    return f"bridge.DeviceArray.from_numpy({name}, 'cuda') makes one; those of torch and cupy are taken as they are"


def _is_from(library: str, kind: str, array: Any) -> bool:
    """An instance of a class of a library, subclasses included; the library is not imported."""
    found = getattr(sys.modules.get(library), kind, None)
    return isinstance(found, type) and isinstance(array, found)


def _attribute(array: Any, name: str) -> Any:
    """Other libraries raise more than AttributeError for what an array cannot show."""
    try:
        return getattr(array, name, None)
    except (TypeError, RuntimeError, ValueError, BufferError):
        return None


def _refuse_gradient(name: str, tensor: Any) -> None:
    if tensor.requires_grad:
        raise ArgumentTypeError(f"{name}: a torch tensor that requires a gradient, which would be lost here, expected "
                                "one that does not (use .detach())")


def _from_torch(name: str, tensor: Any, index: int) -> Operand:
    _refuse_gradient(name, tensor)
    dtype = _known_dtype(name, str(tensor.dtype).removeprefix("torch."))
    if str(tensor.layout) != "torch.strided":
        raise ArgumentTypeError(f"{name}: a torch tensor of the layout {tensor.layout}, expected torch.strided")
    return Operand(tensor, int(tensor.data_ptr()), tuple(tensor.shape), dtype, "torch", index, tuple(tensor.stride()))


def _from_cupy(name: str, array: Any, index: int) -> Operand:
    dtype = _known_dtype(name, array.dtype.name)
    steps = tuple(step // ITEM_BYTES[dtype] for step in array.strides)
    return Operand(array, int(array.data.ptr), tuple(array.shape), dtype, "cupy", index, steps)


def _from_dlpack(name: str, array: Any, stream: int | None) -> Operand:
    """DLPack makes the memory ready on the stream it is told; 0 is not allowed there."""
    told = NAMED_DEFAULT_STREAM if stream is None or stream < NAMED_DEFAULT_STREAM else stream
    try:
        capsule = array.__dlpack__(stream=told, max_version=(1, 0))
    except TypeError:
        try:
            capsule = array.__dlpack__(stream=told)
        except (TypeError, RuntimeError, ValueError, BufferError) as error:
            raise ArgumentTypeError(f"{name}: {type_name(array)}.__dlpack__ refuses: {error}") from None
    except (RuntimeError, ValueError, BufferError) as error:
        raise ArgumentTypeError(f"{name}: {type_name(array)}.__dlpack__ refuses: {error}") from None
    taken = dlpack.TakenTensor(name, capsule)
    if taken.device[0] not in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        raise ArgumentError(f"{name}: DLPack device type {taken.device[0]}, expected {dlpack.CUDA} (CUDA) or "
                            f"{dlpack.CUDA_MANAGED} (CUDA managed)")
    return Operand(array, taken.address, taken.shape, taken.dtype, "other", taken.device[1], taken.strides,
                   taken.read_only, told, taken)


def _dlpack_device(array: Any) -> tuple[int, int] | None:
    ask = _attribute(array, "__dlpack_device__")
    if not callable(ask):
        return None
    try:
        kind, index = ask()
        return int(kind), int(index)
    except (TypeError, RuntimeError, ValueError, BufferError):
        return None


def _known_dtype(name: str, dtype: str) -> str:
    if dtype not in ITEM_BYTES:
        raise ArgumentTypeError(f"{name}: {dtype}, expected one of {', '.join(ITEM_BYTES)}")
    return dtype
