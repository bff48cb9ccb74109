"""Recognises files of other formats by their first bytes, and tells users what to do with them.

The name of a file is not enough: a failed download leaves a page in HTML under the name of a model. If the first bytes fit several
formats, the first in the table is used. Sources: the descriptions of the formats; for ONNX, TensorFlow and Core ML the field numbers
of their protocol buffers; for pickled data Python's ``pickletools``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from milepost.bundle import parse_data_path
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign.zip_directory import BEGINNING, LOCAL_HEADER, read_directory
from milepost.storage import ReadableFile
from milepost.table.block import MAGIC

_LOOKED_AT: Final = 1024
_SHOWN: Final = 60


class FileFormat(NamedTuple):
    """A format of files.

    Attributes:
        name: The name of such a file, with its article.
        pattern: The pattern that its first bytes match.
        remedy: What the user can do with it.
    """

    name: str
    pattern: re.Pattern[bytes]
    remedy: str


_AGAIN: Final = "open it in a text editor: it often says why a download failed; then download the file again"
_UNPACK: Final = "unpack it, and pass what is inside"
_NOT_WEIGHTS: Final = "pass the path of a checkpoint or of a file of weights"
_CONVERT: Final = (
    "load the file with the library that wrote it, put its values into the live objects, and save these with milepost"
)


def _kind(name: str, pattern: bytes, remedy: str) -> FileFormat:
    return FileFormat(name, re.compile(pattern, re.DOTALL), remedy)


_STATE_FILE: Final = _kind(
    "the state file of a directory of checkpoints",
    rb"\s*(all_)?model_checkpoint_(path|timestamps)s?\s*:",
    "pass latest_checkpoint() of its directory, or the path of one checkpoint",
)

KINDS: Final = (
    _kind(
        "a pointer of Git LFS, not the file itself",
        rb"version https://git-lfs\.github\.com/spec",
        "run 'git lfs install' and 'git lfs pull' in the repository, or download the file itself",
    ),
    _kind(
        "a pointer of git-annex, not the file itself",
        rb"[./]*(\.git)?/annex/objects/",
        "run 'git annex get' on it",
    ),
    _STATE_FILE,
    _kind("an HTML page", rb"(?i)(\xef\xbb\xbf)?\s*(<!--.{0,400}?-->\s*)?<(!doctype\s+html|html|head|body)\b", _AGAIN),
    _kind("an XML file", rb"(\xef\xbb\xbf)?\s*<(\?xml|[A-Za-z])", _AGAIN),
    _kind(
        "an array that numpy.save wrote",
        rb"\x93NUMPY",
        "load it with numpy.load(path), and put it into a milepost.Variable",
    ),
    _kind("a file compressed with gzip", rb"\x1f\x8b\x08", f"{_UNPACK}: gzip -dk, or tar -xzf if it is a .tar.gz"),
    _kind("a file compressed with bzip2", rb"BZh[1-9]1AY&SY", f"{_UNPACK}: bzip2 -dk, or tar -xjf if it is a .tar.bz2"),
    _kind("a file compressed with xz", rb"\xfd7zXZ\0", f"{_UNPACK}: xz -dk, or tar -xJf if it is a .tar.xz"),
    _kind("a file compressed with Zstandard", rb"\x28\xb5\x2f\xfd", f"{_UNPACK}: zstd -d"),
    _kind("a file compressed with LZ4", rb"\x04\x22\x4d\x18", f"{_UNPACK}: lz4 -d"),
    _kind("a 7z archive", rb"7z\xbc\xaf\x27\x1c", _UNPACK),
    _kind("a RAR archive", rb"Rar!\x1a\x07", _UNPACK),
    _kind("a tar archive", rb".{257}ustar", f"{_UNPACK}: tar -xf"),
    _kind("an empty zip archive", rb"PK\x05\x06", _NOT_WEIGHTS),
    _kind(
        "a GGUF file, as llama.cpp uses them",
        rb"GGUF|ggml|lmgg|ggjt|tjgg|ggmf|fmgg",
        "use the safetensors or PyTorch file that it was converted from",
    ),
    _kind("a TensorFlow Lite model", rb".{4}TFL3", "use the checkpoint or the SavedModel that it was converted from"),
    _kind("an ExecuTorch program", rb".{4}ET1\d", "use the PyTorch file that it was exported from"),
    _kind("a Parquet file", rb"PAR1", _CONVERT),
    _kind("an Arrow file", rb"ARROW1\0\0|FEA1", _CONVERT),
    _kind(
        "a MATLAB file",
        rb"MATLAB 5\.0 MAT-file",
        "load it with scipy.io.loadmat(path), and put its arrays into variables",
    ),
    _kind("a SQLite database", rb"SQLite format 3\0", _NOT_WEIGHTS),
    _kind(
        "an image", rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|BM.{4}\0\0\0\0|II\*\0|MM\0\*|RIFF.{4}WEBP", _NOT_WEIGHTS
    ),
    _kind("a PDF document", rb"%PDF-", _NOT_WEIGHTS),
    _kind("a sound or video", rb"RIFF.{4}(WAVE|AVI )|OggS|fLaC|ID3|.{4}ftyp", _NOT_WEIGHTS),
    _kind("a program", rb"\x7fELF|MZ.\0|\xcf\xfa\xed\xfe|#!", _NOT_WEIGHTS),
    _kind(
        "a SavedModel's file of graphs",
        rb"\x08\x01\x12[\x80-\xff]{0,4}[\0-\x7f]\n",
        "pass the directory that it is in: its variables are a checkpoint",
    ),
    _kind(
        "an ONNX model",
        rb"\x08[\x02-\x10](\x12[\x01-\x7f][\x20-\x7e]|\x12\0[\x1a\x22\x2a\x32\x3a]|[\x1a\x22\x2a\x32\x3a\x42])",
        "use the checkpoint that it was exported from; else read its initializers with the package onnx",
    ),
    _kind(
        "a Core ML model",
        rb"\x08[\x01-\x10]\x12[\x80-\xff]{0,4}[\0-\x7f]\n",
        "use the checkpoint that it was converted from",
    ),
    _kind(
        "a graph of TensorFlow 1",
        rb"\n[\x80-\xff]{0,4}[\0-\x7f]\n[\x01-\x7f][\x20-\x7e]+\x12[\x01-\x7f][A-Z]",
        "use the checkpoint that it was frozen from",
    ),
    _kind(
        "pickled data that torch.save did not write",
        rb"\x80[\x02-\x05][\x20-\x7e\x80-\x9f]",
        "if you trust the author of the file, load it with pickle or joblib, put its arrays into variables, and save these",
    ),
    _kind("parameters of MXNet", rb"\x12\x01\0{6}", _CONVERT),
)
"""The formats. The first whose pattern matches is used."""

_ARCHIVES: Final = (
    (
        re.compile(r"(^|/)(serialized_exported_program\.json|archive_format)$|/models/[^/]*\.json$"),
        FileFormat(
            "a program that torch.export saved",
            re.compile(rb""),
            "load it with torch.export.load(path), and save the state_dict of that",
        ),
    ),
    (
        re.compile(r"\.(pth|pt|ckpt|safetensors|index|npy)$"),
        FileFormat("a zip archive with files of weights in it", re.compile(rb""), _UNPACK),
    ),
)
_OTHER_ARCHIVE: Final = FileFormat("a zip archive that is neither PyTorch's nor Keras'", re.compile(rb""), _UNPACK)
_OF_CHECKPOINTS: Final = re.compile(r"^checkpoint$|\.(index|meta)$|\.ckpt(-\d+)?$|-\d+$")
"""Names of checkpoints of TensorFlow 1, and of files beside checkpoints."""
_LIBRARIES: Final = {
    ".pt": "PyTorch",
    ".pth": "PyTorch",
    ".bin": "PyTorch",
    ".npz": "NumPy",
    ".msgpack": "Flax",
    ".keras": "Keras",
    ".h5": "Keras",
    ".hdf5": "Keras",
}
"""Whose files have names with these endings."""


def refuse(file: ReadableFile) -> None:
    """Refuses a file of a format that milepost recognises and does not read.

    Args:
        file: A file of no format that milepost reads.

    Raises:
        UnsupportedError: It has one of the formats here.
        CorruptCheckpointError: It is empty, or a zip archive that is cut off.
    """
    if not file.size:
        raise CorruptCheckpointError(
            "this file is empty",
            file=file.path,
            expected="a checkpoint, or a file of weights",
            found="0 bytes",
            remedy="copy or download it again",
        )
    start = bytes(file.read(0, min(file.size, _LOOKED_AT)))
    if _ends_as_index(file):
        return
    kind = _archive(file) if start.startswith(BEGINNING) else _known(start)
    if kind is not None:
        raise UnsupportedError(
            "this is the state file of a directory, not a checkpoint"
            if kind is _STATE_FILE
            else f"this is {kind.name}, which milepost does not read",
            file=file.path,
            expected="a checkpoint, or a file of PyTorch, safetensors, NumPy, Flax or Keras",
            found=_shown(start),
            remedy=f"pass {_latest(file.path)}, or another checkpoint of this directory"
            if kind is _STATE_FILE
            else kind.remedy,
        )


def refuse_unknown(file: ReadableFile) -> None:
    """Refuses a file that has none of the formats that milepost knows, so that it is not taken for a damaged checkpoint.

    Args:
        file: A file that no reader of another library's files and no pattern here fits.

    Raises:
        CorruptCheckpointError: It is neither a checkpoint nor a part of one.
    """
    name = os.path.basename(file.path)
    if parse_data_path(name) or _OF_CHECKPOINTS.search(name) or _ends_as_index(file):
        return
    ending = next((each for each in _LIBRARIES if name.lower().endswith(each)), None)
    written = f"a file of {_LIBRARIES[ending]}, as its name says" if ending else "a checkpoint, or a file of weights"
    raise CorruptCheckpointError(
        f"this is not a file of {_LIBRARIES[ending]}, although its name ends in {ending}"
        if ending
        else "this file has none of the formats that milepost reads",
        file=file.path,
        expected=written,
        found=_shown(bytes(file.read(0, min(file.size, _LOOKED_AT)))),
        remedy="copy or download it again, or write it again with the library that made it",
    )


def _ends_as_index(file: ReadableFile) -> bool:
    length = len(MAGIC)  # at its end; its first bytes may be any
    return file.size >= length and bytes(file.read(file.size - length, length)) == MAGIC


def first_record(file: ReadableFile) -> str:
    """The name of the first record of a zip archive. The archive's directory is not needed."""
    start = bytes(file.read(0, min(file.size, _LOOKED_AT)))
    length = int.from_bytes(start[LOCAL_HEADER - 4 : LOCAL_HEADER - 2], "little")
    return start[LOCAL_HEADER : LOCAL_HEADER + length].decode(errors="replace")


def _archive(file: ReadableFile) -> FileFormat | None:
    problem: MilepostError | None = None
    try:
        names: Iterable[str] = read_directory(file)
    except MilepostError as error:
        names, problem = [first_record(file)], error
    names = list(names)
    file_format = next((kind for pattern, kind in _ARCHIVES if any(map(pattern.search, names))), None)
    if file_format is None and problem is not None:
        raise CorruptCheckpointError(
            "this file begins like a zip archive, but is cut off or damaged: its directory is missing or wrong",
            file=file.path,
            expected=problem.expected,
            found=problem.found,
            remedy="copy or download it again",
        )
    return file_format or _OTHER_ARCHIVE


def _known(start: bytes) -> FileFormat | None:
    file_format = next((kind for kind in KINDS if kind.pattern.match(start)), None)
    if file_format is None and _is_text(start):
        name = "a JSON file" if start.lstrip()[:1] in (b"{", b"[") else "a text file"
        remedy = (
            "if it is the index of a model, give it a name that ends in '.index.json'; else "
            if b'"weight_map"' in start
            else ""
        )
        return FileFormat(name, re.compile(rb""), remedy + _AGAIN)
    return file_format


def _latest(path: str) -> str:
    """The call that finds the checkpoint which a state file names."""
    directory, name = os.path.split(path)
    more = "" if name == "checkpoint" else f", {name!r}"
    return f"latest_checkpoint({directory or '.'!r}{more})"


def _is_text(start: bytes) -> bool:
    """Whether bytes are printable text in UTF-8."""
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        if error.start < len(start) - 3 or len(start) < _LOOKED_AT:
            return False
        text = start[: error.start].decode()
    return all(letter.isprintable() or letter in "\r\n\t\ufeff" for letter in text)


def _shown(start: bytes) -> str:
    return f"a file that begins with {start[:_SHOWN] if _is_text(start) else start[:16]!r}"
