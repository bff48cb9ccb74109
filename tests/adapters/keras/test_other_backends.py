"""Keras takes its backend when it is imported, so the tests of this folder run once more for each of the others."""

import importlib.util
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests import programs
from tests.once import computed_once

FILES = ("test_deferred", "test_optimizers", "test_objects")


def outcomes(backend):
    """By file, how many tests ran on a backend, and which of them failed; and what pytest printed."""
    here = Path(__file__)
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        run = programs.run(
            [
                *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}"),
                *(here.with_name(f"{file}.py") for file in FILES),
            ],
            imports=programs.imports("keras", backend),
            environment=programs.environment(backend),
        )
        printed = run.stdout[-6000:] + run.stderr[-2000:]
        found = {file: {"ran": 0, "failed": [], "printed": printed, "status": run.returncode} for file in FILES}
        for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
            file = next((part for part in case.get("classname", "").split(".") if part in FILES), None)
            if file is None:
                continue  # a file that cannot be imported, of which the exit status tells
            found[file]["ran"] += case.find("skipped") is None
            if case.find("failure") is not None or case.find("error") is not None:
                found[file]["failed"].append(case.get("name"))
    return found


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("file", [f"{file}.py" for file in FILES])
def test_everything_holds_on(tmp_path_factory, backend, file):
    pytest.importorskip("keras", minversion="3")
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    found = computed_once(tmp_path_factory, f"keras-{backend}", lambda: outcomes(backend))[Path(file).stem]
    assert found["status"] in (0, 1), found["printed"]  # 1 if a test failed, others if pytest did
    assert found["failed"] == [], found["printed"]
    assert found["ran"] > 10, found["printed"]
