"""Running the guide's scripts, and reading what they print."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
KEPT = "['./tf_ckpts/ckpt-8', './tf_ckpts/ckpt-9', './tf_ckpts/ckpt-10']"
FILES = "checkpoint " + " ".join(f"ckpt-{n}{end}" for n in (10, 8, 9) for end in (".data-00000-of-00001", ".index"))


def run(script, directory, **environment):
    """What the script prints, line by line."""
    done = subprocess.run(
        [sys.executable, str(script), str(directory)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "UntrackedWarning" not in done.stderr, done.stderr[-4000:]
    return done.stdout.splitlines()


def losses(lines):
    """The printed losses by the steps printed before them."""
    text = "\n".join(lines)
    return {int(step): float(loss) for step, loss in re.findall(r"for step (\d+): \S+\nloss (\S+)", text)}


def vectors(lines):
    """The printed values of a bias or a kernel."""
    return [
        [float(number) for number in re.findall(r"-?\d+\.\d*", line)] for line in lines if re.match(r"\[+ ?-?\d", line)
    ]


def installed(package):
    return importlib.util.find_spec(package) is not None
