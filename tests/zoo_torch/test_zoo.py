"""Every public module, optimizer and scheduler of PyTorch round-trips."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.once import computed_once
from tests.zoo_torch.checks_modules import NOTHING, REFUSED
from tests.zoo_torch.namespaces import cases, run_all, without_recipe
from tests.zoo_torch.table import table, version

PAGE = Path(__file__).parents[2] / "docs" / "torch_coverage.md"
CASES = list(cases())


@pytest.fixture(scope="session")
def zoo(tmp_path_factory):
    """The results of all cases."""
    return computed_once(tmp_path_factory, "zoo_torch", run_all)


def test_every_public_class_has_a_recipe():
    missing = without_recipe()
    assert not missing, f"this PyTorch has classes that nobody has tried: add recipes to tests/zoo_torch for {missing}"


def test_no_two_cases_have_one_name():
    assert len({str(case) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_round_trip(zoo, case):
    result = zoo[str(case)]
    failed = [
        f"{stage}: {result[stage]}"
        for stage in case.stages
        if isinstance(result[stage], str) and result[stage] != NOTHING and not result[stage].startswith(REFUSED)
    ]
    assert not failed, "\n".join(failed)


def test_the_published_table_is_current(zoo):
    if f"PyTorch {version()}\n" not in PAGE.read_text():
        pytest.skip("the published table is of another version of PyTorch")
    assert PAGE.read_text() == table(zoo), "run: python -m tests.zoo_torch.table > docs/torch_coverage.md"
