"""`milepost cat`: one tensor as a .npy file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from milepost.bundle.memory import Array
from milepost.conversion import npy
from milepost.conversion.chunks import chunks_of
from milepost.errors import MilepostError, StorageError, UnsupportedError
from milepost.storage.output_file import is_written_to, replaced
from milepost.tensor import DType
from milepost.tools import amounts
from milepost.tools.arguments import FILES, SUCCESS, add_checkpoint, add_command, add_output, check_output
from milepost.tools.named import open_named
from milepost.tools.terminal import line_about_file, note, progress
from milepost.tools.values.element_types import Converter
from milepost.tools.values.statistics import is_numeric
from milepost.tools.values.tensors import one_selected


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "cat",
        run,
        "write one tensor as a .npy file of NumPy",
        [
            "milepost cat ./tf_ckpts net/l1/kernel -o kernel.npy",
            "milepost cat model.safetensors embed.weight --as float32 > embed.npy",
        ],
        {0: "the tensor is written"},
        "The tensor is read and written in pieces, so memory does not grow with it.",
    )
    add_checkpoint(command, text=FILES)
    command.add_argument("key", metavar="KEY", help="the key of the tensor, or its short name such as net/l1/kernel")
    add_output(command, "the file to write; by default the output, which must not be a terminal")
    command.add_argument(
        "--as",
        dest="dtype",
        metavar="TYPE",
        help="convert to this type of NumPy, such as float32; bfloat16, float8 and the like have no .npy form of their own",
    )


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    if options.output is None and sys.stdout.isatty():
        raise UnsupportedError(
            "a .npy file is not text, and would disturb the terminal",
            remedy="pass -o FILE, or redirect the output to a file or a program",
        )
    if options.dtype is not None and not _is_number(options.dtype):
        options.usage_error(f"--as takes a type of numbers of NumPy, such as float32 or int64; found {options.dtype!r}")
    check_output(options, ".npy", otherwise="'milepost convert --only KEY' writes other formats")
    with open_named(options.checkpoint) as reader:
        key = one_selected(reader, options.key)
        spec = reader.spec(key)
        wanted = _wanted(options.dtype, spec.dtype, key, reader.prefix)
        with progress("read", reader.prefix, spec.nbytes):
            converter = Converter(wanted, key, reader.prefix)
            chunks = converter.converted(chunks_of(reader, key))
            if options.output is None:
                _write(sys.stdout.buffer, wanted, spec.shape, chunks)
            else:
                with replaced(options.output) as file:
                    _write(file, wanted, spec.shape, chunks)
                size = "" if is_written_to(options.output) else f", {amounts.size(os.path.getsize(options.output))}"
                line_about_file(options.output, f"{wanted.name}{list(spec.shape)}{size}")
        if converter.rounded:
            note(f"rounded: {amounts.plural(converter.rounded, 'element')}")
    return SUCCESS


def _wanted(name: str | None, saved: DType, key: str, file: str) -> np.dtype[Any]:
    """The element type to write."""
    if name is None:
        npy.check_type(saved, key, file)
        return saved.numpy
    if not is_numeric(saved):
        npy.check_type(saved, key, file)
    return np.dtype(name)


def _is_number(name: str) -> bool:
    """Whether this is the name of a number type of NumPy."""
    try:
        return np.dtype(name).kind in "biufc"
    except (TypeError, ValueError):
        return False


def _write(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...], chunks: Iterator[Array]) -> None:
    try:
        npy.write(file, dtype, shape, chunks)
        file.flush()
    except (BrokenPipeError, MilepostError):  # the second is about what is read
        raise
    except OSError as error:
        raise StorageError(
            "cannot write the file", errno=error.errno, found=error.strerror, remedy="free space, or write elsewhere"
        ) from error
