"""Which checkpoint a path of a SavedModel means."""

import pytest

from milepost.series.saved_model import checkpoint_of
from milepost.storage import LocalStorage


@pytest.mark.parametrize("program", ["saved_model.pb", "saved_model.pbtxt"])
def test_a_directory_with_a_program_means_its_variables(tmp_path, program):
    (tmp_path / "variables").mkdir()
    (tmp_path / "variables" / "variables.index").touch()
    assert checkpoint_of(LocalStorage(), str(tmp_path)) == str(tmp_path)
    (tmp_path / program).touch()
    assert checkpoint_of(LocalStorage(), str(tmp_path)) == str(tmp_path / "variables" / "variables")
