"""`digest`: one text for all values of a live object or a file, by which copies of weights are compared.

`milepost.bundle.digest` defines the digest of a value, and of values with names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from milepost.bundle import BundleReader
from milepost.bundle.digest import data_of, digest_of_value, digest_of_values, digests_of_chunks
from milepost.checkpoint.checkpoint import Checkpoint, view_of
from milepost.checkpoint.reader import resolve
from milepost.checkpoint.save_tree import ATTRIBUTES as DICT_ATTRIBUTES
from milepost.checkpoint.save_tree import checkpoint_of_tree
from milepost.checkpoint.short_names import name_of
from milepost.conversion.chunks import chunks_of
from milepost.distributed.find import rounds_of
from milepost.engine.digests import LiveValue, digests_of
from milepost.engine.left_out import LeftOut
from milepost.engine.options import CheckpointOptions, resolved, storage_of, takes_options
from milepost.engine.translation import SAVE_COUNTER, Names, Translation
from milepost.errors import UnsupportedError, importing
from milepost.graph.adapter import Array, Value, adapter_of
from milepost.graph.contract.operation import Operation
from milepost.graph.frameworks import import_adapters
from milepost.graph.keys import ATTRIBUTES, SLOT, is_value
from milepost.graph.saved.selection import selected
from milepost.graph.trees.structure import is_container
from milepost.restoring.load import open_any, read_object_graph
from milepost.saving.save import read_state
from milepost.series.metadata import read_metadata
from milepost.storage.paths import plain_path
from milepost.tensor import PiecewiseArray, ShardedArray

_ATTRIBUTES: Final = f"{DICT_ATTRIBUTES}/py_state"
"""The end of the name of what an `OrderedDict` has beside its members, such as the versions of modules."""


@takes_options()
def digest(
    source: Any,
    options: CheckpointOptions | None = None,
    *,
    below: str = "",
    ignore: Names = (),
    only: Names | None = None,
) -> str:
    """The digest of the values of a live object or of a file. It is the same text if the same values have the same names.

    It depends on the name, element type, shape and elements of each value, and on nothing else: not on order, format, compression,
    alignment, or the number of files and processes. So a copy of weights elsewhere can be compared with what a program holds.

    A name is the path from the root, with ``/`` for ``.``, so those of ``state_dict()`` of PyTorch, of safetensors and of checkpoints are the same. A value
    with several names has the shortest one, as in checkpoints. A slot variable is called ``optimizer/state/model/weight/exp_avg``. The
    ``save_counter`` of a `Checkpoint` does not count, and neither do the attributes of an `OrderedDict`. Values that a checkpoint
    lacks because its base has them (``CheckpointOptions(base=...)``) count; their digests are in the checkpoint.

    The text is ``sha256-v1:`` and 64 hexadecimal digits. They are the SHA-256 of one line for each value, sorted by their bytes in UTF-8:
    the name, a space, the digest of the value in hexadecimal digits, and a line feed. The digest of a value is the SHA-256 of its
    header and of the 32 bytes of the SHA-256 of each chunk. The header is the element type, a space, the lengths of
    the shape with commas, and a line feed, such as ``float32 3,4``. Chunks are the next 65,536 bytes of the elements, row-major, little-endian;
    of strings, each is preceded by its length in 8 bytes.

    Args:
        source: The path of a checkpoint, of a directory, whose latest checkpoint counts, or of a file of another library. Or a
            `Checkpoint`, a model, or another object that a `Checkpoint` saves. Or a tree of arrays, as for `milepost.save`.
        options: Where files are, and how several processes exchange messages. All of them call this, with the same objects.
        below: The name of an object. Only what is below it counts, and names begin there: ``digest(path, below="model")`` is
            ``digest(model)`` for a checkpoint of ``Checkpoint(model=model)``.
        ignore: Names of values that do not count, as for `milepost.load`.
        only: Names of the values that count alone, likewise.

    Returns:
        The digest.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptCheckpointError: The checkpoint is damaged.
        UntrackableError: An object cannot be saved.
        UnsupportedError: There are no values of these names.
        CoordinationError: The processes hold different values, or one of them failed.

    Example:
        >>> import milepost, numpy as np, tempfile
        >>> weights = {"kernel": np.ones((2, 3)), "bias": np.zeros(3)}
        >>> path = milepost.save(tempfile.mkdtemp() + "/weights", weights)
        >>> milepost.digest(path) == milepost.digest(weights)
        True
        >>> milepost.digest(path) == milepost.digest({**weights, "bias": np.ones(3)})
        False
    """
    settings = resolved(options)
    pairs: Iterable[tuple[str, str]]
    if isinstance(source, (str, os.PathLike)):
        pairs = _of_file(plain_path(source), settings, ignore, only)
    else:
        pairs = digests_of_object(
            source, replace(settings, ignore=ignore, only=only, base=None, frozen=None, cast=None)
        )
    beginning = below.strip("./").replace(".", "/")
    counted = [*_below(pairs, beginning)]
    if not counted:
        raise UnsupportedError(
            "there is no value to make a digest of",
            key=beginning or None,
            file=plain_path(source) if isinstance(source, (str, os.PathLike)) else None,
            expected="at least one value that below, ignore and only do not leave out",
            found="none",
            remedy="compare the names with those that milepost.list_variables() shows",
        )
    return digest_of_values(counted)


def _below(pairs: Iterable[tuple[str, str]], beginning: str) -> Iterator[tuple[str, str]]:
    """The name and the digest of each value that counts, by its key."""
    for key, each in pairs:
        name = _name(key)
        if name.endswith(_ATTRIBUTES):
            continue
        if not beginning:
            if name != SAVE_COUNTER:
                yield name, each
        elif name == beginning or name.startswith(f"{beginning}/"):
            yield name[len(beginning) + 1 :], each


def _name(key: str) -> str:
    """The name of a value, which that of a slot variable has below its optimizer."""
    variable, is_slot, rest = key.partition(SLOT)
    name = name_of(key)
    if is_slot:
        optimizer, _, slot = name_of(rest).rpartition("/")
        name = f"{optimizer}/state/{name_of(variable)}/{slot}"
    return name.replace(".", "/")


def _of_file(path: str, settings: CheckpointOptions, ignore: Names, only: Names | None) -> Iterator[tuple[str, str]]:
    """The key and the digest of each value of a file."""
    storage, selection = storage_of(settings), Translation(ignore=ignore, only=only)
    with open_any(storage, resolve(path, storage)) as reader:
        keys = [key for key in reader.keys() if is_value(key)]  # noqa: SIM118 - a reader is not a mapping
        left_out = LeftOut.parsed(read_metadata(reader).left_out) if reader.origin.is_checkpoint else None
        graph = read_object_graph(reader) if selection.selects else None
        without = {*selected(graph, selection.takes, selection.ignores, as_saved=True).left_out} if graph else set()
        for key in keys:
            if graph is not None:
                is_taken = key not in without
            else:
                is_taken = not selection.selects or selection.takes(key.partition(ATTRIBUTES)[0])
            if is_taken:
                yield key, _of_saved(reader, key)
        for key, each in left_out.digests.items() if left_out is not None else ():
            if selection.takes(key.partition(ATTRIBUTES)[0]):
                if not each:
                    raise _unknown(key, reader.prefix)
                yield key, each
        selection.warn_of_unused(reader, dotted=reader.origin.dotted)


def _unknown(key: str, path: str) -> UnsupportedError:
    return UnsupportedError(
        "the digest of a value that the base has is not known, because the checkpoint was converted to another layout",
        key=key,
        file=path,
        expected="a checkpoint as it was saved",
        remedy="leave what the base has out with ignore=, or make the digest of the live objects",
    )


def _of_saved(reader: BundleReader, key: str) -> str:
    spec = reader.spec(key)
    data = (part for chunk in chunks_of(reader, key) for part in data_of(chunk, spec.dtype))
    return digest_of_value(spec.dtype, spec.shape, digests_of_chunks(data))


def digests_of_object(source: Any, settings: CheckpointOptions) -> Iterable[tuple[str, str]]:
    """The key and the digest of each value of a live object. Arguments and errors are those of `digest`."""
    import_adapters()
    rounds = rounds_of(settings, "digest")
    try:
        state = read_state(_operation(source), settings)
        values = [
            LiveValue(write.key, Value("", write.dtype, write.shape, partial(_same, array)))
            for write, array in zip(state.writes, state.arrays, strict=True)
        ]
        if rounds is None:
            return digests_of(values).items()
        with importing():
            from milepost.distributed.digests import digests_together  # a process that is alone needs none

        digests = digests_together(values, rounds)
    except BaseException as error:
        if rounds is not None:
            rounds.fail(error)
        raise
    rounds.end()
    return digests.items()


def _same(array: Array | PiecewiseArray | ShardedArray) -> Array | PiecewiseArray | ShardedArray:
    return array


def _operation(source: Any) -> Operation:
    """Begins an operation at a live object or a tree of values."""
    if isinstance(source, Checkpoint):
        return view_of(source)
    if is_container(type(source)) or adapter_of(source) is None or isinstance(source, (dict, list, tuple)):
        return view_of(checkpoint_of_tree(source))
    return Operation(source)
