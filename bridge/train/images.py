# SPDX-License-Identifier: MIT
"""Gradients image by image, whose sum does not know how many ranks shared the batch; and which networks have them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bridge.common.errors import ArgumentError
from bridge.data import Batch
from bridge.engine.arrays.transfer import to_device
from bridge.engine.network.network import Network
from bridge.exchange.model import Model
from bridge.operations.losses import CrossEntropy
from bridge.operations.normalization import BatchNorm2d
from bridge.operations.operation import Operation, Shape
from bridge.operations.products import Matmul
from bridge.operations.reductions import Reduction
from bridge.train import gradients


def of_each_image(network: Network, batch: Batch, generator_of: Callable[[int], np.random.Generator]
                  ) -> tuple[list[float], list[dict[str, np.ndarray]]]:
    """Return loss and gradients of each image of a batch by itself.

    Parameters
    ----------
    generator_of : what draws the masks of dropouts for image k of this batch
    """
    losses, found = list[float](), list[dict[str, np.ndarray]]()
    for k in range(len(batch.input)):
        network.masks.generator = generator_of(k)
        network.forward(to_device(batch.input[k:k + 1], network.device))
        losses.append(network.loss(to_device(batch.target[k:k + 1], network.device)))
        network.backward()
        found.append(gradients.read(network))
    return losses, found


def check_loss(model: Model, who: str) -> None:
    """Refuse a loss whose mean over images is not the mean of the images' losses: its targets decide what they count.

    Raises
    ------
    ArgumentError
        Begins with `who`, which wants to know.

    Examples
    --------
    >>> from bridge.exchange.model import Conv2d
    >>> check_loss(Model((Conv2d("a", 1, 1, (1, 1)),)), "ranks: 2")
    """
    loss = model.criterion
    if loss.mean and isinstance(loss, CrossEntropy) and loss.class_indices:
        raise ArgumentError(f"{who} with the loss {loss.text}, whose mean is over pixels that count by their classes, "
                            "expected a loss with a mean over all, or with a sum")


def counted(model: Model, target: np.ndarray) -> float:
    """Return what the loss's mean over a batch divides by, for each of whose elements it is as much: 1; where targets
    decide what counts, the number, or the weight, of what does.

    Examples
    --------
    >>> from bridge.exchange.model import Conv2d
    >>> layers, target = (Conv2d("a", 1, 2, (1, 1)),), np.array([[[[1, 0, 0]], [[0, 0, 1]]]])
    >>> counted(Model(layers), target), counted(Model(layers, loss="cross_entropy class_indices=1"), target)
    (1.0, 2.0)
    """
    loss = model.criterion
    if not (loss.mean and isinstance(loss, CrossEntropy) and loss.class_indices):
        return 1.0
    factor = loss.scale(target.shape, target)
    return 0.0 if math.isnan(factor) else 1 / factor


def check_images_apart(model: Model, shape: Shape, who: str) -> None:
    """Refuse a network in which the images of a batch have to do with each other.

    Parameters
    ----------
    shape : of an input (n, c, h, w)
    who : wants to know, and begins the message

    Raises
    ------
    ArgumentError
        Names the layer.

    Examples
    --------
    >>> norm = BatchNorm2d("norm", 3)
    >>> try:
    ...     check_images_apart(Model((norm,)), (2, 3, 8, 8), "reproducible: True")
    ... except ArgumentError as error:
    ...     print(error)
    reproducible: True, but layer norm (batch_norm2d) joins the images of a batch, expected a network without it
    """
    check_loss(model, who)
    shapes = model.graph.shapes(shape)
    for node in model.graph.nodes:
        if _joins_images(node, shapes[node.inputs[0]]):
            raise ArgumentError(f"{who}, but layer {node.name} ({node.kind}) joins the images of a batch, expected a "
                                "network without it")


def _joins_images(node: Operation, shape: Shape) -> bool:
    """Whether an operation of an input of this shape has the batch among the axes that it adds up."""
    if isinstance(node, BatchNorm2d):
        return node.training
    if isinstance(node, Reduction):
        return 0 in node.axes(len(shape))
    return isinstance(node, Matmul) and len(shape) == 2
