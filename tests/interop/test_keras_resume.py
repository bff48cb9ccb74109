"""A training that is killed and resumed, again and again, has the losses of one that never was, bit for bit."""

import importlib.util
import signal
import subprocess

import pytest

from tests import programs
from tests.interop.training import STEPS

# Those on one backend follow each other, and PyTorch's the last runs of `tests/callbacks`: they share a process that stands by.
KINDS = {
    "keras on tensorflow": ("keras", "tensorflow"),
    "keras in a tf.function": ("tf_function", "tensorflow"),
    "tf_keras in a tf.function": ("tf_keras", "tensorflow"),
    "tf.Module": ("module", "tensorflow"),
    "keras on torch": ("keras", "torch"),
    "keras on jax": ("keras", "jax"),
}
PACKAGES = {"keras": "keras", "tf_function": "keras", "tf_keras": "tf_keras", "module": "tensorflow"}


def skip_without_packages(kind, backend):
    needed = PACKAGES[kind]
    for package in (needed, backend):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if needed == "keras":
        pytest.importorskip("keras", minversion="3", reason="Keras 2 is tested as tf_keras")


class Training:
    """Runs `training.py` in processes of their own, on one directory."""

    def __init__(self, kind, directory):
        self.kind, self.backend = KINDS[kind]
        self.directory = directory

    def run(self, *options, kill_after=None, killed=False, hash_seed=1):
        """Runs one process, and kills it when it reports the step ``kill_after``.

        Returns:
            The step that it started from, and the losses that it reported, in hexadecimal.
        """
        command = ["-m", "tests.interop.training", self.kind, str(self.directory), *options]
        losses, errors = {}, self.directory.with_suffix(".err")
        with (
            errors.open("w") as stderr,
            programs.start(
                command,
                imports=programs.imports(PACKAGES[self.kind], self.backend),
                environment=programs.environment(self.backend, hash_seed),
                stdout=subprocess.PIPE,
                stderr=stderr,
            ) as process,
        ):
            start = process.stdout.readline()
            for line in process.stdout:
                if not line.endswith("\n"):
                    break  # it was killed while it wrote this
                step, loss = line.split()
                losses[int(step)] = loss
                if int(step) == kill_after:
                    process.send_signal(signal.SIGKILL)
        expected = -signal.SIGKILL if killed or kill_after else 0
        assert process.returncode == expected, errors.read_text()[-4000:]
        return int(start), losses


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    skip_without_packages(*KINDS[request.param])
    return request.param


@pytest.fixture(scope="module")
def undisturbed(kind, tmp_path_factory):
    _, losses = Training(kind, tmp_path_factory.mktemp("undisturbed") / "ckpts").run()
    assert list(losses) == list(range(1, STEPS + 1))
    return losses


@pytest.fixture(scope="module")
def interrupted(kind, tmp_path_factory):
    """Starts and losses of four processes. All but the first get another seed, which must not matter."""
    training = Training(kind, tmp_path_factory.mktemp("interrupted") / "ckpts")
    return [
        training.run(kill_after=51),
        # Saves after every step, and dies before it renames the index of the last checkpoint, which would commit it.
        training.run("--seed", "2", "--every", "1", "--kill-in-save", "57", "--rename", "2", killed=True),
        training.run("--seed", "3", "--save-and-die", killed=True),
        training.run("--seed", "4", hash_seed=2),
    ]


def test_it_resumes_exactly_in_a_fresh_process(interrupted, undisturbed):
    start, losses = interrupted[1]
    assert start == 50
    assert list(losses) == list(range(51, 58))
    assert_equal_where_both_are(losses, undisturbed)


def test_killed_in_a_save_it_resumes_from_the_one_before(interrupted):
    assert interrupted[2] == (56, {})


def test_it_resumes_exactly_a_second_time_from_what_a_restore_alone_has_saved(interrupted, undisturbed):
    start, losses = interrupted[3]
    assert start == 56
    assert list(losses) == list(range(57, STEPS + 1))
    assert_equal_where_both_are(losses, undisturbed)


def test_the_losses_of_all_processes_together_are_those_of_one(interrupted, undisturbed):
    together = {}
    for _, losses in interrupted:
        together.update(losses)
    assert together == undisturbed


def assert_equal_where_both_are(losses, undisturbed):
    assert losses == {step: undisturbed[step] for step in losses}
