"""Servers of object stores on this machine, each with an address of its own."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.storage import ObjectStorage
from milepost.storage.objects.bucket import Bucket

_SECONDS = 30.0
_numbers = itertools.count(1)


class Server:
    """A server that has a bucket.

    Attributes:
        endpoint: Its address.
        options: What `milepost.storage.ObjectStorage` takes to reach it.
        environment: The variables that say the same.
    """

    bucket = "bucket"
    key, secret = "some-key", "some-secret-text"

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.options = {
            "endpoint": endpoint,
            "access_key_id": self.key,
            "secret_access_key": self.secret,
            "region": "us-east-1",
        }
        self.environment = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
        }

    def url(self) -> str:
        """A folder of the bucket that nobody else uses."""
        return f"s3://{self.bucket}/folder-{os.getpid()}-{next(_numbers)}"


def storage_of(bucket: Bucket, *, lease: float = 60.0, probe: bool = False) -> ObjectStorage:
    """A storage of a bucket in memory, which does not wait. With a lease below zero, every other process counts as dead."""
    storage = ObjectStorage("memory://test", lease=lease, patience=0.0, probe=probe)
    storage.bucket = bucket
    return storage


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nothing listens at. Servers add 10,000 to some of them."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(20 * count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return [port for port in ports if port < 50_000][:count]


def program(name: str) -> str:
    """The path of a program of this environment. The test is skipped if it is not installed."""
    there = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if there is None:
        pytest.skip(f"{name} is not installed")
    return there


def seaweed(directory: Path) -> Iterator[Server]:
    """SeaweedFS, which keeps all conditions of requests."""
    pytest.importorskip("obstore")
    weed = program("weed")
    s3, master, filer, volume = free_ports(4)
    options = {
        "dir": directory,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "admin.ui": "false",
        "webdav": "false",
        "bucket": Server.bucket,
        "s3.port": s3,
        "s3.port.iceberg": 0,
        "master.port": master,
        "filer.port": filer,
        "volume.port": volume,
        "master.telemetry": "false",
    }
    environment = os.environ | {"AWS_ACCESS_KEY_ID": Server.key, "AWS_SECRET_ACCESS_KEY": Server.secret}
    command = [weed, "mini", *(f"-{name}={value}" for name, value in options.items())]
    yield from _running(command, environment, directory, s3)


def ignoring(directory: Path) -> Iterator[Server]:
    """A server that ignores the conditions of requests: nanio."""
    pytest.importorskip("obstore")
    (port,) = free_ports(1)
    data = directory / "data"
    (data / Server.bucket).mkdir(parents=True)
    environment = os.environ | {"NANIO_ACCESS_KEY": Server.key, "NANIO_SECRET_KEY": Server.secret}
    command = [program("nanio"), "serve", "--data-dir", str(data), "--host", "127.0.0.1", "--port", str(port)]
    yield from _running(command, environment, directory, port)


def _running(command: list[str], environment: dict[str, str], directory: Path, port: int) -> Iterator[Server]:
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=directory)
    try:
        yield _answering(Server(f"http://127.0.0.1:{port}"), process, directory / "log")
    finally:
        process.kill()
        process.wait()


def _answering(server: Server, process: subprocess.Popen[bytes], log: Path) -> Server:
    """The server, when its bucket is there."""
    import obstore

    store = obstore.store.S3Store(
        server.bucket,
        config=server.options,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            with urllib.request.urlopen(server.endpoint, timeout=5):
                pass
        except urllib.error.HTTPError:
            pass  # it answers
        except OSError:
            _wait(process, deadline, log)
            continue
        try:
            obstore.put(store, "first", b"1")
            return server
        except Exception:  # whatever the library raises, the server is not ready
            _wait(process, deadline, log)


def _wait(process: subprocess.Popen[bytes], deadline: float, log: Path) -> None:
    if process.poll() is not None or time.monotonic() > deadline:
        pytest.fail(f"the server does not start: {log.read_text()[-2000:]}")
    time.sleep(0.1)
