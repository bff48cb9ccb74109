"""The pictures of graphs in docs/images are those that their program draws."""

import os
import pathlib
import shutil
import subprocess
import sys

IMAGES = pathlib.Path(__file__).parents[2] / "docs" / "images"
PICTURES = ["partial_checkpoint.svg", "whole_checkpoint.svg"]


def test_the_program_draws_the_pictures_anew(tmp_path):
    shutil.copy(IMAGES / "generate.py", tmp_path)
    for name in PICTURES:
        (tmp_path / name).write_text("old")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, tmp_path / "generate.py"], env=environment, check=True, capture_output=True)
    for name in PICTURES:
        assert (tmp_path / name).read_text() == (IMAGES / name).read_text()
