# SPDX-License-Identifier: MIT
"""Broken and hostile exchange files, made from right ones: shared by test_fuzz.py and benchmarks/validator/fuzz.py.

A mutation is a function of a path and a random generator that changes the file in place. The same kind and seed
make the same file.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Random = random.Random
Change = Callable[[h5py.File, str, Random], object]
SIGNATURES = re.compile(rb"\x89HDF|TREE|SNOD|HEAP|GCOL|OHDR|OCHK|FRHP|FSHD|BTHD|BTLF")


# Of bytes: what a bad disk, a bad copy, or an attacker makes

def _splice(content: bytearray, at: int, new: bytes) -> None:
    content[at:at + len(new)] = new[:max(0, len(content) - at)]


def _near_metadata(content: bytearray, r: Random) -> int:
    """A place in the first bytes of one of HDF5's own structures."""
    places = [match.start() for match in SIGNATURES.finditer(content)]
    return min(r.choice(places) + r.randrange(256), len(content) - 1)


def _flip_metadata(content: bytearray, r: Random) -> None:
    for _ in range(r.choice((1, 2, 8, 40))):
        content[_near_metadata(content, r)] = r.choice((0, 1, 0x7F, 0x80, 0xFF, r.randrange(256)))


def _flip_anywhere(content: bytearray, r: Random) -> None:
    for _ in range(r.choice((1, 20, 1000))):
        content[r.randrange(len(content))] = r.randrange(256)


def _flip_bit(content: bytearray, r: Random) -> None:
    at = _near_metadata(content, r)
    content[at] ^= 1 << r.randrange(8)


def _wrong_number(content: bytearray, r: Random) -> None:
    """A length, a count or an address of the metadata becomes an extreme one."""
    at = _near_metadata(content, r) & ~3
    value = r.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1, len(content), len(content) - 1))
    _splice(content, at, value.to_bytes(8, "little")[:r.choice((2, 4, 8))])


def _truncate(content: bytearray, r: Random) -> None:
    del content[r.randrange(len(content)):]


def _fill_block(content: bytearray, r: Random) -> None:
    at = r.choice((_near_metadata(content, r), r.randrange(len(content))))
    _splice(content, at, r.choice((b"\0", b"\xff")) * r.choice((8, 64, 512, 4096)))


def _copy_block(content: bytearray, r: Random) -> None:
    length = r.choice((8, 64, 512, 4096))
    source, target = _near_metadata(content, r), _near_metadata(content, r)
    _splice(content, target, bytes(content[source:source + length]))


def _insert_block(content: bytearray, r: Random) -> None:
    at = r.randrange(len(content))
    content[at:at] = content[at:at + r.choice((1, 8, 512))]


def _delete_block(content: bytearray, r: Random) -> None:
    at = r.randrange(len(content))
    del content[at:at + r.choice((1, 8, 512, 4096))]


BYTES: dict[str, Callable[[bytearray, Random], None]] = {
    "truncated": _truncate, "metadata bytes": _flip_metadata, "metadata bit": _flip_bit,
    "metadata number": _wrong_number, "any bytes": _flip_anywhere, "filled block": _fill_block,
    "copied block": _copy_block, "inserted block": _insert_block, "deleted block": _delete_block,
}


# Of one dataset: its type, its shape, where its values lie

def _put(file: h5py.File, name: str, *given: Any, **options: Any) -> None:
    del file[name]
    file.create_dataset(name, *given, **options)


def _dtype(file: h5py.File, name: str, r: Random) -> None:
    shape = file[name].shape
    kinds: list[Any] = [
        "i4", "u1", "i8", "?", "f2", "c8", "S7", ">f4", ">f8", "<f8", np.longdouble, "V5", "M8[s]",
        h5py.string_dtype(), h5py.vlen_dtype("f4"), h5py.ref_dtype, h5py.regionref_dtype,
        np.dtype([("re", "f4"), ("im", "f4")]), np.dtype(("f4", (3,))), h5py.enum_dtype({"a": 1}),
        h5py.opaque_dtype("M8[s]")]
    dtype = r.choice(kinds)
    try:
        _put(file, name, shape, dtype)
    except (TypeError, ValueError):
        file[name] = np.zeros(shape, np.int16)
    if np.dtype(dtype).kind in "iufc" and np.dtype(dtype).itemsize <= 8:
        file[name][...] = 1


def _shape(file: h5py.File, name: str, r: Random) -> None:
    values = file[name][()]
    changed: list[Any] = [
        values.reshape(-1), values[None], values.reshape(values.shape + (1,) * 20), np.zeros((0, 1), "f4"), values.T,
        np.zeros((*values.shape[::-1], 2), "f4"), h5py.Empty("f4"), np.float32(1), values.reshape(-1)[:-1],
        values.ravel()[: max(1, values.size // 2)]]
    _put(file, name, data=changed[r.randrange(len(changed))])


def _huge(file: h5py.File, name: str, r: Random) -> None:
    """2**40 elements and more that are declared and not there, or one chunk of them."""
    shape = r.choice(((2**20, 2**20), (2, 1, 2**20, 2**19), (1, 1, 2**29, 2**29), (2**40,), (2, 3, 2**15, 2**15)))
    chunks = r.choice((None, True))
    chunk = tuple(min(n, 16) for n in shape) if chunks else None
    _put(file, name, shape, "f4", chunks=chunk, maxshape=(None,) * len(shape) if chunk else None)
    if chunk and r.random() < 0.7:
        file[name][(0,) * len(shape)] = 1


def _bomb(file: h5py.File, name: str, r: Random) -> None:
    """A gigabyte of zeros in a file of a megabyte, or one chunk of many."""
    shape = file[name].shape
    big = tuple(n * 4096 if i >= len(shape) - 2 else n for i, n in enumerate(shape)) or (2**28,)
    _put(file, name, big, "f4", chunks=tuple(min(n, 256) for n in big), compression="gzip")
    file[name][(0,) * len(big)] = 1


def _chunked(file: h5py.File, name: str, r: Random) -> None:
    """Right values behind filters; sometimes with a filter that nobody has."""
    values = np.atleast_1d(file[name][()])
    if r.random() < 0.5:
        option = r.choice(({"compression": "gzip"}, {"compression": "lzf"}, {"shuffle": True}, {"fletcher32": True}))
        _put(file, name, data=values, chunks=values.shape, maxshape=(None,) * values.ndim, **option)
        return
    del file[name]
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(values.shape)
    plist.set_filter(40000 + r.randrange(9), h5py.h5z.FLAG_OPTIONAL, (1, 2))
    space = h5py.h5s.create_simple(values.shape)
    raw = h5py.h5d.create(file.id, name.encode(), h5py.h5t.IEEE_F32LE, space, plist)
    raw.write_direct_chunk((0,) * values.ndim, values.astype("<f4").tobytes(), 0)


def _elsewhere(file: h5py.File, name: str, r: Random) -> None:
    """The values lie in other files, which may not end, or be anybody's."""
    shape = file[name].shape or (1,)
    if r.random() < 0.5:
        place = r.choice(("/dev/zero", "/dev/stdin", "none.raw", "/etc/hostname"))
        _put(file, name, shape, "f4", external=[(place, 0, h5py.h5f.UNLIMITED)])
        return
    layout = h5py.VirtualLayout(shape, "f4")
    place = r.choice(("/dev/zero", "none.h5", "."))
    layout[...] = h5py.VirtualSource(place, name if place == "." else "x", shape)
    del file[name]
    file.create_virtual_dataset(name, layout, fillvalue=r.choice((0, np.nan)))


def _partial(file: h5py.File, name: str, r: Random) -> None:
    """Declared, and not or only half written."""
    values = np.atleast_1d(file[name][()])
    chunks = (1,) * values.ndim if values.size < 5000 else None
    _put(file, name, values.shape, "f4", chunks=r.choice((None, chunks)), fillvalue=r.choice((None, np.nan, 0)))
    if file[name].chunks and r.random() < 0.7:
        file[name][(0,) * values.ndim] = values.flat[0]


def _link(file: h5py.File, name: str, r: Random) -> None:
    node = r.choice((name, name.rpartition("/")[0], name.split("/")[0]))
    kind = r.randrange(7)
    if kind == 0:
        file["loop"] = h5py.SoftLink("/" + node)
    if kind == 1:
        file[node.rpartition("/")[0] + "/again"] = file["/"]
        return
    target = {
        0: h5py.SoftLink("/loop"), 2: h5py.SoftLink("/nowhere"), 3: h5py.ExternalLink("/dev/zero", "/x"),
        4: h5py.ExternalLink("none.h5", "/x"), 5: h5py.SoftLink("/" + node + "/" + node), 6: file["/"]}[kind]
    del file[node]
    file[node] = target


def _group(file: h5py.File, name: str, r: Random) -> None:
    node = r.choice((name, name.rpartition("/")[0]))
    if isinstance(file[node], h5py.Group):
        del file[node]
        file[node] = np.float32(1)
    else:
        del file[node]
        file.create_group(node)


def _missing(file: h5py.File, name: str, r: Random) -> None:
    parts = name.split("/")
    del file["/".join(parts[:r.randint(1, len(parts))])]


# Of attributes, texts and names

#: Numbers that are texts, texts that are numbers, and worse
VALUES: list[Any] = [
    "1", "0.5", "nan", "", "cnn-exchange", "x" * 60_000, 1, -1, 2**63 - 1, 0.5, float("nan"), float("inf"), 1e308,
    True, 1 + 2j, [1, 2], ["a", "b"], np.zeros(7000), h5py.Empty("f4"), np.bytes_(b"\xff\xfe\x00z"), "\x1b[2J\n\u2028",
    np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]), np.float16(1), np.array(["1"], dtype=h5py.string_dtype())]


def _attribute(file: h5py.File, name: str, r: Random) -> None:
    node = file[r.choice(("/", "optimizer"))]
    key = r.choice(list(node.attrs))
    del node.attrs[key]
    if r.random() < 0.8:
        node.attrs[key] = r.choice(VALUES)


def _layout(file: h5py.File, name: str, r: Random) -> None:
    """Attributes that the reader of a candidate's tensors honours."""
    texts = ["NHWC", "nchw", "CKRS", "K", "KCRS", "F", "c", "h", "rs", "", "nn", "W" * 9000]
    for key in r.sample(("layout", "order", "flip"), r.randint(1, 3)):
        file[name].attrs[key] = r.choice(texts + VALUES)


def _model(file: h5py.File, name: str, r: Random) -> None:
    """Attributes and groups of the model, one to three of them."""
    texts = ["", "conv1", "input", "conv1,conv2", "relu", "tanh", "\u202e", "x" * 9000, ","]
    numbers = [0, -1, 1.5, 2**40, 65536, np.nan, np.inf, [3], [3, 3], [[1, 1]], [65536, 65536], np.ones(5000)]
    for _ in range(r.randint(1, 3)):
        layers = file.get("model/layers", file)
        node = layers[r.choice(list(layers))] if len(layers) else file
        match r.randrange(6):
            case 0:
                file.pop(r.choice(["model", "model/layers", "model/loss"]), None)
            case 1:
                node.create_group(r.choice(["x", "a b", "\u202e"]))
            case 2 if "model/layers/conv1" in file:
                file["model"].move("layers/conv1", r.choice(["layers/input", "layers/relu1/x", "conv1"]))
            case 3 if len(node.attrs):
                del node.attrs[r.choice(list(node.attrs))]
            case _:
                key = r.choice([*node.attrs, "index", "type", "inputs", "unknown"])
                node.attrs[key] = r.choice(texts + numbers + VALUES)


def _names(file: h5py.File, name: str, r: Random) -> None:
    """Datasets that nobody asks for, under names that no terminal should see."""
    many = {0: 2000, 1: 1}.get(r.randrange(4), 20)
    odd = [b"new\nline", "grün/\u202e".encode(), b"\xff\xfe", b"\x1b[31mred\x1b[0m", b"[bold]x[/bold]", b"[/]",
           b"a" * 5000, b"..", b" ", b"'\"$(x)", b"steps /0"]
    for i in range(many):
        file.create_dataset(b"unknown/" + r.choice(odd) + str(i).encode(), data=np.float32(i))


def _deep(file: h5py.File, name: str, r: Random) -> None:
    node = file if r.random() < 0.5 else file["steps"]
    node.create_dataset("d/" * r.choice((50, 1000)) + "x", data=1.0)


STRUCTURES: dict[str, Change] = {
    "type": _dtype, "shape": _shape, "huge": _huge, "bomb": _bomb, "filters": _chunked, "elsewhere": _elsewhere,
    "partial": _partial, "link": _link, "group": _group, "missing": _missing, "attribute": _attribute,
    "layout": _layout, "model": _model, "names": _names, "deep": _deep}


# Of values: the file is in order, and what it says is wrong

def _edit(change: Callable[[np.ndarray, Random], None]) -> Change:
    def apply(file: h5py.File, name: str, r: Random) -> None:
        values = np.atleast_1d(file[name][()])
        change(values, r)
        file[name][...] = values.reshape(file[name].shape)
    return apply


def _one_value(values: np.ndarray, r: Random) -> None:
    values.flat[r.randrange(values.size)] += r.choice((-1, 1)) * (1 + np.abs(values).max())


def _nonfinite(values: np.ndarray, r: Random) -> None:
    values.flat[r.randrange(values.size)] = r.choice((np.nan, np.inf, -np.inf))


def _scaled(values: np.ndarray, r: Random) -> None:
    values[...] = values * r.choice((-1, 0.5, 2, 1.01)) + 1


#: After these no result may be judged right
VALUES_WRONG: dict[str, Change] = {
    "value": _edit(_one_value), "nonfinite": _edit(_nonfinite), "scaled": _edit(_scaled)}

KINDS = (*BYTES, *STRUCTURES, *VALUES_WRONG)


def mutate(source: Path, target: Path, kind: str, seed: int) -> None:
    """Make the file `target` from the right one `source`."""
    r = Random(f"{kind} {seed}")
    if kind in BYTES:
        content = bytearray(source.read_bytes())
        BYTES[kind](content, r)
        target.write_bytes(content)
        return
    shutil.copyfile(source, target)
    with h5py.File(target, "r+") as file:
        names: list[str] = []
        file.visititems(lambda name, node: names.append(name) if _is_tensor(name, node, kind) else None)
        (STRUCTURES | VALUES_WRONG)[kind](file, r.choice(sorted(names)), r)


def _is_tensor(name: str, node: object, kind: str) -> bool:
    if not isinstance(node, h5py.Dataset) or name == "model":
        return False
    return kind not in VALUES_WRONG or name.startswith("steps/")
