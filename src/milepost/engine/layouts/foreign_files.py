"""A file of another library whose values are laid out otherwise: its tree has the new tensors, which are made when they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from milepost.bundle.boxes import read_box
from milepost.bundle.format.entry import Entry
from milepost.bundle.format.slices import Box, index_of
from milepost.bundle.memory import Array, new_array
from milepost.engine.layouts.applying import Laid, applied, copies_of_changed
from milepost.engine.layouts.optimizers import Optimizer, optimizers_of
from milepost.engine.layouts.recipes import AsSaved, NoArray, Recipe, Refused
from milepost.engine.layouts.steps import Step
from milepost.errors import UnsupportedError
from milepost.foreign import ForeignReader
from milepost.foreign.pytorch.tensors import View
from milepost.foreign.renamed import drop_empty, leaves, put, without
from milepost.foreign.stored import BoxedFile, CheckedFile, DescribedFile, ForeignFile, Stored
from milepost.graph.saved.renaming import Path
from milepost.storage import ReadableFile

if TYPE_CHECKING:
    from milepost.foreign.keras.files import KerasFile


_OF_KERAS: Final = ("optimizer", "optimizer_weights")
"""Where files of Keras have the state of an optimizer."""


def laid_out_file(reader: ForeignReader, steps: Sequence[Step]) -> ForeignReader:
    """An open file of another library with its values laid out otherwise.

    Args:
        reader: The open file.
        steps: What is made of its values.

    Raises:
        MilepostError: As for `milepost.engine.layouts.applying.applied`.
    """
    layout = _FileLayout(reader, steps)
    return LaidOutForeignReader(_LaidOutFile(reader, layout.tree()), reader, layout.copies)


class LaidOutForeignReader(ForeignReader):
    """The reader of such a file.

    Args:
        file: The file.
        reader: The reader of the file as it was saved.
        copies: As for `milepost.engine.layouts.checkpoints.LaidOutReader`.
    """

    def __init__(self, file: ForeignFile, reader: ForeignReader, copies: Collection[str]) -> None:
        super().__init__(file)
        self.copies = frozenset(copies)
        self._before = reader

    def made_of(self, key: str) -> list[str]:
        """As for `milepost.engine.layouts.checkpoints.LaidOutReader`."""
        stored = self._stored.get(key)
        return stored.place.keys() if stored is not None and isinstance(stored.place, Recipe) else []

    @property
    def keras(self) -> KerasFile | None:
        keras = self._before.keras
        gone = [key for _, keys in (keras and keras.layers) or () for key in keys if key not in self]
        if gone:
            raise UnsupportedError(
                "a restore of a file of Keras 1 or 2 has no convert that changes names, because such a file has its variables in an order",
                file=self.prefix,
                key=gone[0],
                remedy="write a file of another format by milepost.convert(..., convert=...), and restore that",
            )
        return keras


class _LaidOutFile:
    """Such a file. `ForeignFile`, `BoxedFile`, `CheckedFile` and `DescribedFile` describe its methods.

    Args:
        reader: The open file.
        tree: The new contents. The place of a tensor that is made of others is its recipe.
    """

    def __init__(self, reader: ForeignReader, tree: Any) -> None:
        self._file = reader.file
        self.tree = tree

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def paths(self) -> list[str]:
        return self._file.paths

    @property
    def dotted(self) -> bool:
        return self._file.dotted

    @property
    def kind(self) -> str:
        return self._file.kind

    @property
    def library(self) -> str:
        return self._file.library

    @property
    def metadata(self) -> dict[str, Any]:
        return self._file.metadata if isinstance(self._file, DescribedFile) else {}

    def read_into(self, tensor: Stored, destination: Array) -> None:
        if isinstance(tensor.place, Recipe):
            tensor.place.read_into(tensor.place.whole, destination)
        else:
            self._file.read_into(tensor, destination)

    def read_box(self, tensor: Stored, box: Box, destination: Array) -> None:
        if isinstance(tensor.place, Recipe):
            tensor.place.read_into(box, destination)
        elif isinstance(self._file, BoxedFile):
            self._file.read_box(tensor, box, destination)
        elif (extent := self._file.extent(tensor)) is not None:
            spec = tensor.spec
            read_box(extent[0], Entry(spec.dtype, spec.shape, offset=extent[1], size=spec.nbytes), box, destination, "")
        else:
            whole = new_array(tensor.spec.dtype, tensor.spec.shape)
            self._file.read_into(tensor, whole)
            destination[...] = whole[index_of(box)]

    def check_box(self, tensor: Stored, box: Box) -> None:
        if isinstance(tensor.place, Recipe):
            tensor.place.check(box)
        elif isinstance(self._file, BoxedFile):
            self._file.check_box(tensor, box)
        else:
            self._file.check(tensor)

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        return None if isinstance(tensor.place, Recipe) else self._file.extent(tensor)

    def check(self, tensor: Stored) -> None:
        if isinstance(tensor.place, Recipe):
            tensor.place.check(tensor.place.whole)
        else:
            self._file.check(tensor)

    def has_checksum(self, tensor: Stored) -> bool:
        return not isinstance(tensor.place, Recipe) and self._file.has_checksum(tensor)

    def check_rest(self) -> None:
        if isinstance(self._file, CheckedFile):
            self._file.check_rest()

    def close(self) -> None:
        self._file.close()


class _FileLayout:
    """The new layout of a file. Arguments are those of `laid_out_file`.

    Attributes:
        copies: As for `milepost.engine.layouts.checkpoints.LaidOutReader`.
    """

    def __init__(self, reader: ForeignReader, steps: Sequence[Step]) -> None:
        self.copies: list[str] = []
        self._reader = reader
        self._steps = steps
        self._tree = reader.file.tree
        self._dotted = reader.file.dotted
        self._optimizers = optimizers_of(reader)
        inside = [optimizer.path for optimizer in self._optimizers]
        self._paths: dict[str, Path] = {}
        values: dict[str, Laid] = {}
        first: dict[View, str] = {}
        repeated: set[str] = set()
        for path, value in reversed([*leaves(self._tree)]):  # which begin at the end of the file
            if path and not any(path[: len(each)] == each for each in inside):
                name = self._name(path)
                self._paths[name] = path
                values[name] = Laid(self._recipe(path, value), {}, name)
                view = value.place if isinstance(value, Stored) and isinstance(value.place, View) else None
                if view is not None and first.setdefault(view, name) != name:
                    repeated.add(name)
        for optimizer in self._optimizers:
            optimizer.attach(values, repeated)
        self._values = values
        self._path_of_key = {"/".join(path): path for path in self._paths.values()}

    def tree(self) -> Any:
        """Carries out the steps. Returns the new contents."""
        final = applied(self._values, self._steps, self._reader.prefix)
        self.copies = ["/".join(self._paths[name]) for name in copies_of_changed(self._values, final)]
        new = {name: value for name, value in final.items() if value.origin != name or not _is_as_saved(value)}
        new |= self._refused(new)
        gone = [path for name, path in self._paths.items() if name not in final or name in new]
        replaced: list[tuple[Optimizer, Any]] = []
        for optimizer in self._optimizers:
            contents = optimizer.laid_out(self._values, final, new)
            if contents is not None:
                replaced.append((optimizer, contents))
        if any(not optimizer.path for optimizer, _ in replaced):
            return replaced[0][1]
        tree = without(self._tree, [*gone, *(optimizer.path for optimizer, _ in replaced)])
        for name, value in new.items():
            put(tree, self._path(name, value), Stored(value.recipe.spec, value.recipe))
        for optimizer, contents in replaced:
            put(tree, optimizer.path, contents)
        for path in gone:
            drop_empty(tree, path[:-1])
        return tree

    def _refused(self, new: Mapping[str, Laid]) -> dict[str, Laid]:
        """The state of the optimizer in a file of Keras, which is in the order of its variables, as values that are an error if they are asked for."""
        refused: dict[str, Laid] = {}
        if not new or self._reader.keras is None:
            return refused
        for name in (each for each in self._paths if each.partition("/")[0] in _OF_KERAS and each not in new):
            recipe = self._values[name].recipe
            if recipe.shape:
                error = UnsupportedError(
                    "convert cannot lay out this state of an optimizer, which has it in the order of its variables; nothing was changed",
                    key=name,
                    file=self._reader.prefix,
                    remedy="leave the optimizer out with ignore, or with only; or name its values in steps",
                )
                refused[name] = Laid(Refused([recipe], error))
        return refused

    def _name(self, path: Path) -> str:
        """The name of a value, with ``/`` between all levels."""
        name = "/".join(path)
        return name.replace(".", "/") if self._dotted else name

    def _recipe(self, path: Path, value: Any) -> Recipe:
        key = "/".join(path)
        is_array = isinstance(value, Stored) and not value.generator
        is_array = is_array or (isinstance(value, np.ndarray) and not value.dtype.hasobject)
        if not is_array or key not in self._reader or self._reader.spec(key).dtype.is_bytes:
            return NoArray(key)
        return AsSaved(self._reader, key)

    def _path(self, name: str, value: Laid) -> Path:
        """The path of a new value: in the dict of the first value that it is made of, if its name is below that."""
        above = self._path_of_key[value.recipe.keys()[0]][:-1]
        while above and not name.startswith(f"{self._name(above)}/"):
            above = above[:-1]
        below = name[len(self._name(above)) + 1 :] if above else name
        return (*above, below.replace("/", ".")) if self._dotted else (*above, *below.split("/"))


def _is_as_saved(value: Laid) -> bool:
    return isinstance(value.recipe, (AsSaved, NoArray))
