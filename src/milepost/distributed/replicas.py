"""Whether processes that hold the same box of a tensor hold the same elements.

One of the processes that hold a box writes it. If another one held other elements, these would be lost in silence. This happens after
a collective operation that went wrong, and if two stages of a pipeline have the same names. So each process computes a digest of all
boxes that it holds together with the same other processes, for each set of such processes. Process 0 compares the digests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from milepost.coding.digest import blake2b
from milepost.errors import CoordinationError

Replicas = Mapping[str, Mapping[str, int]]
"""For each set of holders, in words: the checksum of each box, by key and box."""

_LISTED: Final = 16
_SHOWN: Final = 4
"""How many holders are listed: all of at most so many; the first of more."""


class ReplicaDifference(NamedTuple):
    """Two processes that hold different elements of the same boxes.

    Attributes:
        holders: The set of holders, in words.
        first: The first of them.
        other: One that differs from it.
    """

    holders: str
    first: int
    other: int


@lru_cache(maxsize=1024)
def holders_in_words(holders: tuple[int, ...]) -> str:
    """A set of holders, as `Replicas` has it: short also for a set of thousands, and different for each set.

    Example:
        >>> holders_in_words((0, 2)), holders_in_words(tuple(range(1024)))
        ('0, 2', '0, 1, 2, 3 and 1020 more [74e26ff3543e6040]')
    """
    words = ", ".join(map(str, holders))
    if len(holders) <= _LISTED:
        return words
    digest = blake2b([words.encode()], 8)
    return f"{', '.join(map(str, holders[:_SHOWN]))} and {len(holders) - _SHOWN} more [{digest}]"


def digests(replicas: Replicas) -> dict[str, str]:
    """A digest for each set of holders."""
    return {
        holders: blake2b((f"{box} {crc}\n".encode() for box, crc in checksums.items()), 16)
        for holders, checksums in replicas.items()
    }


def find_difference(reported: Sequence[Mapping[str, str]]) -> ReplicaDifference | None:
    """Two processes whose digests differ; None if there are none.

    Args:
        reported: What `digests` returned on each process.

    Example:
        >>> find_difference([{"0, 2": "a"}, {"1, 3": "b"}, {"0, 2": "a"}, {"1, 3": "c"}])
        ReplicaDifference(holders='1, 3', first=1, other=3)
    """
    seen: dict[str, tuple[int, str]] = {}
    for rank, process_digests in enumerate(reported):
        for holders, digest in process_digests.items():
            first, expected = seen.setdefault(holders, (rank, digest))
            if digest != expected:
                return ReplicaDifference(holders, first, rank)
    return None


def difference_of(
    found: ReplicaDifference, first: Mapping[str, int], other: Mapping[str, int], size: int
) -> CoordinationError:
    """The error for processes that differ.

    Args:
        found: Which ones.
        first: The checksums of the first one.
        other: Those of the other one.
        size: How many processes there are.
    """
    boxes = [box for box, crc in first.items() if other.get(box) != crc] or [*first, "a tensor"]
    more = f", and {len(boxes) - 1} more" if boxes[1:] else ""
    facts: dict[str, Any] = {
        "expected": f"the same elements on the processes {found.holders}, which hold the same part of this tensor",
        "found": f"others on process {found.other} than on process {found.first}, in {boxes[0]}{more}",
        "remedy": "look why they differ, and restore a checkpoint; stages of a pipeline, and other objects that are different "
        "on each process, need checkpoints of their own: CheckpointOptions(process_local=True), and a path of its own for each process",
    }
    return CoordinationError(
        f"processes {found.first} and {found.other} of {size} hold different values of one tensor; nothing was saved",
        key=boxes[0].partition(" ")[0],
        **facts,
    )
