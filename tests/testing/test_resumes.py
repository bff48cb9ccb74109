"""`assert_resumes` passes trainings that resume exactly, and names what the checkpoints of others lack."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from milepost import ArgumentError, MilepostWarning, UnmatchedError
from milepost.testing import assert_resumes
from tests.testing import resuming
from tests.testing.resuming import STEPS

PAGE = Path(__file__).parents[2] / "docs" / "check_resume.md"
NEEDED = {
    "numpy": [],
    "torch": ["torch"],
    "jax": ["jax", "optax"],
    "nnx": ["flax", "jax"],
    "keras": ["keras"],
    "tf_keras": ["tf_keras"],
}
LACKING = {
    "numpy_lacking": [
        r"the global random state of python: one state at the save, another state after the restore; put milepost.RandomState\(\)",
        r"NumPyRun\.noise \(Generator\): one state at the save, another state after the restore; put it into the Checkpoint",
        r"NumPyRun\.average \(dict\): \['weights'\] = one float64\[3\] at the save",
        r"NumPyRun\.count: 4 at the save, 0 after the restore; keep it in the Checkpoint",
        r"NumPyRun\.position: 4 at the save, 0 after the restore",
    ],
    "torch_lacking": [
        r"the global random state of torch \(cpu\): one state",
        r"noise in torch_run\(\) of resuming\.py \(Generator\): one state",
        r"schedule in torch_run\(\) of resuming\.py \(ExponentialLR\): last_epoch = 4, .* last_epoch = 0, ",
        r"average in torch_run\(\) of resuming\.py \(AveragedModel\): n_averaged = 4, module\.0\.weight = one float32\[4,3\]",
        r"the position in data in torch_run\(\) of resuming\.py \(_SingleProcessDataLoaderIter\): _num_yielded = 6 at the save, "
        r"_num_yielded = 2 after the restore; save the position in the data",
    ],
    "jax_lacking": [
        r"key in jax_run\(\) of resuming\.py \(PRNGKeyArray\): one uint32\[2\] at the save",
        r"average in jax_run\(\) of resuming\.py \(dict\): \['w'\] = one float32\[3\]",
    ],
    "nnx_lacking": [r"streams in nnx_run\(\) of resuming\.py \(Rngs\): data\.count = 4 at the save, data\.count = 0"],
    "keras_lacking": [
        r"the global random state of numpy: one state",
        r"noise in keras_run\(\) of resuming\.py \(Generator\): one state",
        r"rate in keras_run\(\) of resuming\.py: \{'factor': 0\.0625\} at the save, \{'factor': 1\.0\} after the restore",
    ],
}


@pytest.fixture(autouse=True)
def _backend(monkeypatch):
    """A process with TensorFlow takes long to start."""
    if importlib.util.find_spec("jax") is not None:
        monkeypatch.setenv("KERAS_BACKEND", "jax")


def needs(name):
    for module in NEEDED[name.rpartition("_")[0]]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


def message_of(run, **options):
    with pytest.raises(UnmatchedError) as raised:
        assert_resumes(run, **{"steps": STEPS, "kill_at": [5]} | options)
    return str(raised.value)


def reasons(message):
    return re.findall(r"^    (.*?): .* at the save, .* after the restore; ", message, re.MULTILINE)


# One program for both generations of Keras: it passes with one, and lacks something with the other, since each process takes seconds to start.
@pytest.mark.parametrize("name", [f"{framework}_whole" for framework in NEEDED if framework != "keras"])
def test_a_training_whose_checkpoint_lacks_nothing_passes(name):
    needs(name)
    assert_resumes(getattr(resuming, name), steps=STEPS, kill_at=[5])


@pytest.mark.parametrize("name", LACKING)
def test_what_the_checkpoint_lacks_is_named_and_nothing_else(name):
    needs(name)
    message = message_of(getattr(resuming, name))
    assert message.startswith("another value in step 5, after it was killed after step 5 and resumed; ")
    for pattern in LACKING[name]:
        assert re.search(pattern, message), message
    extra = {"batches_seen in nnx_run() of resuming.py"}  # it is counted, and used for nothing
    assert len([each for each in reasons(message) if each not in extra]) == len(LACKING[name]), message


def test_the_moments_of_kills_are_chosen_if_none_are_given():
    assert_resumes(resuming.numpy_whole, steps=STEPS)


def test_a_program_that_begins_anew_is_found_though_it_computes_the_same():
    message = message_of(resuming.never_restoring)
    assert message.startswith("the program began anew when it was started again, although a checkpoint had been saved")
    assert "manager.restore_or_initialize()" in message


def test_a_kill_before_the_first_save_proves_nothing():
    message = message_of(resuming.numpy_whole, kill_at=[1])
    assert message.startswith("no checkpoint was saved before the run was killed, so nothing was resumed")


def test_a_training_that_is_not_repeatable_is_not_said_to_lack_anything():
    message = message_of(resuming.not_repeatable)
    assert message.startswith("another value in step 1, before anything was killed\n")
    assert "set its seeds" in message


def test_a_value_of_the_checkpoint_that_no_step_yields_is_compared():
    message = message_of(resuming.hidden_difference)
    assert message.startswith("the last checkpoints of the two runs differ; ")
    assert "key: hidden" in message
    assert "expected: int64[] 8" in message
    assert "found: int64[] 4" in message
    assert "count in hidden_difference() of resuming.py: 4 at the save, 0 after the restore" in message


def test_equal_values_with_other_bits_are_found():
    message = message_of(resuming.other_zeros)
    assert message.startswith("the last checkpoints of the two runs have equal values with other bits")
    assert "key: zero" in message


def test_steps_that_are_left_out_are_found():
    message = message_of(resuming.leaving_out)
    assert message.startswith("the resumed run leaves out steps")
    assert "expected: step 6" in message
    assert "found: step 7" in message


def test_an_error_of_the_program_is_shown():
    message = message_of(resuming.failing_later)
    assert message.startswith("the program failed when it was started again")
    assert "RuntimeError: no such file" in message


def test_a_process_that_does_not_end_is_an_error():
    message = message_of(resuming.endless, timeout=3)
    assert message.startswith("a process of the program takes too long")


def test_a_program_that_saves_elsewhere_saves_nothing_there(tmp_path, monkeypatch):
    monkeypatch.setenv("ELSEWHERE", str(tmp_path))
    with pytest.raises(ArgumentError, match=r"would save outside of the directory of its run.*nothing was saved"):
        assert_resumes(resuming.elsewhere, steps=STEPS, kill_at=[5])
    assert not list(tmp_path.glob("*.index"))


def test_a_state_that_the_program_does_not_seed_is_not_compared_and_that_is_said():
    with pytest.warns(MilepostWarning, match="the global random state of python and numpy was not compared"):
        assert_resumes(resuming.unseeded, steps=STEPS, kill_at=[5])


def test_a_function_that_no_new_process_can_import_is_refused():
    def run(directory):
        yield 1, None

    with pytest.raises(ArgumentError, match="a new process cannot import this function") as raised:
        assert_resumes(run, steps=STEPS, kill_at=[5])
    assert "define it with def at the top of a file" in str(raised.value)


@pytest.mark.parametrize("moments", [[], [0], [STEPS], [5, 3], [3, 3]])
def test_moments_outside_of_the_run_are_refused(moments):
    with pytest.raises(ArgumentError, match="kill_at names no moments between the first step and the last"):
        assert_resumes(resuming.numpy_whole, steps=STEPS, kill_at=moments)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("without_number", "a step has no number"), ("yielding_objects", "a step yields a value that cannot be compared")],
)
def test_what_is_yielded_is_checked(name, problem):
    assert problem in message_of(getattr(resuming, name))


def test_the_example_of_the_page_passes_and_without_its_generator_fails_as_the_page_says(tmp_path):
    program = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    assert "noise=noise, " in program
    (tmp_path / "test_whole.py").write_text(program)
    (tmp_path / "test_training.py").write_text(program.replace("noise=noise, ", ""))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    said = re.findall(r"```text\n(milepost\.errors\.UnmatchedError: .*?)```", PAGE.read_text(), re.DOTALL)[0]
    shown = re.sub(r"^E +", "", done.stdout, flags=re.MULTILINE)
    assert all(line.strip() in shown for line in said.splitlines()), done.stdout
