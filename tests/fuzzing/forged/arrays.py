"""Forged files of NumPy: archives of arrays."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np


def array(descr: object, shape: object, data: bytes = b"", fortran: bool = False) -> bytes:
    """A ``.npy`` file whose header says what it likes."""
    header = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header + data


def archived(name: str, *arrays: bytes, deflated: bool = False) -> Callable[[Path], Path]:
    """An archive of these files."""

    def make(above: Path) -> Path:
        path = above / f"{name}.npz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as archive:
            for number, each in enumerate(arrays):
                archive.writestr(f"{number}.npy", each)
        return path

    return make


def whole(path: Path) -> Path:
    """A file that nobody forged."""
    path = path.with_suffix(".npz")
    np.savez_compressed(path, w=np.arange(6.0), text=np.array(["a", "bc"]))
    return path


def lying(name: str, said: int, content: bytes) -> Callable[[Path], Path]:
    """An archive whose directory says another size than the compressed bytes have."""

    def make(above: Path) -> Path:
        path = archived(name, content, deflated=True)(above)
        data = bytearray(path.read_bytes())
        at = data.rindex(b"PK\1\2") + 24
        data[at : at + 4] = struct.pack("<I", said)
        path.write_bytes(data)
        return path

    return make


def wide(above: Path) -> Path:
    """Sizes and positions in fields of 64 bits that say far too much."""
    content = array("<f8", (1 << 40,))
    name = b"0.npy"
    extra = struct.pack("<HHQQ", 1, 16, (8 << 40) + len(content), len(content))
    local = (
        struct.pack("<4s5H3I2H", b"PK\3\4", 45, 0, 8, 0, 0, zlib.crc32(content), 0xFFFFFFFF, 0xFFFFFFFF, len(name), 0)
        + name
    )
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 45, 45, 0, 8, 0, 0, zlib.crc32(content), 0xFFFFFFFF, 0xFFFFFFFF, len(name), len(extra), 0, 0, 0, 0, 0)  # fmt: skip
    directory = entry + name + extra
    data = local + content + directory
    path = above / "wide.npz"
    path.write_bytes(
        data + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(directory), len(data) - len(directory), 0)
    )
    return path


MANY = [array("|S0", (400_000,)) for _ in range(300)]
BLANK = array("<f4", (4 << 20,), bytes(16 << 20))

FILES: dict[str, Callable[[Path], Path]] = {
    "text of width 0": archived("s0", array("|S0", (1 << 50,))),
    "much text of width 0": archived("u0", array("<U0", (100_000_000,)), deflated=True),
    "many texts of width 0": archived("s0s", *MANY),
    "text of width 0 without elements": archived("s00", array("<U0", (0, 1 << 62))),
    "text without elements": archived("none", array("<U5", (0, 1 << 60, 1 << 60))),
    "numbers without elements": archived("empty", array("<f8", (0, 1 << 62, 1 << 62))),
    "text in 64 dimensions": archived("dims", array("<U1", (1,) * 64, b"a\0\0\0")),
    "text that deflates well": archived("zeros", array("|S1", (20_000_000,), bytes(20_000_000)), deflated=True),
    "wide text": archived("wide_text", array("<U1000000", (1,), bytes(4_000_000)), deflated=True),
    "records": archived("records", array([("a", "<f8"), ("b", "<U1000000")], (1 << 40,))),
    "records of width 0": archived("void", array("|V0", (1 << 62,))),
    "nested records": archived("nested", array([("a", [("b", [("c", "<f8", (1 << 20, 1 << 10))], (1 << 10,))])], (3,))),
    "a shape of exabytes": archived("exa", array("<f8", (1 << 60,))),
    "a shape whose product is beyond 64 bits": archived("product", array("<f8", (1 << 40, 1 << 40))),
    "zeros that deflate well": archived("blank", BLANK, deflated=True),
    "a size that is a lie": lying("lie", 1 << 30, array("<f8", ((1 << 27) - 16,))),
    "a small size that is a lie": lying("small", 900_000, array("<f8", (1,), bytes(8))),
    "sizes of 64 bits": wide,
    "a header of brackets": archived("brackets", array("x", "(" * 30_000 + ")" * 30_000)),
    "a header of signs": archived("signs", b"\x93NUMPY\x02\x00" + struct.pack("<I", 60_000) + b"-" * 59_999 + b"1"),
    "numbers of the first machine in columns": archived(
        "fortran", array(">f4", (2048, 2048), bytes(16 << 20), True), deflated=True
    ),
}
