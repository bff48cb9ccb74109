"""Every public layer, optimizer, schedule and metric of Keras 3 round-trips, on every backend."""

import importlib.util
from pathlib import Path

import pytest

from tests.once import computed_once
from tests.zoo.checks import STAGES
from tests.zoo.namespaces import cases, without_recipe
from tests.zoo.recipe import keras
from tests.zoo.results import BACKENDS, installed, run_all
from tests.zoo.table import table

PAGE = Path(__file__).parents[2] / "docs" / "keras_coverage.md"
CASES = list(cases())
# The first test waits for all of them.
pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="session")
def zoo(tmp_path_factory):
    """The results of all cases, by backend."""
    return computed_once(tmp_path_factory, "zoo", run_all)


def test_every_public_class_has_a_recipe():
    missing = without_recipe()
    assert not missing, f"this Keras has classes that nobody has tried: add recipes to tests/zoo for {missing}"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_round_trip(zoo, case, backend):
    if backend not in installed():
        pytest.skip(f"{backend} is not installed")
    result = zoo[backend][str(case)]
    if "untried" in result:
        pytest.skip(result["untried"])
    if "refused" in result:
        pytest.skip(f"not on this backend, by Keras itself: {result['refused']:.200}")
    failed = [f"{stage}: {result[stage]}" for stage in STAGES if isinstance(result[stage], str)]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_some_backend_can_do_it(zoo, case):
    """A mistake in a recipe would look like a refusal by Keras on every backend."""
    if installed() != list(BACKENDS):
        pytest.skip("not all backends are installed")
    if case.recipe.requires and importlib.util.find_spec(case.recipe.requires) is None:
        pytest.skip(f"{case.recipe.requires} is not installed")
    refused = [zoo[backend][str(case)].get("refused") for backend in BACKENDS]
    assert not all(refused), refused


def test_the_published_table_is_current(zoo):
    if f"Keras {keras.__version__}\n" not in PAGE.read_text():
        pytest.skip("the published table is of another version of Keras")
    if installed() != list(BACKENDS):
        pytest.skip("not all backends are installed")
    assert PAGE.read_text() == table(zoo), "run: python -m tests.zoo.table > docs/keras_coverage.md"
