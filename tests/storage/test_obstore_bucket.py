"""What the library for object stores reports, as errors of the system, and what it is told."""

import os
import socket
import threading

import pytest

from milepost.errors import StorageError, UnsupportedError
from milepost.storage import ObjectStorage

pytest.importorskip("obstore")

KEYS = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}


class Answering:
    """A server that gives one answer to every request."""

    def __init__(self, status, headers=b""):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._answer = b"HTTP/1.1 %d x\r\nContent-Length: 0\r\nConnection: close\r\n%s\r\n" % (status, headers)
        self.requests = []
        self.options = {**KEYS, "endpoint": f"http://127.0.0.1:{self._socket.getsockname()[1]}"}
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self.requests.append(connection.recv(1 << 16).partition(b"\r\n")[0])
                connection.sendall(self._answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, FileNotFoundError),
        (409, TimeoutError),
        (412, FileExistsError),
        (403, PermissionError),
        (400, OSError),
        (501, OSError),
        (503, TimeoutError),
    ],
)
def test_a_status_becomes_an_error_of_the_system(status, kind):
    with Answering(status) as server:
        bucket = ObjectStorage("s3://bucket-500/run", server.options).bucket
        with pytest.raises(kind) as caught:
            bucket.create("ckpt-503.index", b"1")
    if kind is OSError:
        assert not isinstance(caught.value, (TimeoutError, ConnectionError))


def test_a_bucket_that_does_not_exist():
    with Answering(404) as server:
        storage = ObjectStorage("s3://bucket/run", server.options, patience=0.0)
        assert storage.list("") == []
        assert not storage.is_file("a")
        with pytest.raises(StorageError, match="there is no such bucket"):
            storage.create("a")


def test_a_conditional_write_is_not_repeated_by_the_library():
    with Answering(503) as server:
        bucket = ObjectStorage("s3://bucket/run", server.options).bucket
        with pytest.raises(TimeoutError):
            bucket.create("a", b"1")
        assert len(server.requests) == 1


def test_a_server_that_is_not_there_is_named_in_the_error():
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    storage = ObjectStorage("s3://bucket/run", {**KEYS, "endpoint": address}, patience=0.0)
    with pytest.raises(StorageError, match="the store does not answer"):
        storage.replace("a", b"1", None)


def test_a_profile_needs_boto3(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(UnsupportedError, match="need boto3"):
        ObjectStorage("s3://bucket/run", {"profile": "work"})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork processes")
def test_a_forked_child_is_refused_and_does_not_hang():
    with Answering(404) as server:
        storage = ObjectStorage("s3://bucket/run", server.options)
        assert not storage.is_file("a")

        child = os.fork()
        if child == 0:
            try:
                storage.is_file("a")
            except StorageError as error:
                os._exit(0 if "forked" in str(error) else 2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
