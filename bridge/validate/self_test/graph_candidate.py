# SPDX-License-Identifier: MIT
"""A training run of a graph in torch, whose operations can be replaced by wrong ones; autograd makes its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import h5py
import torch

from bridge.exchange.file import ExchangeFile
from bridge.exchange.model import Model, Operation
from bridge.exchange.optimizers import Adam, AdamW, Optimizer, Sgd
from bridge.operations.graph import INPUT
from bridge.validate.self_test.candidate import read

Tensor = torch.Tensor
Parameters = dict[str, Tensor]


class GraphOperations:
    """The operations of a training step, right. Everything a fault can replace; one object lives through a run.

    Attributes
    ----------
    model : the network
    settings : of the optimiser, with the learning rate of this step
    rates : learning rates of all steps
    frozen : names of the parameters that are not trained
    step : number of the step
    known : outputs of this step by the names of their layers, and the input; their gradients once they are there
    weights : of this step, by the names of layers and parameters
    memory : what the optimiser keeps, by parameter and name
    """

    def __init__(self, model: Model, settings: Optimizer, rates: Sequence[float] = (),
                 frozen: Iterable[str] = ()) -> None:
        self.model, self.settings, self.rates, self.step = model, settings, tuple(rates), 0
        self.frozen = frozenset(frozen)
        self.known: dict[str, Tensor] = {}
        self.weights: Parameters = {}
        self.memory: dict[str, Parameters] = {}

    def forward(self, node: Operation, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        """Return a layer's output; its state, which is among the parameters, is changed in place."""
        found: Tensor = node.torch_forward(inputs, parameters)
        return found

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        found: Tensor = self.model.criterion.torch_forward(y, target)
        return found

    def gradient(self, name: str, g: Tensor) -> Tensor:
        """Return the gradient of a parameter, of what autograd has found."""
        return g

    def update(self, name: str, w: Tensor, g: Tensor) -> Tensor:
        """Return new weights by the rule of torch's optimiser."""
        if name in self.frozen:
            return w
        if isinstance(self.settings, Adam):
            return self.adam(name, w, g, self.settings)
        return self.sgd(name, w, g, self.settings)

    def sgd(self, name: str, w: Tensor, g: Tensor, sgd: Sgd) -> Tensor:
        """Return new weights by stochastic gradient descent."""
        g = g + sgd.weight_decay * w
        if sgd.momentum:
            kept = self.memory.setdefault(name, {})
            kept["v"] = sgd.momentum * kept["v"] + (1 - sgd.dampening) * g if kept else g
            g = g + sgd.momentum * kept["v"] if sgd.nesterov else kept["v"]
        return w - sgd.lr * g

    def adam(self, name: str, w: Tensor, g: Tensor, adam: Adam) -> Tensor:
        """Return new weights by Adam, or AdamW."""
        if isinstance(adam, AdamW):
            w = w - adam.lr * adam.weight_decay * w
        else:
            g = g + adam.weight_decay * w
        m, v = self.averages(name, g, adam)
        c1, c2 = self.corrections(adam)
        return w - adam.lr / c1 * m / ((v / c2).sqrt() + adam.eps)

    def averages(self, name: str, g: Tensor, adam: Adam) -> tuple[Tensor, Tensor]:
        """Return Adam's averages of the gradient and of its square, and keep them."""
        kept = self.memory.setdefault(name, {"m": torch.zeros_like(g), "v": torch.zeros_like(g)})
        kept["m"] = adam.beta1 * kept["m"] + (1 - adam.beta1) * g
        kept["v"] = adam.beta2 * kept["v"] + (1 - adam.beta2) * g * g
        return kept["m"], kept["v"]

    def corrections(self, adam: Adam) -> tuple[float, float]:
        """Return what the averages are divided by."""
        return 1 - adam.beta1 ** (self.step + 1), 1 - adam.beta2 ** (self.step + 1)


class _Run:
    """A training run of a fixture."""

    def __init__(self, source: ExchangeFile, file: h5py.File, kind: type[GraphOperations], dtype: str, written: str
                 ) -> None:
        assert source.model is not None and source.optimizer is not None
        self.source, self.file, self.model = source, file, source.model
        self.dtype, self.written = dtype, written
        steps = range(source.batches())
        settings = [source.optimizer_at(k) for k in steps]
        self.settings = [one for one in settings if one is not None]
        shapes = self.model.parameter_shapes()
        self.operations = kind(self.model, self.settings[0], [one.lr for one in self.settings],
                               [name for name in shapes if source.is_frozen(name)])
        self.weights = {name: self._read(f"steps/0/weights/{name}", shape) for name, shape in shapes.items()}
        self.state = {name: self._read(f"state/{name}", shape)
                      for name, shape in self.model.graph.state_shapes().items()}

    def run(self) -> None:
        for k, settings in enumerate(self.settings):
            self._write_weights(k)
            self.operations.step, self.operations.settings = k, settings
            self._step(k)
        self._write_weights(len(self.settings))

    def _step(self, k: int) -> None:
        group, operations = f"steps/{k}", self.operations
        x, target = (self._read(f"batches/{k}/{name}") for name in ("input", "target"))
        learned = {name: w.clone().requires_grad_() for name, w in self.weights.items()}
        given = learned | self.state | {
            f"{name}/mask": self._read(f"{group}/masks/{name}") for name in self.model.graph.masked()}
        operations.weights = dict(self.weights)
        known = operations.known = {INPUT: x.requires_grad_()}
        for node in self.model.graph.nodes:
            own = {name.removeprefix(f"{node.name}/"): one for name, one in given.items()
                   if name.rpartition("/")[0] == node.name}
            known[node.name] = operations.forward(node, [known[name] for name in node.inputs], own)
            known[node.name].retain_grad()
            self._write(f"{group}/forward/{node.name}", known[node.name])
            for name in node.new_state_shapes():
                self.state[f"{node.name}/{name}"] = own[name]
                self._write(f"{group}/state/{node.name}/{name}", own[name])
        loss = operations.loss(known[self.model.graph.nodes[-1].name], target)
        self._write(f"{group}/loss", loss)
        loss.backward()  # type: ignore[no-untyped-call]
        for name, one in known.items():
            # Whole numbers that choose something have no gradient
            found = torch.zeros_like(one) if one.grad is None else one.grad
            self._write(f"{group}/grads/{name}" + ("" if name == INPUT else "/output"), found)
        for name, w in learned.items():
            # A layer that ignores one of its parameters has no gradient of it
            found = torch.zeros_like(w) if w.grad is None else w.grad
            gradient = self._write(f"{group}/grads/{name}", operations.gradient(name, found))
            self.weights[name] = operations.update(name, self.weights[name], gradient)

    def _write_weights(self, step: int) -> None:
        for name, w in self.weights.items():
            self._write(f"steps/{step}/weights/{name}", w)

    def _read(self, name: str, shape: tuple[int, ...] | None = None) -> Tensor:
        return read(self.source, name, self.dtype, shape)

    def _write(self, name: str, tensor: Tensor) -> Tensor:
        self.file[name] = tensor.detach().contiguous().numpy().astype(self.written)
        return tensor.detach()


def train_graph(fixture: Path, result: Path, kind: type[GraphOperations] = GraphOperations, *,
                dtype: str = "float32", written: str = "", threads: int = 1) -> Path:
    """Run a fixture's steps with the operations of `kind`; write everything.

    Parameters
    ----------
    dtype : in which it computes, float32 or float64
    written : type of what it writes, where that is another one
    threads : of torch
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with ExchangeFile(fixture) as source, h5py.File(result, "w") as file:
            file.attrs.update({"format": "cnn-exchange", "format_version": 2, "role": "candidate",
                               "precision": written or dtype})
            _Run(source, file, kind, dtype, written or dtype).run()
    finally:
        torch.set_num_threads(before)
    return result


class _Backward(torch.autograd.Function):
    """The identity of a layer's output, whose gradient goes to the layer's inputs by a formula of its own."""

    @staticmethod
    def forward(ctx: Any, formula: Callable[..., list[Tensor]], y: Tensor, *inputs: Tensor) -> Tensor:
        ctx.formula = formula
        ctx.save_for_backward(*inputs)
        return y.clone()

    @staticmethod
    def backward(ctx: Any, *dy: Tensor) -> Any:
        return None, dy[0], *ctx.formula(dy[0], *ctx.saved_tensors)


Forward = Callable[[GraphOperations, Any, list[Tensor], Parameters], Tensor]
Formula = Callable[[Any, Tensor, list[Tensor], Parameters], list[Tensor]]


def replaced(**methods: Callable[..., Any]) -> type[GraphOperations]:
    """Return operations of which some are replaced; each replacement gets ``self`` first."""
    return type("Wrong", (GraphOperations,), methods)


def layer(name: str, change: Forward) -> type[GraphOperations]:
    """Return operations of which one layer gives ``change(self, node, inputs, parameters)``, and autograd's gradient.
    """
    def forward(self: GraphOperations, node: Operation, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        chosen = change if node.name == name else GraphOperations.forward
        return chosen(self, node, inputs, parameters)

    return replaced(forward=forward)


def backward(name: str, formula: Formula) -> type[GraphOperations]:
    """Return operations of which one layer sends ``formula(self, dy, inputs, parameters)`` back to its inputs; its
    parameters' gradients are right.
    """
    def forward(self: GraphOperations, node: Operation, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        y = GraphOperations.forward(self, node, [x.detach() for x in inputs], parameters)
        kept = {name: one.detach() for name, one in parameters.items()}
        apply: Callable[..., Tensor] = _Backward.apply
        return apply(lambda dy, *xs: formula(self, dy, list(xs), kept), y, *inputs)

    return layer(name, forward)


def through(of: Callable[[Tensor], Tensor]) -> Formula:
    """Return the formula of `backward` by which a gradient goes through another function of one input.

    >>> found = through(torch.square)(None, torch.ones(2), [torch.tensor([1.0, 3.0])], {})
    >>> found[0].tolist()
    [2.0, 6.0]
    """
    def formula(_: Any, dy: Tensor, inputs: list[Tensor], parameters: Parameters) -> list[Tensor]:
        with torch.enable_grad():
            leaf = inputs[0].detach().requires_grad_()
            return list(torch.autograd.grad(of(leaf), leaf, dy))

    return formula
