# SPDX-License-Identifier: MIT
"""A network that lives in Fortran, with the face of a small torch module."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bridge.common.errors import ArgumentError, ArgumentTypeError, EngineError, FileError
from bridge.engine.arrays import dispatch
from bridge.engine.arrays.operand import Operand, extent_of
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.library import extension
from bridge.engine.library.device_spec import DeviceSpec
from bridge.engine.network.arguments import (
    AFTER_RELU,
    Keep,
    as_real,
    checked_model,
    flag,
    kept_activations,
    optimizer_of,
    parameter_names,
    settings_of,
    step_number,
)
from bridge.engine.network.masks import Masks
from bridge.engine.network.momenta import Momenta, in_words, lost
from bridge.engine.network.parameter_views import Tensors, Views, parameter_places, state_places
from bridge.engine.network.torch_graph import packed, several_inputs
from bridge.engine.network.torch_modules import Original, make_module, read_module
from bridge.engine.network.turns import new_turn, one_at_a_time
from bridge.exchange.contents import TRAINING, check_contents
from bridge.exchange.file import ExchangeFile
from bridge.exchange.model import Model
from bridge.exchange.optimizers import Optimizer, Sgd
from bridge.operations.hyperparameters import numbers
from bridge.operations.losses import loss_from
from bridge.operations.normalization import BatchNorm2d

if TYPE_CHECKING:
    from torch import nn

    from bridge.engine.network.torch_graph import Inputs, Several

#: numpy.ndarray, or on a CUDA device an array as `bridge.conv2d` takes it
Array = Any

#: Numbers of `named_tensor` in cnn_api_handles
VALUE, GRADIENT, MOMENTUM, _, OUTPUT, OUTPUT_GRADIENT, STATE = range(1, 8)
#: Dimensions of an image (c, h, w), and of a volume (c, d, h, w)
IMAGE, VOLUME = 3, 4
#: Numbers of `network_build` in cnn_api_network
KEPT: dict[Keep, int] = {True: 0, AFTER_RELU: 1, False: 2}


class Network:
    """A network with its loss, computed in Fortran: a graph of the operations of `bridge.operations`.

    Make one with `from_torch`, `from_file`, or from a `Model`. Weights and gradients are **views** of Fortran's
    memory, of numpy or on a CUDA device `bridge.DeviceArray`: writing ``net.parameters["conv1.weight"][...] = w``
    changes the network. Views keep the network alive; their addresses never change.

    Inputs and targets are batches. Where torch takes one sample without the batch and computes the same, so does this:
    (c, h, w) for (1, c, h, w), and what is returned has one dimension less, too.

    On a CUDA device inputs and targets are CUDA arrays, and results are new arrays of the library of the last input if
    that is torch or cupy, else `bridge.DeviceArray`.
    Work is queued on that library's stream (see `bridge.engine.arrays.streams`); only what returns a number, as `loss`
    and `step` do, waits for it. Inputs are not checked for NaN and infinity there, which would wait too.

    Parameters
    ----------
    model : Model
    dtype : "float32" or "float64"
    device : "cpu", or "cuda", "cuda:N" with options (see `bridge.engine.library.device_spec`)
    keep_activations : bool or "after_relu"
        Which tensors between the layers stay in memory, to be asked for by `output` and `output_gradient`.

        - True: all of them.
        - "after_relu": a ReLU is computed together with the convolution before it, where nothing else takes that one's
          output, which does not exist then. All others are kept.
        - False, for training only: nothing that training does not need. ReLUs are computed as with "after_relu";
          there is no gradient with respect to the input, and no `output_gradient`. Before `backward` there are the
          outputs of inner layers whose memory nothing else has taken (none that tensor cores read), and after it only
          the last layer's. The least memory, and on the CPU the fastest.

    Attributes
    ----------
    parameters : mapping of str to array
        ``conv1.weight`` (k, c / groups, r, s), ``conv1.bias`` (k,), ..., in torch's order. Zero at first.
    gradients : mapping of str to array
        The same names and shapes; valid after `backward`, those of frozen parameters too.
    buffers : mapping of str to array
        What layers keep from step to step and do not learn, by torch's names: ``bn1.running_mean``, ... 0 at first, and
        1 the variances.
    masks : Masks
        The masks of dropouts, drawn for each forward pass unless they are given.
    training : bool
        Whether it computes as in training, see `train`.
    inputs : `reference.inputs.Inputs`, or None
        Names and shapes of a module's several inputs. An input is then a mapping of arrays by these names, or a
        sequence of them; ``net.inputs.parts`` takes what `backward` returns apart.
    momenta : mutable mapping of str to array
        The same for parameters that have a momentum: from their first update with momentum on, or since
        ``net.momenta["conv1.weight"] = v``. `save` and `from_file` keep them; see `bridge.engine.network.momenta`.

    Examples
    --------
    >>> from bridge.exchange.model import Conv2d
    >>> net = Network(Model((Conv2d("a", 1, 1, (1, 1)),)))
    >>> net.parameters["a.weight"][...] = 3
    >>> float(net.forward(np.full((1, 1, 1, 1), 2, np.float32))[0, 0, 0, 0])
    6.0
    """

    def __init__(self, model: Model, dtype: str = "float32", device: str = "cpu", *,
                 keep_activations: Keep = True) -> None:
        model, spec = checked_model(model), DeviceSpec.parse(device)
        self.model, self.dtype, self.device = model, dtype, spec.text
        self.keep_activations = kept_activations(keep_activations)
        self._handle = _built(model, dtype, self.device, KEPT[self.keep_activations])
        self._tensors = Tensors(self._handle, dtype, spec)
        self._place = dispatch.of_text(device)
        self.turn = new_turn()
        self._inputs: tuple[Operand, ...] = ()
        # Whether the last input was one sample without a batch
        self._alone = False
        self._has_gradients = False
        # The shape of what the next step was fed
        self._fed: tuple[int, ...] = ()
        self._optimizer: Optimizer = Sgd(0.0)
        self._original: Original | None = None
        self.inputs: Inputs | None = several_inputs(model.inputs)
        places = parameter_places(model)
        self.parameters = Views(places, self._tensors, VALUE)
        self.gradients = Views(places, self._tensors, GRADIENT)
        self.momenta = Momenta(model, self._tensors, self._place, MOMENTUM)
        self.buffers = Views(state_places(model), self._tensors, STATE)
        self.masks = Masks(model, self._handle, dtype)
        self.training = True
        for array in (*self.parameters.values(), *self.gradients.values()):
            array[...] = 0
        for layer in model.layers:
            for name, value in layer.initial_state().items():
                self.buffers[f"{layer.name}.{name}"][...] = value

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], step: int = 0, *, dtype: str | None = None,
                  device: str = "cpu", keep_activations: Keep = True) -> Network:
        """Return the network of an exchange file with its weights before step `step`, frozen where the file says so.

        It goes on where the one that was saved stopped: with its `momenta`, and the number of its steps. A parameter
        whose momentum is not in the file has none, and begins with the gradient alone, as torch's without the
        optimiser's state. That is a warning, with names, where the file has had steps with momentum (or Adam): `save`
        of an earlier version left momenta out, and so do results of ``cnn_step`` and fixtures, whose later steps have
        weights only. Until the next step `save` records the file's optimiser.

        Parameters
        ----------
        path : exchange file
        step : which weights, from 0
        dtype : precision to compute in; None takes the file's
        device, keep_activations : as of `Network`

        Raises
        ------
        FileError, EngineError
            If the file is unreadable, has no model, or lacks these weights; if it is a checkpoint in which anything
            has changed since it was written.
        """
        name, number = extension.path_text("path", path), step_number(step)
        kept = kept_activations(keep_activations)
        check_contents(name, TRAINING)
        with ExchangeFile(name) as file:
            model, precision, without = file.model, file.precision, lost(file, number)
            optimizer = file.optimizer_at(number)
        if model is None:
            raise FileError(f"{name}: /model is missing")
        try:
            several_inputs(model.inputs)
        except ArgumentError as error:
            raise FileError(f"{name}: {error}") from None
        network = cls(model, precision if dtype is None else dtype, device, keep_activations=kept)
        with network._place.working():
            extension.call("network_read_weights", network._handle, name, number)
        network._optimizer = optimizer or network._optimizer
        if without:
            warnings.warn(f"{name}: {in_words(without)} not in the file: momentum begins anew with the first "
                          "gradient", stacklevel=2)
        return network

    @classmethod
    def from_torch(cls, module: nn.Module, *, dtype: str | None = None, loss: str = "mse", reduction: str = "mean",
                   example: tuple[int, ...] | Several | Array | None = None, output: int | str | None = None,
                   device: str = "cpu", keep_activations: Keep = True) -> Network:
        """Return the network of a torch module, with copies of its parameters and buffers.

        The module is what consists of the operations of `bridge.operations`, or can be written with them: chains,
        residual connections, concatenations, functional calls. torch.fx traces it; where that fails, and the shape of
        an input is known, torch.export reads it. Sizes are numbers then, and where another size would give another
        network, this one takes the example's alone. Parameters with ``requires_grad=False`` are `frozen`, and batch
        normalisations and dropouts are those of training or of evaluation, as the module is now.

        That the network is the same is proved: a copy of the module is run with random parameters and buffers on two
        numbers of small images of two sizes, as it is and in evaluation, with gradients and without, and must give what
        its layers give, to the bit; to 1e-7 in float64 where an operation is written with others. The module and all
        random numbers are left as they were.

        Parameters
        ----------
        module : torch.nn.Module
        dtype : precision to compute in; None takes the module's
        loss : one of `bridge.operations.losses`, perhaps with settings: "mse", "l1", "smooth_l1 beta=0.5",
            "huber delta=0.5", "bce", "bce_with_logits pos_weight=2", or "cross_entropy", whose targets are
            probabilities of classes in the output's shape
        reduction : "mean" or "sum"
        example : the shape of an input or an array of it, where torch.fx alone cannot read the module, or it takes no
            square images of a usual size; of a module of several inputs their shapes or arrays, by the names of
            forward's arguments or in their order
        output : which one, where it gives several: a number from 0, or the key or attribute of what it gives
        device, keep_activations : as of `Network`

        Raises
        ------
        ArgumentError, ArgumentTypeError
            If the module holds anything that cannot be written with operations, has hooks, or, where there is no
            example, parameters that its forward does not take, depends on values, on the mode or on gradients being
            wanted, changes a tensor in place that it uses later, draws random numbers, or is compiled. Names the
            layer, or the module's line.
        """
        if reduction not in ("mean", "sum"):
            raise ArgumentError(f"reduction: {reduction!r}, expected 'mean' or 'sum'")
        try:
            loss = loss_from(loss).text
        except FileError as error:
            raise ArgumentError(str(error)) from None
        kept = kept_activations(keep_activations)
        found = read_module(module, loss=loss, mean=reduction == "mean", shape=example, output=output)
        network = cls(found.model, found.dtype if dtype is None else dtype, device, keep_activations=kept)
        for views in (network.parameters, network.buffers):
            for name, array in views.items():
                array[...] = to_device(found.values[name].astype(network.dtype), network.device)
        network.frozen, network._original = found.frozen, found.original
        return network

    def to_torch(self) -> nn.Module:
        """Return a torch module on the CPU with copies of the parameters and buffers: of a network that `from_torch`
        has read a copy of the module that was read, of any other one with the same layers and names, a ``Sequential``
        where each layer takes the one before.

        ``requires_grad`` is False where a parameter is `frozen`.

        Raises
        ------
        BridgeError
            If PyTorch is not installed.
        """
        values = {name: to_host(array) for name, array in (*self.parameters.items(), *self.buffers.items())}
        if self._original is not None:
            return self._original.filled(self.dtype, values, self.frozen)
        return make_module(self.model, self.dtype, values, self.frozen)

    @one_at_a_time
    def train(self, mode: bool = True) -> Network:
        """Compute as in training from now on, or, with False, as after it, and return the network.

        After training, batch normalisations take their running statistics, if they have any, and leave them as they
        are; dropouts drop nothing. Those that were made for evaluation stay so in training, too; `save` writes all as
        they were made.

        Examples
        --------
        >>> from bridge.operations.pointwise import Dropout
        >>> net = Network(Model((Dropout("drop", 0.5, inputs=("input",)),)))
        >>> net.train(False).forward(np.ones((1, 2), np.float32))
        array([[1., 1.]], dtype=float32)
        """
        wanted = flag("mode", mode)
        with self._place.working(*self._inputs[-1:]):
            extension.call("network_set_training", self._handle, int(wanted))
        self.training, self._has_gradients = wanted, False
        return self

    def eval(self) -> Network:
        """Return ``train(False)``."""
        return self.train(False)

    @property
    def frozen(self) -> tuple[str, ...]:
        """Return the names of the parameters that no update changes, in the order of `parameters`. Set it to freeze
        others.

        As torch does where ``requires_grad`` is False, updates leave them out altogether: no weight decay, and no
        momentum, which stays as it is. Their gradients are computed all the same.

        Raises
        ------
        ArgumentTypeError, ArgumentError
            If it is set to anything but names of parameters.

        Examples
        --------
        >>> from bridge.exchange.model import Conv2d
        >>> net = Network(Model((Conv2d("a", 1, 1, (1, 1)),)))
        >>> net.frozen = ["a.weight"]
        >>> net.frozen += ("a.bias",)
        >>> net.frozen
        ('a.weight', 'a.bias')
        >>> net.frozen = ()
        """
        return tuple(name for name, place in parameter_places(self.model).items()
                     if extension.call("network_frozen", self._handle, place.layer, place.number))

    @frozen.setter
    def frozen(self, names: Iterable[str]) -> None:
        chosen = parameter_names("frozen", names, self.parameters)
        for name, place in parameter_places(self.model).items():
            extension.call("network_freeze", self._handle, place.layer, place.number, int(name in chosen))

    @one_at_a_time
    def forward(self, input: Array) -> Array:
        """Compute the output of the last layer, and return it, a new array (n, k, p, q).

        `input`: the network's dtype, (n, c, h, w), C-contiguous, finite; kept (not copied) until the next call, and
        not to be changed before `backward`.
        """
        x = self._input(input)
        self._has_gradients = False
        self._hold(x)
        with self._place.working(x):
            self._draw(x.shape)
            extension.call("network_forward", self._handle, x.address, x.extent, len(x.shape))
        self._inputs = (x,)
        return self._copy(len(self.model.layers), OUTPUT)

    @one_at_a_time
    def loss(self, target: Array) -> float:
        """Return the mean or sum of (output - target)**2 of the last `forward`; `target` has the output's shape.

        Waits for a CUDA device, to read the number back.
        """
        t = self._target(target)
        self._has_gradients = False
        with self._place.working(t):
            return float(extension.call("network_loss", self._handle, t.address, t.extent))

    @one_at_a_time
    def backward(self) -> Array | None:
        """Fill `gradients`, and return the gradient of the last `loss` with respect to the input, a new array.

        None with ``keep_activations=False``: it is not computed then.
        """
        with self._place.working(*self._inputs[-1:]):
            extension.call("network_backward", self._handle)
        self._has_gradients = True
        return self._copy(0, OUTPUT_GRADIENT) if self.keep_activations else None

    @property
    def steps(self) -> int:
        """Return the number of updates so far, which is that of the next step; `save` and `from_file` go on counting.
        """
        return int(extension.call("network_steps_done", self._handle))

    @one_at_a_time
    def update(self, optimizer: Optimizer | None = None, *, lr: float | None = None, momentum: float = 0.0,
               dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False) -> None:
        """Update all that is not `frozen` by one step with the last gradients, as torch's optimisers do.

        Parameters
        ----------
        optimizer : Sgd, Adam or AdamW
            With the learning rate of this step. What another optimiser remembers is forgotten.
        lr, momentum, dampening, weight_decay, nesterov : of SGD, in place of an optimizer
        """
        chosen = optimizer_of(optimizer, lr, momentum, dampening, weight_decay, nesterov)
        settings = settings_of(self.dtype, chosen)
        with self._place.working(*self._inputs[-1:]):
            extension.call("network_update", self._handle, *settings)
        self._optimizer = chosen

    @one_at_a_time
    def feed(self, input: np.ndarray, target: np.ndarray) -> None:
        """Give the next `step` its input and target, numpy arrays on any device, which are copied.

        On a CUDA device what is queued goes on meanwhile: from pinned memory, on a stream of its own, the next batch
        arrives while a captured step runs (behind one that is not, which reads the batch itself). Values are checked as
        on the CPU.

        Examples
        --------
        >>> from bridge.exchange.model import Conv2d
        >>> net, x = Network(Model((Conv2d("a", 1, 1, (1, 1)),))), np.ones((1, 1, 2, 2), np.float32)
        >>> net.feed(x, 2 * x)
        >>> for _ in range(2):
        ...     net.step(lr=0.125, read_loss=False)
        ...     net.feed(x, 2 * x)
        >>> net.read_loss()
        1.0
        """
        input = self._packed(input)
        alone = self._is_alone(input)
        x, t = (extension.check_array(name, array, dtype=self.dtype, ndim=self._dimensions(alone), finite=True)
                for name, array in (("input", input), ("target", target)))
        if alone:
            x, t = x[None], t[None]
        self._alone = alone
        extents = [Operand(None, 0, array.shape, self.dtype).extent for array in (x, t)]
        with self._place.working():
            extension.call("network_feed", self._handle, x.ctypes.data, extents[0], x.ndim, t.ctypes.data, extents[1])
        self._fed = x.shape

    @one_at_a_time
    def step(self, input: Array | None = None, target: Array | None = None, optimizer: Optimizer | None = None, *,
             lr: float | None = None, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
             nesterov: bool = False, read_loss: bool = True) -> float | None:
        """Run forward, loss, backward and update in one call, and return the loss before the update.

        Without input and target it takes, and uses up, those of the last `feed`. The optimizer, or the settings of SGD,
        are as of `update`.

        Waits for a CUDA device once, before the update, to read the loss back. With ``read_loss=False`` it does not
        wait, and the method returns None: `read_loss` reads the loss when it is wanted.

        On a CUDA device the second step of a shape is captured, and from then on input and target are copied inside
        the device and the rest is one launch (a CUDA graph) and the update; the option ``capture=no`` leaves that out.
        Another shape in between, of a `forward` too, means to begin anew.

        Raises
        ------
        DivergenceError
            If the loss is NaN or infinite: it names the step, counted from 0, and there is no update, so that weights
            and momenta are those before it. With ``read_loss=False`` on a CUDA device nobody looks: the update is made,
            and `read_loss` raises.
        """
        given = () if input is None and target is None else self._batch(input, target)
        chosen = optimizer_of(optimizer, lr, momentum, dampening, weight_decay, nesterov)
        settings = settings_of(self.dtype, chosen)
        wanted = flag("read_loss", read_loss)
        self._has_gradients = False
        with self._place.working(*given):
            self._draw(given[0].shape if given else self._fed)
            if given:
                self._hold(given[0])
                x, t = given
                loss = extension.call("network_step", self._handle, x.address, x.extent, len(x.shape), t.address,
                                      t.extent, *settings, int(wanted))
            else:
                loss = extension.call("network_step_fed", self._handle, *settings, int(wanted))
        self._inputs, self._has_gradients = given[:1], True
        self._optimizer = chosen
        return float(loss) if wanted else None

    def _batch(self, input: Array, target: Array) -> tuple[Operand, Operand]:
        """Checked."""
        x = self._input(input)
        return x, self._target(target, x)

    @property
    def captured(self) -> bool:
        """Return whether the last `step` was the replay of a captured one (a CUDA graph), as on a CUDA device from the
        second of a shape on.
        """
        return bool(extension.call("network_captured", self._handle))

    @one_at_a_time
    def read_loss(self) -> float:
        """Return the loss of the last `loss` or `step`, before its update. Waits for a CUDA device.

        Raises
        ------
        DivergenceError
            If it is NaN or infinite, and that of a step with ``read_loss=False``.
        """
        with self._place.working(*self._inputs[-1:]):
            return float(extension.call("network_read_loss", self._handle))

    @one_at_a_time
    def output(self, layer: str) -> Array:
        """Return the output of a layer in the last forward pass, a new array."""
        return self._copy(self._number(layer), OUTPUT)

    @one_at_a_time
    def output_gradient(self, layer: str) -> Array:
        """Return the gradient of the last `backward` with respect to a layer's output, a new array; "input" names the
        input's.
        """
        if not self.keep_activations:
            raise EngineError(f"output_gradient: that of {layer!r} is not kept, expected a network with "
                              "keep_activations=True")
        if not self._has_gradients:
            raise EngineError("output_gradient: no gradients yet, call backward first")
        return self._copy(0 if layer == "input" else self._number(layer), OUTPUT_GRADIENT)

    def plan(self, shape: tuple[int, int, int, int]) -> list[str]:
        """Say in words by which algorithms the convolutions are computed for an input of this shape (n, c, h, w).

        There is one text for each fused sequence, which is a convolution and those behind it with only ReLUs between,
        unless ``keep_activations=True``; the device cpu computes it depth first where it can (docs/cpu.md). Nothing is
        computed here.

        Raises
        ------
        ArgumentError
            If the shape is not of four sizes.
        EngineError
            If it does not fit the network.

        Examples
        --------
        >>> from bridge.exchange.model import Conv2d, Relu
        >>> layers = Conv2d("a", 1, 8, (3, 3)), Relu("r"), Conv2d("b", 8, 1, (3, 3))
        >>> Network(Model(layers), keep_activations=False).plan((2, 1, 64, 64))[0][:27]
        'a .. b: outputs depth first'
        """
        if len(shape) != 4:
            raise ArgumentError(f"shape: {tuple(shape)}, expected (n, c, h, w)")
        text = extension.call("network_plan", self._handle, extent_of(tuple(shape)))
        return text.decode("utf-8").strip().split("\n")

    @one_at_a_time
    def save(self, path: str | os.PathLike[str], optimizer: Optimizer | None = None) -> None:
        """Write model, parameters, which are frozen, buffers, what the optimiser remembers, and `steps` to an exchange
        file, whole or not at all.

        With the same optimiser, which `update` and `step` are given, `from_file` goes on from there to the bit.

        Parameters
        ----------
        path : file name; an older file is replaced
        optimizer : to be recorded; that of the last step, or of the file, when left out, and before any SGD with lr = 0

        Raises
        ------
        EngineError
            If a number is NaN or infinite, or the file cannot be written: an older file stays as it was.
        """
        settings = settings_of(self.dtype, self._optimizer if optimizer is None else optimizer_of(optimizer))
        with self._place.working():
            extension.call("network_save", self._handle, extension.path_text("path", path), *settings)

    def __reduce__(self) -> tuple[Any, ...]:
        raise ArgumentTypeError("a Network cannot be copied or pickled; expected save and from_file")

    def _as_it_computes(self) -> Model:
        """The model, whose normalisations take any number of elements after training."""
        if self.training:
            return self.model
        return replace(self.model, layers=tuple(
            replace(layer, training=False) if isinstance(layer, BatchNorm2d) and layer.track_running_stats else layer
            for layer in self.model.layers))

    def _draw(self, shape: tuple[int, ...]) -> None:
        """Masks for an input, which only training takes."""
        if self.training:
            self.masks.draw(shape)

    def _is_alone(self, input: Array) -> bool:
        """Whether an input is one sample without a batch."""
        return self.model.sample_rank is not None and getattr(input, "ndim", None) == self.model.sample_rank

    def _dimensions(self, alone: bool) -> int | range:
        """How many inputs and targets have."""
        rank = self.model.sample_rank
        return rank if alone and rank else rank + 1 if rank in (IMAGE, VOLUME) else extension.DIMENSIONS

    def _packed(self, given: Any) -> Any:
        return packed(self.inputs, given, lambda name, one: as_real(name, one, self.dtype, self.model))

    def _input(self, array: Array) -> Operand:
        """Checked; one sample as a batch of one."""
        array = self._packed(array)
        alone = self._is_alone(array)
        found = self._place.operand("input", array, dtype=self.dtype, ndim=self._dimensions(alone))
        self._alone = alone
        return found.as_batch() if alone else found

    def _target(self, array: Array, like: Operand | None = None) -> Operand:
        """The target of that input."""
        found = self._place.operand("target", array, dtype=self.dtype, ndim=self._dimensions(self._alone), like=like)
        return found.as_batch() if self._alone else found

    def _hold(self, x: Operand) -> None:
        """Fortran keeps the input's address even when it then fails: keep the new input alive, and the one before."""
        self._inputs = (*self._inputs[-1:], x)

    def _number(self, layer: str) -> int:
        names = [one.name for one in self.model.layers]
        if layer not in names:
            raise ArgumentError(f"layer: {layer!r}, expected one of {', '.join(names)}")
        return names.index(layer) + 1

    def _copy(self, number: int, which: int) -> Array:
        place, shape = self._tensors.find(number, which)
        if place == 0:
            raise EngineError("this tensor does not exist yet: call forward, loss or backward first")
        if self._inputs:
            given = self._inputs[-1].shape
            shape = (given, *self._as_it_computes().output_shapes(given))[number]
        like = self._inputs[-1] if self._inputs else Operand(None, 0, (), self.dtype)
        found = self._place.empty(shape[self._alone:], like)
        with self._place.working(found):
            if isinstance(self._place, dispatch.Host):
                extension.call("network_copy", self._handle, number, which, 1, found.address)
            else:
                code = extension.dtype_code("dtype", self.dtype)
                extension.call("device_convert", self.device, found.size, code, place, code, found.address)
        return found.array


def _built(model: Model, dtype: str, device: str, kept: int) -> int:
    """The handle of a new network."""
    code = extension.dtype_code("dtype", dtype)
    handle = int(extension.call("network_begin"))
    try:
        for layer in model.layers:
            extension.call("network_layer", handle, layer.kind, layer.name, ",".join(layer.inputs))
            for name, values in numbers(layer).items():
                array = np.array(values, dtype=np.float64)
                extension.call("network_attribute", handle, name, len(array), array.ctypes.data)
        if model.inputs:
            extension.call("network_inputs", handle, model.inputs)
        extension.call("network_build", handle, code, device, kept, model.loss, "mean" if model.mean else "sum")
    except BaseException:
        extension.api().network_free(handle)
        raise
    return handle
