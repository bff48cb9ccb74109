"""BLAKE2b digests, by which processes compare what they hold and a save names its files (RFC 7693).

`hashlib` loads OpenSSL, which takes about 5 ms. So it is imported when the first digest is taken, and a save by one process
into a new path takes none.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from milepost.errors import importing


def blake2b(parts: Iterable[bytes], size: int) -> str:
    """The BLAKE2b digest of bytes that follow one another, in hexadecimal digits.

    Args:
        parts: The bytes, in any number of parts. Only their concatenation matters.
        size: The size of the digest in bytes, from 1 to 64.

    Example:
        >>> blake2b([b"in", b"dex"], 8)
        '590407b549d6e3b4'
    """
    with importing():
        hashlib = importlib.import_module("hashlib")
    digest = hashlib.blake2b(digest_size=size)
    for part in parts:
        digest.update(part)
    return str(digest.hexdigest())
