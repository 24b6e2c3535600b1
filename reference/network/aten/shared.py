# SPDX-License-Identifier: MIT
"""What is the same for all images: parameters, buffers and tensors made in forward, as operands of other operations.

A `Stored` becomes a layer of its own, whose output every image has; what is computed of such ones alone is computed so
for each image, too. What depends on nothing that is learned is computed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from reference.network.aten import image_axis
from reference.network.aten.writing import Rule, Shape, Stored, Tensor, UnsupportedError, Writer, shape_of
from reference.network.layers import Parameter

#: Operations whose layers have the parameters themselves, behind their first argument
OWN = {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "linear", "batch_norm",
       "instance_norm", "group_norm", "layer_norm", "prelu"}
#: Those of them that see the last dimension alone
LAST = {"linear", "layer_norm"}
#: The same numbers in another shape
VIEWS = {"view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten", "contiguous", "clone",
         "alias", "lift_fresh", "lift_fresh_copy"}
#: What takes nothing of its first argument but the shape
BY_SHAPE = {f"{one}_like" for one in ("zeros", "ones", "full")} | {f"new_{one}" for one in ("zeros", "ones", "full")}
#: What computes nothing of its first argument
SAME = {"to", "_to_copy", "type_as", "contiguous", "clone", "alias"}
#: Of two operands, which are broadcast
BROADCAST = {"add", "sub", "subtract", "rsub", "mul", "multiply", "div", "divide", "true_divide"}
#: In the place of infinity
LARGE = 2.0**100
#: As large as the largest numbers of float32, which a sum of two may make infinite
HUGE = 2.0**126
#: Dimensions of one
MATRIX = 2
#: What lies behind each other
JOINED = {"cat", "concat", "concatenate"}
#: Whose rules take shared operands themselves
CHOICES = {"where", "masked_fill", "max", "maximum"}
#: What repeats a dimension of one number
REPEATS = {"expand", "repeat"}


def leaves(value: Any) -> list[Tensor | Stored]:
    """Return the tensors among arguments."""
    return [one for one in torch.utils._pytree.tree_leaves(value) if isinstance(one, (Tensor, Stored))]


def is_index(value: Any) -> bool:
    """Return whether it is a stored tensor of integers or marks, which rules take as it is."""
    return isinstance(value, Stored) and not value.value.is_floating_point()


def is_shared(value: Any) -> bool:
    """Return whether it is a tensor that all images share."""
    return isinstance(value, Stored) or (isinstance(value, Tensor) and not value.images)


def finite(value: torch.Tensor) -> torch.Tensor:
    """Return infinite numbers, which files have none of, and those nearly so, as some of which a softmax leaves as
    little.
    """
    return value.clamp(-LARGE, LARGE) if bool((value.abs() >= HUGE).any()) else value


def lifted(w: Writer, of: Stored | Tensor, shape: Shape) -> Tensor:
    """Return what all images share as a tensor of each image, of that shape."""
    if isinstance(of, Tensor):
        return w.reshape(Tensor(of.name, (w.batch, *of.shape)), (w.batch, *shape))
    if not of.value.is_floating_point():
        raise UnsupportedError(f"a tensor of {of.value.dtype} as an operand")
    if not of.value.numel():
        raise UnsupportedError("a tensor without numbers as an operand")
    if of.value.isnan().any():
        raise UnsupportedError("a tensor with NaN as an operand")
    known = w.lifted.get(of.name) if of.name else None
    if known is not None:
        return w.reshape(known, (w.batch, *shape))
    extents = shape or (1,)
    w.rewritten()
    layer = Parameter(extents)
    value = finite(of.value.detach()).reshape(extents)
    layer.weight = nn.Parameter(value, of.value.requires_grad and isinstance(of.value, nn.Parameter))
    if of.exact is not None:
        layer.weight.exact = finite(of.exact).reshape(extents)  # type: ignore[attr-defined]
    base, w.base = w.base, of.name or f"{w.base}.constant"
    w.reads([of.name] if is_constant(of) and of.name else [])
    found = w.add(layer, [w.input], (w.batch, *extents), weight=of.changed(lambda one: one) if is_constant(of) else of)
    w.base = base
    if of.name:
        w.lifted[of.name] = found
    return found


def constant(w: Writer, operation: Any, args: Any, kwargs: Any) -> Any:
    """Return what an operation makes of buffers and numbers alone."""
    w.reads(one.name for one in leaves((args, kwargs)) if one.name)
    given = torch.utils._pytree.tree_map(lambda one: one.value if isinstance(one, Stored) else one, (args, kwargs))
    with torch.no_grad():
        found = operation(*given[0], **given[1])
    if isinstance(found, torch.Tensor):
        return Stored("", found, _exact(operation, args, kwargs, found))
    return torch.utils._pytree.tree_map(lambda one: Stored("", one) if isinstance(one, torch.Tensor) else one, found)


def _exact(operation: Any, args: Any, kwargs: Any, found: torch.Tensor) -> torch.Tensor | None:
    """What a constant of float32 is when all that it follows from is computed in float64."""
    if found.dtype != torch.float32:
        return None

    def wide(one: Any) -> Any:
        if isinstance(one, Stored):
            one = one.value if one.exact is None else one.exact
        if isinstance(one, torch.Tensor):
            return one.double() if one.dtype == torch.float32 else one
        return torch.float64 if one is torch.float32 else one

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        given = torch.utils._pytree.tree_map(wide, (args, kwargs))
        with torch.no_grad():
            value: torch.Tensor = operation(*given[0], **given[1])
    finally:
        torch.set_default_dtype(before)
    return value if value.shape == found.shape and value.dtype == torch.float64 else None


def is_constant(one: Tensor | Stored) -> bool:
    """Return whether nothing that is learned is in it."""
    return isinstance(one, Stored) and not isinstance(one.value, nn.Parameter)


def viewed(operation: Any, args: Any, kwargs: Any) -> Stored:
    """Return a parameter in another shape."""
    with torch.no_grad():
        value = operation(args[0].value.detach(), *args[1:], **kwargs)
    return Stored(args[0].name, nn.Parameter(value, args[0].value.requires_grad))


def repeated(w: Writer, name: str, of: Stored | Tensor, sizes: Any) -> Tensor | None:
    """Return what is repeated for each image; None where it is repeated otherwise."""
    shape = shape_of(of)
    whole = (1,) * (len(sizes) - len(shape)) + shape
    if name == "repeat" and whole == shape and tuple(sizes) == (w.batch, *[1] * (len(shape) - 1)):
        # Behind each other
        return w.reshape(lifted(w, of, shape), (w.batch * shape[0], *shape[1:]))
    same = [n if name == "expand" else 1 for n in whole[1:]]
    if sizes[0] != w.batch or whole[0] != 1 or any(m not in (-1, n) for n, m in zip(same, sizes[1:], strict=True)):
        return None
    return lifted(w, of, whole[1:])


def of_all_images(w: Writer, operation: Any, args: Any, kwargs: Any, run: Callable[[fx.Graph, list[Any]], Any]) -> Any:
    """Return what is computed of parameters alone, for each image.

    Parameters
    ----------
    run : writes the calls of a graph, given what stands for its inputs
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    operands = list(dict.fromkeys(leaves((args, kwargs))))
    kept = [is_index(one) or (is_constant(one) and not _rank(one)) for one in operands]

    def call(*tensors: torch.Tensor) -> Any:
        known = dict(zip(operands, tensors, strict=True))
        own = torch.utils._pytree.tree_map(lambda one: known[one] if isinstance(one, (Tensor, Stored)) else one,
                                           (args, kwargs))
        return operation(*own[0], **own[1])

    shapes = [shape_of(one) for one in operands]
    examples = [one.value if keep else torch.empty(w.batch, *shape)  # type: ignore[union-attr]
                for one, keep, shape in zip(operands, kept, shapes, strict=True)]
    graph = make_fx(torch.func.vmap(call, in_dims=tuple(None if keep else 0 for keep in kept)))(*examples).graph
    w.rewritten()
    found = run(graph, [one if keep else lifted(w, one, shape)
                        for one, keep, shape in zip(operands, kept, shapes, strict=True)])
    return torch.utils._pytree.tree_map(
        lambda one: Tensor(one.name, one.shape[1:], None, images=False) if isinstance(one, Tensor) else one, found)


def _rank(of: Stored | Tensor) -> int:
    return of.value.dim() if isinstance(of, Stored) else len(of.shape)


def weight_norm(direction: torch.Tensor, length: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """What torch has one operation for, which vmap takes apart image by image."""
    others = [one for one in range(direction.ndim) if one != dim % direction.ndim and dim != -1]
    return direction * (length / torch.linalg.vector_norm(direction, 2, others or None, keepdim=True))


def once(w: Writer, operand: Any, axis: int) -> Any:
    """Return what was made for this number of images, and is the same for each, for one of them."""
    if isinstance(operand, Stored) and operand.value.shape[axis] == w.batch and is_constant(operand):
        first: Stored = operand.changed(lambda one: one.narrow(axis, 0, 1))
        if torch.equal(first.value.expand_as(operand.value), operand.value):
            return first
    return operand


def once_each(w: Writer, args: Any) -> Any:
    """Return operands that are broadcast, where constants of each image that are the same for all are there once."""
    most = max((_rank(one) for one in leaves(args)), default=0)
    return torch.utils._pytree.tree_map(
        lambda one: once(w, one, 0) if isinstance(one, Stored) and 0 < _rank(one) == most else one, args)


def alike(w: Writer, index: Any) -> Stored | None:
    """Return integers of each image, (n, ...), of one of them, where they are the same for all."""
    if not is_index(index) or index.value.dim() < 2:
        return None
    first = once(w, index, 0)
    return None if first is index else Stored("", first.value[0])


def of_blocks(w: Writer, operand: Stored | Tensor, other: Tensor) -> Tensor | None:
    """Return what was made for tensors (images times some, ...), as alike for all images, for each of them."""
    if not (isinstance(operand, Stored) and is_constant(operand) and len(operand.value.shape) == len(other.shape)
            and not other.axis and other.shape[0] != w.batch and operand.value.shape[0] == other.shape[0]):
        return None

    def split(value: torch.Tensor) -> torch.Tensor:
        return value.view(w.batch, -1, *value.shape[1:])

    each = split(operand.value.contiguous())
    if not torch.equal(each[:1].expand_as(each), each):
        return None
    found = lifted(w, operand.changed(lambda one: split(one.contiguous())[0]), tuple(each.shape[1:]))
    return w.reshape(found, tuple(operand.value.shape))


def aligned(w: Writer, operand: Stored | Tensor, other: Tensor) -> Tensor:
    """Return a shared operand as one of each image, of as many dimensions as the other."""
    blocks = of_blocks(w, operand, other)
    if blocks is not None:
        return blocks
    shape = shape_of(operand)
    if len(shape) == len(other.shape):
        operand = once(w, operand, other.axis)
        shape = shape_of(operand)
    whole = (1,) * (len(other.shape) - len(shape)) + shape
    if len(whole) != len(other.shape) or whole[other.axis] != 1:
        raise UnsupportedError(f"operands of the shapes {other.shape} and {shape}, of which the latter is the same for "
                               "all images")
    found = spread(w, lifted(w, operand, (*whole[:other.axis], *whole[other.axis + 1:])), other.shape[other.axis])
    return image_axis.moved_to(found, other.axis)


def spread(w: Writer, x: Tensor, images: int) -> Tensor:
    """Return a tensor of each image for as many images as each has become."""
    from reference.network.aten import shapes

    if x.shape[0] == images:
        return x
    times, rest = divmod(images, x.shape[0])
    if rest:
        raise UnsupportedError(f"operands of {images} and {x.shape[0]} images")
    one = w.reshape(x, (x.shape[0], 1, *x.shape[1:]))
    return w.reshape(shapes.expanded(w, one, [-1, times, *[-1] * (len(x.shape) - 1)], suffix="expand"),
                     (images, *x.shape[1:]))


def of_images(w: Writer, name: str, args: Any) -> Any:
    """Return the arguments of a call that takes tensors of images and shared ones, the latter for each image.

    Raises
    ------
    UnsupportedError
        If no rule knows such operands.
    """
    other = next(one for one in leaves(args) if not is_shared(one))
    assert isinstance(other, Tensor)
    if name == "scaled_dot_product_attention" and not any(is_shared(one) for one in args[:3]):
        return [*args[:3], aligned(w, args[3], other), *args[4:]]
    if name in CHOICES:
        return args
    if name in JOINED:
        there = [one for one in args[0] if not isinstance(one, Stored) or one.value.numel()]
        return [[aligned(w, one, other) if is_shared(one) else one for one in there], *args[1:]]
    if name in BROADCAST:
        return [aligned(w, one, other) if is_shared(one) else one for one in args]
    if name not in ("matmul", "bmm") or other.axis:
        raise UnsupportedError("a stored tensor as an operand")

    def matrix(one: Any) -> Tensor:
        shape = shape_of(one)
        if not is_shared(one):
            return one
        if len(shape) < MATRIX:
            raise UnsupportedError("a product with a vector")
        if len(shape) == len(other.shape) > MATRIX:
            # In the place of the images
            if shape[0] != 1:
                raise UnsupportedError(f"operands of the shapes {other.shape} and {shape}, of which the latter is the "
                                       "same for all images")
            shape = shape[1:]
        return spread(w, lifted(w, one, shape), other.shape[0])

    return [matrix(one) for one in args]


def of_one(w: Writer, rule: Rule, args: Any, kwargs: Any) -> Tensor:
    """Return what a layer with parameters makes of a shared image (1, ...), or of rows."""
    x = once(w, args[0], 0)
    shape = shape_of(x)
    if not shape or shape[0] != 1:
        raise UnsupportedError("a stored tensor as an operand")
    found = rule(w, lifted(w, x, shape[1:]), *args[1:], **kwargs)
    if x is not args[0]:
        return found
    found = w.reshape(found, (w.batch, 1, *found.shape[1:]))
    return Tensor(found.name, found.shape[1:], images=False)
