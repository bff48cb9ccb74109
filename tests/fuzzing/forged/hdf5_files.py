"""Forged files of Keras, which are HDF5, alone or in an archive."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Make = Callable[[Path], Path]


def whole(path: Path) -> Path:
    """A file that nobody forged."""
    path = path.with_suffix(".weights.h5")
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = ["a"]
        file.create_group("a").attrs["weight_names"] = ["k"]
        file.create_dataset("a/k", data=np.arange(6.0), chunks=(3,), compression="gzip")
    return path


def hdf5(name: str, fill: Callable[[Any], object], change: Callable[[bytearray], object] = len, **how: Any) -> Make:
    """A file that h5py wrote, of which some bytes are changed then."""

    def make(above: Path) -> Path:
        path = above / f"{name}.weights.h5"
        with h5py.File(path, "w", **how) as file:
            fill(file)
        data = bytearray(path.read_bytes())
        change(data)
        path.write_bytes(data)
        return path

    return make


def low(file: Any, name: str, shape: tuple[int, ...], prepare: Callable[[Any], object], kind: Any = None) -> Any:
    """A dataset as the library itself makes it, which checks less."""
    plain = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    prepare(plain)
    kind = h5py.h5t.NATIVE_UINT8 if kind is None else kind
    return h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(shape), plain))


def many_blank(file: Any) -> None:
    for number in range(200):
        file.create_dataset(str(number), (1 << 20,), "u1", chunks=(1 << 16,), fillvalue=7)


def bomb_of_bomb(file: Any) -> None:
    """Compressed twice."""

    def prepare(plain: Any) -> None:
        plain.set_chunk((1 << 20,))
        plain.set_deflate(9)
        plain.set_filter(h5py.h5z.FILTER_DEFLATE, 0, (9,))

    inner = zlib.compress(zlib.compress(bytes(80 << 20), 9), 9)
    low(file, "a", (1 << 20,), prepare).id.write_direct_chunk((0,), inner)


def bomb_of_one_chunk(file: Any) -> None:
    """A chunk that has far more bytes than the chunks of its dataset."""
    dataset = file.create_dataset("a", (1 << 16,), "u1", chunks=(1 << 16,), compression="gzip")
    dataset.id.write_direct_chunk((0,), zlib.compress(bytes(80 << 20), 1))


def bomb_of_lzf(file: Any) -> None:
    dataset = file.create_dataset("a", (1 << 16,), "u1", chunks=(1 << 16,), compression="lzf")
    dataset.id.write_direct_chunk((0,), b"\0a" + b"\xe0\xff\0" * 3_000)


def bomb_of_zeros(file: Any) -> None:
    file.create_dataset("a", data=np.zeros(16 << 20, "u1"), chunks=(1 << 18,), compression="gzip")


def names(texts: list[str]) -> Callable[[Any], None]:
    def fill(file: Any) -> None:
        file["a/k"] = np.arange(3.0)
        file.attrs.create("layer_names", texts, dtype=h5py.string_dtype())

    return fill


MANY_NAMES = ["n" * (1 << 20), *map(str, range(1500))]


def same_text(data: bytearray) -> None:
    """Lets all texts of an attribute be the first, which is long: 16 bytes say how long each is and where."""
    at = data.index(struct.pack("<I", 1 << 20), 0)
    while data[at + 12 : at + 16] != b"\1\0\0\0":
        at = data.index(struct.pack("<I", 1 << 20), at + 1)
    for number in range(len(MANY_NAMES)):
        data[at + 16 * number : at + 16 * number + 16] = data[at : at + 16]


def first_tree(data: bytearray, kind: int) -> int:
    at = data.index(b"TREE")
    while data[at + 4] != kind:
        at = data.index(b"TREE", at + 1)
    return at


def circle_of_groups(data: bytearray) -> None:
    """Lets the first tree of a group's names be below itself."""
    at = first_tree(data, 0)
    data[at + 5] = 1
    data[at + 32 : at + 40] = struct.pack("<Q", at)


def circle_of_chunks(data: bytearray) -> None:
    """Lets the tree of chunks be below itself."""
    at = first_tree(data, 1)
    data[at + 5] = 1
    data[at + 48 : at + 56] = struct.pack("<Q", at)


def deep_chunks(data: bytearray) -> None:
    """Lets each entry of the tree of chunks, of a high level, be the tree itself."""
    at = first_tree(data, 1)
    data[at + 5] = 255
    count = struct.unpack_from("<H", data, at + 6)[0]
    for number in range(count):
        place = at + 24 + number * 32 + 24
        data[place : place + 8] = struct.pack("<Q", at)


def same_chunks(file: Any) -> None:
    file.create_dataset("a", data=np.zeros(16 << 20, "u1"), chunks=(1 << 18,), compression="gzip")


def linked_in_circle(file: Any) -> None:
    group = file.create_group("a/b/c")
    group["d"] = file["a"]
    file["k"] = np.arange(3.0)


def chunks_of_the_same_bytes(data: bytearray) -> None:
    """Lets all chunks of a leaf be the first."""
    at = first_tree(data, 1)
    for number in range(struct.unpack_from("<H", data, at + 6)[0]):
        place = at + 24 + number * 32 + 24
        data[place : place + 8] = data[at + 48 : at + 56]


def huge_fill(file: Any) -> None:
    low(
        file,
        "a",
        (1 << 40,),
        lambda plain: (plain.set_fill_value(np.array(7, "u1")), plain.set_alloc_time(h5py.h5d.ALLOC_TIME_LATE)),
    )


def huge_type(file: Any) -> None:
    low(
        file,
        "a",
        (1,),
        lambda plain: plain.set_alloc_time(h5py.h5d.ALLOC_TIME_LATE),
        h5py.h5t.py_create(np.dtype("V500000000")),
    )


def text_of_any_length(file: Any) -> None:
    file.create_dataset("a", (3,), h5py.string_dtype())[:] = ["a", "b" * 100_000, "c"]


def scale(file: Any) -> None:
    file.create_dataset("a", data=np.arange(1000), chunks=(100,), scaleoffset=3)


def dense_names(file: Any) -> None:
    file["a/k"] = np.arange(3.0)
    file.attrs["layer_names"] = np.array([b"x" * 100_000] * 40)


def very_many_groups(file: Any) -> None:
    for number in range(150):
        file.create_group(f"g{number}")


def chunks_of_one_byte(file: Any) -> None:
    file.create_dataset("a", data=np.zeros(4_000, "u1"), chunks=(1,))


def virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((1 << 40,), "f8")
    layout[:10] = h5py.VirtualSource(".", "a", (10,))
    file.create_virtual_dataset("a", layout)


def zipped(name: str, content: Make, claimed: int | None = None, deflated: bool = False) -> Make:
    """A ``.keras`` archive of these weights."""

    def make(above: Path) -> Path:
        path = above / f"{name}.keras"
        inside = content(above)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as archive:
            archive.writestr("config.json", "{}")
            archive.writestr("model.weights.h5", inside.read_bytes())
        inside.unlink()
        data = bytearray(path.read_bytes())
        if claimed is not None:
            at = data.rindex(b"PK\1\2")
            data[at + 20 : at + 28] = struct.pack("<2I", claimed, claimed)
        path.write_bytes(data)
        return path

    return make


FILES: dict[str, Make] = {
    "very many datasets of a fill value": hdf5("blank", many_blank),
    "a bomb in a bomb": hdf5("double", bomb_of_bomb),
    "a chunk that is a bomb": hdf5("bomb", bomb_of_one_chunk),
    "a chunk of LZF that is a bomb": hdf5("lzf", bomb_of_lzf),
    "zeros that deflate well": hdf5("zeros", bomb_of_zeros),
    "an attribute of one text very often": hdf5("texts", names(MANY_NAMES), same_text),
    "an attribute of the newest format": hdf5("dense", dense_names, libver="latest"),
    "a tree of names below itself": hdf5("names", very_many_groups, circle_of_groups),
    "a tree of chunks below itself": hdf5("chunks", bomb_of_zeros, circle_of_chunks),
    "a tree of chunks very often below itself": hdf5("often", same_chunks, deep_chunks),
    "chunks of the same bytes": hdf5("same", same_chunks, chunks_of_the_same_bytes),
    "a group in itself": hdf5("circle", linked_in_circle),
    "a fill value of terabytes": hdf5("fill", huge_fill),
    "an element of half a gigabyte": hdf5("element", huge_type),
    "texts": hdf5("text", text_of_any_length),
    "another filter": hdf5("scale", scale),
    "very many groups": hdf5("groups", very_many_groups),
    "chunks of one byte": hdf5("bytes", chunks_of_one_byte),
    "elements of another dataset": hdf5("virtual", virtual),
    "an archive": zipped("archive", hdf5("inside", bomb_of_zeros)),
    "a compressed archive": zipped("compressed", hdf5("inside", bomb_of_zeros), deflated=True),
    "an archive that says too much": zipped("claims", hdf5("inside", bomb_of_zeros), claimed=1 << 31),
}
