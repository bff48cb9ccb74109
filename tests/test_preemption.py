"""The programs and scripts of docs/preemption.md and docs/start.md, ended by signals and started again until their runs are complete."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "preemption.md").read_text()
START = (ROOT / "docs" / "start.md").read_text()
PATIENCE = 240
"""Seconds after which a run counts as stuck."""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the scripts are for a POSIX shell")


def block(section, language, page=PAGE):
    return re.findall(rf"```{language}\n(.*?)```", page.split(f"\n## {section}\n")[1].split("\n## ")[0], re.DOTALL)[0]


def slowed(program, seconds):
    """The program, with steps that take a while."""
    step = "        run.step += 1\n"
    assert step in program
    return "import time\n" + program.replace(step, f"{step}        time.sleep({seconds})\n", 1)


def output_of(program, directory):
    """What a program prints that is not disturbed."""
    directory.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=directory, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def environment(directory=None):
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    if directory is not None:
        own["PATH"] = f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **own}


class Job:
    """A directory with a program, and with commands that scripts call."""

    def __init__(self, directory, program, **commands):
        self.directory = directory
        (directory / "bin").mkdir(parents=True)
        (directory / "train.py").write_text(program)
        python = sys.executable
        own = {
            "python": f'exec {python} "$@"',
            "milepost": f'exec {python} -m milepost "$@"',
            "torchrun": f'echo $$ > torchrun.pid; exec {python} -m torch.distributed.run "$@"',
        }
        for name, text in {**own, **commands}.items():
            path = directory / "bin" / name
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)

    def begin(self, script, **variables):
        """Starts a script."""
        return subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.directory,
            env={**environment(self.directory), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, script, **variables):
        """Runs a script. Returns its exit status and output."""
        return self.end(self.begin(script, **variables))

    def end(self, process):
        try:
            output, errors = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        print(errors[-3000:])
        return process.returncode, output

    def wait_for_save(self, after=""):
        """Waits for another latest checkpoint. Returns the state file."""
        state, deadline = self.directory / "run" / "checkpoint", time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            text = state.read_text() if state.exists() else ""
            if text not in ("", after):
                return text
            time.sleep(0.02)
        raise TimeoutError("nothing was saved")


PROGRAM = block("The program", "python")


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return output_of(PROGRAM, tmp_path_factory.mktemp("undisturbed") / "run")


SRUN = """
before=$(cat run/checkpoint 2>/dev/null)
"$@" &
job=$!
if [ "${SLURM_RESTART_COUNT:-0}" -lt 2 ]; then
    while [ "$(cat run/checkpoint 2>/dev/null)" = "$before" ] && kill -0 $job; do sleep 0.05; done
    kill -USR1 $job
fi
wait $job
"""
"""Sends SIGUSR1 to the first two starts of a job, once it has saved something."""


def test_slurm(tmp_path, expected):
    """A batch system that signals, and starts a job again as long as it puts itself into the queue."""
    job = Job(tmp_path / "job", slowed(PROGRAM, 0.02), srun=SRUN, scontrol="echo $2 > queue")
    queue, script, outputs = job.directory / "queue", block("Slurm", "bash"), []
    for number in range(5):
        status, output = job.run(script, SLURM_JOB_ID="77", SLURM_RESTART_COUNT=str(number))
        assert status == 0
        outputs.append(output)
        if not queue.exists():
            break
        assert queue.read_text() == "77\n"
        queue.unlink()
    assert len(outputs) == 3
    assert outputs[-1] == f"{expected}complete: the newest checkpoint is ckpt-100\n"


def test_a_loop_that_asks_whether_the_run_is_complete(tmp_path, expected):
    """The first start is ended by a signal, the second one killed."""
    job = Job(tmp_path / "job", slowed(PROGRAM, 0.05), python=f'echo $$ > python.pid; exec {sys.executable} "$@"')
    process = job.begin(block("Is the run complete?", "sh"))
    saved = job.wait_for_save()
    os.kill(int((job.directory / "python.pid").read_text()), signal.SIGTERM)
    saved = job.wait_for_save(saved)
    saved = job.wait_for_save(saved)
    os.kill(int((job.directory / "python.pid").read_text()), signal.SIGKILL)
    status, output = job.end(process)
    assert status == 0
    assert output.endswith(f"{expected}complete: the newest checkpoint is ckpt-100\n")
    assert output.count("not complete") == 3


def test_spot_machines(tmp_path, expected):
    job = Job(
        tmp_path / "job", slowed(PROGRAM, 0.1), notice="[ ! -e announced ] && [ -e run/checkpoint ] && touch announced"
    )
    script = block("Spot machines", "sh")
    assert job.run(script) == (75, "")
    assert job.run(script) == (0, expected)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_torchrun(tmp_path):
    """Two processes, which torchrun ends after SIGTERM, and which are started again."""
    program = block("torchrun", "python")
    once = "torchrun --nproc-per-node=2 train.py"
    status, undisturbed = Job(tmp_path / "undisturbed", program).run(once)
    assert status == 0
    job = Job(tmp_path / "job", slowed(program, 0.1))
    process = job.begin(block("torchrun", "sh"))
    job.wait_for_save()
    os.kill(int((job.directory / "torchrun.pid").read_text()), signal.SIGTERM)
    status, output = job.end(process)
    assert status == 0
    assert output.endswith(f"{undisturbed}complete: the newest checkpoint is ckpt-100\n")
    assert output.count("not complete") == 2


SENDING = """
import os, pathlib, signal
starts = pathlib.Path("starts")
starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
if len(starts.read_text()) == 1:
    os.kill(os.getpid(), signal.SIGTERM)  # during imports
from milepost.manager.by_step import ByStep
own = ByStep.should_save
def should_save(self, step):
    if step == 33 and len(starts.read_text()) == 2:
        os.kill(os.getpid(), signal.SIGTERM)
    return own(self, step)
ByStep.should_save = should_save
"""


def test_the_loop_of_the_first_page(tmp_path):
    """It starts a program again that was ended during its imports, and in a step, and no other."""
    program = block("NumPy", "python", START)
    loop = re.findall(r"```sh\n(.*?)```", START, re.DOTALL)[0]
    job = Job(tmp_path / "job", SENDING + program)
    status, output = job.run(loop)
    assert (status, output) == (0, output_of(program, tmp_path / "undisturbed"))
    assert (job.directory / "starts").read_text() == "xxx"
    assert Job(tmp_path / "wrong", "raise ValueError").run(loop) == (1, "")
