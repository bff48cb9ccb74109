"""The suites are rewritten by pytest, so that a test of theirs which fails says what differs."""

import os
import subprocess
import sys

TEST_FILE = """
import pytest

from milepost.storage import MemoryStorage
from milepost.testing.storage_suite import Bench, StorageSuite


class Forgetful(MemoryStorage):
    def list(self, directory):
        return ["wrong"]


class TestForgetful(StorageSuite):
    @pytest.fixture
    def bench(self):
        storage = Forgetful()
        storage.make_directory("run")

        def put(path, data):
            with storage.create(path) as file:
                file.write(0, [data])

        return Bench(storage, "run", None, put)
"""


def test_a_failed_test_of_a_suite_shows_the_values(tmp_path):
    (tmp_path / "test_forgetful.py").write_text(TEST_FILE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "test_list", "--rootdir", "."]
    result = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True, check=False
    )
    assert "assert ['wrong'] == ['.hidden'" in result.stdout, result.stdout + result.stderr
