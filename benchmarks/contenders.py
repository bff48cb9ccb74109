"""What is measured: milepost, its rivals, and the raw limit, each behind the same few calls.

A contender holds live arrays, saves them, and restores them into the same live memory, which is what resuming a
training run takes. ``load`` makes new arrays instead, which some can do with less work; only they have it.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from milepost import CheckpointOptions

Array = np.ndarray[Any, np.dtype[Any]]
State = Mapping[str, dict[str, Array]]
"""Arrays in groups: a model's layers, for example, or an optimizer's moments."""

_CHUNK = 8 << 20
_MOST_BUFFERS = 1024


class Contender:
    """One way to save and restore; subclasses say which.

    Attributes:
        needs: The package it needs.
        checks: Whether it stores a checksum of all values, and verifies it.
        syncs: Whether its save returns only when the data would survive a power cut.
        loads: Whether it has `load`.
    """

    needs: ClassVar[str] = "numpy"
    checks: ClassVar[str] = "no"
    syncs: ClassVar[str] = "no"
    loads: ClassVar[bool] = False

    def hold(self, state: State) -> None:
        """Makes live objects of the arrays, outside the timed section. It may take the arrays out of ``state``."""
        raise NotImplementedError

    def save(self, directory: Path) -> None:
        """Saves the live objects."""
        raise NotImplementedError

    def restore(self, directory: Path) -> None:
        """Puts what was saved into the live objects."""
        raise NotImplementedError

    def load(self, directory: Path) -> object:
        """What was saved, as new arrays."""
        raise NotImplementedError

    def values(self) -> Iterator[tuple[str, Array]]:
        """The live objects' values, to check them."""
        raise NotImplementedError

    def warm_up(self, directory: Path) -> None:
        """Has whatever happens only once in a process happen outside the timed section."""
        with tempfile.TemporaryDirectory(dir=directory.parent) as elsewhere:
            self.hold({"warm": {"up": np.ones(8, np.float32)}})
            self.save(Path(elsewhere))
            self.restore(Path(elsewhere))

    @classmethod
    def installed(cls) -> bool:
        """Whether it can run here."""
        return importlib.util.find_spec(cls.needs) is not None


def _flat(state: State) -> dict[str, Array]:
    return {f"{group}/{name}": array for group, arrays in state.items() for name, array in arrays.items()}


def _made(state: State, make: Callable[[Array], Any]) -> dict[str, dict[str, Any]]:
    """The objects that are made of arrays. Each array is taken out, so that it is in memory only once."""
    return {group: {name: make(arrays.pop(name)) for name in list(arrays)} for group, arrays in state.items()}


class _InArrays(Contender):
    """Live objects that are, or share the memory of, NumPy arrays."""

    def hold(self, state: State) -> None:
        self.arrays = _flat(state)

    def values(self) -> Iterator[tuple[str, Array]]:
        yield from self.arrays.items()


class Raw(_InArrays):
    """The limit: the bytes into files and back, nothing else.

    A file takes one writer at a time (Linux locks the inode), so there is one thread for each file; reading has two.
    """

    files: ClassVar[int] = 1

    def hold(self, state: State) -> None:
        super().hold(state)
        batches: list[list[memoryview]] = [[]]
        room = _CHUNK
        for array in self.arrays.values():
            view = memoryview(array.reshape(-1)).cast("B")
            for start in range(0, len(view), _CHUNK):
                part = view[start : start + _CHUNK]
                if len(part) > room or len(batches[-1]) == _MOST_BUFFERS:
                    batches.append([])
                    room = _CHUNK
                batches[-1].append(part)
                room -= len(part)
        self.moves: list[tuple[int, int, list[memoryview]]] = []
        ends = [0] * self.files
        for index, batch in enumerate(batches):
            file = index * self.files // len(batches)
            self.moves.append((file, ends[file], batch))
            ends[file] += sum(map(len, batch))

    def save(self, directory: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT
        parts = [[move for move in self.moves if move[0] == file] for file in range(self.files)]
        self._in_threads(os.pwritev, directory, flags, parts)

    def restore(self, directory: Path) -> None:
        self._in_threads(os.preadv, directory, os.O_RDONLY, [self.moves[0::2], self.moves[1::2]])

    def _in_threads(
        self,
        move: Callable[..., int],
        directory: Path,
        flags: int,
        parts: list[list[tuple[int, int, list[memoryview]]]],
    ) -> None:
        descriptors = [os.open(directory / f"raw-{file}", flags) for file in range(self.files)]

        def run(part: list[tuple[int, int, list[memoryview]]]) -> int:
            return sum(move(descriptors[file], views, offset) for file, offset, views in part)

        with ThreadPoolExecutor(len(parts)) as threads:
            moved = sum(threads.map(run, parts))
        for descriptor in descriptors:
            os.close(descriptor)
        if moved != sum(array.nbytes for array in self.arrays.values()):
            raise OSError("the system moved less than it was asked to")


class RawFiles(Raw):
    """The limit with two files."""

    files = 2


class Milepost(Contender):
    """`milepost.Checkpoint` as it is: every value checked, every file synced."""

    needs = "milepost"
    checks = "yes"
    syncs = "yes"

    def hold(self, state: State) -> None:
        import milepost

        self.options = self.choose(sum(array.nbytes for array in _flat(state).values()))
        self.variables = _made(state, milepost.Variable)
        self.checkpoint = milepost.Checkpoint(state=self.variables)

    def choose(self, size: int) -> CheckpointOptions:
        """The options for a state of so many bytes."""
        import milepost

        return milepost.CheckpointOptions()

    def values(self) -> Iterator[tuple[str, Array]]:
        for group, variables in self.variables.items():
            for name, variable in variables.items():
                yield f"{group}/{name}", np.asarray(variable)

    def save(self, directory: Path) -> None:
        self.checkpoint.write(directory / "ckpt", self.options)

    def restore(self, directory: Path) -> None:
        self.checkpoint.read(directory / "ckpt", self.options)


class MilepostFiles(Milepost):
    """Two data files, which can be written at the same time."""

    def choose(self, size: int) -> CheckpointOptions:
        import milepost

        policy = milepost.MaxShardSizePolicy(-(-size // 2))
        return milepost.CheckpointOptions(experimental_sharding_callback=policy)


class MilepostOnce(Milepost):
    """Each value read once, straight into its memory, and verified meanwhile."""

    def choose(self, size: int) -> CheckpointOptions:
        import milepost

        return milepost.CheckpointOptions(verify_first=False)


class MilepostUnsynced(Milepost):
    """A storage that leaves out every fsync, to compare with those who never sync."""

    syncs = "no"

    def choose(self, size: int) -> CheckpointOptions:
        import milepost
        from milepost.storage import LocalStorage
        from milepost.storage.local_files import LocalWriter

        class Writer(LocalWriter):
            def sync(self) -> None:
                pass

        class Storage(LocalStorage):
            def create(self, path: str) -> Writer:
                return Writer(path, path)

            def sync_directory(self, path: str) -> None:
                pass

        return milepost.CheckpointOptions(storage=Storage())


class Safetensors(_InArrays):
    """safetensors, with NumPy arrays."""

    needs = "safetensors"
    loads = True

    def save(self, directory: Path) -> None:
        from safetensors.numpy import save_file

        save_file(self.arrays, directory / "model.safetensors")

    def restore(self, directory: Path) -> None:
        for name, array in self.load(directory).items():
            np.copyto(self.arrays[name], array)

    def load(self, directory: Path) -> Any:
        from safetensors.numpy import load_file

        return load_file(directory / "model.safetensors")


class Torch(Contender):
    """`torch.save` and `torch.load` with a state dict."""

    needs = "torch"
    checks = "written only"
    loads = True
    mmap: ClassVar[bool] = False

    def hold(self, state: State) -> None:
        import torch

        self.tensors = {name: torch.from_numpy(array) for name, array in _flat(state).items()}

    def values(self) -> Iterator[tuple[str, Array]]:
        return ((name, tensor.numpy()) for name, tensor in self.tensors.items())

    def save(self, directory: Path) -> None:
        import torch

        torch.save(self.tensors, directory / "model.pt")

    def restore(self, directory: Path) -> None:
        for name, tensor in self.load(directory).items():
            self.tensors[name].copy_(tensor)

    def load(self, directory: Path) -> Any:
        import torch

        return torch.load(directory / "model.pt", mmap=self.mmap)


class TorchMapped(Torch):
    """`torch.load` with ``mmap=True``."""

    loads = False  # It would read nothing yet.
    mmap = True


class H5py(_InArrays):
    """One HDF5 data set for each array."""

    needs = "h5py"

    def save(self, directory: Path) -> None:
        import h5py

        with h5py.File(directory / "model.h5", "w") as file:
            for name, array in self.arrays.items():
                file.create_dataset(name, data=array)

    def restore(self, directory: Path) -> None:
        import h5py

        with h5py.File(directory / "model.h5", "r") as file:
            for name, array in self.arrays.items():
                file[name].read_direct(array)


class Orbax(_InArrays):
    """Orbax's standard checkpointer, with NumPy arrays."""

    needs = "orbax.checkpoint"
    checks = "of its index"
    syncs = "partly"

    def save(self, directory: Path) -> None:
        import orbax.checkpoint

        with orbax.checkpoint.StandardCheckpointer() as checkpointer:
            checkpointer.save(directory.absolute() / "orbax", self.arrays)

    def restore(self, directory: Path) -> None:
        import orbax.checkpoint

        with orbax.checkpoint.StandardCheckpointer() as checkpointer:
            restored = checkpointer.restore(directory.absolute() / "orbax", self.arrays)
        for name, array in restored.items():
            np.copyto(self.arrays[name], array)

    @classmethod
    def installed(cls) -> bool:
        return importlib.util.find_spec("orbax") is not None and super().installed()


class _InVariables(Contender):
    """Live objects that are TensorFlow's variables."""

    needs = "tensorflow"
    checks = "yes"

    def hold(self, state: State) -> None:
        import tensorflow as tf

        self.variables = _made(state, tf.Variable)

    def values(self) -> Iterator[tuple[str, Array]]:
        for group, variables in self.variables.items():
            for name, variable in variables.items():
                yield f"{group}/{name}", variable.numpy()


class TensorFlow(_InVariables):
    """`tf.train.Checkpoint`."""

    def hold(self, state: State) -> None:
        import tensorflow as tf

        super().hold(state)
        self.checkpoint = tf.train.Checkpoint(state=self.variables)

    def save(self, directory: Path) -> None:
        self.checkpoint.write(str(directory / "ckpt"))

    def restore(self, directory: Path) -> None:
        self.checkpoint.read(str(directory / "ckpt"))


class TensorFlowOps(_InVariables):
    """TensorFlow's SaveV2 and RestoreV2 operations alone, with no object graph and nothing assigned."""

    def hold(self, state: State) -> None:
        super().hold(state)
        named = {f"{group}/{name}": v for group, vs in self.variables.items() for name, v in vs.items()}
        self.names = list(named)
        self.tensors = [variable.value() for variable in named.values()]

    def values(self) -> Iterator[tuple[str, Array]]:
        return ((name, tensor.numpy()) for name, tensor in zip(self.names, self.tensors, strict=True))

    def save(self, directory: Path) -> None:
        import tensorflow as tf

        tf.raw_ops.SaveV2(
            prefix=str(directory / "ckpt"),
            tensor_names=self.names,
            shape_and_slices=[""] * len(self.names),
            tensors=self.tensors,
        )

    def restore(self, directory: Path) -> None:
        import tensorflow as tf

        self.tensors = tf.raw_ops.RestoreV2(
            prefix=str(directory / "ckpt"),
            tensor_names=self.names,
            shape_and_slices=[""] * len(self.names),
            dtypes=[tensor.dtype for tensor in self.tensors],
        )


RAW = "raw, one file"
CONTENDERS: dict[str, type[Contender]] = {
    RAW: Raw,
    "raw, two files": RawFiles,
    "milepost": Milepost,
    "milepost, read once": MilepostOnce,
    "milepost, no fsync": MilepostUnsynced,
    "milepost, two files": MilepostFiles,
    "safetensors": Safetensors,
    "torch": Torch,
    "torch, mmap": TorchMapped,
    "h5py": H5py,
    "tf.train.Checkpoint": TensorFlow,
    "TensorFlow's SaveV2, RestoreV2": TensorFlowOps,
    "Orbax": Orbax,
}
