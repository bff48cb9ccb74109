"""Every storage against what every storage must do, with raw access that goes around it."""

from pathlib import Path

import pytest

from milepost.storage import LocalStorage, MemoryStorage, ObjectStorage
from milepost.storage.default import DEFAULT_STORAGE
from milepost.storage.memory import _MemoryFile
from milepost.testing import FaultyStorage, WindowsStorage
from milepost.testing.storage_suite import Bench, StorageSuite
from milepost.testing.windows_storage import _new


class TestLocalStorage(StorageSuite):
    @pytest.fixture
    def bench(self, tmp_path):
        return Bench(
            LocalStorage(),
            str(tmp_path),
            lambda path: Path(path).read_bytes(),
            lambda p, data: Path(p).write_bytes(data),
        )


class TestLocalStorageInTheCurrentDirectory(StorageSuite):
    @pytest.fixture
    def bench(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        return Bench(LocalStorage(), ".", lambda p: (tmp_path / p).read_bytes(), lambda p, d: Path(p).write_bytes(d))


class TestLocalStorageWithoutNamelessFiles(TestLocalStorage):
    @pytest.fixture(autouse=True)
    def _no_nameless_files(self, monkeypatch):
        monkeypatch.delattr("os.O_TMPFILE", raising=False)


class TestMemoryStorage(StorageSuite):
    makes_parents = True

    @pytest.fixture
    def bench(self):
        storage = MemoryStorage()
        storage.make_directory("root/directory")

        def put(path, data):
            content = storage._files[path] = _MemoryFile()
            content.data += data

        return Bench(storage, "root/directory", lambda path: bytes(storage._files[path].data), put)


class TestFaultyStorage(StorageSuite):
    @pytest.fixture
    def bench(self):
        storage = FaultyStorage()
        storage.make_directory("root/directory")

        def get(path):
            content = storage.contents()[path]
            assert content is not None
            return content

        def put(path, data):
            node = storage._next_node
            storage._next_node += 1
            storage._files[node] = bytearray(data)
            directory, name = storage._parent(path)
            storage._names[directory][name] = node

        return Bench(storage, "root/directory", get, put)


class TestWindowsStorage(StorageSuite):
    gives_up_open_files = False

    @pytest.fixture
    def bench(self):
        storage = WindowsStorage()
        storage.make_directory("D:\\Runs")

        def put(path, data):
            with storage.create(path) as file:
                file.write(0, [data])

        return Bench(storage, "D:\\runs", lambda path: bytes(storage._files[_new(path)].content.data), put)


class TestObjectStorage(StorageSuite):
    makes_parents = True
    has_directories = False

    @pytest.fixture
    def bench(self):
        storage = ObjectStorage("memory://bucket/root", patience=0.0)

        def get(path):
            return storage.bucket.objects[f"root/{path}"].data

        return Bench(storage, "run", get, lambda path, data: storage.bucket.put(f"root/{path}", data))


class TestUrls(TestObjectStorage):
    """The same, by URLs and without a storage of the program."""

    @pytest.fixture
    def bench(self):
        bucket = DEFAULT_STORAGE.of("memory://suite/run").bucket
        bucket.objects.clear()

        def key(path):
            return path.removeprefix("memory://suite/")

        def get(path):
            return bucket.objects[key(path)].data

        return Bench(DEFAULT_STORAGE, "memory://suite/run", get, lambda path, data: bucket.put(key(path), data))


class TestSeaweed(TestObjectStorage):
    """A server of S3 on this machine."""

    @pytest.fixture
    def bench(self, seaweed):
        storage = ObjectStorage(seaweed.url(), seaweed.options)
        raw = storage.bucket

        def key(path):
            return f"{storage._folder}/{path}"

        def get(path):
            head = raw.head(key(path))
            return raw.get(key(path), 0, head.size, head.version) if head.size else b""

        return Bench(storage, "run", get, lambda path, data: raw.put(key(path), data))
