"""Every optimizer of Optax round-trips, and goes on as if nothing had happened."""

from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
import optax

from tests.adapters.jax.optimizers import check, names
from tests.adapters.jax.table import table

PAGE = Path(__file__).parents[3] / "docs" / "jax_coverage.md"
pytestmark = pytest.mark.filterwarnings("ignore")  # Optax's own, of arguments that will change


@pytest.fixture(scope="module")
def results():
    """The keys of the optimizers that were run in this process."""
    return {}


@pytest.mark.parametrize("name", names())
def test_round_trip(name, tmp_path, results):
    results[name] = check(name, tmp_path)


def test_the_published_table_is_current(results):
    if f"Optax {optax.__version__}\n" not in PAGE.read_text():
        pytest.skip("the published table is of another version of Optax")
    if not all(name in results for name in names()):
        pytest.skip("not all optimizers were run here")
    assert PAGE.read_text() == table(results), "run: python -m tests.adapters.jax.table > docs/jax_coverage.md"
