"""What is done when a store refuses a request, or does not answer it.

A request that changes nothing, or that may be made twice, is made again until it is answered. A conditional write is different: if it was not
answered, it may have taken effect, and a second one is then refused because of the first. So a refusal after that is compared with what is
there. If it is what was to be written, it was written.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeVar

from milepost.storage.objects.bucket import Bucket

T = TypeVar("T")

NO_ANSWER: Final = (TimeoutError, ConnectionError)
"""The errors after which it is not known whether a request has taken effect."""
SMALL: Final = 256 << 10
"""An object of at most so many bytes is read by the request that opens it."""
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0


def attempts(patience: float) -> Iterator[None]:
    """Yields once for each attempt, with a pause between two that grows and differs between processes.

    Args:
        patience: Seconds after which no new attempt is begun. There are at least two.

    Example:
        >>> len(list(attempts(patience=0)))
        2
    """
    deadline, pause, number = time.monotonic() + patience, _FIRST_PAUSE, 0
    while number < 2 or time.monotonic() < deadline:
        if number:
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, _LONGEST_PAUSE)
        number += 1
        yield


def answered(request: Callable[[], T], patience: float) -> T:
    """The answer to a request that may be made more than once.

    Raises:
        OSError: As `milepost.storage.objects.bucket` describes it.
    """
    failure: OSError | None = None
    for _ in attempts(patience):
        try:
            return request()
        except NO_ANSWER as error:
            failure = error
    assert failure is not None, "there is at least one attempt"
    raise failure


def content(bucket: Bucket, key: str, patience: float) -> tuple[bytes, str] | None:
    """The bytes of an object and their version. None if there is no object. Errors are those of `answered`."""
    for _ in attempts(patience):
        try:
            head, data = answered(lambda: bucket.read(key, SMALL), patience)
            if data is None:
                data = answered(partial(bucket.get, key, 0, head.size, head.version), patience)
            return data, head.version
        except FileNotFoundError:
            return None
        except FileExistsError:
            continue  # it was replaced meanwhile
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), key)


def write_if(bucket: Bucket, key: str, data: bytes, present: bytes | None, patience: float) -> bool:
    """Writes an object, if it has the bytes that are expected.

    Args:
        bucket: Where the object is.
        key: Its key.
        data: The bytes to write.
        present: The bytes that it must have now; None if there must be no object.
        patience: Seconds to wait for an answer.

    Returns:
        Whether it was written. If not, it has other bytes.

    Raises:
        TimeoutError, ConnectionError: It is not known whether it was written.
        OSError: It was not.
    """
    may_be_ours = False
    failure: OSError | None = None
    for _ in attempts(patience):
        now = None if present is None and not may_be_ours else content(bucket, key, patience)
        if may_be_ours and now is not None and now[0] == data:
            return True
        if (None if now is None else now[0]) != present:
            return False
        try:
            if now is None:
                bucket.create(key, data)
            else:
                bucket.exchange(key, data, now[1])
            return True
        except FileExistsError as error:
            # On its way, a request may be repeated by others. Then the second one is refused because of the first. Empty objects cannot be told apart.
            failure, may_be_ours = error, may_be_ours or data not in (b"", present)
            if present is None and not may_be_ours and content(bucket, key, patience) is not None:
                return False
        except NO_ANSWER as error:
            failure, may_be_ours = error, True
    now = content(bucket, key, patience)
    if may_be_ours and now is not None and now[0] == data:
        return True
    assert failure is not None, "there is at least one attempt"
    if isinstance(failure, FileExistsError):
        return False
    raise failure
