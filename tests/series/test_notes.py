"""The temporary files of saves."""

from milepost.series.notes import Temporary, temporaries
from milepost.storage import LocalStorage


def test_a_directory_of_such_a_name_is_none(tmp_path):
    file, folder = (Temporary(str(tmp_path / name), "0123456789abcdef") for name in ("checkpoint", "other"))
    (tmp_path / file.path).touch()
    (tmp_path / folder.path).mkdir()
    assert temporaries(LocalStorage(), str(tmp_path)) == [file]
