"""Running the guide's scripts, and reading what they print."""

import importlib.util
import pathlib
import re

from tests import programs

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
KEPT = "['./tf_ckpts/ckpt-8', './tf_ckpts/ckpt-9', './tf_ckpts/ckpt-10']"
FILES = "checkpoint " + " ".join(f"ckpt-{n}{end}" for n in (10, 8, 9) for end in (".data-00000-of-00001", ".index"))


def run(script, directory, *frameworks, **environment):
    """What the script prints, line by line.

    Args:
        script: The script.
        directory: Its only argument.
        frameworks: What it imports.
        environment: What differs from the environment of the tests.
    """
    done = programs.run(
        [script, directory],
        imports=programs.imports(*frameworks),
        environment=programs.environment(**environment),
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
