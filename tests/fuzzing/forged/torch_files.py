"""Forged files of PyTorch, of safetensors and of torch.distributed.checkpoint. None of these libraries is needed to make them."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

Make = Callable[[Path], Path]

START = b"\x80\x02"
A = b"X\x01\x00\x00\x00a"


def text(content: str) -> bytes:
    """The instruction that pushes a text."""
    return b"X" + struct.pack("<I", len(content)) + content.encode()


def number(value: int) -> bytes:
    """The instruction that pushes a number."""
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def numbers(*values: int) -> bytes:
    """The instructions that push a tuple of numbers."""
    return b"(" + b"".join(map(number, values)) + b"t"


def storage(key: str, count: int, kind: str = "FloatStorage") -> bytes:
    """The instructions that push a storage."""
    return b"(" + text("storage") + f"ctorch\n{kind}\n".encode() + text(key) + text("cpu") + number(count) + b"tQ"


def tensor(held: bytes, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> bytes:
    """The instructions that push a tensor."""
    call = b"ctorch._utils\n_rebuild_tensor_v2\n(" + held + number(offset) + numbers(*shape) + numbers(*strides)
    return call + b"\x89ccollections\nOrderedDict\n)RtR"


def of(*values: bytes) -> bytes:
    """A pickled dict of these values."""
    return START + b"}(" + b"".join(text(str(place)) + value for place, value in enumerate(values)) + b"u."


def archive(name: str, pickled: bytes, *, deflated: bool = False, **records: bytes) -> Make:
    """A file of torch.save."""

    def make(above: Path) -> Path:
        path = above / f"{name}.pt"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as file:
            file.writestr("it/data.pkl", pickled)
            for each, data in records.items():
                file.writestr(f"it/data/{each.removeprefix('_')}", data)
        return path

    return make


def whole(path: Path) -> Path:
    """A file that nobody forged."""
    return archive("whole", of(tensor(storage("0", 4), (2, 2), (2, 1))), _0=bytes(16))(path.parent)


def legacy(name: str, pickled: bytes, keys: bytes = b"]", data: bytes = b"") -> Make:
    """A file of torch.save before PyTorch 1.6."""
    magic = START + b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
    before = magic + START + b"M\xe9\x03." + START + b"}" + text("little_endian") + b"\x88s."

    def make(above: Path) -> Path:
        path = above / f"{name}.pt"
        path.write_bytes(before + pickled + START + keys + b"." + data)
        return path

    return make


def legacy_storage(key: str, count: int) -> bytes:
    """The instructions that push a storage of the old format."""
    return b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + number(count) + b"NtQ"


def nested_memo(levels: int) -> bytes:
    """Lists in lists, each of which has the next one ten times."""
    made = b"](" + b"N" * 10 + b"eq\x00"
    for level in range(1, levels):
        made += b"](" + bytes([ord("h"), level - 1]) * 10 + b"eq" + bytes([level])
    return made


def array_of_numpy(content: bytes, shape: tuple[int, ...], dtype: str = "f8") -> bytes:
    """The instructions that push an array of NumPy."""
    kind = (
        b"cnumpy\ndtype\n("
        + text(dtype)
        + b"\x89\x88tR("
        + number(3)
        + text("<")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + numbers(0) + text("b") + b"tR"
    return made + b"(" + number(1) + numbers(*shape) + kind + b"\x89" + content + b"tb"


BYTES = b"B" + struct.pack("<I", 1 << 20) + bytes(1 << 20)
ALL = tensor(storage("0", 1), (3 << 22,), (0,))

FILES: dict[str, Make] = {
    "a tensor that repeats one number": archive("repeat", of(tensor(storage("0", 1), (1 << 40,), (0,))), _0=bytes(4)),
    "very many tensors that repeat one number": archive("repeats", of(*[ALL] * 40), _0=bytes(4)),
    "strides that reach beyond": archive("strides", of(tensor(storage("0", 4), (2, 2), (1 << 60, 1))), _0=bytes(16)),
    "a shape of exabytes": archive("exa", of(tensor(storage("0", 4), (1 << 40, 1 << 40), (1, 1))), _0=bytes(16)),
    "a tensor without elements": archive("none", of(tensor(storage("0", 0), (0, 1 << 61), (1, 1))), _0=b""),
    "64 dimensions": archive("dims", of(tensor(storage("0", 1), (1,) * 64, (1,) * 64)), _0=bytes(4)),
    "a storage of exabytes": archive("storage", of(tensor(storage("0", 1 << 60), (1,), (1,))), _0=bytes(4)),
    "many views of one storage": archive("views", of(*[tensor(storage("0", 1 << 16), (1 << 16,), (1,))] * 100), _0=bytes(1 << 18)),
    "compressed records": archive("deflated", of(tensor(storage("0", 1 << 22), (1 << 22,), (1,))), deflated=True, _0=bytes(1 << 24)),
    "lists of lists": archive("lists", START + b"}" + A + nested_memo(100) + b"s."),
    "a list of itself": archive("itself", START + b"}" + A + b"]q\x00h\x00as."),
    "a dict of itself": archive("dict", START + b"}q\x00" + A + b"h\x00s."),
    "a tuple of many lists that are one": archive("tuple", START + b"}" + A + b"](" + b"N" * 1000 + b"eq\x00(" + b"h\x00" * 100_000 + b"ts."),
    "long names": archive("names", START + b"}" + b"".join(text("n" * 100_000) + b"}" for _ in range(90)) + b"N" + b"s" * 90 + b"."),
    "one long name again and again": archive("long", START + text("n" * 120_000) + b"q\x000}" + b"h\x00}" * 90 + b"N" + b"s" * 90 + b"."),
    "very many names": archive("many", START + b"}(" + b"".join(text(str(n)) + b"N" for n in range(10_000)) + b"u."),
    "an array of NumPy that is not there": archive("numpy", of(array_of_numpy(b"C\x00", (1 << 40,)))),
    "an array of NumPy without elements": archive("numpy_none", of(array_of_numpy(b"C\x00", (0, 1 << 61)))),
    "many arrays of NumPy of the same bytes": archive("numpys", START + BYTES + b"q\x000}(" + b"".join(text(str(n)) + array_of_numpy(b"h\x00", (1 << 17,)) for n in range(400)) + b"u."),
    "many arrays of bytes of the same bytes": archive("bytearrays", START + BYTES + b"q\x000}(" + b"".join(text(str(n)) + b"cbuiltins\nbytearray\nh\x00\x85R" for n in range(400)) + b"u."),
    "text encoded again and again": archive("encoded", START + text("n" * (1 << 20)) + b"q\x000}(" + b"".join(text(str(n)) + b"c_codecs\nencode\n(h\x00" + text("latin1") + b"tR" for n in range(400)) + b"u."),
    "a large number of bytes": archive("length", of(b"cbuiltins\nbytearray\n" + number(1 << 60) + b"\x85R")),
    "a number of very many digits": archive("digits", of(b"I" + b"9" * 100_000 + b"\n")),
    "a set of sets": archive("sets", START + b"}" + A + b"(" * 2000 + b"\x91" * 2000 + b"s."),
    "the old format, a tensor that repeats one number": legacy("old_repeat", of(tensor(legacy_storage("0", 1), (1 << 40,), (0,))), b"](" + text("0") + b"e", struct.pack("<q", 1) + bytes(4)),
    "the old format, a storage of exabytes": legacy("old_exa", of(tensor(legacy_storage("0", 1 << 59), (1,), (1,))), b"](" + text("0") + b"e", struct.pack("<q", 1 << 59)),
    "the old format, one storage very often": legacy("old_often", of(tensor(legacy_storage("0", 1), (1,), (1,))), b"](" + text("0") * 20_000 + b"e", struct.pack("<q", 1) + bytes(4)),
    "the old format, cut off": legacy("old_cut", b"\x80\x02]" + b"(N" * 120_000),
}  # fmt: skip


def header(name: str, content: bytes, data: bytes = b"", length: int | None = None) -> Make:
    """A file of safetensors."""

    def make(above: Path) -> Path:
        path = above / f"{name}.safetensors"
        path.write_bytes(struct.pack("<Q", len(content) if length is None else length) + content + data)
        return path

    return make


def described(name: str, tensors: dict[str, object], data: bytes = b"") -> Make:
    """A file of safetensors with this header."""
    return header(name, json.dumps(tensors).encode(), data)


def indexed(name: str, index: bytes) -> Make:
    """A directory of a model in two files."""

    def make(above: Path) -> Path:
        path = above / name
        path.mkdir()
        (path / "model.safetensors.index.json").write_bytes(index)
        for each in "ab":
            described(each, {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8))(path)
        return path

    return make


def at(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    """The description of a tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


SAFETENSORS: dict[str, Make] = {
    "a header of exabytes": header("length", b'{"a"', length=1 << 60),
    "a header of very many levels": header("levels", b'{"a":' + b"[" * 50_000),
    "a header of very many lists": header("lists", b'{"a":[' + b"[]," * 100_000 + b"[]]}"),
    "a header of very many objects": header("objects", b"{" + b",".join(b'"%d":{}' % n for n in range(40_000)) + b"}"),
    "a header of very many texts": header("texts", b"{" + b",".join(b'"%d":""' % n for n in range(40_000)) + b"}"),
    "a header of blanks": header("blanks", b"{" + b" " * 4_000_000 + b"}"),
    "a tensor of terabytes": described("tera", {"a": at("F32", [1 << 40], 0, 4 << 40)}),
    "a tensor without elements": described("none", {"a": at("F32", [0, 1 << 61, 1 << 61], 0, 0)}),
    "very many tensors without elements": described("empty", {str(n): at("F64", [0, 1 << 40], 0, 0) for n in range(600)}),
    "200 dimensions": described("dims", {"a": at("F32", [1] * 200, 0, 4)}, bytes(4)),
    "two tensors of the same bytes": described("same", {"a": at("U8", [8], 0, 8), "b": at("U8", [8], 0, 8)}, bytes(8)),
    "a name of very many levels": described("name", {".".join("a" * 100_000): at("U8", [8], 0, 8)}, bytes(8)),
    "very many left out names of one tensor": described("kept", {"__metadata__": {f"n{n}": "a" for n in range(4_000)}, "a": at("U8", [1 << 20], 0, 1 << 20)}, bytes(1 << 20)),
    "metadata that is no text": header("metadata", b'{"__metadata__":{"a":{"b":' + b"[" * 5000 + b"]" * 5000 + b"}}}"),
    "an index of very many levels": indexed("index_levels", b'{"weight_map":' + b"[" * 50_000),
    "an index of many names of one file": indexed("index_names", json.dumps({"weight_map": {str(n): "a.safetensors" for n in range(10_000)}}).encode()),
    "an index of many files": indexed("index_files", json.dumps({"weight_map": {str(n): f"{n}.safetensors" for n in range(10_000)}}).encode()),
    "an index of itself": indexed("index_itself", json.dumps({"weight_map": {"w": "model.safetensors.index.json"}}).encode()),
}  # fmt: skip

META = "torch.distributed.checkpoint.metadata"


def made(name: str, arguments: dict[str, bytes]) -> bytes:
    """The instructions that push an object of the metadata, of a class of PyTorch with these attributes."""
    module, _, kind = name.rpartition(".")
    fields = b"".join(text(each) + value for each, value in arguments.items())
    return f"c{module}\n{kind}\n".encode() + b")\x81}(" + fields + b"ub"


def size(*lengths: int) -> bytes:
    """The instructions that push a shape."""
    return b"ctorch\nSize\n" + numbers(*lengths) + b"\x85R"


def distributed(name: str, shape: tuple[int, ...], chunks: list[tuple[tuple[int, ...], tuple[int, ...]]], places: list[tuple[int, int]], data: bytes) -> Make:  # fmt: skip
    """A directory with one tensor in boxes."""
    kinds = made(f"{META}.TensorProperties", {"dtype": b"ctorch\nfloat32\n"})
    listed = (
        b"]("
        + b"".join(
            made(f"{META}.ChunkStorageMetadata", {"offsets": size(*offsets), "sizes": size(*sizes)})
            for offsets, sizes in chunks
        )
        + b"e"
    )
    described = made(f"{META}.TensorStorageMetadata", {"properties": kinds, "size": size(*shape), "chunks": listed})
    stored = b"".join(
        made(f"{META}.MetadataIndex", {"fqn": text("w"), "offset": size(*offsets), "index": b"N"})
        + made("torch.distributed.checkpoint.filesystem._StorageInfo", {"relative_path": text("__0_0.distcp"), "offset": number(begin), "length": number(length)})
        for (offsets, _), (begin, length) in zip(chunks, places, strict=True)
    )  # fmt: skip
    content = START + made(f"{META}.Metadata", {"state_dict_metadata": b"}" + text("w") + described + b"s", "planner_data": b"N", "storage_data": b"}(" + stored + b"u"}) + b"."  # fmt: skip

    def make(above: Path) -> Path:
        path = above / name
        path.mkdir()
        (path / ".metadata").write_bytes(content)
        (path / "__0_0.distcp").write_bytes(data)
        return path

    return make


def item(count: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    """A file of torch.save of a tensor alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("it/data.pkl", START + tensor(storage("0", count), shape, strides) + b".")
        file.writestr("it/data/0", np.zeros(count, np.float32).tobytes())
    return buffer.getvalue()


def metadata(name: str, content: bytes) -> Make:
    """A directory with these metadata."""

    def make(above: Path) -> Path:
        path = above / name
        path.mkdir()
        (path / ".metadata").write_bytes(content)
        return path

    return make


ONE = item(1 << 18, (1 << 18,), (1,))
ZERO = item(1, (1 << 24,), (0,))
DISTRIBUTED: dict[str, Make] = {
    "a tensor in one box": distributed("one", (1 << 18,), [((0,), (1 << 18,))], [(0, len(ONE))], ONE),
    "boxes of the same bytes": distributed("same", (400 << 18,), [((n << 18,), (1 << 18,)) for n in range(400)], [(0, len(ONE))] * 400, ONE),
    "a box that repeats one number": distributed("zero", (1 << 24,), [((0,), (1 << 24,))], [(0, len(ZERO))], ZERO),
    "boxes that repeat one number": distributed("zeros", (100 << 24,), [((n << 24,), (1 << 24,)) for n in range(100)], [(n * len(ZERO), len(ZERO)) for n in range(100)], ZERO * 100),
    "a tensor of exabytes": distributed("exa", (1 << 61,), [((0,), (1 << 61,))], [(0, len(ONE))], ONE),
    "no elements": distributed("none", (0, 1 << 61), [], [], b""),
    "very many boxes": distributed("boxes", (600,), [((n,), (1,)) for n in range(600)], [(n, 1) for n in range(600)], bytes(600)),
    "metadata of lists of lists": metadata("lists", START + b"}" + A + nested_memo(100) + b"s."),
    "metadata of very many levels": metadata("levels", START + b"]" * 50_000 + b"."),
}  # fmt: skip
