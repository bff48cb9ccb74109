"""`milepost rm` removes checkpoints that are named, whole or damaged; `milepost pin` and `unpin` say which may be removed."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Variable, get_checkpoint_state
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools.cli import main
from tests.tools.commands import contents, damage, data_of, json_of, output_of, series, truncate


@pytest.fixture
def paths(tmp_path):
    return series(tmp_path, [0.3, 0.2, 0.1])


def listed(directory):
    state = get_checkpoint_state(directory)
    return [] if state is None else list(state.all_model_checkpoint_paths)


def files_of(prefix):
    directory, name = os.path.split(prefix)
    return [each for each in os.listdir(directory) if each.startswith(f"{name}.")]


def test_files_and_entry_go(paths, tmp_path, capsys):
    size = os.path.getsize(paths[0] + ".index") + os.path.getsize(data_of(paths[0]))
    found = json_of(capsys, "rm", paths[0])
    assert (found["bytes_freed"], found["removed"][0]["path"]) == (size, paths[0])
    assert (files_of(paths[0]), listed(tmp_path)) == ([], paths[1:])


def test_the_latest_may_go_and_the_one_before_it_is_said(paths, tmp_path, capsys):
    assert output_of(capsys, "rm", paths[2]).out.splitlines()[1] == f"latest checkpoint: {paths[1]}"
    assert get_checkpoint_state(tmp_path).model_checkpoint_path == paths[1]


def test_that_none_is_left_is_said(paths, tmp_path, capsys):
    assert "starts anew" in output_of(capsys, "rm", *paths).err
    assert sorted(os.listdir(tmp_path)) == []


def test_a_dry_run_says_the_same_and_changes_nothing(paths, tmp_path, capsys):
    before = contents(tmp_path)
    planned = json_of(capsys, "rm", *paths[1:], "--dry-run")
    assert contents(tmp_path) == before
    assert json_of(capsys, "rm", *paths[1:]) | {"dry_run": True} == planned
    assert planned["latest"] == {str(tmp_path): paths[0]}


@pytest.mark.parametrize("break_it", [damage, truncate, lambda path: os.truncate(path + ".index", 20)])
def test_a_damaged_one_goes(paths, tmp_path, capsys, break_it):
    break_it(paths[1])
    output_of(capsys, "rm", paths[1])
    assert (files_of(paths[1]), listed(tmp_path)) == ([], [paths[0], paths[2]])


def test_data_without_an_index_goes(paths, tmp_path, capsys):
    os.remove(paths[1] + ".index")
    output_of(capsys, "rm", paths[1])
    assert (files_of(paths[1]), listed(tmp_path)) == ([], [paths[0], paths[2]])


def test_the_entry_of_a_missing_one_goes(paths, tmp_path, capsys):
    os.remove(paths[1] + ".index")
    os.remove(data_of(paths[1]))
    output_of(capsys, "rm", paths[1])
    assert listed(tmp_path) == [paths[0], paths[2]]


def test_one_may_be_named_by_its_files(paths, tmp_path, capsys):
    assert len(json_of(capsys, "rm", paths[0] + ".index", data_of(paths[0]))["removed"]) == 1
    assert listed(tmp_path) == paths[1:]


def test_names_may_be_relative_to_the_current_directory(paths, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert output_of(capsys, "rm", "ckpt-10").out.startswith("removed: ckpt-10, ")
    assert listed(tmp_path) == paths[1:]


def test_a_path_may_have_a_slash_more(paths, tmp_path, capsys):
    output_of(capsys, "rm", f"{tmp_path}//ckpt-10")
    assert listed(tmp_path) == paths[1:]


def test_the_state_file_may_be_in_the_directory_above(tmp_path, capsys):
    manager = CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path, None, checkpoint_name="sub/ckpt")
    first, second = manager.save(), manager.save()
    output_of(capsys, "rm", first)
    assert listed(tmp_path) == [second]


def test_a_pinned_one_is_refused_and_no_other_is_removed(paths, tmp_path, capsys):
    output_of(capsys, "pin", paths[1])
    before = contents(tmp_path)
    error = output_of(capsys, "rm", *paths, status=3).err
    assert "pinned" in error
    assert "pass --pinned" in error
    assert contents(tmp_path) == before


def test_a_pinned_one_goes_if_asked(paths, tmp_path, capsys):
    output_of(capsys, "pin", paths[1])
    output_of(capsys, "rm", paths[1], "--pinned")
    assert (files_of(paths[1]), listed(tmp_path)) == ([], [paths[0], paths[2]])


def test_a_pin_that_was_left_alone_can_be_taken_away(paths, tmp_path, capsys):
    output_of(capsys, "pin", paths[1])
    os.remove(paths[1] + ".index")
    os.remove(data_of(paths[1]))
    assert output_of(capsys, "unpin", paths[1]).out == f"unpinned: {paths[1]}\n"
    assert files_of(paths[1]) == []


def test_pins_are_those_of_managers(paths, tmp_path, capsys):
    manager = CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path, None)
    assert output_of(capsys, "pin", paths[0]).out == f"pinned: {paths[0]}\n"
    assert manager.pinned == [10]
    assert output_of(capsys, "pin", paths[0]).out == f"pinned already: {paths[0]}\n"
    output_of(capsys, "unpin", paths[0])
    assert manager.pinned == []
    assert output_of(capsys, "unpin", paths[0]).out == f"was not pinned: {paths[0]}\n"


def test_a_pin_holds_against_a_manager_that_runs(tmp_path, capsys):
    manager = CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path, max_to_keep=1)
    first = manager.save()
    output_of(capsys, "pin", first)
    second = manager.save()
    third = manager.save()
    assert (os.path.exists(first + ".index"), os.path.exists(second + ".index")) == (True, False)
    assert os.path.exists(third + ".index")


def test_a_manager_that_runs_goes_on(tmp_path, capsys):
    manager = CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path, max_to_keep=3)
    first, second = manager.save(), manager.save()
    output_of(capsys, "rm", second)
    third = manager.save()
    assert (manager.steps, listed(tmp_path)) == ([1, 3], [first, third])


@pytest.mark.parametrize("command", ["rm", "pin", "unpin"])
def test_a_directory_is_refused(paths, tmp_path, capsys, command):
    error = output_of(capsys, command, tmp_path, status=3).err
    assert "this is a directory" in error
    assert paths[2] in error
    assert len(listed(tmp_path)) == 3


@pytest.mark.parametrize("command", ["rm", "pin", "unpin"])
def test_a_file_of_another_library_is_refused(tmp_path, capsys, command):
    (tmp_path / "model.safetensors").write_bytes(b"x")
    assert "milepost and TensorFlow" in output_of(capsys, command, tmp_path / "model.safetensors", status=3).err
    assert (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize("command", ["rm", "pin", "unpin"])
def test_what_is_not_there_is_an_error(paths, tmp_path, capsys, command):
    assert "no such checkpoint" in output_of(capsys, command, tmp_path / "ckpt-99", status=3).err


def test_nothing_goes_beside_a_malformed_state_file(paths, tmp_path, capsys):
    (tmp_path / "checkpoint").write_text("damaged")
    assert "milepost repair" in output_of(capsys, "rm", paths[0], status=3).err
    assert len(files_of(paths[0])) == 2


def test_a_checkpoint_that_is_saved_now_is_refused(paths, tmp_path, capsys):
    claim = f"{paths[1]}.index.milepost-0123456789abcdef-of-00001.tmp"
    with DEFAULT_STORAGE.create(claim):
        assert "saves this checkpoint now" in output_of(capsys, "rm", paths[1], status=3).err
        assert len(listed(tmp_path)) == 3
        assert "a program saves to the directory" in output_of(capsys, "rm", paths[0]).err
    assert listed(tmp_path) == paths[1:]


READS = """
import sys
import milepost
reader = milepost.load_checkpoint(sys.argv[1])
reader.get_tensor("save_counter")
print("open", flush=True)
sys.stdin.read()
print(float(reader.get_tensor("net/w").sum()))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux says which files a process has open")
def test_a_program_that_has_it_open_is_said_and_reads_on(paths, capsys):
    command = [sys.executable, "-c", READS, paths[0]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "open\n"
        error = output_of(capsys, "rm", paths[0]).err
        assert re.search(rf"in use: process {program.pid} \(.+\) has {re.escape(paths[0])} open", error)
        assert program.communicate("")[0] == "6.0\n"


KILLED = """
import os, sys
from milepost.storage import LocalStorage
from milepost.tools.cli import main

step, count = sys.argv[1], 0

def counted(function):
    def call(*arguments):
        global count
        if count == int(step):
            os._exit(9)
        count += 1
        return function(*arguments)
    return call

for name in ("create", "remove", "rename"):
    setattr(LocalStorage, name, counted(getattr(LocalStorage, name)))
main(["rm", sys.argv[2]])
"""


def test_a_kill_at_any_moment_leaves_what_the_next_manager_puts_right(tmp_path):
    """Either the removal had not begun, and nothing is missing; or it is completed."""
    series(tmp_path / "first", [0.3, 0.2, 0.1])
    for step in range(20):
        directory = tmp_path / str(step)
        shutil.copytree(tmp_path / "first", directory)
        done = subprocess.run([sys.executable, "-c", KILLED, str(step), directory / "ckpt-10"], check=False)
        steps = CheckpointManager(Checkpoint(v=Variable(1.0)), directory, None).steps
        assert steps in ([10, 20, 30], [20, 30])
        assert len(files_of(directory / "ckpt-10")) == (2 if 10 in steps else 0)
        if done.returncode == 0:
            break
    assert step > 3


def test_what_incremental_saves_share_stays(tmp_path, capsys):
    v = Variable(1.0)
    manager = CheckpointManager(Checkpoint(v=v), tmp_path, None, options=CheckpointOptions(incremental=True))
    first, second = manager.save(), manager.save()
    output_of(capsys, "rm", first)
    assert main(["verify", second]) == 0
