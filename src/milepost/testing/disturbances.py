"""An object that fails after all others in a restore, and a storage that blocks, for tests."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from milepost.adapters import Adapter, DType, Value, register
from milepost.graph.adapter import Array
from milepost.storage import MemoryStorage
from milepost.storage.memory import MemoryWriter


class Fuse:
    """An object whose restore fails after everything else has been restored."""

    blows = True


class FuseAdapter(Adapter):
    """Adapter of `Fuse`."""

    leaf = True

    def handles(self, kind: type) -> bool:
        return kind is Fuse

    def values(self, obj: Fuse) -> Sequence[Value]:
        return (Value("fuse", DType.of("bool"), (), np.array(True)),)

    def assign(self, obj: Fuse, arrays: Mapping[str, Array]) -> Fuse:
        return obj

    def may_refuse(self, obj: Fuse) -> bool:
        return False

    def on_restored(self, obj: Fuse) -> None:
        if obj.blows:
            raise RuntimeError("the fuse has blown")


register(FuseAdapter())


class GatedStorage(MemoryStorage):
    """Files in memory, which are written only when a gate is open.

    Attributes:
        gate: Every `create` blocks until it is set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def create(self, path: str) -> MemoryWriter:
        assert self.gate.wait(60), "the gate was not opened within 60 seconds"
        return super().create(path)
