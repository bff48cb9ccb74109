"""Whether the save of a claim in a store lives, and what becomes of its data if it does not.

A store has no locks, so a process is taken for dead when it has made no progress for some time (``lease`` of `milepost.storage.ObjectStorage`). It may continue
after that. So each step is written into the claim, on the condition of what was there::

    claim     := ""           the save lives
               | "dead"       somebody takes it for dead, and now looks at the index
               | "doomed"     the index was another one: its data is removed, and it must not be committed
               | "kept"       the index was that of the save: it is committed, and its data is kept
               | "replaced"   the claim of the data that the save replaces, which is removed if the save is not doomed

Safety does not depend on a clock. The save writes its index, and then looks at its claim: if nobody has looked at the index yet, it writes "" again, and
whoever wanted to decide is too late. If the claim is gone, the data shows what was decided, because that of a doomed save is removed before its claim.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final

from milepost.errors import StorageError
from milepost.series.notes import Temporary
from milepost.series.whole_files import read_whole
from milepost.storage import ConditionalStorage

LIVING: Final = b""
REPLACED: Final = b"replaced"
_DEAD: Final = b"dead"
_DOOMED: Final = b"doomed"
_KEPT: Final = b"kept"


def is_confirmed(storage: ConditionalStorage, claim: Temporary, data: Sequence[str]) -> bool:
    """Whether a save whose index is visible is committed for good. If not, it is doomed.

    Args:
        storage: Where it is.
        claim: Its claim.
        data: The paths of its data files.

    Raises:
        StorageError: This cannot be told.
    """
    while True:
        content = read_whole(storage, claim.path)
        if content is None:
            return all(map(storage.is_file, data))
        if content != _DEAD:
            return content != _DOOMED
        if _written(storage, claim, LIVING, _DEAD):
            return True


def taken_for_dead(storage: ConditionalStorage, claim: Temporary) -> bool:
    """Takes the save of a claim for dead, if it has not done anything since. The index must be looked at after that, and `decide` called.

    Raises:
        StorageError: This cannot be told.
    """
    content = read_whole(storage, claim.path)
    return content in (_DEAD, _DOOMED, _KEPT) or (content == LIVING and _written(storage, claim, _DEAD, LIVING))


def decide(storage: ConditionalStorage, claim: Temporary, *, is_visible: bool) -> bool | None:
    """Decides what becomes of a save that is taken for dead.

    Args:
        storage: Where it is.
        claim: Its claim.
        is_visible: Whether the index is that of the save.

    Returns:
        Whether it is doomed; None if it lives.

    Raises:
        StorageError: This cannot be told.
    """
    decision = _KEPT if is_visible else _DOOMED
    _written(storage, claim, decision, _DEAD)
    content = read_whole(storage, claim.path)
    return None if content in (None, LIVING, _DEAD) else content == _DOOMED


def _written(storage: ConditionalStorage, claim: Temporary, content: bytes, present: bytes) -> bool:
    try:
        storage.replace(claim.path, content, present)
    except StorageError as error:
        if error.errno != errno.EEXIST:
            raise
        return False
    return True
