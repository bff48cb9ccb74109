"""Every public class of NNX round-trips."""

from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("flax.nnx")
pytest.importorskip("optax")
import jax

from tests.adapters.flax.table import table
from tests.adapters.flax.zoo import BASES, RECIPES, cases, check, classes, version

PAGE = Path(__file__).parents[3] / "docs" / "flax_coverage.md"


def test_every_public_class_has_a_recipe():
    missing = sorted(set(classes()) - set(RECIPES) - set(BASES))
    assert not missing, (
        f"this Flax has classes that nobody has tried: add recipes to tests/adapters/flax/zoo.py: {missing}"
    )


@pytest.fixture(scope="module", autouse=True)
def _compile_faster():
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module")
def results():
    """The keys of the cases that were run in this process."""
    return {}


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_round_trip(case, tmp_path, results):
    results[str(case)] = check(case.recipe, tmp_path)


def test_the_published_table_is_current(results):
    if f"NNX {version()}\n" not in PAGE.read_text():
        pytest.skip("the published table is of another version of Flax")
    if not all(str(case) in results for case in cases()):
        pytest.skip("not all cases were run here")
    assert PAGE.read_text() == table(results), "run: python -m tests.adapters.flax.table > docs/flax_coverage.md"
