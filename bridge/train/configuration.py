# SPDX-License-Identifier: MIT
"""What a training is: a TOML file, from which network, batches and settings are made.

Tables and keys are those of the classes that they describe; whatever is unknown is refused by name::

    model = "package.module:factory"    # a PyTorch module, or an exchange file with a network
    loss = "mse"
    output = "run"                      # folder of checkpoints and log
    device = "cpu"

    [data]                              # see docs/data.md
    noise2noise = "even_odd"            # or "consecutive"; or none, and targets = ["..."]
    inputs = ["movies/*.mrcs"]
    batch = 2
    crop = [512, 512]
    normalization = "image"

    [validation]                        # the same keys; what is not given is as in data
    inputs = ["held_out/*.mrcs"]        # or part = 0.1, of data's pairs

    [training]                          # see bridge.train.settings
    steps = 10000
    schedule = "one_cycle steps=10000"
    clip = 1.0
    validate_every = 500

    [optimizer]
    type = "adamw"
    lr = 1e-3
"""

from __future__ import annotations

import importlib
import os
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from bridge.common.errors import ArgumentError, FileError, foreign
from bridge.common.optional_packages import require
from bridge.data import Batches, Consecutive, EvenOdd, ImagePairs, Pairs, split
from bridge.engine.network.network import Network
from bridge.engine.network.torch_graph import image_channels
from bridge.exchange.file import ExchangeFile
from bridge.exchange.model import Model
from bridge.exchange.optimizers import OPTIMIZERS, Optimizer
from bridge.operations.losses import MeanSquaredError, loss_from
from bridge.train.schedules import Schedule
from bridge.train.settings import TrainSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    require("tomli", "a training is written down in TOML, which Python itself reads from 3.11 on")
    import tomli as tomllib

HALVES = {"even_odd": EvenOdd, "consecutive": Consecutive}
#: Keys of [data] and [validation]: those of pairs, and those of `Batches`
OF_PAIRS = ("inputs", "targets", "noise2noise", "on_bad")
OF_BATCHES = ("batch", "crop", "seed", "flips", "rotations", "normalization", "crops", "block", "swap")
#: Key of [validation]: which part of data's pairs is held out
PART = "part"
#: Keys of [training] are settings but these, which have a table, or a text, of their own
OF_SETTINGS = tuple(one.name for one in fields(TrainSettings) if one.name != "optimizer")


@dataclass(frozen=True)
class Configuration:
    """A training as it is written down.

    Attributes
    ----------
    model : str
        "package.module:factory" of a PyTorch module, or the name of an exchange file.
    data, validation : mapping
        Keys of `OF_PAIRS` and `OF_BATCHES`; validation may be empty.
    settings : TrainSettings
    loss : str or None
        None: that of the exchange file, and of a PyTorch module the mean squared error.
    output, device : str

    Raises
    ------
    ArgumentError
        If a key is unknown, missing, or of another type. Names the table and the key.

    Examples
    --------
    >>> found = Configuration.of_text('''model = "net.h5"
    ... [data]
    ... inputs = "stack.npy"
    ... noise2noise = "consecutive"
    ... batch = 2
    ... crop = [64, 64]
    ... [training]
    ... steps = 10''')
    >>> found.settings.steps, found.data["crop"], found.output
    (10, [64, 64], 'run')
    """

    model: str
    data: Mapping[str, Any]
    settings: TrainSettings
    validation: Mapping[str, Any] = field(default_factory=dict)
    loss: str | None = None
    output: str = "run"
    device: str = "cpu"

    @classmethod
    def of_file(cls, path: str | os.PathLike[str], changes: Mapping[str, str] | None = None,
                values: Mapping[str, object] | None = None) -> Configuration:
        """Return the configuration of a TOML file, some of whose keys are changed.

        Parameters
        ----------
        changes : "training.steps" and the like, with TOML's text of a value each
        values : the same, each as it is

        Raises
        ------
        FileError
            If it cannot be read, or is no TOML.
        """
        try:
            with open(path, encoding="utf-8") as file:
                return cls.of_text(file.read(), changes, values)
        except OSError as error:
            raise FileError(f"{os.fspath(path)}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise FileError(f"{os.fspath(path)}: {error}, expected TOML") from None
        except tomllib.TOMLDecodeError as error:
            raise FileError(f"{os.fspath(path)}: {error}, expected TOML") from None

    @classmethod
    def of_text(cls, text: str, changes: Mapping[str, str] | None = None,
                values: Mapping[str, object] | None = None) -> Configuration:
        """Return the configuration of TOML's text."""
        found = tomllib.loads(text)
        for name, given in (changes or {}).items():
            _change(found, name, _value(given))
        for name, value in (values or {}).items():
            _change(found, name, value)
        return cls.of_tables(found)

    @classmethod
    def of_tables(cls, found: Mapping[str, Any]) -> Configuration:
        """Return the configuration of what TOML's text says."""
        _check("", found, ("model", "loss", "output", "device", "data", "validation", "training", "optimizer"))
        texts = {name: found[name] for name in ("model", "loss", "output", "device") if name in found}
        tables = {name: found.get(name, {}) for name in ("data", "validation", "training", "optimizer")}
        for kind, given in ((str, texts), (dict, tables)):
            for name, one in given.items():
                if not isinstance(one, kind):
                    raise ArgumentError(f"{name}: {one!r}, expected a {'text' if kind is str else 'table'}")
        for name in ("model", "data"):
            if name not in found:
                raise ArgumentError(f"{name}: missing, expected in the configuration")
        _check("data.", tables["data"], (*OF_PAIRS, *OF_BATCHES))
        _check("validation.", tables["validation"], (PART, *OF_PAIRS, *OF_BATCHES))
        return cls(data=tables["data"], validation=tables["validation"],
                   settings=_settings(tables["training"], tables["optimizer"]), **texts)

    def network(self) -> Network:
        """Return the network, with its weights at the beginning.

        Those that a factory draws depend on the seed of ``[data]`` alone.

        Raises
        ------
        ArgumentError, FileError
            If there is none, its factory fails, or it is none that `Network.from_torch` takes; if an exchange file has
            another loss.
        """
        if ":" in self.model:
            require("torch", f"model {self.model!r} is a PyTorch module")
            network = self._read(self._module())
        else:
            network = Network.from_file(self.model, device=self.device, keep_activations=False)
            self._check_loss(network.model)
        if network.dtype != "float32":
            raise ArgumentError(f"model: the parameters of {self.model!r} are {network.dtype}, expected float32, which "
                                "images are read as")
        return network

    def _read(self, module: Any) -> Network:
        """Without an example, or else with one as large as a crop."""
        given: dict[str, Any] = {"loss": self.loss or MeanSquaredError.kind, "device": self.device}
        crop = self.data.get("crop")
        try:
            return Network.from_torch(module, keep_activations=False, **given)
        except ArgumentError:
            # What it needs torch.export for cannot be read without
            if not isinstance(crop, list) or len(crop) != 2:
                raise
            example = (2, image_channels(module), *crop)
            return Network.from_torch(module, keep_activations=False, example=example, **given)

    def described(self) -> Model | None:
        """Return layers and loss of the network; None where its file, or PyTorch, is not there.

        Raises
        ------
        ArgumentError, FileError
            As of `network`.
        """
        if ":" in self.model:
            return replace(self, device="cpu").network().model if find_spec("torch") else None
        if not os.path.exists(self.model):
            return None
        with ExchangeFile(self.model) as file:
            if file.model is not None:
                self._check_loss(file.model)
            return file.model

    def _check_loss(self, model: Model) -> None:
        """An exchange file has its own."""
        try:
            expected = model.loss if self.loss is None else loss_from(self.loss, model.mean).text
        except FileError as error:
            raise ArgumentError(f"loss: {error}") from None
        if expected != model.loss:
            raise ArgumentError(f"loss: {self.loss!r}, but that of {self.model} is {model.loss!r}, expected the same")

    def _module(self) -> Any:
        """What the factory makes, whatever was drawn in this process before."""
        import torch

        seed = int(self.data.get("seed", 0))
        sys.path.insert(0, os.getcwd())
        try:
            factory = _factory(self.model)
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            return factory()
        except ArgumentError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise ArgumentError(f"model: {self.model!r} fails: {foreign(error)}") from error
        finally:
            del sys.path[0]

    def batches(self) -> tuple[Batches, Batches | None]:
        """Return the batches to train on, and those to validate on, if there are any.

        Validation is on other files, or on a part of the pairs, which is held out; without flips, turns and swaps as
        far as nothing else is said.
        """
        pairs = _pairs("data", self.data)
        if not self.validation:
            return _batches("data", pairs, self.data), None
        given = dict(self.validation)
        options = {name: one for name, one in self.data.items() if name in OF_BATCHES and name != "swap"} | {
            "flips": False, "rotations": False} | given
        if PART not in given:
            held_out = _pairs("validation", {"noise2noise": self.data["noise2noise"]} | given
                              if "targets" not in given and "noise2noise" in self.data else given)
        elif others := [name for name in OF_PAIRS if name in given]:
            raise ArgumentError(f"validation.{others[0]}: given together with {PART}, expected one of both")
        else:
            if not isinstance(given[PART], float):
                raise ArgumentError(f"validation.{PART}: {given[PART]!r}, expected a number between 0 and 1")
            pairs, held_out = split(pairs, given[PART], int(self.data.get("seed", 0)))
        return _batches("data", pairs, self.data), _batches("validation", held_out, options)


def _factory(model: str) -> Callable[[], Any]:
    """What ``package.module:factory`` names."""
    module, _, name = model.partition(":")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # the user's file may raise anything while it is imported
        raise ArgumentError(f"model: {model!r}: {module} cannot be imported: {foreign(error)}, expected "
                            "package.module:factory") from error
    if not callable(found):
        raise ArgumentError(f"model: {model!r}: {module} has no function or class {name!r}, expected "
                            "package.module:factory")
    factory: Callable[[], Any] = found
    return factory


def _batches(table: str, pairs: ImagePairs, given: Mapping[str, Any]) -> Batches:
    for name in ("batch", "crop"):
        if name not in given:
            raise ArgumentError(f"{table}.{name}: missing, expected in the configuration")
    options = {name: given[name] for name in OF_BATCHES if name in given}
    crop = options["crop"]
    if not (isinstance(crop, list) and len(crop) == 2 and all(isinstance(one, int) for one in crop)):
        raise ArgumentError(f"{table}.crop: {crop!r}, expected [height, width]")
    if isinstance(options.get("normalization"), list):
        options["normalization"] = tuple(options["normalization"])
    try:
        return Batches(pairs, **options | {"crop": tuple(crop)})
    except TypeError as error:
        raise ArgumentError(f"{table}: {error}") from None


def _pairs(table: str, given: Mapping[str, Any]) -> ImagePairs:
    if "inputs" not in given:
        raise ArgumentError(f"{table}.inputs: missing, expected in the configuration")
    rest = {"on_bad": given["on_bad"]} if "on_bad" in given else {}
    if ("targets" in given) == ("noise2noise" in given):
        raise ArgumentError(f"{table}: expected either targets or noise2noise")
    if "targets" in given:
        return Pairs(given["inputs"], given["targets"], **rest)
    if given["noise2noise"] not in HALVES:
        raise ArgumentError(f"{table}.noise2noise: {given['noise2noise']!r}, expected one of {', '.join(HALVES)}")
    return HALVES[given["noise2noise"]](given["inputs"], **rest)


def _settings(training: Mapping[str, Any], optimizer: Mapping[str, Any]) -> TrainSettings:
    _check("training.", training, OF_SETTINGS)
    if "steps" not in training:
        raise ArgumentError("training.steps: missing, expected in the configuration")
    given = dict(training)
    if "schedule" in given:
        given["schedule"] = Schedule.of_text(str(given["schedule"]))
    if optimizer:
        given["optimizer"] = _optimizer(optimizer)
    try:
        return TrainSettings(**given)
    except TypeError as error:
        raise ArgumentError(f"training: {error}, expected numbers") from None


def _optimizer(given: Mapping[str, Any]) -> Optimizer:
    kind = OPTIMIZERS.get(str(given.get("type")))
    if kind is None:
        raise ArgumentError(f"optimizer.type: {given.get('type')!r}, expected one of {', '.join(OPTIMIZERS)}")
    known = tuple(one.name for one in fields(kind))
    _check("optimizer.", given, ("type", *known))
    if "lr" not in given:
        raise ArgumentError("optimizer.lr: missing, expected in the configuration")
    for name in known:
        if isinstance(given.get(name, 0), (str, list, dict)):
            raise ArgumentError(f"optimizer.{name}: {given[name]!r}, expected a number")
    return kind(**{name: given[name] for name in known if name in given})


def _check(table: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse keys that nobody reads."""
    for name in given:
        if name not in known:
            raise ArgumentError(f"{table}{name}: unknown, expected one of {', '.join(known)}")


def _value(text: str) -> object:
    """What TOML's text says; a text needs no quotation marks."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _change(tables: dict[str, Any], name: str, value: object) -> None:
    """Set "table.key", or "key"."""
    *path, key = name.split(".")
    for part in path:
        tables = tables.setdefault(part, {})
        if not isinstance(tables, dict):
            raise ArgumentError(f"{name}: {part} is no table")
    tables[key] = value
