"""Tries whether a store keeps the conditions of requests, and how its clock differs from that of this machine.

A store that ignores conditions answers each of two writes that exclude each other. Such a store would lose checkpoints of two processes that save
under one path, without an error. So an object is written, and then written again on conditions that do not hold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from milepost.errors import UnsupportedError
from milepost.storage.objects.bucket import Bucket
from milepost.storage.objects.requests import answered, content, write_if


def clock_difference(bucket: Bucket, folder: str, patience: float) -> float:
    """By how many seconds the clock of a store is ahead of that of this machine.

    Args:
        bucket: The bucket of the store.
        folder: Where an object is written and deleted again. It ends with ``/``, or is empty.
        patience: Seconds to wait for an answer.

    Raises:
        UnsupportedError: The store ignores the conditions of requests.
        OSError: The store refuses a request for another reason, or does not answer.
    """
    key = f"{folder}checkpoint.milepost-{os.urandom(8).hex()}.tmp"  # a name that a later run removes if this one is killed
    write_if(bucket, key, b"1", None, patience)
    try:
        head = answered(lambda: bucket.head(key), patience)
        difference = head.modified - time.time()
        keeps = _is_refused(lambda: bucket.create(key, b"2"), patience)
        keeps = keeps and write_if(bucket, key, b"3", b"1", patience)
        keeps = keeps and _is_refused(lambda: bucket.exchange(key, b"4", head.version), patience)
        now = content(bucket, key, patience)
        keeps = keeps and now is not None and now[0] == b"3"
    finally:
        answered(lambda: bucket.delete(key), patience)
    if not keeps:
        raise UnsupportedError(
            "this store ignores the conditions of requests (If-None-Match, If-Match), without which a save is not safe from another one",
            file=folder or key,
            expected="that a write is refused if the object is there, or is not the one that was read",
            found="that it is written",
            remedy="use a store that keeps them, or another version of it; if only one process ever saves under a path, "
            "ObjectStorage(url, probe=False) goes without",
        )
    return difference


def _is_refused(write: Callable[[], None], patience: float) -> bool:
    try:
        answered(write, patience)
    except FileExistsError:
        return True
    return False
