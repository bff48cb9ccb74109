"""The program of docs/torch.md under torchrun."""

import os
import re
import subprocess
import sys

import pytest

import milepost
from tests.several.programs import ROOT

pytest.importorskip("torch", reason="PyTorch is not installed")

PAGE = (ROOT / "docs" / "torch.md").read_text()
PROGRAM = re.findall(r"```python\n(import torch\n.*?)```", PAGE, re.DOTALL)[0]


def torchrun(directory, processes, steps=6):
    """Runs the program up to a step; returns the losses by step."""
    program = directory / "train.py"
    program.write_text(PROGRAM.replace("checkpoint.step), 6)", f"checkpoint.step), {steps})"))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    settings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [*command, "train.py"], cwd=directory, capture_output=True, text=True, env=settings, timeout=600, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    lines = [line.split() for line in ended.stdout.splitlines() if re.fullmatch(r"\d+ [\d.e-]+", line)]
    return {int(step): float(loss) for step, loss in lines}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def losses(directory):
    """The losses of a run of four processes that ends after four steps, of one that goes on, and of two processes that do."""
    first = torchrun(directory, 4, steps=4)
    again = torchrun(directory, 4)
    return first, again, torchrun(directory, 2, steps=8)


def test_the_program_of_the_page_goes_on_where_it_ended(losses):
    assert [list(each) for each in losses] == [[0, 1, 2, 3], [4, 5], [6, 7]]


def test_its_checkpoint_is_read_without_other_processes(losses, directory):
    path = milepost.latest_checkpoint(directory / "run" / "checkpoints")
    shapes = {key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"): shape for key, shape in milepost.list_variables(path)}
    assert shapes["model/0/weight"] == [256, 64]
    assert shapes["model/0/weight/.OPTIMIZER_SLOT/optimizer/exp_avg"] == [256, 64]
    assert milepost.load_variable(path, "step") == 8
