"""Reads directories of Orbax with `orbax.checkpoint`, which is imported when the first one is read.

`orbax_layout` says which files such a directory has. Arrays are read in batches of neighbours in the tree, so that at most one batch,
or one array, is in memory in addition to the requested one. Aggregated arrays, and items without _METADATA, are read as a whole when
the item is opened. Source: Orbax 0.1.8, 0.4.8, 0.5.3 and 0.12, observed.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from milepost.bundle.memory import Array, new_array
from milepost.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    MilepostError,
    StorageError,
    UnrestoredWarning,
    UnsupportedError,
    warn,
)
from milepost.foreign.jax.flax_files import FlaxFile
from milepost.foreign.jax.orbax_layout import (
    AGGREGATED,
    DEFAULT,
    DESCRIBED,
    JSON,
    METRICS,
    TREE,
    VERSION_1,
    directories_in,
    has_aggregated,
    has_file,
    is_item,
    is_of_step,
    is_step,
    read_json,
    steps_in,
    unfinished_error,
)
from milepost.foreign.stored import Stored
from milepost.graph.description import counted
from milepost.storage import ReadableFile
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tensor import DType, TensorSpec

_BATCH: Final = 16 << 20
"""How many bytes are read at once. A call of Orbax takes about 20 ms, however little it reads."""
_MOST_LISTED: Final = 5
_DAMAGE: Final = (errno.EIO, errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
"""Numbers of errors of the system that a damaged or incomplete directory causes."""
_DENIED: Final = "PERMISSION_DENIED"
"""How errors of TensorStore begin if the system does not let this user read a file."""
_LARGE: Final = 64 << 20
"""Bytes of an array for which there may be no memory."""


class OrbaxDirectory:
    """An open item or step of Orbax; see `ForeignFile`.

    Args:
        path: The directory.

    Raises:
        CheckpointNotFoundError: The directory holds steps, and is not a step itself.
        CorruptCheckpointError: The directory cannot be read, or was never finished.
        UnsupportedError: Orbax is not installed, or milepost does not read such an item.
    """

    dotted = False
    kind = ""
    library = "Orbax"

    def __init__(self, path: str) -> None:
        self.path = path
        self.paths = [path]
        self._items: list[_TreeItem] = []
        if (unfinished := unfinished_error(path)) is not None:
            raise unfinished
        try:
            if is_item(path):
                self.tree: Any = self._open(path)
            elif is_step(path):
                self.tree = self._open_step(path)
            else:
                inside = steps_in(path)
                what = "step" if all(map(is_of_step, inside)) else "item"
                listed = ", ".join(map(repr, inside[-_MOST_LISTED:]))
                raise CheckpointNotFoundError(
                    f"this directory holds {counted(len(inside), what)} of Orbax, and is none itself",
                    expected=f"the directory of {'the' if len(inside) == 1 else 'one'} {what}",
                    remedy=f"pass {listed}" if len(inside) == 1 else f"pass one of {listed}",
                )
        except MilepostError as error:
            raise error.with_context(file=path) from None

    def read_into(self, tensor: Stored, destination: Array) -> None:
        item: _TreeItem
        item, number = tensor.place
        destination[...] = item.take(number)

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        return None

    def check(self, tensor: Stored) -> None:
        item: _TreeItem
        item, number = tensor.place
        item.load(number)

    def has_checksum(self, tensor: Stored) -> bool:
        return False

    def close(self) -> None:
        """Frees the arrays that were read. Orbax keeps no files open between two calls."""
        for item in self._items:
            item.forget()

    def _open(self, path: str) -> Any:
        if not has_file(path, TREE):
            return _first_form(path)
        item = _TreeItem(path)
        self._items.append(item)
        return item.tree

    def _open_step(self, path: str) -> Any:
        items: dict[str, Any] = {}
        for name in directories_in(path):
            inside = os.path.join(path, name)
            if is_item(inside):
                items[name] = self._open(inside)
            elif has_file(inside, JSON):
                items[name] = read_json(os.path.join(inside, JSON))
            elif name == METRICS and has_file(inside, METRICS):
                items[name] = read_json(os.path.join(inside, METRICS))
            else:
                warn(
                    f"{inside}: this item of a step of Orbax is skipped, because it is neither a tree of arrays nor JSON; "
                    "restore it with Orbax",
                    UnrestoredWarning,
                )
        if len(items) == 1 and has_file(path, VERSION_1):
            return next(iter(items.values()))
        whole = items.pop(DEFAULT, None)
        if whole is None:
            return items
        return {**items, **whole} if isinstance(whole, dict) else whole


def _refuse_special_files(directory: str) -> None:
    """Refuses a directory with anything but files and directories in it. Orbax would wait for the writer of a named pipe.

    Raises:
        CorruptCheckpointError: There is a pipe, a device, a socket, or a link to what is not there.
    """
    pending, seen = [directory], set[tuple[int, int]]()
    while pending:
        inside = pending.pop()
        with contextlib.suppress(OSError):  # what this user may not read, Orbax says
            status = os.stat(inside)
            if (status.st_dev, status.st_ino) in seen:  # links may lead back
                continue
            seen.add((status.st_dev, status.st_ino))
            pending += _directories_in(inside)


def _check_aggregated(directory: str) -> None:
    """Reads what Orbax is about to read with MessagePack. NumPy ends the process with some element types, and Python with very many levels.

    Raises:
        MilepostError: `FlaxFile` cannot read it.
    """
    if has_aggregated(directory):
        path = os.path.join(directory, AGGREGATED)
        try:
            with contextlib.closing(DEFAULT_STORAGE.open(path)) as file:
                FlaxFile(file)
        except MilepostError as error:
            raise error.with_context(file=path) from None


def _directories_in(directory: str) -> list[str]:
    """The directories in a directory; errors are those of `_refuse_special_files`."""
    directories = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir():
                directories.append(entry.path)
            elif not entry.is_file():
                raise CorruptCheckpointError(
                    "a directory of Orbax holds something that is neither a file nor a directory",
                    file=entry.path,
                    expected="a file, as Orbax writes it",
                    found="a pipe, a device, a socket, or a link to what is not there",
                    remedy="copy the directory again",
                )
    return directories


class _TreeItem:
    """A tree of arrays.

    Attributes:
        tree: The tree, with `Stored` for arrays.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)  # the current directory may change before everything is read
        _refuse_special_files(self._path)
        _check_aggregated(self._path)
        self._orbax = _import_orbax()
        self._leaves: list[tuple[tuple[Any, ...], Stored]] = []
        self._loaded: dict[int, Array] = {}
        self._implementations = _implementations(path)
        with _translated(path):
            described = self._orbax.PyTreeCheckpointHandler().metadata(_path_of(path)).tree
            texts: list[tuple[Any, ...]] = []
            self._template = self._outline(described, (), texts)
        self.tree = self._template
        if texts:
            values = self._restore(set(texts))
            self.tree = _with(self.tree, {tree_path: _plain(_at(values, tree_path), tree_path) for tree_path in texts})

    def take(self, number: int) -> Array:
        """Returns an array, and forgets it."""
        self.load(number)
        return self._loaded.pop(number)

    def load(self, number: int) -> None:
        """Reads an array, together with some that follow it."""
        if number in self._loaded:
            return
        self.forget()
        left = _BATCH
        wanted: list[int] = []
        for follower in range(number, len(self._leaves)):
            left -= self._leaves[follower][1].spec.nbytes
            if wanted and left < 0:
                break
            wanted.append(follower)
        spec = self._leaves[number][1].spec
        if spec.nbytes > _LARGE:
            _check_memory(spec)
        try:
            values = self._restore({self._leaves[index][0] for index in wanted})
        except CorruptCheckpointError:
            wanted = [number]  # another array of the batch may be the damaged one
            values = self._restore({self._leaves[number][0]})
        for index in wanted:
            tree_path, stored = self._leaves[index]
            array = np.asarray(_at(values, tree_path))
            if TensorSpec(DType.of(array), array.shape) != stored.spec:
                raise CorruptCheckpointError(
                    "Orbax returned an array that differs from its description",
                    expected=stored.spec,
                    found=f"{array.dtype}, shape {array.shape}",
                )
            self._loaded[index] = array

    def forget(self) -> None:
        """Frees arrays that were read and not taken."""
        self._loaded.clear()

    def _outline(self, described: Any, tree_path: tuple[Any, ...], texts: list[tuple[Any, ...]]) -> Any:
        """The tree, with `Stored` instead of arrays. Adds the paths of arrays in the tree to the leaves, and those of others to ``texts``."""
        if isinstance(described, Mapping):
            return {name: self._outline(each, (*tree_path, name), texts) for name, each in described.items()}
        if isinstance(described, (list, tuple)):
            return [self._outline(each, (*tree_path, number), texts) for number, each in enumerate(described)]
        if described is None:
            return None
        dtype = getattr(described, "dtype", None)
        if dtype is None:
            texts.append(tree_path)
            return ""
        try:
            spec = TensorSpec(DType.of(dtype), tuple(described.shape))
            _check_chunk(getattr(getattr(described, "storage", None), "chunk_shape", None), spec)
        except MilepostError as error:
            raise error.with_context(key="/".join(map(str, tree_path))) from None
        stored = Stored(spec, (self, len(self._leaves)), generator=self._implementations.get(described.name, ""))
        self._leaves.append((tree_path, stored))
        return stored

    def _restore(self, wanted: set[tuple[Any, ...]]) -> Any:
        """The tree with the values of some leaves."""
        absent = self._orbax.PLACEHOLDER
        arguments = self._orbax.RestoreArgs(restore_type=np.ndarray)
        texts = self._orbax.RestoreArgs()  # text, or an array that is aggregated

        def fill(node: Any, tree_path: tuple[Any, ...], of: bool) -> Any:
            if isinstance(node, Mapping):
                return {name: fill(each, (*tree_path, name), of) for name, each in node.items()}
            if isinstance(node, list):
                return [fill(each, (*tree_path, number), of) for number, each in enumerate(node)]
            if node is None:
                return None
            if of:
                return arguments if isinstance(node, Stored) else texts
            return 0 if tree_path in wanted else absent

        with _translated(self._path):
            return self._orbax.PyTreeCheckpointer().restore(
                _path_of(self._path),
                args=self._orbax.args.PyTreeRestore(
                    item=fill(self._template, (), False), restore_args=fill(self._template, (), True)
                ),
            )


def _check_chunk(shape: Any, spec: TensorSpec) -> None:
    """Refuses an array whose chunks are far larger than it: TensorStore makes a whole chunk, and would end the process if it cannot.

    Args:
        shape: The shape of a chunk, if Orbax tells it.
        spec: The array.
    """
    size = math.prod(shape or ()) * spec.dtype.itemsize
    if size > max(_LARGE, spec.nbytes):
        raise CorruptCheckpointError(
            "the chunks of this array are larger than the array",
            expected=f"at most {max(_LARGE, spec.nbytes)} bytes",
            found=f"{size} bytes, as the file .zarray or zarr.json of the array says",
        )


def _check_memory(spec: TensorSpec) -> None:
    """Refuses an array for which there is no memory: TensorStore would end the process.

    The sizes of files say nothing of it, since zeros need not be in any file.
    """
    try:
        new_array(spec.dtype, spec.shape)
    except MemoryError:
        raise UnsupportedError(
            "there is no memory for this array",
            expected=f"{spec.nbytes} bytes of free memory, as the file .zarray or zarr.json of the array says",
            remedy="read it on a machine with more memory; if the size is wrong, use an intact copy of the directory",
        ) from None


def _at(tree: Any, tree_path: tuple[Any, ...]) -> Any:
    for step in tree_path:
        tree = tree[step]
    return tree


def _with(tree: Any, changes: Mapping[tuple[Any, ...], Any], tree_path: tuple[Any, ...] = ()) -> Any:
    if tree_path in changes:
        return changes[tree_path]
    if isinstance(tree, dict):
        return {name: _with(each, changes, (*tree_path, name)) for name, each in tree.items()}
    if isinstance(tree, list):
        return [_with(each, changes, (*tree_path, number)) for number, each in enumerate(tree)]
    return tree


def _plain(value: Any, tree_path: tuple[Any, ...]) -> Any:
    """A leaf that is not stored as an array of its own: text, a number, or an aggregated array."""
    if value is None or isinstance(value, (str, bytes, bool, int, float, complex)):
        return value
    array = np.asarray(value)
    key = "/".join(map(str, tree_path))
    if array.dtype.hasobject:
        raise UnsupportedError(
            "this leaf of the tree is neither an array nor plain data",
            key=key,
            expected="an array, a number, text or None",
            found=f"an object of type {type(value).__name__}",
            remedy="restore it with Orbax",
        )
    try:
        DType.of(array)
    except MilepostError as error:
        raise error.with_context(key=key) from None
    return array


def _first_form(path: str) -> Any:
    """The tree of an item without _METADATA, read as a whole."""
    _refuse_special_files(path)
    _check_aggregated(path)
    orbax = _import_orbax()
    with _translated(path):
        tree = orbax.PyTreeCheckpointer().restore(_path_of(path))
    try:
        return _plain_tree(tree, ())
    except UnsupportedError as error:
        raise error.with_context(file=path) from None


def _plain_tree(tree: Any, tree_path: tuple[Any, ...]) -> Any:
    if isinstance(tree, Mapping):
        return {name: _plain_tree(each, (*tree_path, name)) for name, each in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_plain_tree(each, (*tree_path, number)) for number, each in enumerate(tree)]
    return _plain(tree, tree_path)


def _import_orbax() -> Any:
    try:
        return importlib.import_module("orbax.checkpoint")
    except ImportError as error:
        raise UnsupportedError(
            "milepost needs Orbax to read this directory",
            found=f"{type(error).__name__}: {error}",
            remedy="run: pip install orbax-checkpoint",
        ) from error


def _refusal(error: Exception) -> int | None:
    """The number of the error if the operating system has refused to read files. None if they may be damaged or missing."""
    if isinstance(error, OSError):
        return None if error.errno in _DAMAGE else error.errno
    return errno.EACCES if str(error).startswith(_DENIED) else None


def _path_of(path: str) -> Any:
    return importlib.import_module("etils.epath").Path(os.path.abspath(path))


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except (MilepostError, MemoryError):
        raise
    except Exception as error:
        # For damaged files, Orbax and its dependencies raise errors of many kinds. If one of several arrays is damaged, Orbax closes its
        # event loop while others are still being read, and the threads of TensorStore print "Event loop is closed".
        code = _refusal(error)
        if code is not None:
            raise StorageError(
                f"Orbax cannot read this directory: {os.strerror(code)}",
                errno=code,
                file=path,
                found=f"{type(error).__name__}: {error!s:.300}",
                remedy="let this user read all of its files, and read it again"
                if code in (errno.EACCES, errno.EPERM)
                else "read it again; nothing shows that the directory is damaged",
            ) from error
        raise CorruptCheckpointError(
            "Orbax cannot read this directory", file=path, found=f"{type(error).__name__}: {error!s:.300}"
        ) from error


def _implementations(path: str) -> dict[str, str]:
    """The names of the generators, for arrays that are keys of random number generators."""
    implementations: dict[str, str] = {}
    directory = os.path.join(path, DESCRIBED)
    if not os.path.isdir(directory):
        return implementations
    for name in sorted(os.listdir(directory)):
        described = read_json(os.path.join(directory, name))
        entries = described.get("array_metadatas") if isinstance(described, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            array = entry.get("array_metadata") if isinstance(entry, dict) else None
            extra = array.get("ext_metadata") if isinstance(array, dict) else None
            implementation = extra.get("random_key_impl") if isinstance(extra, dict) else None
            if isinstance(array, dict) and isinstance(implementation, str):
                implementations[str(array.get("param_name"))] = implementation
    return implementations
