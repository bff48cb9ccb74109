"""Which bucket a URL means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.errors import UnsupportedError, importing
from milepost.storage.objects.bucket import Bucket
from milepost.storage.objects.memory_bucket import MemoryBucket
from milepost.storage.paths import SCHEMES


def bucket_of(url: str, scheme: str, name: str, options: Mapping[str, Any] | None) -> Bucket:
    """The bucket of a URL.

    Args:
        url: The URL, for errors.
        scheme: Its scheme.
        name: The name of the bucket.
        options: As for `milepost.storage.ObjectStorage`.

    Raises:
        UnsupportedError: There is no such scheme, or a library for it is not installed.
    """
    if scheme not in SCHEMES or not name:
        raise UnsupportedError(
            f"milepost does not save to URLs of the scheme {scheme}" if name else "the URL names no bucket",
            file=url,
            expected="s3://bucket/path, memory://name/path, or a path of a file system that is mounted here",
            found=url,
            remedy="save to a local directory and copy it, or mount the remote one",
        )
    if scheme == "memory":
        return MemoryBucket()
    with importing():
        from milepost.storage.objects.obstore_bucket import ObstoreBucket  # only a program that uses a store needs it

    return ObstoreBucket(url, name, options or {})
