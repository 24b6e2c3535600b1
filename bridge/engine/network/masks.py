# SPDX-License-Identifier: MIT
"""The masks of a network's dropouts: which elements of their inputs they keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from bridge.common.errors import ArgumentError
from bridge.engine.arrays.operand import Operand
from bridge.engine.library import extension
from bridge.exchange.model import Model

Shape = tuple[int, ...]


class Masks(Mapping[str, np.ndarray]):
    """The masks of the last forward pass by the names of their layers, 0 and 1, of the shapes of the layers' outputs;
    of a dropout of channels (n, c, 1, 1).

    Each forward pass draws them anew, each element being kept with the probability 1 - p, by `generator`. Those that
    are given, ``net.masks.give({"drop": mask})``, are taken by the next forward pass in place of drawn ones.

    Parameters
    ----------
    model : of the network
    handle : the network's
    dtype : of its tensors

    Attributes
    ----------
    generator : numpy.random.Generator
        Unpredictable unless it is set: ``net.masks.generator = numpy.random.default_rng(7)``.

    Examples
    --------
    >>> import bridge
    >>> from bridge.operations import Dropout, Relu
    >>> net = bridge.Network(bridge.Model((Relu("a"), Dropout("drop", p=0.5)), loss="l1"))
    >>> net.masks.give({"drop": np.array([[1, 0]], np.float32)})
    >>> net.forward(np.ones((1, 2), np.float32))
    array([[2., 0.]], dtype=float32)
    """

    def __init__(self, model: Model, handle: int, dtype: str) -> None:
        self._model, self._handle, self._dtype = model, handle, dtype
        self._rates = {layer.name: float(vars(layer)["p"]) for layer in model.layers if layer.has_mask}
        self._last: dict[str, np.ndarray] = {}
        self._given: dict[str, np.ndarray] = {}
        self.generator = np.random.default_rng()

    def __getitem__(self, name: str) -> np.ndarray:
        return self._last[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def give(self, masks: Mapping[str, np.ndarray]) -> None:
        """Let the next forward pass take these.

        Raises
        ------
        ArgumentError, ArgumentTypeError
            If there is no dropout of this name, or the mask is no array of 0 and 1 of the network's element type.
        """
        for name, mask in masks.items():
            if name not in self._rates:
                raise ArgumentError(f"masks: {name!r}, expected one of {', '.join(self._rates) or 'no names'}")
            found = extension.check_array(f"mask of {name}", mask, dtype=self._dtype)
            if not np.isin(found, (0, 1)).all():
                raise ArgumentError(f"mask of {name}: other numbers than 0 and 1, expected these alone")
        self._given = dict(masks)

    def draw(self, shape: Shape) -> None:
        """Set the masks of a forward pass of an input of this shape, drawn or given.

        Raises
        ------
        ArgumentError, FileError
            If a mask that was given has another shape than the layer's, or the network cannot take the input.
        """
        if not self._rates:
            return
        given, self._given, self._last = self._given, {}, {}
        shapes = self._model.graph.shapes(shape)
        for number, layer in enumerate(self._model.layers, start=1):
            if layer.name not in self._rates:
                continue
            mask = given.get(layer.name)
            wanted = layer.mask_shape(shapes[layer.name])
            if mask is None:
                mask = (self.generator.random(wanted) >= self._rates[layer.name]).astype(self._dtype)
            elif mask.shape != wanted:
                raise ArgumentError(f"mask of {layer.name}: shape {mask.shape}, expected {wanted}")
            self._last[layer.name] = mask
            extent = Operand(None, 0, mask.shape, self._dtype).extent
            extension.call("network_set_mask", self._handle, number, mask.ctypes.data, extent)
