"""Forged checkpoints of milepost and TensorFlow: tensor bundles, SavedModels, checkpoints of version 1, and plain state."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import milepost
from milepost.bundle import BundleWriter, data_path, index_path
from milepost.bundle.format.messages import BundleEntry, BundleHeader, SavedTensorSlices
from milepost.bundle.format.slices import slice_key
from milepost.coding import varint
from milepost.coding.crc32c import crc32c, mask
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue
from milepost.plain_state.part import PLAIN_PART
from milepost.storage import LocalStorage
from milepost.table import TableWriter
from milepost.tensor import DType, TensorSlice
from tests.bundle.bundles import put
from tests.table.tables import table

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
Make = Callable[[Path], Path]


def whole(path: Path) -> Path:
    """A checkpoint that nobody forged."""
    tree = milepost.Checkpoint(w=milepost.Variable(np.arange(6.0)), name="a", plain=[1, {"a": (2, None)}])
    return Path(tree.write(path))


def entry(dtype: str, shape: tuple[int, ...], offset: int = 0, size: int = 0, crc: int = 0, slices: tuple[TensorSlice, ...] = ()) -> bytes:  # fmt: skip
    """An entry of an index, which may be impossible."""
    message = BundleEntry(dtype=DType.of(dtype).number, offset=offset, size=size, crc32c=mask(crc) if size else 0)
    message.shape.SetInParent()
    for length in shape:
        message.shape.dim.add(size=length)
    for box in slices:
        piece = message.slices.add()
        for start, length in box.extents:
            piece.extent.add(start=start, length=length)
    return message.SerializeToString()  # type: ignore[no-any-return]


def bundle(name: str, rows: Mapping[bytes, bytes], data: bytes = b"") -> Make:
    """A checkpoint with these entries."""

    def make(above: Path) -> Path:
        path = above / name
        writer = TableWriter()
        writer.add(sorted({b"": BundleHeader(num_shards=1).SerializeToString(), **rows}.items()))
        Path(index_path(str(path))).write_bytes(writer.finish())
        Path(data_path(str(path), 0, 1)).write_bytes(data)
        return path

    return make


def texts(name: str, shape: tuple[int, ...], data: bytes, dtype: str = "string") -> Make:
    """One tensor of strings with these bytes."""
    return bundle(name, {b"a": entry(dtype, shape, 0, len(data), crc32c(data))}, data)


def lengths(*sizes: int, data: bytes = b"") -> bytes:
    """A tensor of strings of these lengths."""
    check = crc32c(b"".join(size.to_bytes(4 if size < 1 << 32 else 8, "little") for size in sizes))
    return b"".join(map(varint.encode, sizes)) + mask(check).to_bytes(4, "little") + data


def saved(tensors: Mapping[str, object], name: str) -> Make:
    """A checkpoint that the writer wrote."""

    def make(above: Path) -> Path:
        writer = BundleWriter()
        for key in sorted(tensors):
            writer.add(key, np.asarray(tensors[key]))
        storage, path = LocalStorage(), str(above / name)
        with storage.create(data_path(path, 0, 1)) as file:
            writer.write_shard(0, file)
        put(storage, index_path(path), writer.index())
        return Path(path)

    return make


def graph(name: str, nodes: list[Node], **more: object) -> Make:
    """A checkpoint with an object graph."""
    return saved({GRAPH: np.array(ObjectGraph(tuple(nodes)).serialize(), object), **more}, name)


def plain(name: str, text: object, **arrays: object) -> Make:
    """A checkpoint with plain state."""
    key = "a/.ATTRIBUTES/"
    values = [SavedValue(each, "", f"{key}{each}") for each in ("py_state", *arrays)]
    nodes = [Node((Edge("a", 1),), python="dict"), Node((), tuple(values), python=PLAIN_PART)]
    encoded = text if isinstance(text, bytes) else json.dumps(text).encode()
    more = {f"{key}py_state": np.array(encoded, object), **{f"{key}{each}": array for each, array in arrays.items()}}
    return graph(name, nodes, **more)


def shared(times: int, size: int) -> Make:
    """Tensors that all have the same bytes."""
    data = bytes(size)
    row = entry("float32", (size // 4,), 0, size, crc32c(data))
    return bundle("shared", {b"%06d" % number: row for number in range(times)}, data)


def sliced(times: int, size: int) -> Make:
    """A tensor of pieces that all have the same bytes."""
    data = bytes(size)
    count = size // 4
    boxes = tuple(TensorSlice(((number * count, count),)) for number in range(times))
    row = entry("float32", (count,), 0, size, crc32c(data))
    pieces = {slice_key(b"a", box): row for box in boxes}
    return bundle("sliced", {b"a": entry("float32", (count * times,), slices=boxes), **pieces}, data)


def sliced_texts(shape: tuple[int, ...], lengths_of: int) -> Make:
    """A tensor of strings whose only piece is not as large as it."""
    box = TensorSlice(((0, lengths_of),))
    data = lengths(*[0] * 10)
    return bundle("sliced_texts", {b"a": entry("string", shape, slices=(box,)), slice_key(b"a", box): entry("string", (10,), 0, len(data), crc32c(data))}, data)  # fmt: skip


def zipped(name: str, claimed: int, body: bytes) -> Make:
    """A table whose blocks are compressed by Snappy, which claims some length."""

    def make(above: Path) -> Path:
        path = above / name
        Path(index_path(str(path))).write_bytes(table(b"", compress=lambda block: varint.encode(claimed) + body))
        Path(data_path(str(path), 0, 1)).write_bytes(b"")
        return path

    return make


def whole_1(path: Path) -> Path:
    """A checkpoint of version 1 that nobody forged."""
    return version_1("whole_1", "float32", (2,), float_val=[1, 2])(path.parent)


def version_1(name: str, dtype: str, shape: tuple[int, ...], *, boxes: tuple[TensorSlice, ...] = (), **values: list[object]) -> Make:  # fmt: skip
    """A checkpoint of version 1 with one tensor."""

    def make(above: Path) -> Path:
        pieces = boxes or (TensorSlice.whole(len(shape)),)
        meta, data = SavedTensorSlices(), SavedTensorSlices()
        tensor = meta.meta.tensor.add(name=b"a", type=DType.of(dtype).number)
        tensor.shape.SetInParent()
        for length in shape:
            tensor.shape.dim.add(size=length)
        for box in pieces:
            piece = tensor.slice.add()
            for start, length in box.extents:
                piece.extent.add(**({} if length < 0 else {"start": start, "length": length}))
        data.data.name = b"a"
        for field, each in values.items():
            getattr(data.data.data, field).extend(each)
        writer = TableWriter()
        rows = {b"": meta.SerializeToString(), **{slice_key(b"a", box): data.SerializeToString() for box in pieces}}
        writer.add(sorted(rows.items()))
        path = above / f"{name}.ckpt"
        path.write_bytes(writer.finish())
        return path

    return make


def saved_model(name: str, content: bytes) -> Make:
    """A SavedModel with this description."""

    def make(above: Path) -> Path:
        path = above / name
        (path / "variables").mkdir(parents=True)
        (path / "saved_model.pb").write_bytes(content)
        bundle("variables/variables", {b"a": entry("float32", (1 << 40,), 0, 4 << 40)})(path)
        return path

    return make


NOTHING = {"!": "bytes", "text": ""}
TEXT = {"!": "array", "items": [NOTHING], "shape": [1], "as": "<U15000000"}
DEEP = '{"!":"tuple","items":[' * 3000 + "]}" * 3000


def references(levels: int) -> object:
    """Plain state in which each level has the next one ten times."""
    form: object = ["a"]
    for number in range(levels):
        form = [{"!": "shared", "id": number, "value": form}, *[{"!": "shared", "id": number}] * 9]
    return form


FILES: dict[str, Make] = {
    "a tensor of terabytes": bundle("tera", {b"a": entry("float32", (1 << 40,), 0, 4 << 40)}),
    "a shape beyond 64 bits": bundle("beyond", {b"a": entry("float32", (1 << 62, 1 << 62), 0, 1 << 62)}),
    "a tensor without elements": bundle("none", {b"a": entry("float32", (0, 1 << 62, 1 << 62))}),
    "text without elements": texts("no_text", (0, 1 << 62, 1 << 62), lengths()),
    "more strings than bytes": texts("few", (1 << 30,), lengths(0, 0)),
    "very many empty strings": texts("empties", (1 << 20,), lengths(*[0] * (1 << 20))),
    "a string of exabytes": texts("exa", (2,), lengths(1 << 62, 1 << 62)),
    "more variants than bytes": texts("variants", (1 << 30,), b"\0" * 100, "variant"),
    "many tensors of the same bytes": shared(100, 2 << 20),
    "pieces of the same bytes": sliced(100, 2 << 20),
    "strings in a piece that is too small": sliced_texts((1 << 28,), 1 << 28),
    "a block that claims gigabytes": zipped("claims", 1 << 30, b"\0a"),
    "a block that is all copies": zipped("copies", 2_600_000, b"\0a" + b"\xfe\1\0" * 40_000),
    "a graph of a list of itself": graph("itself", [Node((Edge("0", 0),), python="list")]),
    "a tuple of itself": graph("tuple", [Node((Edge("0", 1),), python="dict"), Node((Edge("0", 1),), python="tuple")]),
    "a chain of dicts": graph("chain", [Node((Edge("a", each + 1),), python="dict") for each in range(5_000)] + [Node((), python="dict")]),
    "an edge to nowhere": saved({GRAPH: np.array(b"\n\x0b\n\x09\x08\x80\x80\x80\x80\x04\x12\x01a", object)}, "edge"),
    "a graph that is no graph": saved({GRAPH: np.array(b"\xff" * 100, object)}, "garbage"),
    "metadata of very many levels": saved({"_MILEPOST_METADATA": np.array(b"[" * 200_000, object)}, "metadata"),
}  # fmt: skip

PLAIN_STATE: dict[str, Make] = {
    "much text that is not there": plain("texts", [TEXT] * 300),
    "wide bytes": plain("bytes", [{**TEXT, "as": "|S60000000"}] * 300),
    "text of width 0": plain("u0", {"!": "array", "base64": "", "dtype": "<U0", "shape": [1 << 40]}),
    "an array of exabytes": plain("exabytes", {"!": "array", "base64": "", "dtype": "float64", "shape": [0, 1 << 62]}),
    "objects of a huge shape": plain("objects", {"!": "objects", "items": [], "shape": [0, 1 << 62, 1 << 62]}),
    "a wide scalar": plain("scalar", {"!": "scalar", "dtype": "<U999999999999", "base64": "AAAA"}),
    "references of references": plain("references", references(12)),
    "very many levels": plain("deep", DEEP.encode()),
    "very many brackets": plain("brackets", b"[" * 1_000_000),
    "very many lists": plain("lists", b"[" + b"[]," * 300_000 + b"[]]"),
    "a number of very many digits": plain("digits", b'{"a":' + b"9" * 100_000 + b"}"),
    "a hexadecimal number of very many digits": plain("hex", {"!": "int", "hex": "f" * 1_000_000}),
    "a deque of negative length": plain("deque", {"!": "deque", "items": [1], "maxlen": -5}),
    "a deque of any length": plain("maxlen", {"!": "deque", "items": [1], "maxlen": 1 << 80}),
    "keys of one hash": plain("keys", {"!": "dict", "items": [[{"!": "int", "hex": hex(n * ((1 << 61) - 1))}, 1] for n in range(5000)]}),
}  # fmt: skip

VERSION_1: dict[str, Make] = {
    "numbers that are not there": version_1("tera", "float32", (1 << 40,)),
    "numbers that are not there, within memory": version_1("some", "float32", (1 << 27,)),
    "strings that are not there": version_1("texts", "string", (1 << 26,)),
    "a piece of nothing": version_1("piece", "int64", (1 << 40,), boxes=(TensorSlice(((0, 1 << 40),)),), int64_val=[1]),
    "many pieces of the same values": version_1("pieces", "int8", (400_000,), boxes=tuple(TensorSlice(((n * 1000, 1000),)) for n in range(400)), int_val=[1] * 1000),
    "no elements": version_1("none", "float32", (0, 1 << 62, 1 << 62)),
    "strings without elements": version_1("empty", "string", (0, 1 << 62, 1 << 62)),
    "very many small numbers": version_1("small", "int64", (1 << 20,), int64_val=[1] * (1 << 20)),
}  # fmt: skip

SAVED_MODELS: dict[str, Make] = {
    "a description of very many levels": saved_model("levels", b"\x12\xff\xff\x03" * 20_000),
    "a description that is no description": saved_model("garbage", b"\xff" * 1000),
    "an empty description": saved_model("empty", b""),
}
