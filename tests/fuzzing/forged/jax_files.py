"""Forged files of Flax, and forged directories of Orbax."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path

import cramjam

Make = Callable[[Path], Path]

A = b"\xa1a"


def packed(name: str, content: bytes) -> Make:
    """A file of Flax."""

    def make(above: Path) -> Path:
        path = above / f"{name}.msgpack"
        path.write_bytes(content)
        return path

    return make


def whole(path: Path) -> Path:
    """A file that nobody forged."""
    return packed("whole", b"\x81\xa1w" + array([2], bytes(8)))(path.parent)


def shape_of(shape: list[int]) -> bytes:
    return bytes([0x90 + len(shape)]) + b"".join(b"\xcf" + struct.pack(">Q", each) for each in shape)


def array(shape: list[int], data: bytes, kind: bytes = b"float32") -> bytes:
    """An array as Flax stores it, whose shape says what it likes."""
    inside = (
        b"\x93" + shape_of(shape) + bytes([0xA0 + len(kind)]) + kind + b"\xc6" + struct.pack(">I", len(data)) + data
    )
    return b"\xc9" + struct.pack(">I", len(inside)) + b"\x01" + inside


def text(content: str) -> bytes:
    return b"\xd9" + bytes([len(content)]) + content.encode()


def chunked(shape: list[int], chunks: list[bytes]) -> bytes:
    """An array in chunks."""
    lengths = (
        b"\xdf"
        + struct.pack(">I", len(shape))
        + b"".join(text(str(n)) + b"\xcf" + struct.pack(">Q", each) for n, each in enumerate(shape))
    )
    held = b"\xdf" + struct.pack(">I", len(chunks)) + b"".join(text(str(n)) + each for n, each in enumerate(chunks))
    return b"\x83" + text("__msgpack_chunked_array__") + b"\xc3" + text("shape") + lengths + text("chunks") + held


FILES: dict[str, Make] = {
    "a list of exa members": packed("list", b"\x81" + A + b"\xdd\xff\xff\xff\xff" + b"\xc0" * 1000),
    "a map of giga members": packed("map", b"\x81" + A + b"\xdf\xff\xff\xff\xff" + b"\x01\xc0"),
    "a text of gigabytes": packed("text", b"\x81" + A + b"\xdb\xff\xff\xff\xff" + b"a" * 1000),
    "bytes of gigabytes": packed("bytes", b"\x81" + A + b"\xc6\xff\xff\xff\xff" + b"a" * 1000),
    "very many levels": packed("levels", b"\x81" + A + b"\x91" * 40_000),
    "very many lists": packed("lists", b"\x81" + A + b"\xdd" + struct.pack(">I", 4_000) + b"\x90" * 4_000),
    "very many small numbers": packed("numbers", b"\x81" + A + b"\xdd" + struct.pack(">I", 2_000) + b"\x01" * 2_000),
    "very many empty texts": packed("texts", b"\x81" + A + b"\xdd" + struct.pack(">I", 4_000) + b"\xa0" * 4_000),
    "a shape of exabytes": packed("exa", b"\x81" + A + array([1 << 60], b"")),
    "a shape beyond 64 bits": packed("beyond", b"\x81" + A + array([1 << 40, 1 << 40], b"")),
    "no elements": packed("none", b"\x81" + A + array([0, 1 << 61], b"")),
    "an element type of any width": packed("type", b"\x81" + A + array([1], b"", b"V500000000")),
    "text as elements": packed("elements", b"\x81" + A + array([1 << 30], b"", b"<U0")),
    "chunks that are not there": packed("chunks", b"\x81" + A + chunked([1 << 40], [])),
    "chunks of nothing": packed("nothing", b"\x81" + A + chunked([0, 1 << 61], [array([0], b"")] * 1000)),
    "very many chunks": packed("many", b"\x81" + A + chunked([1_500], [array([1], bytes(4))] * 1_500)),
    "a chunked array in itself": packed("chunked", b"\x81" + A + chunked([1], [chunked([1], [array([1], bytes(4))])])),
    "an extension of another kind": packed("other", b"\x81" + A + b"\xc9\xff\xff\xff\xff\x07"),
    "a complex number of lists": packed("complex", b"\x81" + A + b"\xc7\x05\x02\x92\x91\x01\x91\x01"),
}  # fmt: skip


def directory(name: str, description: dict[str, object] | bytes, chunks: dict[str, bytes], *, leaf: object = None, files: dict[str, bytes] | None = None) -> Make:  # fmt: skip
    """An item of Orbax with one array, which is stored as zarr."""
    tree = {
        "tree_metadata": {"('a',)": {"key_metadata": [{"key": "a", "key_type": 2}], "value_metadata": leaf or {"value_type": "np.ndarray", "skip_deserialize": False}}},
        "use_ocdbt": False,
        "use_zarr3": False,
        "store_array_data_equal_to_fill_value": True,
        "custom_metadata": None,
    }  # fmt: skip

    def make(above: Path) -> Path:
        path = above / name
        (path / "a").mkdir(parents=True)
        (path / "_METADATA").write_text(json.dumps(tree))
        (path / "a" / ".zarray").write_bytes(
            description if isinstance(description, bytes) else json.dumps(description).encode()
        )
        for each, data in chunks.items():
            (path / "a" / each).write_bytes(data)
        for each, data in (files or {}).items():
            (path / each).parent.mkdir(exist_ok=True)
            (path / each).write_bytes(data)
        return path

    return make


def first_form(name: str, content: bytes) -> Make:
    """An item of the first versions of Orbax, which is one file."""

    def make(above: Path) -> Path:
        path = above / name
        path.mkdir()
        (path / "checkpoint").write_bytes(content)
        return path

    return make


def zarr(shape: list[int], chunks: list[int] | None = None, compressor: object = None, fill: object = None, dtype: str = "|u1") -> dict[str, object]:  # fmt: skip
    """The description of an array of zarr."""
    return {"zarr_format": 2, "shape": shape, "chunks": chunks or shape, "dtype": dtype, "compressor": compressor, "fill_value": fill, "filters": None, "order": "C", "dimension_separator": "."}  # fmt: skip


def whole_orbax(path: Path) -> Path:
    """A directory that nobody forged."""
    return directory("whole", zarr([], [], dtype="<f8"), {"0": bytes(8)})(path.parent)


def zstd(size: int) -> bytes:
    return bytes(cramjam.zstd.compress(bytes(size)))


def blosc(claimed: int) -> bytes:
    """A header of Blosc that claims some length."""
    return struct.pack("<4B3I", 2, 1, 0, 1, claimed, 1 << 16, 24) + bytes(8)


ZSTD = {"id": "zstd", "level": 1}
ORBAX: dict[str, Make] = {
    "a fill value of gigabytes": directory("fill", zarr([1 << 31], [1 << 20], ZSTD, 7), {}),
    "zeros that are nowhere": directory("zeros", zarr([200 << 20], [1 << 20], ZSTD, 0), {}),
    "a shape of exabytes": directory("exa", zarr([1 << 60], [1 << 20], ZSTD, 0), {}),
    "no elements": directory("none", zarr([0, 1 << 61], [1, 1 << 20], ZSTD, 0), {}),
    "a chunk of gigabytes": directory("chunk", zarr([10], [1 << 33], ZSTD), {"0": zstd(10)}),
    "a chunk that is a bomb of zstd": directory("zstd", zarr([100], [100], ZSTD), {"0": zstd(200 << 20)}),
    "a chunk that is a bomb of gzip": directory("gzip", zarr([100], [100], {"id": "gzip", "level": 1}), {"0": gzip.compress(bytes(64 << 20))}),
    "a chunk that claims gigabytes": directory("blosc", zarr([100], [100], {"id": "blosc", "cname": "lz4", "clevel": 1, "shuffle": 1, "blocksize": 0}), {"0": blosc(0x7FFFFFF0)}),
    "wide texts": directory("texts", zarr([10], [10], ZSTD, dtype="|S100000000"), {}),
    "an array of very many levels": directory("levels", b"[" * 40_000, {}),
    "metadata of very many levels": directory("deep", zarr([1]), {}, files={"_METADATA": b"[" * 40_000}),
    "generators of very many levels": directory("generators", zarr([1], fill=0), {}, files={"array_metadatas/process_0": b"[" * 40_000}),
    "a manifest that is none": directory("manifest", zarr([1], fill=0), {}, files={"manifest.ocdbt": b"\xff" * 1000}),
    "an aggregated file of very many levels": directory("aggregated", zarr([1], fill=0), {}, files={"checkpoint": b"\x81" + A + b"\x91" * 40_000}),
    "an aggregated array of durations of no length": directory("durations", zarr([1], fill=0), {}, leaf={"value_type": "np.ndarray", "skip_deserialize": True}, files={"checkpoint": b"\x81" + A + array([1], bytes(8), b"m8[s/0]")}),
    "an array of durations of no length, in the first form": first_form("durations_first", b"\x81" + A + array([1], bytes(8), b"m8[s/0]")),
    "very many levels in the first form": first_form("levels_first", b"\x81" + A + b"\x91" * 40_000),
}  # fmt: skip
