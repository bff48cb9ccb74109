"""The programs of the README and of docs/start.md, ended and started again, compute what they compute undisturbed."""

import importlib.util
import os
import re
import signal
from pathlib import Path

import pytest

from tests import programs

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "start.md").read_text()
FRAMEWORKS = {
    "NumPy": [],
    "PyTorch": ["torch"],
    "JAX": ["jax", "optax"],
    "Flax": ["flax"],
    "Keras": ["keras"],
    "TensorFlow": ["tensorflow"],
}
INTERRUPTED = """
import os, signal
from milepost.manager.by_step import ByStep

own = ByStep.should_save

def should_save(self, step):
    if step == 33:
        os.kill(os.getpid(), signal.SIGTERM)
    return own(self, step)

ByStep.should_save = should_save
"""
PREEMPTED = 75


def program(name):
    return re.findall(r"```python\n(.*?)```", PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0], re.DOTALL)[0]


def interrupted(name):
    """The program, with SIGTERM in its 34th step."""
    if name != "Keras":
        return INTERRUPTED + program(name)
    # `fit()` asks no manager whether a save is due.
    code = "import os, signal\n" + program(name).replace("callbacks=[checkpoints]", "callbacks=[checkpoints, Sender()]")
    sender = "class Sender(keras.callbacks.Callback):\n    def on_train_batch_end(self, batch, logs=None):\n"
    sender += (
        "        if int(self.model.optimizer.iterations) == 33:\n            os.kill(os.getpid(), signal.SIGTERM)\n\n"
    )
    return code.replace("model = keras", sender + "model = keras", 1)


def run(code, name, directory):
    needed = ["jax"] if name == "Flax" else FRAMEWORKS[name]  # `programs` imports Flax and Optax beside it
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return programs.run(
        ["-c", code],
        imports=programs.imports(*needed),
        environment=programs.environment(),
        late={"PYTHONPATH": path},
        directory=directory,
    )


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_run_that_was_preempted_ends_as_one_that_was_not(name, tmp_path):
    for framework in FRAMEWORKS[name]:
        if importlib.util.find_spec(framework) is None:
            pytest.skip(f"{framework} is not installed")
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    disturbed.mkdir()
    undisturbed.mkdir()
    expected = run(program(name), name, undisturbed)
    assert expected.returncode == 0, expected.stderr[-3000:]
    first = run(interrupted(name), name, disturbed)
    assert first.returncode == PREEMPTED, first.stderr[-3000:]
    assert first.stdout == ""
    second = run(program(name), name, disturbed)
    assert second.returncode == 0, second.stderr[-3000:]
    assert second.stdout == expected.stdout != ""


def test_every_program_of_the_page_is_tried():
    assert re.findall(r"^## (.*)\n(?:(?!\n## )[\s\S])*?```python", PAGE, re.MULTILINE) == list(FRAMEWORKS)


def test_the_program_of_the_readme_goes_on_after_it_was_killed(tmp_path):
    program = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    step = "    state.step += 1\n"
    assert step in program
    killed = program.replace(step, f"{step}    if state.step == 55: os.kill(os.getpid(), signal.SIGKILL)\n")
    assert run("import os, signal\n" + killed, "NumPy", tmp_path).returncode == -signal.SIGKILL
    # the built-in sum() of Python 3.12 and later is more exact than one addition after the other
    begun = (
        program.replace("while", "print(state.step)\nwhile", 1)
        + "expected = 0.0\nfor _ in range(100):\n    expected += 0.1\nprint(state.step, expected == state.weights[0])"
    )
    done = run(begun, "NumPy", tmp_path)
    saved = [f"saved: ./run/ckpt-{step}" for step in range(60, 101, 10)]
    assert done.stdout.splitlines() == ["restored: ./run/ckpt-50", "50", *saved, "100 True"], done.stderr[-3000:]
