# SPDX-License-Identifier: MIT
"""Read a module: what is found in its forward is all that it does, and this is proved before it is believed.

Three things see to it. Nothing that torch.fx is blind to is accepted: hooks, replaced methods, parametrizations,
tensors outside of layers, computation beside the traced one. The forward is traced (`reference.network.trace`). And
what was found is run beside the module (`reference.network.proof`), with other parameters than it has now.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils._python_dispatch import TorchDispatchMode

from reference.errors import InputError, one_line
from reference.inputs import GUESSES, Inputs
from reference.network.aten.volumes import VOLUMES
from reference.network.hyperparameters import is_operation
from reference.network.layers import Layers
from reference.network.outputs import Which, of_output
from reference.network.proof import REAL, Shape, Whole, prove
from reference.network.trace import trace
from reference.network.unpacked import of_inputs

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class _OfIntegersError(InputError):
    """Why a module that takes integers, and no real numbers, cannot be read."""


def read(module: nn.Module, shapes: Callable[[Layers], Sequence[Shape]], example: Shape | None = None, *,
         foreign: bool = False, integers: int = 0, output: Which | None = None, inputs: Inputs | None = None) -> Layers:
    """Return the layers of a module, and proof that they are all of it.

    Parameters
    ----------
    module : nn.Module
        Neither it nor the state of random numbers is changed: the layers belong to a copy on the CPU.
    shapes : of inputs to prove it on, of the layers that were found; small ones, of two numbers of images and two sizes
    example : shape of an input (n, ...), at which torch.export reads what torch.fx cannot; None leaves it at that
    foreign : operations that exchange files lack are read, too, as calls of ATen: for the example and its number of
        images alone, and for the modes that the module is in
    integers : one more than the largest of the inputs, where these may be integers: read as such if not as real numbers
    output : which one, where it gives several
    inputs : which ones, where it takes several: the layers take the array in which they lie

    Returns
    -------
    layers : in the order of the calls, with the module's parameters, buffers and modes; names are those of
        ``named_modules()``; none of them works in place. Those that depend on the size of the example begin with a
        `Reshape` that refuses another one.

    Raises
    ------
    InputError
        If it cannot be traced, holds what is no operation, or does anything that its layers do not. The message names
        the layer, the parameter or the line.

    Examples
    --------
    >>> layers = read(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), lambda layers: [(2, 1, 6, 7), (3, 1, 9, 8)])
    >>> [name for name, _ in layers], layers.inputs
    (['0', '1'], {'0': ('input',), '1': ('0',)})
    """
    with _random_numbers_kept(), torch.inference_mode(False), torch.enable_grad():
        _check_module(module)
        if output is not None:
            module = of_output(module, output)
        integers = integers or _rows(module)
        if inputs is None:
            return _read(module, shapes, example, Whole(integers), foreign)
        first: InputError | None = None
        for guess in itertools.islice(inputs.guesses(), GUESSES if integers or inputs.whole else 1):
            whole = Whole(places=tuple((*inputs.places[name], below or integers or 1)
                                       for name, below in (guess.whole or {}).items()))
            try:
                return _read(of_inputs(module, guess), shapes, example, whole, foreign)
            except InputError as error:
                first = first or error
                if not any(one in str(error) for one in ("the model fails on", "torch.export cannot")):
                    raise
        assert first is not None
        raise first


def _read(module: nn.Module, shapes: Callable[[Layers], Sequence[Shape]], example: Shape | None, whole: Whole,
          foreign: bool) -> Layers:
    """As `read`, of one input."""
    try:
        layers = _found(module, trace)
    except InputError as error:
        # A number has no dimension of images
        if is_operation(module) or example == ():
            raise
        if example is None:
            raise InputError(f"{error}; given the shape of an input (example), torch.export may read it") from error
        try:
            return _exported(module, shapes, (max(2, example[0]), *example[1:]), error, whole)
        except InputError as refused:
            if not foreign:
                raise
            return _as_calls(module, example, refused, whole)
    if example is not None and len(example) == VOLUMES and any(_is_of_any(layer) for _, layer in layers):
        unclear = InputError("an Upsample by one number for all sides, of volumes three are supported by torch.fx")
        return _exported(module, shapes, (max(2, example[0]), *example[1:]), unclear, whole)
    try:
        prove(_copy(module), layers, shapes(layers))
    except InputError as error:
        # What fails on real numbers may take integers; what gives something else takes real numbers
        if whole == REAL or "the model fails on" not in str(error):
            raise
        prove(_copy(module), layers, shapes(layers), whole)
    return layers


def _rows(module: nn.Module) -> int:
    """Of the smallest embedding: whole numbers below that are inputs for all; 0: there is none."""
    return min((one.num_embeddings for one in module.modules() if isinstance(one, nn.Embedding)), default=0)


def _is_of_any(layer: nn.Module) -> bool:
    """Whether it enlarges images and volumes alike, by one number: torch.fx, which knows no shapes, cannot tell."""
    return isinstance(layer, nn.Upsample) and layer.mode == "nearest" and not isinstance(layer.scale_factor, tuple)


def _found(module: nn.Module, reader: Callable[[nn.Module], Layers]) -> Layers:
    root = _copy(module)
    layers = _traced(root, reader)
    # torch.export shows all that is computed; what nothing takes has no gradient in torch either, and stays as it is
    _check_all_used(root, layers, ("parameter", "buffer") if reader is trace else ())
    return layers


def _exported(module: nn.Module, shapes: Callable[[Layers], Sequence[Shape]], example: Shape, refused: InputError,
              whole: Whole) -> Layers:
    """What torch.export reads of an input of real numbers, or else of integers."""
    if not whole.places:
        try:
            return _of_type(module, shapes, example, REAL)
        except InputError as error:
            if "torch.export cannot" not in str(error):
                raise
            if not whole.below:
                raise InputError(f"{refused}; {error}") from error
    try:
        return _of_type(module, shapes, example, whole)
    except InputError as error:
        raise _OfIntegersError(str(error)) from error


def _of_type(module: nn.Module, shapes: Callable[[Layers], Sequence[Shape]], example: Shape, whole: Whole) -> Layers:
    """Of every size if two are proved, else of the one at which it was read."""
    from reference.network.aten.graph import fixed, read_exported

    layers = _found(module, lambda root: read_exported(root, example, dtype=whole.dtype))
    with contextlib.suppress(InputError):
        tried = shapes(layers)
        if whole.dtype and len(example) == 2:
            # Words, of another number, too
            tried = [example, (example[0] + 1, example[1] + 1)]
        if len({one[1:] for one in tried}) > 1 or len(example) == 2:
            _prove_exported(module, layers, tried, whole)
            return layers
    layers = fixed(layers, example) if len(example) > 2 or whole.dtype else layers
    shapes(layers)
    _prove_exported(module, layers, [example, (example[0] + 1, *example[1:])], whole)
    return layers


def _as_calls(module: nn.Module, example: Shape, refused: InputError, whole: Whole) -> Layers:
    """What torch.export reads, with calls of what exchange files lack."""
    from reference.network.aten.graph import read_exported

    if "torch.export cannot" in str(refused):
        raise refused
    whole = whole if isinstance(refused, _OfIntegersError) else REAL
    errors = []
    # Parts of a tensor that are written over are seen by whoever shares their memory: then without that
    for functional in (False, True):
        try:
            layers = _traced(_copy(module), lambda root, new=functional: read_exported(  # type: ignore[misc]
                root, example, foreign=True, dtype=whole.dtype, functional=new))
            prove(_copy(module), layers, [example], whole, evaluated=False)
            return layers
        except InputError as error:
            errors.append(error)
    raise errors[0]


def _prove_exported(module: nn.Module, layers: Layers, shapes: Sequence[Shape], whole: Whole) -> None:
    """And that the forward leaves the module's attributes alone, which torch.export puts back."""
    twin = _copy(module)
    before = _numbers(twin)
    prove(twin, layers, shapes, whole)
    _check_numbers(before, {name: one for name, one in _numbers(twin).items() if not name.endswith("training")})


@contextlib.contextmanager
def _random_numbers_kept() -> Iterator[None]:
    """A foreign forward() may draw some."""
    kept: Any = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])


def _copy(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module).cpu()
    except Exception as error:  # a foreign module decides what it raises
        raise InputError(f"the model cannot be copied: {one_line(error)}") from error


def _check_module(module: nn.Module) -> None:
    """Refuse what makes a module compute something else than its forward says."""
    # torch 2.6 has no _has_any_global_hook, and these as all others have them
    if any(getattr(nn.modules.module, f"_global_{kind}_hooks")
           for kind in ("backward_pre", "backward", "forward_pre", "forward")):
        raise InputError("there are hooks of all modules (torch.nn.modules.module.register_module_...), expected none")
    for name, part in module.named_modules():
        what = f"layer '{name}'" if name else "the model"
        if isinstance(part, torch.jit.ScriptModule):
            raise InputError(f"{what} is compiled by torch.jit, expected the nn.Module that it was made from")
        if isinstance(part, (nn.DataParallel, nn.parallel.DistributedDataParallel, AveragedModel)):
            raise InputError(f"{what} is a {type(part).__name__} around a module, expected that: give its .module")
        if hasattr(part, "_orig_mod"):
            raise InputError(f"{what} is compiled by torch.compile, expected the module itself, which is its _orig_mod")
        for kind, value in part.named_parameters(recurse=False):
            _check_parameter(f"the {kind} of {what}", value)
        for kind in _HOOKS:
            if getattr(part, kind, None):
                raise InputError(f"{what} has {kind.strip('_').replace('_', ' ')}, expected none")
        for method in vars(part):
            # torch.fx takes the class's forward of the model, and no layer is looked into
            if method == "forward" or (is_operation(part) and callable(getattr(type(part), method, None))):
                raise InputError(f"{what} has a {method}() of its own, expected that of {type(part).__name__}")
    places = sorted((one.data_ptr(), one.nbytes, name) for name, one in module.named_parameters())
    for (begin, size, name), (after, _, other) in itertools.pairwise(places):
        if after < begin + size:
            raise InputError(f"the parameters '{name}' and '{other}' share their memory, expected some for each")


def _check_parameter(what: str, value: nn.Parameter) -> None:
    if nn.parameter.is_lazy(value):
        raise InputError(f"{what} has no shape yet, expected one: run the model once before it is read")
    if value.is_meta or not (value.is_floating_point() or value.is_complex()):
        found = "on the meta device, without values" if value.is_meta else str(value.dtype)
        raise InputError(f"{what} is {found}, expected floating-point values")
    # A parameter that was made in torch.inference_mode() cannot be asked itself
    if not bool(value.detach().isfinite().all()):
        raise InputError(f"{what} holds NaN or infinity, expected finite values")
    if value._backward_hooks or getattr(value, "_post_accumulate_grad_hooks", None):
        raise InputError(f"{what} has hooks, which change its gradient or see it, expected none")


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What torch computes with tensors that are there, while a forward is traced, which has none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations.append(str(func))
        return func(*args, **(kwargs or {}))


def _traced(root: nn.Module, reader: Callable[[nn.Module], Layers]) -> Layers:
    """Trace, and refuse what happens beside: a forward that asks for values of its own, draws, or counts its calls."""
    numbers, drawn = _numbers(root), _drawn()
    # torch.export computes with tensors that stand for those, and has all of it in its graph
    with _Seen() if reader is trace else contextlib.nullcontext(_Seen()) as seen:
        layers = reader(root)
    if seen.operations:
        raise InputError(f"the model's forward computes with tensors beside its layers ({seen.operations[0]}), which a "
                         "graph of layers does not show; supported are layers of the model's input")
    if _drawn() != drawn:
        raise InputError("the model's forward draws random numbers of Python or numpy; supported are dropouts")
    _check_numbers(numbers, _numbers(root))
    for _, layer in layers:
        if hasattr(layer, "inplace"):
            setattr(layer, "inplace", False)  # noqa: B010 not every module has it
    return layers


def _drawn() -> tuple[object, ...]:
    """The state of random numbers of Python and numpy."""
    state: Any = np.random.get_state()
    return random.getstate(), state[1].tobytes(), state[2]


def _check_numbers(before: dict[str, object], after: dict[str, object]) -> None:
    for name, value in after.items():
        if before.get(name) != value:
            raise InputError(f"the model's forward changes the attribute '{name}' from {before.get(name)} to {value}; "
                             "supported is one that is the same in all its calls")


def _numbers(root: nn.Module) -> dict[str, object]:
    """All attributes of modules that are numbers or texts."""
    return {f"{name}.{key}".lstrip("."): value for name, part in root.named_modules()
            for key, value in vars(part).items() if isinstance(value, (bool, int, float, str))}


def _check_all_used(root: nn.Module, layers: Layers, kinds: Sequence[str]) -> None:
    """Each parameter or buffer belongs to one layer that is called, and to no other; each output is taken."""
    taken = {one for name, _ in layers for one in layers.inputs[name]}
    for name, _ in layers[:-1]:
        if name not in taken:
            raise InputError(f"layer '{name}' is called, and nothing takes its output; expected is a layer that does")
    owner: dict[int, str] = {}
    sources = {*layers.sources.values(), *layers.constants}
    for name, layer in layers:
        for part, parameter in layer.named_parameters():
            shared = owner.setdefault(id(parameter), name)
            if shared != name:
                raise InputError(f"layers '{shared}' and '{name}' share their {part}, expected one for each")
        sources |= {layers.source(name, part) for part, _ in layer.named_parameters()}
        owner |= {id(buffer): name for buffer in layer.buffers()}
    for kind in kinds:
        for name, value in root.named_parameters() if kind == "parameter" else root.named_buffers():
            if id(value) not in owner and name not in sources:
                raise InputError(f"the {kind} '{name}' belongs to no layer that the model's forward calls; expected is "
                                 "none (take it out of the module)")
