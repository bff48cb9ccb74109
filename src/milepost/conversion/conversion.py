"""Writes the values of a checkpoint, or a part of them, in another format."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final, Literal

from milepost.bundle import BundleReader, index_path
from milepost.bundle.casting import floating
from milepost.checkpoint.checkpoint import Checkpoint
from milepost.checkpoint.reader import resolve
from milepost.checkpoint.short_names import name_of
from milepost.conversion import checkpoint_writer, orbax_writer
from milepost.conversion.formats import CHECKPOINT, FORMATS, KERAS, WRITERS, format_of
from milepost.conversion.keras_names import KerasNames, keras_names
from milepost.conversion.names import GivenNames, Naming, NewNames
from milepost.conversion.plan import Export, planned
from milepost.conversion.torch_pickle import holds_stream
from milepost.engine.arguments import wrong
from milepost.engine.layouts.opening import sources_of, warn_of_copies
from milepost.engine.layouts.steps import Step
from milepost.engine.left_out import NOTHING, LeftOut
from milepost.engine.options import CheckpointOptions, resolved, storage_of, takes_options
from milepost.engine.progress import Reporter, in_one_stage, reporting
from milepost.engine.translation import Names, Rename, Translation
from milepost.errors import MilepostError, UnsupportedError
from milepost.foreign import called
from milepost.graph.keys import METADATA, OBJECT_GRAPH
from milepost.restoring.load import nones_of, open_any
from milepost.series.files import file_sizes
from milepost.series.metadata import read_metadata
from milepost.storage.output_file import check_free, is_written_to
from milepost.storage.paths import check_has_file_name, is_url, plain_path
from milepost.tensor import DType

PathLike = str | os.PathLike[str]
Format = Literal["safetensors", "torch", "npz", "keras", "orbax", "tensorflow1", "checkpoint"]
"""A format that can be written."""
_MOST_LISTED: Final = 5
_OF_NAMES: Final = ("safetensors", "torch", "npz")
"""Formats whose readers get a dict of tensors by name, without dicts in it."""
_DIRECTORY: Final = orbax_writer.WRITER.name


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a conversion has written, and what it has not.

    Attributes:
        source: The path of the checkpoint that was read.
        format: The format that was written.
        files: What was written. Of several files of a model, the last one is their index.
        tensors: The names of the tensors in the new file, each with its key in the checkpoint.
        types: By name, the element type and shape of each tensor in the new file.
        left_out: By key, why a value could not be written.
        unwanted: The keys of values that ``rename``, ``ignore`` or ``only`` left out.
        not_carried_over: What the checkpoint has beside values and the format has no place for.
        flattened: Whether lists and dicts inside each other have become parts of names, since the format has names only.
        rounded: By name, the largest relative error of each tensor whose numbers were rounded by ``dtype``.
        made_of: By name, the keys of the saved values of which ``convert`` has made a tensor.
        streams: The names of values in a file of PyTorch that hold an `io.BytesIO`. ``torch.load`` reads such a file with ``weights_only=False``, or
            after ``torch.serialization.add_safe_globals([io.BytesIO])``.
    """

    source: str
    format: str
    files: Sequence[str]
    tensors: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    unwanted: Sequence[str] = ()
    not_carried_over: Sequence[str] = ()
    flattened: bool = False
    rounded: dict[str, float] = field(default_factory=dict)
    streams: Sequence[str] = ()
    made_of: dict[str, list[str]] = field(default_factory=dict)


@takes_options("restore")
def convert(
    path: PathLike,
    target: PathLike,
    *,
    format: Format | None = None,
    rename: Rename = (),
    ignore: Names = (),
    only: Names | None = None,
    separator: str = "/",
    dtype: Any = None,
    max_shard_size: int | None = None,
    overwrite: bool = False,
    partial: bool = False,
    model: Any = None,
    metadata: Mapping[str, str] | None = None,
    convert: Sequence[Step] = (),
    options: CheckpointOptions | None = None,
) -> Conversion:
    """Writes the values of a checkpoint, or a part of them, in another format. Memory does not grow with the size of the files.

    Args:
        path: Any path that `milepost.Checkpoint.restore` accepts, or a directory, whose latest checkpoint is read.
        target: What to write, on this machine. Missing directories are made for a checkpoint of milepost only.
        format: The format. By default the ending of ``target`` says it: ``.safetensors``; ``.pt``, ``.pth`` and ``.bin`` for a
            state dict as ``torch.save`` writes it (``"torch"``); ``.npz``; ``.weights.h5``, or ``.weights.json`` with several files, for Keras 3
            (``"keras"``, which needs h5py). A path without an ending, or with ``.ckpt``, means ``"checkpoint"``, the prefix of a checkpoint of milepost; another ending is an
            error. ``"orbax"`` is a directory, and ``"tensorflow1"`` the prefix of a checkpoint by names, without an object graph.
        rename: New names of saved values, as for `milepost.Checkpoint.restore`. ``{"model": ""}`` takes the first name away.
        ignore: Saved or new names of values to leave out. A name stands for everything below it, too; ``*`` stands for any text.
        only: Saved or new names. All other values are left out, and are not read. The slot variables of an optimizer are written if the
            optimizer is named.
        separator: What stands between the names of levels: ``"/"``, or ``"."`` as in PyTorch; not for ``"checkpoint"``.
        dtype: The element type that floating-point numbers get, such as ``"bfloat16"``; not for ``"checkpoint"``. A finite number that
            it cannot hold is an error.
        max_shard_size: Write several files of at most so many bytes of tensors, for ``"safetensors"`` and ``"torch"`` with an index as
            the libraries of Hugging Face read it, for ``"keras"`` with an index as Keras reads it, for ``"tensorflow1"`` and
            ``"checkpoint"`` as data files.
        overwrite: Whether what is there is replaced: all files of ``target``, in whatever number of files it was written before.
        partial: Whether values that the format cannot hold may be left out; the result names them. Otherwise they are an error.
        model: For ``"keras"``: the program's model of Keras 3, after it was built, by which Keras names the variables in the file. If the
            checkpoint has other objects beside the model, a dict of all as they were saved, such as ``dict(model=model,
            optimizer=optimizer)``, or a `milepost.Checkpoint`. None of them changes, but that the optimizer of the model is built.
        metadata: For ``"safetensors"``: text by names, for the ``__metadata__`` of each file. That of a safetensors file that is read is kept.
        convert: Steps of `milepost.layouts` that lay out saved values otherwise, as for `milepost.Checkpoint.restore`. The other arguments get the names
            of what they make.
        options: How to read: where the checkpoint is, and who is told how far this is.

    Returns:
        What was written, and what was not.

    Raises:
        CheckpointExistsError: ``target``, or one of several files of it, exists. Nothing is written.
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptCheckpointError: The checkpoint is damaged.
        MismatchError: ``dtype`` cannot hold a number.
        UnsupportedError: The ending of ``target`` means no format, the format cannot hold a value, two values would have the same name, no value is left, or an argument is not for
            this format.
        StorageError: A file cannot be written.

    Example:
        >>> import milepost, numpy as np, tempfile
        >>> directory = tempfile.mkdtemp()
        >>> path = milepost.save(directory + "/state", {"model": {"layer": {"weight": np.ones(2)}}, "epoch": 3})
        >>> done = milepost.convert(path, directory + "/model.pt", only="model", rename={"model": ""}, separator=".")
        >>> done.tensors
        {'layer.weight': 'model/layer/weight/.ATTRIBUTES/VARIABLE_VALUE'}
        >>> milepost.load(directory + "/model.pt")
        {'layer.weight': array([1., 1.])}
    """
    target = plain_path(target)
    settings = resolved(options)
    files = storage_of(settings)
    form, translation = _checked_format(format, target), Translation(rename, ignore, only, convert=convert)
    opened = resolve(plain_path(path), files)
    names = None
    if model is not None:
        if form != KERAS:
            raise wrong("model", model, f"None, since the names in a file of {form} are those of the checkpoint")
        names = keras_names(opened, _as_checkpoint(model), translation, files)
    wanted = Wanted(
        target,
        form,
        translation,
        separator=separator,
        dtype=dtype,
        max_shard_size=max_shard_size,
        overwrite=overwrite,
        partial=partial,
        names=names,
        metadata=metadata,
    )
    with (
        open_any(files, opened, translation.convert) as reader,
        reporting(settings.progress, "convert", reader.prefix) as reporter,
    ):
        return converted(reader, wanted, reporter)


class Wanted:
    """What a conversion is to write.

    Args:
        names: The names of values in the new file, if they are known beforehand; the translation is not asked for them.

    All other arguments are those of `convert`.

    Raises:
        UnsupportedError: An argument is not for this format.
    """

    def __init__(
        self,
        target: str,
        format: str,
        translation: Translation,
        *,
        separator: str = "/",
        dtype: Any = None,
        max_shard_size: int | None = None,
        overwrite: bool = False,
        partial: bool = False,
        names: KerasNames | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        # a directory may be named with a separator at its end
        check_has_file_name(
            "target", target if format != _DIRECTORY else os.path.normpath(target) if target else target
        )
        if is_url(target):
            raise UnsupportedError(
                "a conversion writes to files of this machine only",
                key="target",
                expected="a path of a file system that is mounted here",
                found=target,
                remedy="convert to a local path, and copy the result",
            )
        self.names = names
        self.target = target
        self.format = format
        self.translation = translation
        self.max_shard_size = max_shard_size
        self.overwrite = overwrite
        self.partial = partial
        self.writer = WRITERS.get(format)
        self.given: dict[str, Any] = {} if metadata is None else {"metadata": self._checked_metadata(metadata)}
        if separator not in ("/", "."):
            raise wrong("separator", separator, "'/' or '.'")
        self.dots = separator == "."
        if max_shard_size is not None and (type(max_shard_size) is not int or max_shard_size < 1):
            raise wrong("max_shard_size", max_shard_size, "a number of bytes from 1 on")
        if max_shard_size is not None and self.writer is not None and not self.writer.divides:
            raise wrong("max_shard_size", max_shard_size, f"None, since files of {format} are not divided")
        if self.writer is None and dtype is not None:
            raise wrong("dtype", dtype, "None, since a checkpoint of milepost has the types of the source")
        if self.writer is None and self.dots:
            raise wrong("separator", separator, "'/', since names in a checkpoint of milepost are separated by that")
        self.dtype: DType | None = None if dtype is None else floating(dtype, "dtype")

    def _checked_metadata(self, metadata: Any) -> Mapping[str, str]:
        if self.writer is None or not self.writer.describes:
            raise wrong("metadata", metadata, f"None, since files of {self.format} have no place for it")
        if not isinstance(metadata, Mapping) or not all(
            type(each) is str for pair in metadata.items() for each in pair
        ):
            raise wrong("metadata", metadata, "a dict from text to text")
        return metadata


def converted(reader: BundleReader, wanted: Wanted, told: Reporter | None = None) -> Conversion:
    """Writes what is wanted. Errors are those of `convert`.

    Args:
        reader: The open checkpoint. The names of a file of another library may be changed in it.
        wanted: What to write.
        told: What is told of the progress.
    """
    writer = wanted.writer
    names: Naming
    members, with_assets = ({}, []) if wanted.names is None else wanted.names.members(reader)
    if wanted.names is not None:
        names = GivenNames({name_of(key): called for key, called in wanted.names.values.items()})
    else:
        names = NewNames(wanted.translation, dotted=reader.origin.dotted)
    if writer is None:
        export = planned(reader, names, lambda dtype: True)
        paths = [index_path(wanted.target)]
    else:
        export = planned(
            reader,
            names,
            writer.accepts,
            lambda tensor: (
                writer.problem(tensor) if tensor.name else "it has no name; rename={'': 'weight'} gives it this one"
            ),
            nones=cache(partial(nones_of, reader)),
            nests=writer.nests,
            dots=wanted.dots,
            dtype=wanted.dtype,
            problem_of_state=writer.problem_of_state,
            members=members,
        )
        paths = writer.paths(wanted.target, export.tensors, wanted.max_shard_size)
    left_out = _left_out(reader, names)  # whose names are no typing errors
    names.warn_of_unused(reader)
    warn_of_copies(reader, [tensor.key for tensor in export.tensors])
    if export.left_out and not (wanted.partial and export.tensors):
        raise _cannot_hold(reader, wanted, export)
    if export.unwanted and not export.tensors and wanted.names is None:
        raise UnsupportedError(
            "there is no value to write; nothing was written",
            file=reader.prefix,
            expected="at least one value that rename, ignore and only leave",
            found=f"{len(export.unwanted)} values, which these leave out",
            remedy="correct rename, ignore and only: 'milepost show' lists the saved names",
        )
    old = [] if writer is None or is_written_to(wanted.target) else writer.present(wanted.target)
    if not wanted.overwrite:
        check_free([*paths, *old], wanted.target)
    with in_one_stage(told, (tensor.saved.nbytes for tensor in export.tensors)):
        if writer is None:
            written = checkpoint_writer.write(wanted.target, reader, names, wanted.max_shard_size, left_out)
        else:
            arguments = (
                {**wanted.given, "versions": export.versions}
                if writer.problem_of_state and wanted.dots
                else wanted.given
            )
            written = writer.write(wanted.target, export.tensors, wanted.max_shard_size, reader, **arguments)
    for each in set(old).difference(written):
        os.remove(each)
    return Conversion(
        reader.prefix,
        wanted.format,
        written,
        {tensor.name: tensor.key for tensor in export.tensors},
        {tensor.name: str(tensor.spec) for tensor in export.tensors},
        export.left_out,
        export.unwanted,
        _not_carried_over(reader, export, wanted.format, with_assets, left_out),
        wanted.format in _OF_NAMES and _is_nested(reader) and any("/" in tensor.name for tensor in export.tensors),
        {tensor.name: tensor.rounded for tensor in export.tensors if tensor.rounded},
        [tensor.name for tensor in export.tensors if tensor.is_state and holds_stream(tensor.state)],
        {tensor.name: sources for tensor in export.tensors if (sources := sources_of(reader, tensor.key))},
    )


def _as_checkpoint(model: Any) -> Checkpoint:
    if isinstance(model, Checkpoint):
        return model
    return Checkpoint(**model) if isinstance(model, Mapping) else Checkpoint(model)


def _checked_format(form: Any, target: str) -> str:
    if form is None:
        return format_of(target)
    if form not in FORMATS:
        raise wrong("format", form, f"None, or one of {', '.join(map(repr, FORMATS))}")
    format_name: str = form
    return format_name


def _is_nested(reader: BundleReader) -> bool:
    """Whether a source has values inside each other, as all checkpoints have, and not only tensors by name."""
    if reader.origin.is_checkpoint:
        return OBJECT_GRAPH in reader
    return (
        reader.origin.library != "NumPy" and reader.catalogue().is_nested
    )  # its names with slashes are read as levels


def _left_out(reader: BundleReader, names: Naming) -> LeftOut:
    """The record of what the save has left out on purpose, with the new names. Nothing if it cannot be read."""
    if reader.origin.is_checkpoint:
        with suppress(MilepostError):  # a file of another format has no place for metadata, damaged or not
            left_out = LeftOut.parsed(read_metadata(reader).left_out)
            return left_out.renamed(names) if left_out.values and isinstance(names, NewNames) else left_out
    return NOTHING


def _not_carried_over(
    reader: BundleReader, export: Export, to: str, with_assets: Sequence[str], left_out: LeftOut
) -> list[str]:
    """What a source has beside values and the new file does not."""
    omissions = []
    if with_assets:
        omissions.append(
            f"what Keras saves by save_assets(), or has in the configuration of a layer: {_listed(with_assets)}"
        )
    if reader.origin.is_checkpoint and (to != CHECKPOINT or OBJECT_GRAPH not in reader):
        beside = ((OBJECT_GRAPH, "the object graph"), (METADATA, "metrics and metadata"))
        omissions += [what for key, what in beside if key in reader]
        if to != CHECKPOINT and left_out.values:
            omissions.append(f"the record of what the save has left out: {'; '.join(left_out.summary())}")
        files = file_sizes(reader)
        if files and to != CHECKPOINT:
            omissions.append(f"files, which 'milepost files' writes: {_listed([*files])}")
    swapped = {tensor.key for tensor in export.tensors}.intersection(export.swapped)
    if swapped and (to != CHECKPOINT or not reader.origin.is_checkpoint):
        omissions.append(
            f"the byte order of arrays, which get that of this machine: {_listed(sorted(map(name_of, swapped)))}"
        )
    if export.removed:
        omissions.append(
            f"what the state_dict() of a module leaves out: {_listed(sorted({*map(name_of, export.removed)}))}"
        )
    if export.not_arrays and to != CHECKPOINT:
        omissions.append(f"what no array can hold, such as None: {_listed(export.not_arrays)}")
    return omissions


def _listed(keys: Sequence[str]) -> str:
    more = ", ..." if len(keys) > _MOST_LISTED else ""
    return f"{', '.join(map(called, keys[:_MOST_LISTED]))}{more}"


def _cannot_hold(reader: BundleReader, wanted: Wanted, export: Export) -> UnsupportedError:
    listed = [f"{called(key)}: {reason}" for key, reason in list(export.left_out.items())[:_MOST_LISTED]]
    more = len(export.left_out) - len(listed)
    remedy = "leave them out with ignore, or pass partial=True"
    writer_remedy = wanted.writer.remedy if wanted.writer is not None else ""
    if not export.tensors:
        remedy = "convert to another format, or give the values other names with rename"
        objects = reader.catalogue().objects
        if objects and objects.keys() >= export.left_out.keys():
            writer_remedy, remedy = (
                "",
                f"load the file with {reader.origin.library}, and save plain tensors of what these objects hold",
            )
    return UnsupportedError(
        f"the format {wanted.format} cannot hold {'all' if export.tensors else 'any'} of the values; nothing was written",
        file=reader.prefix,
        found="; ".join(listed) + (f"; and {more} more" if more else ""),
        remedy=writer_remedy or remedy,
    )
