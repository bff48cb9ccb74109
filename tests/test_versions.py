"""The programs that try versions of libraries, and the table of what came of them."""

from __future__ import annotations

import json
import re
import sys

import pytest

import milepost.adapters
from benchmarks.versions import __main__ as versions
from benchmarks.versions import table, training
from benchmarks.versions.environments import ENVIRONMENTS, LIBRARIES
from milepost.graph import frameworks

assert milepost.adapters  # which names the oldest versions


def test_the_page_has_the_table_of_the_results():
    page = table.PAGE.read_text()
    assert page.partition(table.BEGIN)[2].partition(table.END)[0].strip() == table.text(table.read()).strip()


def test_nothing_in_the_table_differs():
    assert [row for row in table.rows(table.read()) if not row.is_good] == []


def test_every_program_has_its_packages():
    assert {program for each in ENVIRONMENTS.values() for program in each.programs} == set(LIBRARIES)


@pytest.mark.parametrize(
    ("framework", "environment", "package"),
    [
        ("jax", "jax-oldest", "jax"),
        ("flax.nnx", "jax-oldest", "flax"),
        ("keras", "keras-oldest", "keras"),
        ("tensorflow", "tensorflow-2.15", "tensorflow"),
        ("transformers", "torch-oldest", "transformers"),
        ("lightning", "torch-oldest", "lightning"),
        ("accelerate", "torch-oldest", "accelerate"),
        ("ignite", "torch-oldest", "pytorch-ignite"),
    ],
)
def test_the_oldest_version_that_is_not_refused_is_tried(framework, environment, package):
    (tried,) = (each for each in ENVIRONMENTS[environment].packages if each.startswith(f"{package}=="))
    oldest = frameworks._frameworks[framework].oldest.split(" or ")[-1 if framework != "tensorflow" else 0]
    assert tried.removeprefix(f"{package}==").startswith(oldest)


def test_the_page_names_the_oldest_versions():
    limits = dict(
        re.findall(r"^\| ([A-Z]?[^|]+) \| (\d[\d.]*)[^|]* \| [^|]+ \|$", table.PAGE.read_text(), re.MULTILINE)
    )
    names = {
        "jax": "JAX",
        "flax.nnx": "Flax NNX",
        "keras": "Keras 3",
        "torch": "PyTorch",
        "transformers": "transformers",
    }
    names |= {"lightning": "Lightning", "accelerate": "Accelerate", "ignite": "ignite"}
    assert {each: limits[names[each]] for each in names} == {
        each: frameworks._frameworks[each].oldest.split(" or ")[-1] for each in names
    }


def test_a_run_that_is_killed_is_resumed_exactly(tmp_path):
    pytest.importorskip("torch")
    entry = versions.tried(sys.executable, "torch", tmp_path / "run")
    assert entry == {"result": table.EXACT}
    assert versions.crossed(sys.executable, "torch", tmp_path / "run" / "killed") == table.RESTORED


def test_other_values_than_those_that_were_saved_are_seen(tmp_path):
    pytest.importorskip("torch")
    versions.tried(sys.executable, "torch", tmp_path / "run")
    record = tmp_path / "run" / "killed" / "record.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "6": "other"}))
    assert versions.crossed(sys.executable, "torch", tmp_path / "run" / "killed") == table.DIFFERS


def test_a_program_that_cannot_run_fails_without_milepost_too(tmp_path):
    entry = versions.tried(sys.executable, "unknown", tmp_path / "run")
    assert entry == {"result": table.ALSO_WITHOUT, "error": "there is no program unknown"}


def test_a_digest_tells_types_and_shapes_apart():
    arrays = [[0.0, 1.0]], [[[0.0, 1.0]]], [[0, 1]], [[0.0], [1.0]]
    assert len({training.digest(each) for each in arrays}) == len(arrays)
