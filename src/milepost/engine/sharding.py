"""Policies that divide the tensors of a save into data files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from milepost.engine.arguments import is_whole_number, wrong
from milepost.engine.plan import PlannedWrite
from milepost.errors import UnsupportedError
from milepost.tensor import TensorSlice


class ShardingPolicy(Protocol):
    """Decides which data file each tensor, or piece of a tensor, goes to.

    An object with this method can be given as ``CheckpointOptions(experimental_sharding_callback=...)``.

    Example:
        >>> import milepost, tempfile
        >>> class OneFileEach:
        ...     def assign(self, writes):
        ...         return len(writes), [(n, write._replace(shard=n)) for n, write in enumerate(writes)]
        >>> options = milepost.CheckpointOptions(experimental_sharding_callback=OneFileEach())
        >>> checkpoint = milepost.Checkpoint(a=milepost.Variable(1.0), b=milepost.Variable(2.0))
        >>> path = checkpoint.write(tempfile.mkdtemp() + "/ckpt", options)
        >>> import glob
        >>> len(glob.glob(path + ".data-*"))
        2
    """

    def assign(self, writes: Sequence[PlannedWrite]) -> tuple[int, list[tuple[int, PlannedWrite]]]:
        """Assigns every tensor to a data file.

        Args:
            writes: The tensors to save, in order.

        Returns:
            The number of shards, and for each piece the position of its tensor in ``writes`` and the planned write of
            the piece, with its shard and, if it is not the whole tensor, its box.
        """
        ...


@dataclass(frozen=True, slots=True)
class MaxShardSizePolicy:
    """Fills shards up to a size. A tensor that does not fit is cut along its longest dimension.

    Attributes:
        max_shard_size: The largest number of bytes of tensors in one data file. A file with a single larger element, or with
            strings, which are never cut, may exceed it.

    Example:
        >>> import milepost
        >>> options = milepost.CheckpointOptions(experimental_sharding_callback=MaxShardSizePolicy(1 << 30))
    """

    max_shard_size: int

    def __post_init__(self) -> None:
        if not is_whole_number(self.max_shard_size):
            raise wrong("max_shard_size", self.max_shard_size, "a whole number of bytes")
        if self.max_shard_size <= 0:
            raise UnsupportedError(
                "the size of a shard must be positive",
                expected="> 0 bytes",
                found=self.max_shard_size,
                remedy="pass the bytes of the largest data file, such as 1 << 30; without a policy there is one data file",
            )

    def assign(self, writes: Sequence[PlannedWrite]) -> tuple[int, list[tuple[int, PlannedWrite]]]:
        """Assigns every tensor to a data file; see `ShardingPolicy.assign`."""
        placed: list[tuple[int, PlannedWrite]] = []
        shard, room = 0, self.max_shard_size
        for number, write in enumerate(writes):
            for piece in self._cut(write, room):
                size = piece.nbytes
                if size > room and room < self.max_shard_size:
                    shard, room = shard + 1, self.max_shard_size
                placed.append((number, piece._replace(shard=shard)))
                room -= size
        return shard + 1, placed

    def _cut(self, write: PlannedWrite, room: int) -> list[PlannedWrite]:
        total = write.nbytes
        if total <= room or total <= 1 or not write.shape:
            return [write]
        axis = max(range(len(write.shape)), key=write.shape.__getitem__)
        row = total // write.shape[axis]
        pieces = []
        start = 0
        while start < write.shape[axis]:
            rows = max(1, (room if room >= row else self.max_shard_size) // max(row, 1))
            rows = min(rows, write.shape[axis] - start)
            extents = [(0, -1)] * len(write.shape)
            extents[axis] = (start, rows)
            pieces.append(write._replace(box=TensorSlice(tuple(extents))))
            start += rows
            room = self.max_shard_size
        return pieces if len(pieces) > 1 else [write]


_OF_TENSORFLOW: Final = ("ShardByTaskPolicy", "MaxShardSizePolicy")


def sharding_policy(callback: Any) -> ShardingPolicy | None:
    """The policy for an option: the given one, or what one of TensorFlow's stands for. None is one data file for each process.

    Args:
        callback: A `ShardingPolicy`, None, or a ``ShardByTaskPolicy`` or ``MaxShardSizePolicy`` of
            ``tf.train.experimental``.

    Raises:
        UnsupportedError: The object is not a policy, for example another ``ShardingCallback`` of TensorFlow, which
            needs TensorFlow's tensors.
    """
    if callback is None or (hasattr(callback, "assign") and not isinstance(callback, type)):
        policy: ShardingPolicy | None = callback
        return policy
    kind = type(callback)
    if kind.__module__.partition(".")[0] == "tensorflow" and kind.__name__ in _OF_TENSORFLOW:
        return None if kind.__name__ == _OF_TENSORFLOW[0] else MaxShardSizePolicy(callback.max_shard_size)
    raise UnsupportedError(
        "this object is not a sharding policy for data files",
        key="experimental_sharding_callback",
        expected="milepost.MaxShardSizePolicy(bytes), or an object with its method assign()",
        found=f"the class {callback.__name__}" if isinstance(callback, type) else f"an object of type {kind.__name__}",
        remedy="pass an object rather than its class"
        if hasattr(callback, "assign")
        else "write assign(), or leave the option out",
    )
