"""Buckets of S3, by the library obstore.

obstore retries a request that was not answered, and then reports a conditional write that had taken effect as refused. So conditional writes go
through a store that retries nothing, and `milepost.storage.objects.requests` settles them. It has no limit of time that grows with the size of a request, so there
is a store for each limit. A forked child would wait for ever for threads that only its parent has.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from milepost.errors import MilepostError, StorageError, UnsupportedError
from milepost.forks import ForkableLock
from milepost.storage.objects.bucket import Head, Names, Upload
from milepost.storage.objects.files import PART

T = TypeVar("T")

_PROCESS: Final = os.getpid()
"""The process that imported this module, which is when it first used a store."""
_LEAST_SECONDS: Final = 30
_BYTES_PER_SECOND: Final = 256 << 10
"""The slowest network on which a request is not given up."""
_CONCURRENT: Final = 8
_INSTALL: Final = "install milepost[cloud], which has obstore"
_STATUS: Final = re.compile(r"status(?: code)?:? (\d{3})")
_PASSING: Final = (408, 425, 429)
"""The statuses, besides those from 500 on, after which the same request may succeed."""
_NOT_IMPLEMENTED: Final = 501
_LOST: Final = re.compile(
    r"timed? ?out|connect|reset|refused|closed|incomplete|error sending|decoding|HTTP error|body error", re.IGNORECASE
)
"""What is in the text of an error without a status if the connection has failed."""


class ObstoreBucket:
    """A bucket of S3.

    Args:
        url: Its URL, for errors.
        name: Its name.
        options: As for `milepost.storage.ObjectStorage`.

    Raises:
        UnsupportedError: obstore is not installed, or boto3 is needed for the credentials and is not installed.
    """

    def __init__(self, url: str, name: str, options: Mapping[str, Any]) -> None:
        try:
            import obstore
        except ImportError:
            raise UnsupportedError(
                "a library for object stores is not installed",
                file=url,
                expected="obstore",
                found="none",
                remedy=_INSTALL,
            ) from None
        self._obstore = obstore
        self._url = url
        self._name = name
        self._options = dict(options)
        self._credentials = _credentials(url, self._options.pop("profile", None), self._options)
        self._stores: dict[tuple[int, bool], Any] = {}
        self._lock = ForkableLock()

    def __repr__(self) -> str:
        return f"ObstoreBucket({self._name!r})"

    def head(self, key: str) -> Head:
        return _head(self._ask(lambda: self._obstore.head(self._store(), key)))

    def read(self, key: str, most: int) -> tuple[Head, bytes | None]:
        def read() -> tuple[Head, bytes | None]:
            answer = self._obstore.get(self._store(most), key)
            head = _head(answer.meta)
            return head, bytes(answer.bytes()) if head.size <= most else None

        return self._ask(read)

    def get(self, key: str, start: int, stop: int, version: str) -> bytes:
        options = {"range": (start, stop), "if_match": version}
        return self._ask(lambda: bytes(self._obstore.get(self._store(stop - start), key, options=options).bytes()))

    def put(self, key: str, data: bytes) -> None:
        self._ask(lambda: self._obstore.put(self._store(len(data)), key, data, use_multipart=False))

    def create(self, key: str, data: bytes) -> None:
        self._ask(lambda: self._obstore.put(self._store(len(data), once=True), key, data, mode="create"))

    def exchange(self, key: str, data: bytes, version: str) -> None:
        mode = {"e_tag": version}  # it must not have a version that is None
        self._ask(lambda: self._obstore.put(self._store(len(data), once=True), key, data, mode=mode))

    def upload(self, key: str) -> Upload:
        store = self._store(PART)
        writer = self._ask(lambda: self._obstore.open_writer(store, key, buffer_size=PART, max_concurrency=_CONCURRENT))
        return _Upload(self, writer)

    def delete(self, key: str) -> None:
        try:
            self._ask(lambda: self._obstore.delete(self._store(), key))
        except FileNotFoundError:
            pass  # some stores answer so

    def list(self, folder: str) -> Names:
        found = self._ask(lambda: self._obstore.list_with_delimiter(self._store(), folder or None))
        objects = [each["path"] for each in found["objects"]]
        return Names(_inside(folder, objects), _inside(folder, found["common_prefixes"]))

    def _store(self, size: int = 0, *, once: bool = False) -> Any:
        """The store for a request with so many bytes, which retries it or not."""
        if os.getpid() != _PROCESS:
            raise StorageError(
                "a store cannot be used in a forked process that its parent has used before the fork",
                errno=errno.ENOTSUP,
                file=self._url,
                remedy="start processes by spawn or forkserver, or before a path of the store is first used",
            )
        seconds = _LEAST_SECONDS
        while seconds * _BYTES_PER_SECOND < size:
            seconds *= 2
        with self._lock:
            store = self._stores.get((seconds, once))
            if store is None:
                store = self._stores[seconds, once] = self._made(seconds, once)
            return store

    def _made(self, seconds: int, once: bool) -> Any:
        with self._lock:
            endpoint = str(self._options.get("endpoint") or self._options.get("aws_endpoint") or _from_environment())
            client = {"timeout": timedelta(seconds=seconds), "allow_http": endpoint.startswith("http://")}
            retries = {"max_retries": 0 if once else 8, "retry_timeout": timedelta(seconds=4 * seconds)}
            try:
                return self._obstore.store.S3Store(
                    self._name,
                    config=self._options or None,
                    client_options=client,
                    retry_config=retries,
                    credential_provider=self._credentials,
                )
            except Exception as error:  # each kind of wrong option has an exception of its own
                raise UnsupportedError(
                    "obstore does not take these options of the store",
                    file=self._url,
                    expected="options of obstore.store.S3Store",
                    found=f"{type(error).__name__}, for the options {', '.join(sorted(self._options)) or 'of the environment'}",
                    remedy="correct the options, or the variables of the environment that begin with AWS_",
                ) from None  # its text may have the value of an option

    def _ask(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except (OSError, MilepostError):
            raise
        except Exception as error:  # obstore has a class for each kind of error, and none for all
            raise _as_system_error(error) from error


class _Upload:
    def __init__(self, bucket: ObstoreBucket, writer: Any) -> None:
        self._bucket = bucket
        self._writer = writer

    def send(self, part: bytes) -> None:
        self._bucket._ask(lambda: self._writer.write(part))  # it keeps the bytes, which nobody changes

    def complete(self) -> None:
        self._bucket._ask(self._writer.close)

    def abort(self) -> None:
        """Leaves a block that has failed, which aborts the upload."""
        try:
            self._writer.__exit__(InterruptedError, InterruptedError(), None)
        except Exception:  # whatever the library raises, the upload is given up
            return


def _head(meta: Mapping[str, Any]) -> Head:
    return Head(meta["size"], meta["last_modified"].timestamp(), str(meta["e_tag"]))


def _inside(folder: str, paths: Iterable[str]) -> list[str]:
    """The names of what is in a folder, which some servers list as a part of itself when it is empty."""
    return [
        path[len(folder) :].strip("/")
        for path in paths
        if path.startswith(folder) and path.strip("/") != folder.strip("/")
    ]


def _as_system_error(error: Exception) -> OSError:
    """The error of `milepost.storage.objects.bucket` for one of obstore."""
    kind, text = type(error).__name__, " ".join(str(error).split("\n")[0].split())
    status = _STATUS.search(text)
    if status and status[1] == "409":  # of any request: another one is changing the object right now
        return TimeoutError(errno.ETIMEDOUT, text)
    if kind in ("AlreadyExistsError", "PreconditionError", "NotModifiedError"):
        return FileExistsError(errno.EEXIST, text)
    if kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return PermissionError(errno.EACCES, text)
    if kind == "NotFoundError":
        return FileNotFoundError(errno.ENOENT, text)
    if status and status[1] == "404":
        return FileNotFoundError(errno.ENOENT, text)
    if (
        (int(status[1]) in _PASSING or (int(status[1]) >= 500 and int(status[1]) != _NOT_IMPLEMENTED))
        if status
        else _LOST.search(text)
    ):
        return TimeoutError(errno.ETIMEDOUT, text)
    return OSError(errno.EINVAL, text)


def _credentials(url: str, profile: str | None, options: Mapping[str, Any]) -> Any:
    """What gives obstore the credentials of the files and sign-ins that AWS' own tools use. None if the environment or the options have them."""
    has_keys = any("access_key" in name.lower() or "skip_signature" in name.lower() for name in options)
    if profile is None and (has_keys or "AWS_ACCESS_KEY_ID" in os.environ):
        return None
    home = Path("~/.aws").expanduser()
    files = (
        os.environ.get("AWS_CONFIG_FILE", home / "config"),
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE", home / "credentials"),
    )
    if profile is None and "AWS_PROFILE" not in os.environ and not any(map(os.path.exists, files)):
        return None
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise UnsupportedError(
            "the credentials of a profile need boto3, which is not installed",
            file=url,
            expected="boto3",
            found="none",
            remedy="install boto3, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ) from None
    return Boto3CredentialProvider(boto3.Session(profile_name=profile))


def _from_environment() -> str:
    return (
        os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
        or os.environ.get("AWS_ENDPOINT")
        or ""
    )
