# SPDX-License-Identifier: MIT
"""Recurrent layers: one direction of one layer of torch's LSTM, GRU and RNN.

The input (n, times, gates * hidden_size) is what a linear layer makes of torch's input, with its ``weight_ih`` and
``bias_ih``; the parameters are ``weight_hh`` and ``bias_hh``. The first output before is 0, and so is the first state.

Each time follows from the one before, so that a rounding at the first one may be much larger at the last. Where all
outputs of a program are known, these are taken for the outputs before: then each time has its own roundings alone. They
are among the parameters, as ``output``, and the gradient with respect to the input as ``input_gradient``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bridge.operations.operation import Gradients, Number, Operation, Shape
from bridge.operations.pointwise import slope_of_sigmoid, slope_of_tanh

#: Numbers of all times by their names
Known = Mapping[str, Number]


@dataclass(frozen=True)
class _Recurrent(Operation):
    """What the layers have in common."""

    hidden_size: int
    bias: bool = True
    reverse: bool = False
    gates: ClassVar[int]
    #: of what is known, what the gradient of the time before takes
    read_later: ClassVar[str] = ""
    follows_itself: ClassVar[bool] = True

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return those of the weights, (gates * hidden, hidden), and, where there is one, of the bias."""
        count = self.gates * self.hidden_size
        return {"weight": (count, self.hidden_size)} | ({"bias": (count,)} if self.bias else {})

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, times, hidden_size)."""
        (shape,) = shapes
        if len(shape) != 3 or shape[2] != self.gates * self.hidden_size:
            raise self.refuse(f"input {shape}", f"a shape (n, times, {self.gates * self.hidden_size})")
        return (*shape[:2], self.hidden_size)

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the outputs of all times."""
        z, own = self._ordered(inputs[0]), parameters.get("output")
        return self._ordered(self._one_by_one(z, parameters) if own is None else self._output(self._known(
            z, self._before(self._ordered(own)), parameters, self._beginning(z)[1])))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the gradients with respect to input, weight and bias."""
        z, dy, own = self._ordered(inputs[0]), self._ordered(dy), parameters.get("input_gradient")
        output = parameters.get("output")
        y = self._one_by_one(z, parameters) if output is None else self._ordered(output)
        before, first = self._before(y).named("the output before"), self._beginning(z)[1]
        known = {**self._known(z, before, parameters, first), "before": before, "y": y}
        if "state" in known:
            known["state before"] = _behind(first, known["state"]).named("the state before")
        weight = parameters["weight"]
        if own is None:
            used = dz = self._back_one_by_one(dy, known, weight)
        else:
            used = self._ordered(own).named("the gradient of the input")
            dz, _ = self._gradients(dy, self._passed_back(_shifted(used, -1)), known, self._later(known), weight, None)
        products = self._of_products(used, known)
        rows = products.reshape((-1, products.shape[2]))
        found = {"weight": rows.transpose((1, 0)) @ self._of_weight(known).reshape((-1, self.hidden_size))}
        if self.bias:
            found["bias"] = rows.sum((0,))
        return [self._ordered(dz)], found

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return what torch's layer gives, time by time."""
        import torch
        from torch.nn import functional

        z = inputs[0].flip(1) if self.reverse else inputs[0]
        h = z.new_zeros(z.shape[0], self.hidden_size)
        state, found = (h, h), []
        for t in range(z.shape[1]):
            state = self._torch_cell(z[:, t], functional.linear(state[0], parameters["weight"], parameters.get("bias")),
                                     state)
            found.append(state[0])
        y = torch.stack(found, 1)
        return y.flip(1) if self.reverse else y

    def _ordered(self, x: Number) -> Number:
        """Numbers with the time first that comes first, or put back."""
        return x.moved(lambda a: a[:, ::-1]) if self.reverse else x

    def _later(self, known: Known) -> Known:
        """What is known, at the time behind."""
        return {name: self._passed_back(_shifted(known[name], -1)) for name in self.read_later}

    def _passed_back(self, x: Number, start: int = 0) -> Number:
        """What times from `start` on get of numbers of those behind them: all."""
        return x

    def _of_weight(self, known: Known) -> Number:
        """What the weight is multiplied by."""
        return known["before"]

    def _beginning(self, z: Number) -> tuple[Number | None, Number | None]:
        """Output and state before the first time; None where they are 0."""
        return None, None

    def _before(self, y: Number) -> Number:
        """The outputs before those of all times."""
        return _behind(self._beginning(y)[0], y)

    def _product(self, before: Number, parameters: Mapping[str, Number]) -> Number:
        """What outputs before make of the gates."""
        n, times, _ = before.shape
        rows = before.reshape((-1, self.hidden_size)) @ parameters["weight"].transpose((1, 0))
        rows = rows.joined([parameters["bias"]]) if self.bias else rows
        return rows.reshape((n, times, self.gates * self.hidden_size))

    def _back_product(self, dz: Number, weight: Number) -> Number:
        """What gradients of the products make of that of the outputs before."""
        n, times, count = dz.shape
        return (dz.reshape((-1, count)) @ weight).reshape((n, times, self.hidden_size))

    def _part(self, x: Number, number: int) -> Number:
        """The numbers of one gate."""
        return x[:, :, number * self.hidden_size:(number + 1) * self.hidden_size]

    def _one_by_one(self, z: Number, parameters: Mapping[str, Number]) -> Number:
        """The outputs of all times, each from what the one before has been found to be."""
        (h, state), found = self._beginning(z), []
        h = _zero(z, self.hidden_size) if h is None else h
        for t in range(z.shape[1]):
            known = self._known(z[:, t:t + 1], h, parameters, state)
            h, state = self._output(known), known.get("state")
            found.append(h)
        return found[0].concatenated(found[1:], 1)

    def _back_one_by_one(self, dy: Number, known: Known, weight: Number) -> Number:
        after, carried, found = _zero(dy, self.gates * self.hidden_size), None, []
        later = self._later(known)
        for t in reversed(range(dy.shape[1])):
            now, then = ({name: one[:, t:t + 1] for name, one in of.items()} for of in (known, later))
            after, carried = self._gradients(
                dy[:, t:t + 1], self._passed_back(after, t), now, then, weight, carried)
            found.append(after)
        return found[-1].concatenated(found[-2::-1], 1)

    def _known(self, z: Number, before: Number, parameters: Mapping[str, Number], state: Number | None = None) -> Known:
        """What follows from the input and the outputs before, at some times; `state`: before these."""
        raise NotImplementedError

    def _output(self, known: Known) -> Number:
        raise NotImplementedError

    def _gradients(self, dy: Number, after: Number, known: Known, later: Known, weight: Number, carried: Number | None
                   ) -> tuple[Number, Number]:
        """The gradient of the input at some times, and what of it goes to the time before by way of the state.

        Parameters
        ----------
        after : the gradient of the input at the time behind each of them
        later : what is known, at the time behind
        carried : the second result for the time behind these
        """
        raise NotImplementedError

    def _of_products(self, dz: Number, known: Known) -> Number:
        """The gradient of the products with the weights."""
        return dz

    def _torch_cell(self, z: Any, product: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        raise NotImplementedError


@dataclass(frozen=True)
class Lstm(_Recurrent):
    """A layer of long short-term memory: gates are input, forget, proposal, output, as in torch."""

    gates: ClassVar[int] = 4
    read_later: ClassVar[str] = "f"
    kind: ClassVar[str] = "lstm"

    def _known(self, z: Number, before: Number, parameters: Mapping[str, Number], state: Number | None = None) -> Known:
        sums = self._product(before, parameters).joined([z])
        parts = [self._part(sums, k).named(f"what {name} takes") for k, name in enumerate(
            ("the input gate", "the forget gate", "the proposal", "the output gate"))]
        i, f, o = (parts[k].sigmoid().named(name) for k, name in (
            (0, "the input gate"), (1, "the forget gate"), (3, "the output gate")))
        g = parts[2].tanh().named("the proposal")
        c = (i * g).carried(f, first=state).named("the state")
        return {"i": i, "f": f, "g": g, "o": o, "state": c, "t": c.tanh().named("the state's tangent"),
                **dict(zip(("sum i", "sum f", "sum g", "sum o"), parts, strict=True))}

    def _output(self, known: Known) -> Number:
        return known["o"] * known["t"]

    def _gradients(self, dy: Number, after: Number, known: Known, later: Known, weight: Number, carried: Number | None
                   ) -> tuple[Number, Number]:
        i, f, g, o, t, c = (known[name] for name in ("i", "f", "g", "o", "t", "state"))
        dh = dy.joined([self._back_product(after, weight)]).named("the gradient of the output")
        dc = (dh * o * slope_of_tanh(t, c)).named("the gradient of the state by way of the output")
        dc = dc.carried(later["f"], backwards=True, first=carried).named("the gradient of the state")
        found = [dc * g * slope_of_sigmoid(i, known["sum i"]),
                 dc * known["state before"] * slope_of_sigmoid(f, known["sum f"]),
                 dc * i * slope_of_tanh(g, known["sum g"]), dh * t * slope_of_sigmoid(o, known["sum o"])]
        return found[0].concatenated(found[1:], 2), dc

    def _torch_cell(self, z: Any, product: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        i, f, g, o = (z + product).chunk(4, 1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


@dataclass(frozen=True)
class Gru(_Recurrent):
    """A layer of gated recurrent units: gates are reset, update, proposal, as in torch."""

    gates: ClassVar[int] = 3
    read_later: ClassVar[str] = "ru"
    kind: ClassVar[str] = "gru"

    def _known(self, z: Number, before: Number, parameters: Mapping[str, Number], state: Number | None = None) -> Known:
        product = self._product(before, parameters)
        sums = [self._part(product, k).joined([self._part(z, k)]).named(f"what the {name} gate takes")
                for k, name in enumerate(("reset", "update"))]
        r, u = (one.sigmoid().named(name) for one, name in zip(
            sums, ("the reset gate", "the update gate"), strict=True))
        a = self._part(product, 2).named("what the output before proposes")
        proposed = (self._part(z, 2) + r * a).named("what the proposal takes")
        return {"r": r, "u": u, "a": a, "n": proposed.tanh().named("the proposal"), "before": before,
                "sum r": sums[0], "sum u": sums[1], "sum n": proposed}

    def _output(self, known: Known) -> Number:
        n, u, before = (known[name] for name in ("n", "u", "before"))
        return (n + u * (before - n)).or_as((1.0 - u) * n + u * before)

    def _gradients(self, dy: Number, after: Number, known: Known, later: Known, weight: Number, carried: Number | None
                   ) -> tuple[Number, Number]:
        r, u, a, n, before = (known[name] for name in ("r", "u", "a", "n", "before"))
        dh = dy.joined([self._back_product(self._of_products(after, later), weight)])
        dh = dh.carried(later["u"], backwards=True, first=carried).named("the gradient of the output")
        dn = (dh * (1.0 - u) * slope_of_tanh(n, known["sum n"])).named("the gradient of the proposal")
        du = (dh * (before - n)).or_as(dh * before - dh * n)
        found = [dn * a * slope_of_sigmoid(r, known["sum r"]), du * slope_of_sigmoid(u, known["sum u"]), dn]
        return found[0].concatenated(found[1:], 2), dh

    def _of_products(self, dz: Number, known: Known) -> Number:
        h = self.hidden_size
        return dz[:, :, :2 * h].concatenated([self._part(dz, 2) * known["r"]], 2)

    def _torch_cell(self, z: Any, product: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        (r, u, n), (r_, u_, n_) = z.chunk(3, 1), product.chunk(3, 1)
        r, u = (r + r_).sigmoid(), (u + u_).sigmoid()
        n = (n + r * n_).tanh()
        h = n + u * (state[0] - n)
        return h, h


@dataclass(frozen=True)
class Rnn(_Recurrent):
    """A plain recurrent layer, of the tangent, or with `relu` of that."""

    relu: bool = False
    gates: ClassVar[int] = 1
    kind: ClassVar[str] = "rnn"

    def _known(self, z: Number, before: Number, parameters: Mapping[str, Number], state: Number | None = None) -> Known:
        return {"sum": self._product(before, parameters).joined([z]).named("what the output takes")}

    def _output(self, known: Known) -> Number:
        total = known["sum"]
        return (total > 0.0).choose(total, 0.0) if self.relu else total.tanh()

    def _gradients(self, dy: Number, after: Number, known: Known, later: Known, weight: Number, carried: Number | None
                   ) -> tuple[Number, Number]:
        dh = dy.joined([self._back_product(after, weight)]).named("the gradient of the output")
        y = known["y"]
        return ((y > 0.0).choose(dh, 0.0) if self.relu else dh * slope_of_tanh(y, known["sum"])), dh

    def _torch_cell(self, z: Any, product: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        h = (z + product).relu() if self.relu else (z + product).tanh()
        return h, h


def _zero(x: Number, width: int) -> Number:
    """Nothing, at one time."""
    return x.exact(np.zeros((x.shape[0], 1, width)))


def _behind(first: Number | None, x: Number) -> Number:
    """The numbers of the time before, and at the first time these, or 0."""
    return _shifted(x, 1) if first is None else first.concatenated([x[:, :-1]], 1)


def _shifted(x: Number, step: int) -> Number:
    """The numbers of the time before (1), or of the time behind (-1), and 0 where there is none."""
    return x.padded(((0, 0), (step, -step), (0, 0)), 0.0)
