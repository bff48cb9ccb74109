"""Reading the tensors of a checkpoint without live objects."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any, Final, Self

from milepost.bundle import BundleReader
from milepost.checkpoint.output_files import write_files
from milepost.checkpoint.saved_tensor import SavedTensor
from milepost.checkpoint.short_names import check_key, key_of
from milepost.collector import collection_paused
from milepost.engine.options import CheckpointOptions, resolved, storage_of, takes_options
from milepost.engine.progress import reported, saved_sizes
from milepost.errors import (
    CheckpointNotFoundError,
    StorageError,
    UnrestoredWarning,
    UnsupportedError,
    importing,
    printable,
    warn,
)
from milepost.foreign import called
from milepost.graph.adapter import Array
from milepost.graph.description import MOST_ROWS, counted, html_table, of_file
from milepost.graph.keys import short_name
from milepost.graph.plain.values import SHOWN_NONE, SPEC_OF_NONE
from milepost.restoring.load import nones_of, open_any
from milepost.series.directory import Verification, latest_in
from milepost.series.files import read_files
from milepost.series.metadata import Metadata, read_metadata
from milepost.series.saved_model import checkpoint_of
from milepost.series.series import no_checkpoint_error
from milepost.series.state_file import read_state_file
from milepost.storage import Storage
from milepost.storage.paths import check_not_empty, plain_path
from milepost.tensor import DType, TensorSpec
from milepost.tensor.spec import format_shape

PathLike = str | os.PathLike[str]
_TENSORFLOW_NAMES: Final = {"float16": "half", "float32": "float", "float64": "double"}
"""Element types that have another name in TensorFlow's ``DataType``."""
_MOST_LISTED: Final = 5
_MOST_ATTEMPTS: Final = 20


class CheckpointReader:
    """Reads single tensors of a checkpoint by their keys, as ``tf.train.CheckpointReader`` does.

    Opening a checkpoint reads its index only. A tensor is read when it is asked for.

    `get_tensor` and `map_tensor` also take the *short name* of a tensor: the path of its object from the root, such as
    ``net/l1/kernel`` for ``net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE``. A full key always comes first. A name that could
    mean several tensors is an error that lists their keys. All other methods take and return full keys.

    The files are closed when the reader is no longer used, or by `close`, or at the end of ``with load_checkpoint(path) as reader:``. A closed
    reader has `prefix`, and `close` may be called again. Everything else raises a `StorageError` with ``errno.EBADF``.

    Args:
        path: The checkpoint, for example what `milepost.latest_checkpoint` returned, or a SavedModel.
        options: How to read: where the files are, and who is told how far `verify` is.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptCheckpointError: Its index is damaged, or the path is not a checkpoint.

    Example:
        >>> import milepost, tempfile
        >>> prefix = milepost.Checkpoint(v=milepost.Variable([1.0, 2.0])).write(tempfile.mkdtemp() + "/ckpt")
        >>> reader = CheckpointReader(prefix)
        >>> reader.get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE")
        array([1., 2.], dtype=float32)
        >>> reader.get_tensor("v")
        array([1., 2.], dtype=float32)
    """

    @takes_options("restore")
    def __init__(self, path: PathLike, options: CheckpointOptions | None = None) -> None:
        settings = resolved(options)
        self._opened = open_any(storage_of(settings), plain_path(path))
        self._progress = settings.progress
        self._is_closed = False

    @property
    def _bundle(self) -> BundleReader:
        if self._is_closed:
            raise StorageError(
                "this reader of a checkpoint is closed",
                errno=errno.EBADF,
                file=self.prefix,
                remedy="read before close(), or inside the with statement; milepost.load_checkpoint(path) opens the checkpoint again",
            )
        return self._opened

    def close(self) -> None:
        """Closes all files. Arrays that `get_tensor` and `map_tensor` returned stay valid.

        Example:
            >>> import milepost, tempfile
            >>> prefix = milepost.Checkpoint(v=milepost.Variable(1.0)).write(tempfile.mkdtemp() + "/ckpt")
            >>> with CheckpointReader(prefix) as reader:
            ...     print(reader.get_tensor("v"))
            1.0
        """
        self._is_closed = True
        self._opened.close()

    def __enter__(self) -> Self:
        self._bundle  # noqa: B018 - raises an error if it is closed
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        bundle: BundleReader | None = self.__dict__.get("_opened")
        if bundle is None:
            return of_file(self, None)
        if self._is_closed:
            return of_file(self, bundle.prefix, "closed")
        try:
            facts = [counted(len(bundle.keys()), "key")]
        except Exception:  # the index is damaged; methods that read it raise the error
            facts = []
        return of_file(self, bundle.prefix, *facts)

    def _repr_html_(self) -> str:
        """A table of the first tensors by their short names, which a notebook shows."""
        bundle: BundleReader | None = None if self.__dict__.get("_is_closed", True) else self._opened
        try:
            keys = [] if bundle is None else sorted(bundle.keys())
            rows = [] if bundle is None else _specs_to_show(bundle, keys[:MOST_ROWS])
        except Exception:  # as in `__repr__`
            keys, rows = [], []
        named = ([short_name(key) or key, spec] for key, spec in rows)
        return html_table(repr(self), ["name", "type and shape"], named, len(keys))

    @property
    def prefix(self) -> str:
        """The checkpoint's path."""
        return self._opened.prefix

    def keys(self) -> list[str]:
        """Every key, sorted."""
        return sorted(self._bundle.keys())

    @collection_paused()
    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """The shape of each tensor, as a list, by key."""
        return dict(self._shapes())

    @collection_paused()
    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        """The element type of each tensor, by key."""
        return {key: spec.dtype for key, spec in self._specs()}

    def _shapes(self) -> Iterator[tuple[str, list[int]]]:
        """Key and shape of each tensor, sorted by key."""
        return ((key, list(spec.shape)) for key, spec in self._specs())

    def _specs(self) -> Iterator[tuple[str, TensorSpec]]:
        """Key, and element type and shape, of each tensor, sorted by key."""
        catalogue = self._bundle.catalogue()
        return zip(catalogue.keys, catalogue.spec_of_each(), strict=True)

    def objects(self) -> dict[str, str]:
        """Key and class of each object in a file of another library that only code from the file could make, and of each NumPy array of an
        element type that milepost does not read.

        milepost does not run such code. These objects are not among the keys, and `get_tensor` of their keys raises
        `UnsupportedError`. Tensors, lists and dicts inside them are read. Checkpoints have no such objects.

        Example:
            >>> import milepost, tempfile
            >>> prefix = milepost.Checkpoint(v=milepost.Variable(1.0)).write(tempfile.mkdtemp() + "/ckpt")
            >>> CheckpointReader(prefix).objects()
            {}
        """
        return dict(self._bundle.catalogue().objects)

    def metrics(self) -> dict[str, Any] | None:
        """The metrics that a manager has saved with the checkpoint, by name; None if there are none.

        Raises:
            CorruptCheckpointError: The metrics are damaged.

        Example:
            >>> import milepost, tempfile
            >>> checkpoint = milepost.Checkpoint(v=milepost.Variable(1.0))
            >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=3)
            >>> reader = CheckpointReader(manager.save(metrics={"loss": 0.5}, metadata={"run": "a"}))
            >>> reader.metrics(), reader.metadata()
            ({'loss': 0.5}, {'run': 'a'})
        """
        return self._saved_with().metrics

    def metadata(self) -> Any:
        """The metadata that a manager has saved with the checkpoint, as JSON gives it, or that a safetensors file or the index of a model in
        several files has; None if there is none.

        Raises:
            CorruptCheckpointError: The metadata is damaged.
        """
        return self._saved_with().metadata

    def files(self, to: PathLike | None = None) -> dict[str, bytes]:
        """The files that a manager has saved with the checkpoint.

        Args:
            to: A directory of this machine, in which the files are written, too. An equal file stays, and another one is not replaced.

        Returns:
            The bytes of each file, by its name.

        Raises:
            CorruptCheckpointError: They are damaged.
            CheckpointExistsError: ``to`` has another file or a symbolic link under the name of one of them. Nothing was written.
            StorageError: A file cannot be written.

        Example:
            >>> import milepost, os, tempfile
            >>> checkpoint = milepost.Checkpoint(v=milepost.Variable(1.0))
            >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=3)
            >>> reader = CheckpointReader(manager.save(files={"vocab.txt": b"a b c"}))
            >>> directory = tempfile.mkdtemp()
            >>> reader.files(to=directory), os.listdir(directory)
            ({'vocab.txt': b'a b c'}, ['vocab.txt'])
        """
        files = read_files(self._bundle)
        if to is not None:
            write_files(files, to)
        return files

    def _saved_with(self) -> Metadata:
        return read_metadata(self._bundle)

    def has_tensor(self, key: str) -> bool:
        """Whether the checkpoint has a tensor under this full key. False for a short name."""
        return key in self._bundle

    def __getitem__(self, key: str) -> SavedTensor:
        """A tensor of which parts are read, without the rest: ``reader["net/l1/kernel"][2:5]``.

        Args:
            key: Its key or its short name.

        Raises:
            KeyNotFoundError: There is no such tensor, or several have this short name.
        """
        bundle = self._bundle
        return SavedTensor(bundle, key_of(bundle, key))

    def get_tensor(self, key: str) -> Any:
        """Reads one tensor and verifies its checksum.

        Args:
            key: Its key or its short name.

        Returns:
            A new array. A tensor without dimensions becomes a NumPy scalar, or ``bytes`` if it is a string.

        Raises:
            KeyNotFoundError: There is no such tensor, or several have this short name.
            CorruptCheckpointError: Its bytes are damaged or missing.
        """
        array = self._bundle.read(key_of(self._bundle, key))
        return array if array.ndim else array[()]

    def map_tensor(self, key: str) -> Array:
        """Maps one tensor into memory, read-only, after verifying its checksum.

        Args:
            key: Its key or its short name.

        Returns:
            An array over the file's pages. The system can take their memory back at any time.

        Raises:
            KeyNotFoundError: There is no such tensor, or several have this short name.
            CorruptCheckpointError: Its bytes are damaged or missing.
            UnsupportedError: The tensor cannot be mapped: it holds strings, is stored in slices or in another byte
                order, or begins at an offset that its element type does not allow.
        """
        try:
            return self._bundle.map(key_of(self._bundle, key))
        except UnsupportedError as error:
            error.remedy = "use get_tensor(), which reads the tensor into new memory"
            raise

    def verify(self) -> None:
        """Reads all data and verifies every checksum. With ``CheckpointOptions(progress=...)``, the reader tells how far this is.

        Raises:
            CheckpointNotFoundError: A data file is missing.
            CorruptCheckpointError: Some bytes are damaged. The error names key, file and offset.
        """
        bundle = self._bundle
        with reported(self._progress, "verify", bundle.prefix, saved_sizes(bundle, bundle.keys())):
            bundle.verify()

    def debug_string(self) -> bytes:
        """One line for each tensor: key, TensorFlow's name of its type, shape."""
        lines = [
            f"{key} (DT_{_TENSORFLOW_NAMES.get(spec.dtype.name, spec.dtype.name).upper()}) [{format_shape(spec.shape)}]\n"
            for key, spec in self._specs()
        ]
        return "".join(lines).encode(errors="backslashreplace")  # a name in JSON may hold half a character


@takes_options("restore")
def load_checkpoint(path: PathLike, options: CheckpointOptions | None = None) -> CheckpointReader:
    """Opens a checkpoint for reading.

    Args:
        path: The path of a checkpoint, of a directory, whose latest checkpoint is opened, or of a
            SavedModel, whose variables are opened.
        options: How to read: where the files are.

    Raises:
        CheckpointNotFoundError: There is no checkpoint.
        CorruptCheckpointError: The checkpoint is damaged.

    Example:
        >>> import milepost, tempfile
        >>> prefix = milepost.Checkpoint(v=milepost.Variable([1.0, 2.0])).write(tempfile.mkdtemp() + "/ckpt")
        >>> reader = load_checkpoint(prefix)
        >>> reader.get_variable_to_shape_map()["v/.ATTRIBUTES/VARIABLE_VALUE"]
        [2]
        >>> reader.get_tensor("v")
        array([1., 2.], dtype=float32)
    """
    files, path = storage_of(resolved(options)), plain_path(path)
    for _ in range(_MOST_ATTEMPTS):
        before = _list_of(files, path)
        try:
            reader = CheckpointReader(resolve(path, files), options)
            if before is not None:
                reader._bundle.hold()
            return reader
        except CheckpointNotFoundError:
            if _list_of(files, path) == before:
                raise
            # a manager has removed the checkpoint meanwhile, and lists newer ones
    return CheckpointReader(resolve(path, files), options)


@takes_options("restore")
@collection_paused()
def list_variables(path: PathLike, options: CheckpointOptions | None = None) -> list[tuple[str, list[int]]]:
    """Lists key and shape of every tensor of a checkpoint, sorted by key.

    A warning counts the objects of a file of PyTorch that are not listed, because making them would run code.

    Args:
        path: As for `load_checkpoint`.
        options: How to read: where the files are.

    Raises:
        CheckpointNotFoundError: There is no checkpoint.
        CorruptCheckpointError: The checkpoint is damaged.

    Example:
        >>> import milepost, tempfile
        >>> prefix = milepost.Checkpoint(v=milepost.Variable([1.0, 2.0])).write(tempfile.mkdtemp() + "/ckpt")
        >>> list_variables(prefix)
        [('_CHECKPOINTABLE_OBJECT_GRAPH', []), ('v/.ATTRIBUTES/VARIABLE_VALUE', [2])]
    """
    reader = load_checkpoint(path, options)
    objects = reader.objects()
    if objects:
        warn(
            f"{reader.prefix}: this file holds {len(objects)} objects that are not listed, because milepost does not read their types; "
            f"load_checkpoint(path).objects() lists them:{_named(objects)}",
            UnrestoredWarning,
        )
    return list(reader._shapes())


@takes_options("restore")
def load_variable(path: PathLike, name: str, options: CheckpointOptions | None = None) -> Any:
    """Reads one tensor of a checkpoint.

    Args:
        path: As for `load_checkpoint`.
        name: Its key or its short name, as for `CheckpointReader.get_tensor`. A ``:0`` at the end, as in the name of a
            TensorFlow 1 variable, is dropped.
        options: How to read: where the files are.

    Returns:
        As `CheckpointReader.get_tensor`.

    Raises:
        CheckpointNotFoundError: There is no checkpoint.
        KeyNotFoundError: There is no such tensor, or several have this short name.
        CorruptCheckpointError: The checkpoint is damaged.

    Example:
        >>> import milepost, tempfile
        >>> path = milepost.Checkpoint(v=milepost.Variable([1.0, 2.0])).write(tempfile.mkdtemp() + "/ckpt")
        >>> load_variable(path, "v")
        array([1., 2.], dtype=float32)
    """
    check_key(name)
    return load_checkpoint(path, options).get_tensor(name.removesuffix(":0"))


def _named(objects: dict[str, str]) -> str:
    lines = [printable(f"{called(key)}: {kind}", one_line=True) for key, kind in objects.items()]
    more = [f"and {len(lines) - _MOST_LISTED} more"] if len(lines) > _MOST_LISTED else []
    return "".join(f"\n  {line}" for line in lines[:_MOST_LISTED] + more)


def resolve(path: PathLike, storage: Storage, verify: Verification = "checksums") -> str:
    """The checkpoint, file or directory that a path means.

    Args:
        path: The path.
        storage: Where it is.
        verify: What is checked of the latest checkpoint of a directory of checkpoints, as for `milepost.latest_checkpoint`.
    """
    path = plain_path(path)
    check_not_empty(path)
    path = checkpoint_of(storage, path)
    if not storage.is_directory(path) or storage.is_file(path + ".index"):
        return path
    # Most paths are those of checkpoints, and the import takes milliseconds.
    with importing():
        from milepost.foreign import is_foreign_directory, is_item_of_orbax

    if is_item_of_orbax(storage, path):
        return path
    latest = latest_in(storage, path, verify=verify)
    if latest is None and is_foreign_directory(storage, path):
        return path
    if latest is None:
        raise no_checkpoint_error(storage, path)
    return latest


def _list_of(storage: Storage, path: str) -> bytes | None:
    """The text of the state file of a directory. None if the path is not that of a directory."""
    return read_state_file(storage, path) if storage.is_directory(path) else None


def _specs_to_show(bundle: BundleReader, keys: list[str]) -> list[list[str]]:
    """Each key with its element type and shape, or None."""
    specs = [bundle.spec(key) for key in keys]
    nones = nones_of(bundle) if SPEC_OF_NONE in specs else ()
    return [[key, SHOWN_NONE if key in nones else str(spec)] for key, spec in zip(keys, specs, strict=True)]
