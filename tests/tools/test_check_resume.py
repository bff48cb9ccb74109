"""`milepost check-resume` kills real programs, and says what differs from their undisturbed runs."""

import importlib.util
import json
import subprocess
import sys

import pytest

from milepost.tools.cli import main

TRAIN = """
import os, sys, time
import milepost
import numpy as np

directory = sys.argv[1] if len(sys.argv) > 1 else "./run"
noise = np.random.default_rng(0)
parts = {} if os.environ.get("LACKING") else {"noise": noise}
state = milepost.Checkpoint(weights=np.zeros(3), step=0, **parts)
with milepost.CheckpointManager(state, directory, max_to_keep=3) as manager:
    if not os.environ.get("NEVER_RESTORING"):
        manager.restore_or_initialize()
    while state.step < 12:
        state.weights += noise.normal(size=3)
        state.step += 1
        print(f"step {state.step} sum {state.weights.sum()!r}")
        if os.environ.get("TIMES"):
            print(f"took {time.time()} seconds")
        if state.step % 3 == 0:
            manager.save(state.step)
print("saved in", os.path.abspath(directory))
"""
FIT = """
import keras
import milepost.keras
import numpy as np

keras.utils.set_random_seed(0)
x = np.random.normal(size=(40, 3)).astype("float32")
model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mse", run_eagerly=True)
checkpoints = milepost.keras.CheckpointCallback("./run", max_to_keep=3, every_steps=3, every_epochs=None)
log = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs["loss"]))
data = checkpoints.resumable(x, x.sum(axis=1, keepdims=True), batch_size=8, seed=0)
model.fit(data, epochs=3, verbose=0, callbacks=[checkpoints, log])
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """The words that run the program, in the directory where it is."""
    (tmp_path / "home").mkdir()
    (tmp_path / "temporary").mkdir()
    (tmp_path / "home" / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return ["--", sys.executable, "train.py"]


def checked(capsys, *words, status):
    assert main(["check-resume", *words]) == status
    return capsys.readouterr()


def test_a_program_that_resumes_is_the_same_and_leaves_nothing(program, tmp_path, capsys):
    text = checked(capsys, *program, status=0).out
    assert text.splitlines()[0] == "killed right after it had saved run/ckpt-3, and started again"
    assert text.splitlines()[1].endswith(" s after it had saved run/ckpt-6, and started again")
    assert text.splitlines()[2:] == ["the same: 13 lines of output, and every value of the last of 4 checkpoints"]
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["train.py"]
    assert not list((tmp_path / "temporary").iterdir())


def test_what_the_checkpoint_lacks_is_named(program, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("LACKING", "1")
    captured = checked(capsys, "--kill-at", "2", *program, status=1)
    lines = captured.out.splitlines()
    assert lines[1] == "different: the program wrote another line when it was started again"
    assert lines[2].startswith("  expected: 'step 7 sum ")
    assert lines[3].startswith("  found: 'step 7 sum ")
    assert lines[4:] == [
        "what the program did not hold as at the save:",
        "  noise of train.py (Generator): one state at the save, another state after the restore; put it into the Checkpoint",
    ]
    (kept,) = (tmp_path / "temporary").iterdir()
    assert str(kept) in captured.err
    assert main(["diff", str(kept / "undisturbed/working/run"), str(kept / "killed/working/run")]) == 1


def test_json_has_the_same(program, monkeypatch, capsys):
    monkeypatch.setenv("LACKING", "1")
    found = json.loads(checked(capsys, "--json", "--kill-at", "2", *program, status=1).out)
    assert (found["same"], found["saves"], found["lines"]) == (False, 4, 13)
    assert found["killed"] == ["right after it had saved run/ckpt-6"]
    assert found["difference"]["expected"].startswith("'step 7 sum ")
    assert [each["name"] for each in found["not_as_at_the_save"]] == ["noise of train.py"]


def test_a_directory_in_the_command_is_a_new_one_in_each_run(program, tmp_path, capsys):
    assert "the same: " in checked(capsys, "--kill-at", "1", *program, "{directory}/run", status=0).out
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["train.py"]


def test_checkpoints_that_exist_are_neither_read_nor_changed(program, tmp_path, capsys):
    subprocess.run(program[1:], check=True, capture_output=True)
    before = {path.name: path.read_bytes() for path in (tmp_path / "home" / "run").iterdir()}
    assert "the last of 4 checkpoints" in checked(capsys, "--kill-at", "1", *program, status=0).out
    assert {path.name: path.read_bytes() for path in (tmp_path / "home" / "run").iterdir()} == before


def test_a_program_that_would_save_outside_is_stopped_before_it_does(program, tmp_path, capsys):
    (tmp_path / "home" / "out").mkdir()
    (tmp_path / "home" / "out" / "notes").touch()
    message = checked(capsys, "--kill-at", "1", *program, "out/run", status=3).err
    assert "nothing was saved" in message
    assert not list((tmp_path / "home" / "out").rglob("*.index"))
    assert (
        "the same: " in checked(capsys, "--directory", "out/run", "--kill-at", "1", *program, "out/run", status=0).out
    )
    assert not list((tmp_path / "home" / "out").rglob("*.index"))


def test_lines_with_times_are_ignored_only_if_asked(program, monkeypatch, capsys):
    monkeypatch.setenv("TIMES", "1")
    text = checked(capsys, "--kill-at", "1", *program, status=1).out
    assert "different: the program wrote another line before it was killed" in text
    assert "--ignore" in text
    assert "the same: " in checked(capsys, "--kill-at", "1", "--ignore", "^took", *program, status=0).out


def test_a_program_that_restores_nothing_is_found(program, monkeypatch, capsys):
    monkeypatch.setenv("NEVER_RESTORING", "1")
    text = checked(capsys, "--kill-at", "1", *program, status=1).out
    assert "different: the program failed when it was started again" in text, (
        "a manager saves over no checkpoints of others"
    )
    assert "CheckpointExistsError" in text


def test_a_program_that_fails_is_shown_with_its_last_words(program, capsys):
    text = checked(capsys, "--", sys.executable, "-c", "import milepost; raise ValueError('no data')", status=1).out
    assert "different: the program failed in the undisturbed run" in text
    assert "ValueError: no data" in text


def test_a_program_that_does_not_save_proves_nothing(program, capsys):
    text = checked(capsys, "--", sys.executable, "-c", "print('done')", status=1).out
    assert "different: the program saves no checkpoint with milepost in the undisturbed run" in text


@pytest.mark.parametrize("words", [["--kill-at", "0.5"], ["--kill-at", "x"], ["--ignore", "("], ["--timeout", "x"]])
def test_wrong_arguments_are_refused(program, words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["check-resume", *words, *program])
    assert ended.value.code == 2


def test_more_saves_than_there_are_is_an_error(program, capsys):
    assert "expected: numbers from 1 to 4" in checked(capsys, "--kill-at", "5", *program, status=3).err


def test_a_run_of_fit_is_the_same(program, tmp_path, monkeypatch, capsys):
    for module in ("keras", "jax"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    (tmp_path / "home" / "train.py").write_text(FIT)
    text = checked(capsys, "--kill-at", "2.5", *program, status=0).out
    assert "the same: 3 lines of output, and every value of the last of 5 checkpoints" in text


COUNTING = """
import milepost

count = 0
state = milepost.Checkpoint(total=0, step=0)


def train():
    global count
    count += 1
    state.total += count
    state.step += 1


manager = milepost.CheckpointManager(state, "run", max_to_keep=3)
manager.restore_or_initialize()
while state.step < 4:
    train()
    print(state.step, state.total)
    manager.save(state.step)
"""


def test_a_variable_of_the_program_that_a_function_uses_is_named_once(program, tmp_path, capsys):
    (tmp_path / "home" / "train.py").write_text(COUNTING)
    lines = checked(capsys, "--kill-at", "2", *program, status=1).out.splitlines()
    assert lines[5:] == [
        "  count of train.py: 2 at the save, 0 after the restore; keep it in the Checkpoint, or compute it from what is restored"
    ]
