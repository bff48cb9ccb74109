"""Checks the trees of an HDF5 file before the HDF5 library goes through them.

The names of a group, and the chunks of a dataset, are in the leaves of a tree. The library goes from a node to those below it without looking
where it has been, and calls itself for each level. A node that is below itself ends the process, and a node that is below many others takes
for ever. So each node must be one level lower than the only node above it::

    node  := "TREE"  kind:u8  level:u8  count:u16  left:O  right:O  {key  child:O}^count  key     kind 0: of names, kind 1: of chunks
    key   := name:L                                                  of names; its position in the heap
           | size:u32  filters:u32  offset:u64^n                     of chunks; n is the number of dimensions and one more

O and L are as in `headers`. A child of a node of level 0 holds names, or is a chunk. Integers are little-endian.
Source: HDF5 File Format Specification 3.0, section III.A.1; seen with HDF5 1.14.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milepost.errors import CorruptCheckpointError

OF_NAMES: Final = 0
OF_CHUNKS: Final = 1
_SIGNATURE: Final = b"TREE"
_BEFORE: Final = 8
"""The bytes of a node before the positions of its neighbours."""

Read = Callable[[int, int], bytes | memoryview]
"""Returns the bytes from a position on, of some length."""


def check_tree(read: Read, root: int, kind: int, key: int, offset: int) -> None:
    """Checks a tree.

    Args:
        read: Reads from the file. It raises a `CorruptCheckpointError` outside of it.
        root: The position of the highest node.
        kind: What the tree has, `OF_NAMES` or `OF_CHUNKS`.
        key: The bytes of a key.
        offset: The bytes of a position.

    Raises:
        CorruptCheckpointError: A node is not one level lower than the one above it, or is below two nodes.
    """
    known = {root}
    pending: list[tuple[int, int | None]] = [(root, None)]
    while pending:
        position, expected = pending.pop()
        start = read(position, _BEFORE)
        level = start[5]
        if start[:4] != _SIGNATURE or start[4] != kind or expected not in (None, level):
            raise _damaged(position, "no node of this kind and level")
        if not level and kind == OF_CHUNKS:
            continue  # what is below it are chunks
        count = int.from_bytes(start[6:8], "little")
        entries = read(position + _BEFORE + 2 * offset, count * (key + offset))
        for number in range(count):
            begin = number * (key + offset) + key
            child = int.from_bytes(entries[begin : begin + offset], "little")
            if child in known:
                raise _damaged(position, f"the node at byte {child}, which is in two places")
            known.add(child)
            if level:
                pending.append((child, level - 1))


def _damaged(position: int, found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"the HDF5 file is damaged: a tree of names or chunks, at byte {position}",
        expected="nodes that are each one level lower than the only node above them",
        found=found,
        remedy="copy or download the file again",
    )
