"""`milepost ls` lists every checkpoint of a directory, with what is known of each."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, Variable, get_checkpoint_state
from milepost.series.pins import pin
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tensorflow1 import update_checkpoint_state
from milepost.tools.cli import main
from tests.tools.commands import damage, data_of, json_of, output_of, run, series, truncate

DATA = pathlib.Path(__file__).parents[1] / "data" / "tf115"


def by_step(listed):
    return {row["step"]: row for row in listed["checkpoints"]}


def test_steps_sizes_metrics_and_marks(tmp_path, capsys):
    paths = series(tmp_path, [0.5, 0.25])
    pin(DEFAULT_STORAGE, paths[0])
    rows = by_step(json_of(capsys, "ls", tmp_path))
    assert [row["path"] for row in rows.values()] == paths
    assert [row["metrics"] for row in rows.values()] == [{"loss": 0.5}, {"loss": 0.25}]
    assert [(row["latest"], row["pinned"]) for row in rows.values()] == [(False, True), (True, False)]
    assert {row["state"] for row in rows.values()} == {"complete"}
    size = os.path.getsize(paths[0] + ".index") + os.path.getsize(data_of(paths[0]))
    assert rows[10]["bytes"] == size
    assert rows[10]["tensors"] == 4
    assert 0 <= rows[10]["age_seconds"] < 600


def test_the_table_has_a_line_for_each(tmp_path, capsys):
    series(tmp_path, [0.5, 0.25])
    head, first, second = output_of(capsys, "ls", tmp_path).out.splitlines()
    assert head.split() == ["STEP", "SIZE", "AGE", "TENSORS", "STATE", "MARKS", "METRICS", "NAME"]
    assert first.split()[0] == "10"
    assert first.endswith("loss=0.5   ckpt-10")
    assert "latest" in second


def test_steps_are_in_order_of_their_numbers(tmp_path, capsys):
    series(tmp_path, [0.0] * 11)
    assert [row["step"] for row in json_of(capsys, "ls", tmp_path)["checkpoints"]] == list(range(10, 111, 10))


def test_damaged_and_missing_ones_are_found_without_reading_data(tmp_path, capsys):
    paths = series(tmp_path, [0.5, 0.25, 0.1, 0.2])
    truncate(paths[0])
    os.remove(paths[1] + ".index")
    os.remove(data_of(paths[1]))
    damage(paths[2], "net/w")  # a value, which no listing reads
    rows = by_step(json_of(capsys, "ls", tmp_path, status=1))
    assert [row["state"] for row in rows.values()] == ["damaged", "missing", "complete", "complete"]
    assert str(data_of(paths[0])) in rows[10]["problem"]


KILLED = """
import os, sys
import milepost
from milepost.storage import LocalStorage

remove = LocalStorage.remove

def removed(self, path):
    remove(self, path)
    if path.endswith("ckpt-1.index"):
        os._exit(9)

LocalStorage.remove = removed
manager = milepost.CheckpointManager(milepost.Checkpoint(v=milepost.Variable(1.0)), sys.argv[1], max_to_keep=2)
for _ in range(3):
    manager.save()
"""


@pytest.mark.parametrize(("command", "good"), [("ls", "complete"), ("verify", "whole")])
def test_a_deletion_that_a_kill_cut_short_is_no_damage(tmp_path, capsys, command, good):
    assert subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False).returncode == 9
    found = json_of(capsys, command, tmp_path)["checkpoints"]
    assert {os.path.basename(row["path"]): row["state"] for row in found} == {
        "ckpt-1": "deleted",
        "ckpt-2": good,
        "ckpt-3": good,
    }
    assert "milepost repair" in output_of(capsys, command, tmp_path).err
    assert main(["repair", str(tmp_path)]) == 0
    capsys.readouterr()
    rows = json_of(capsys, command, tmp_path)["checkpoints"]
    assert [row["state"] for row in rows] == [good] * 2


SAVING = """
import sys
import milepost

manager = milepost.CheckpointManager(milepost.Checkpoint(v=milepost.Variable(1.0)), sys.argv[1], max_to_keep=2)
manager.restore_or_initialize()
for _ in range(300):
    manager.save()
"""


@pytest.mark.parametrize("command", ["ls", "verify"])
def test_a_manager_that_deletes_meanwhile_is_no_damage(tmp_path, capsys, command):
    milepost.CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path, max_to_keep=2).save()
    program = subprocess.Popen([sys.executable, "-c", SAVING, tmp_path])
    while program.poll() is None:
        states = {row["state"] for row in json_of(capsys, command, tmp_path)["checkpoints"]}
        assert states <= {"complete", "whole", "deleted"}
    assert program.returncode == 0


def test_a_missing_data_file_is_damage(tmp_path, capsys):
    paths = series(tmp_path, [0.5])
    os.remove(data_of(paths[0]))
    assert json_of(capsys, "ls", tmp_path, status=1)["checkpoints"][0]["state"] == "damaged"


def test_checkpoints_that_no_state_file_lists(tmp_path, capsys):
    for name in ("a", "b-2"):
        Checkpoint(v=Variable(1.0)).write(tmp_path / name)
    rows = json_of(capsys, "ls", tmp_path)["checkpoints"]
    assert [(row["step"], row["latest"], row["listed"]) for row in rows] == [(None, False, False), (2, False, False)]


def test_a_malformed_state_file_hides_no_checkpoint(tmp_path, capsys):
    series(tmp_path, [0.5])
    (tmp_path / "checkpoint").write_text("nonsense")
    listed = json_of(capsys, "ls", tmp_path, status=1)
    assert [row["step"] for row in listed["checkpoints"]] == [10]
    assert "malformed" in listed["state_file_problem"]
    assert "milepost repair" in output_of(capsys, "ls", tmp_path, status=1).err


def test_a_checkpoint_is_a_line(tmp_path, capsys):
    paths = series(tmp_path, [0.5, 0.25])
    for path in (paths[1], paths[1] + ".index"):
        (row,) = json_of(capsys, "ls", path)["checkpoints"]
        assert (row["path"], row["step"], row["latest"]) == (paths[1], 20, True)


def test_the_current_directory_is_the_default(tmp_path, capsys, monkeypatch):
    series(tmp_path, [0.5])
    monkeypatch.chdir(tmp_path)
    assert json_of(capsys, "ls")["checkpoints"][0]["step"] == 10


def test_a_directory_without_checkpoints_is_an_error(tmp_path, capsys):
    assert main(["ls", str(tmp_path)]) == 3
    assert "error: " in capsys.readouterr().err


def test_names_with_line_ends_stay_on_their_line(tmp_path):
    Checkpoint(v=Variable(1.0)).write(tmp_path / "a\nb\x1b[31m-3")
    done = run("ls", tmp_path)
    assert len(done.stdout.splitlines()) == 2
    assert "a\\nb\\x1b[31m-3" in done.stdout


def test_a_name_that_is_no_text(tmp_path):
    """Names of files are bytes; JSON has them as Python does."""
    if os.name == "nt":
        pytest.skip("names of Windows are text")
    Checkpoint(v=Variable(1.0)).write(os.fsdecode(os.fsencode(tmp_path) + b"/ckpt\xff-3"))
    assert "ckpt\\udcff-3" in run("ls", tmp_path).stdout
    assert "\\udcff" in run("ls", tmp_path, "--json").stdout


def test_a_path_of_another_directory_is_listed_as_the_state_file_has_it(tmp_path, capsys):
    path = Checkpoint(v=Variable(1.0)).write(tmp_path / "elsewhere" / "ckpt-1")
    os.mkdir(tmp_path / "run")
    update_checkpoint_state(str(tmp_path / "run"), path)
    assert get_checkpoint_state(str(tmp_path / "run")) is not None
    (row,) = json_of(capsys, "ls", tmp_path / "run")["checkpoints"]
    assert (row["path"], row["state"], row["latest"]) == (path, "complete", True)
    assert output_of(capsys, "ls", tmp_path / "run").out.splitlines()[1].endswith(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_no_checkpoint(tmp_path, capsys):
    """Who opens it would wait for ever."""
    series(tmp_path, [0.5])
    os.mkfifo(tmp_path / "a.pt")
    assert len(json_of(capsys, "ls", tmp_path)["checkpoints"]) == 1


def test_a_saved_model_with_checkpoints_of_its_training(tmp_path, capsys):
    """Both are listed, since it is not clear which is meant."""
    paths = series(tmp_path, [0.5])
    (tmp_path / "saved_model.pb").touch()
    variables = Checkpoint(v=Variable(1.0)).write(tmp_path / "variables" / "variables")
    assert [row["path"] for row in json_of(capsys, "ls", tmp_path)["checkpoints"]] == [*paths, variables]


def test_many_tensors(tmp_path, capsys):
    Checkpoint(**{f"v{number}": Variable(np.float32(number)) for number in range(5000)}).write(tmp_path / "ckpt-1")
    assert json_of(capsys, "ls", tmp_path)["checkpoints"][0]["tensors"] == 5001


@pytest.mark.parametrize("name", ["v1", "v1_sharded", "v2", "v2_sharded", "estimator"])
def test_directories_of_tensorflow_1(name, capsys):
    """Each checkpoint is listed once, and the latest is known."""
    rows = json_of(capsys, "ls", DATA / name)["checkpoints"]
    assert [row["step"] for row in rows] == ([0, 2, 4] if name == "estimator" else [None])
    assert {row["state"] for row in rows} == {"complete"}
    assert rows[-1]["latest"]


def test_values_are_not_read_and_not_called_whole(tmp_path, capsys):
    """After a repair, a checkpoint with changed bytes is one that the state file does not list. Only ``verify`` reads values."""
    paths = series(tmp_path, [0.5, 0.25])
    damage(paths[0], "net/w")
    assert main(["repair", str(tmp_path)]) == 0
    capsys.readouterr()
    rows = by_step(json_of(capsys, "ls", tmp_path))
    assert [(row["state"], row["listed"]) for row in rows.values()] == [("complete", False), ("complete", True)]
    table = output_of(capsys, "ls", tmp_path).out
    assert "whole" not in table
    assert [("not listed" in line, "latest" in line) for line in table.splitlines()[1:]] == [
        (True, False),
        (False, True),
    ]
    states = {each["path"]: each["state"] for each in json_of(capsys, "verify", tmp_path, status=1)["checkpoints"]}
    assert states == {paths[0]: "damaged", paths[1]: "whole"}


def test_a_truncated_checkpoint_that_is_not_listed_is_damaged(tmp_path, capsys):
    paths = series(tmp_path, [0.5, 0.25])
    truncate(paths[0])
    assert main(["repair", str(tmp_path)]) == 0
    capsys.readouterr()
    assert [row["state"] for row in by_step(json_of(capsys, "ls", tmp_path, status=1)).values()] == [
        "damaged",
        "complete",
    ]


def test_numbered_directories_are_in_the_order_of_their_numbers(tmp_path, capsys):
    for name in ("10", "9", "checkpoint-500", "checkpoint-60"):
        (tmp_path / name).mkdir()
        milepost.convert(
            Checkpoint(v=Variable(1.0)).write(tmp_path / "source" / "c"), tmp_path / name / "model.safetensors"
        )
    rows = json_of(capsys, "ls", tmp_path)["checkpoints"]
    assert [row["step"] for row in rows] == [9, 10, 60, 500, None], "what was converted is the last"


def test_directories_below_are_looked_into(tmp_path, capsys):
    """Everything that `show` opens with the name of a directory is listed, at most one level further down."""
    mine = series(tmp_path / "mine", [0.5])
    old = shutil.copytree(DATA / "v1", tmp_path / "tf1")
    deeper = series(tmp_path / "runs" / "a", [0.5])
    listed = json_of(capsys, "ls", tmp_path)
    paths = [row["path"] for row in listed["checkpoints"]]
    assert paths == [*mine, *(row["path"] for row in json_of(capsys, "ls", old)["checkpoints"])]
    assert [row["latest"] for row in listed["checkpoints"]] == [True, True]
    assert listed["not_searched"] == [str(tmp_path / "runs" / "a")]
    told = output_of(capsys, "ls", tmp_path).err
    assert told == f"not looked into: 1 directory further down, {tmp_path / 'runs' / 'a'}\n"
    assert [row["path"] for row in json_of(capsys, "ls", tmp_path / "runs")["checkpoints"]] == deeper


def files_of_a_trainer(directory):
    """What the trainer of Hugging Face saves at a step, as far as milepost reads it."""
    source = Checkpoint(v=Variable(1.0)).write(directory.parent / "source" / "c")
    directory.mkdir()
    for name in ("model.safetensors", "optimizer.pt"):
        milepost.convert(source, directory / name)
    (directory / "trainer_state.json").write_text("{}")
    shutil.rmtree(directory.parent / "source")


def test_files_beside_a_model_are_listed(tmp_path, capsys):
    files_of_a_trainer(tmp_path / "checkpoint-500")
    rows = json_of(capsys, "ls", tmp_path)["checkpoints"]
    assert [row["path"] for row in rows] == [
        str(tmp_path / "checkpoint-500"),
        str(tmp_path / "checkpoint-500" / "optimizer.pt"),
    ]
    os.truncate(rows[1]["path"], 200)
    assert [row["state"] for row in json_of(capsys, "ls", tmp_path, status=1)["checkpoints"]] == ["complete", "damaged"]


def test_pickled_files_are_listed_if_pytorch_wrote_them(tmp_path, capsys):
    """Accelerate saves the states of generators so."""
    source = Checkpoint(v=Variable(1.0)).write(tmp_path / "source" / "c")
    milepost.convert(source, tmp_path / "random_states_0.bin")
    os.rename(tmp_path / "random_states_0.bin", tmp_path / "random_states_0.pkl")
    (tmp_path / "words.pkl").write_bytes(b"\x80\x04N.")
    shutil.rmtree(tmp_path / "source")
    assert [row["path"] for row in json_of(capsys, "ls", tmp_path)["checkpoints"]] == [
        str(tmp_path / "random_states_0.pkl")
    ]


def test_files_beside_a_model_further_down_are_not_passed_over(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    files_of_a_trainer(step := tmp_path / "run" / "checkpoint-500")
    listed = json_of(capsys, "ls", tmp_path)
    assert [row["path"] for row in listed["checkpoints"]] == [str(step)]
    assert listed["not_searched"] == [str(step)]
    (step / "optimizer.pt").unlink()
    assert json_of(capsys, "ls", tmp_path)["not_searched"] == []


def test_a_directory_with_checkpoints_deep_below_names_the_next_ones(tmp_path, capsys):
    series(tmp_path / "runs" / "a" / "b", [0.5])
    told = output_of(capsys, "ls", tmp_path, status=3).err
    assert f"not looked into: {tmp_path / 'runs' / 'a'}" in told


def test_a_malformed_state_file_below_is_told(tmp_path, capsys):
    series(tmp_path / "a", [0.5])
    (tmp_path / "a" / "checkpoint").write_text("nonsense")
    listed = json_of(capsys, "ls", tmp_path, status=1)
    assert [row["step"] for row in listed["checkpoints"]] == [10]
    assert os.path.join("a", "checkpoint") in listed["state_file_problem"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may read every directory")
def test_a_directory_that_cannot_be_read_is_told(tmp_path, capsys):
    paths = series(tmp_path / "a", [0.5])
    (tmp_path / "closed").mkdir(mode=0)
    listed = json_of(capsys, "ls", tmp_path)
    assert [row["path"] for row in listed["checkpoints"]] == paths
    assert listed["not_searched"] == [str(tmp_path / "closed")]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may read every file")
def test_a_checkpoint_that_may_not_be_read_does_not_hide_the_others(tmp_path, capsys):
    paths = series(tmp_path, [0.5, 0.25])
    os.chmod(f"{paths[1]}.data-00000-of-00001", 0)
    for command, states in (("ls", ["complete", "not read"]), ("verify", ["not read", "whole"])):
        listed = json_of(capsys, command, tmp_path, status=3)["checkpoints"]
        assert [row["state"] for row in listed] == states


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may read every file")
def test_prune_deletes_nothing_if_a_checkpoint_may_not_be_read(tmp_path, capsys):
    paths = series(tmp_path, [0.5, 0.25])
    os.chmod(f"{paths[1]}.data-00000-of-00001", 0)
    told = output_of(capsys, "prune", tmp_path, "--keep", "1", "--delete", status=3).err
    assert "change the permissions" in told
    assert all(os.path.exists(f"{path}.index") for path in paths)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may read every directory")
def test_the_error_for_a_closed_directory_names_it(tmp_path, capsys):
    (tmp_path / "closed").mkdir(mode=0)
    told = output_of(capsys, "ls", tmp_path / "closed", status=3).err
    assert f"file: {tmp_path / 'closed'}\n" in told


def test_prune_stays_in_its_directory(tmp_path, capsys):
    """What is listed below a directory is not a part of its series."""
    series(tmp_path, [0.5, 0.25])
    below = series(tmp_path / "below", [0.5, 0.25])
    assert main(["prune", str(tmp_path), "--keep", "1", "--delete"]) == 0
    capsys.readouterr()
    assert [path for path in below if os.path.exists(path + ".index")] == below


@pytest.mark.parametrize("damaged", ["index", "data"])
def test_a_damaged_checkpoint_has_all_its_bytes(tmp_path, capsys, damaged):
    """However it is named, and whatever of it is damaged."""
    (path,) = series(tmp_path / "run", [0.5])
    if damaged == "index":
        os.truncate(path + ".index", 10)
    else:
        truncate(path)
    size = os.path.getsize(path + ".index") + os.path.getsize(data_of(path))
    for name in (path, tmp_path / "run", tmp_path):
        (row,) = json_of(capsys, "ls", name, status=1)["checkpoints"]
        assert (row["state"], row["bytes"]) == ("damaged", size)


@pytest.mark.filterwarnings("ignore:.*not finite")
def test_a_checkpoint_that_is_not_finite_is_marked(tmp_path, capsys):
    """`show` names the values."""
    checkpoint = Checkpoint(v=Variable(float("nan")))
    path = CheckpointManager(checkpoint, tmp_path, 1, nonfinite="keep_last_finite").save(10)
    assert "latest, not finite" in output_of(capsys, "ls", tmp_path).out
    assert json_of(capsys, "ls", tmp_path)["checkpoints"][0]["nonfinite"] == ["v"]
    assert "not finite: NaN or infinity is in v" in output_of(capsys, "show", path).out
    assert json_of(capsys, "show", path)["nonfinite"] == ["v"]


def test_a_metric_that_is_nearly_whole_is_not_rounded_to_it(tmp_path, capsys):
    series(tmp_path, [0.9999995, 1.0, 1 / 3])
    lines = output_of(capsys, "ls", tmp_path).out.splitlines()
    assert [re.search(r"loss=(\S+)", each)[1] for each in lines[1:]] == ["0.9999995", "1", "0.333333"]


def steps_of(capsys, *arguments):
    return [row["step"] for row in json_of(capsys, "ls", *arguments)["checkpoints"]]


def test_the_listing_can_be_sorted(tmp_path, capsys):
    paths = series(tmp_path, [0.5, 0.1, 0.3])
    for step, path in enumerate(paths):
        os.truncate(path + ".data-00000-of-00001", os.path.getsize(path + ".data-00000-of-00001") + 10 - step)
    assert steps_of(capsys, tmp_path, "--sort", "loss") == [20, 30, 10]
    assert steps_of(capsys, tmp_path, "--sort", "loss", "--reverse") == [10, 30, 20]
    assert steps_of(capsys, tmp_path, "--sort", "step", "-r") == [30, 20, 10]
    assert steps_of(capsys, tmp_path, "--sort", "size") == [30, 20, 10]
    assert steps_of(capsys, tmp_path, "--sort", "age") == [30, 20, 10]


def test_what_has_no_value_comes_last(tmp_path, capsys):
    series(tmp_path, [0.5, 0.1])
    manager = CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path / "other", None)
    manager.save(5)
    assert steps_of(capsys, tmp_path, "--sort", "loss") == [20, 10, 5]
    assert steps_of(capsys, tmp_path, "--sort", "loss", "--reverse") == [10, 20, 5]


def test_metrics_in_dicts_have_the_names_that_are_printed(tmp_path, capsys):
    manager = CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path, None)
    for step, loss in ((10, 0.2), (20, 0.1)):
        manager.save(step, metrics={"eval": {"loss": loss}})
    assert steps_of(capsys, tmp_path, "--sort", "eval/loss") == [20, 10]
    rows = by_step(json_of(capsys, "ls", tmp_path, "--best", "eval/loss:max"))
    assert [rows[10]["best"], rows[20]["best"]] == [["best"], []]


@pytest.mark.parametrize("option", [("--sort", "lss"), ("--best", "lss:min")])
def test_a_metric_that_no_checkpoint_has_is_an_error(tmp_path, capsys, option):
    series(tmp_path, [0.5])
    assert "did you mean 'loss'?" in output_of(capsys, "ls", tmp_path, *option, status=3).err


@pytest.mark.parametrize("option", [("--sort", "loss"), ("--best", "loss:min")])
def test_a_metric_is_an_error_where_there_are_none(tmp_path, capsys, option):
    CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path, None).save()
    assert "no checkpoint here has metrics" in output_of(capsys, "ls", tmp_path, *option, status=3).err


def test_the_best_of_each_series_is_marked(tmp_path, capsys):
    series(tmp_path / "a", [0.5, 0.1])
    series(tmp_path / "b", [0.7, 0.9])
    rows = json_of(capsys, "ls", tmp_path, "--best", "loss:min")["checkpoints"]
    assert [os.path.relpath(row["path"], tmp_path) for row in rows if row["best"]] == ["a/ckpt-20", "b/ckpt-10"]
    assert "latest, best" in output_of(capsys, "ls", tmp_path, "--best", "loss:min").out
    two = json_of(capsys, "ls", tmp_path / "a", "--best", "loss:min:2", "--best", "loss:max")["checkpoints"]
    assert [row["best"] for row in two] == [["best 2 by loss", "best by loss"], ["best by loss"]]


def test_all_directories_below_are_listed_if_asked(tmp_path, capsys):
    series(tmp_path / "a" / "b" / "c", [0.5])
    series(tmp_path / "d", [0.5])
    os.symlink(tmp_path, tmp_path / "a" / "loop")
    assert len(json_of(capsys, "ls", tmp_path)["checkpoints"]) == 1
    found = json_of(capsys, "ls", tmp_path, "-R")
    assert [os.path.relpath(row["path"], tmp_path) for row in found["checkpoints"]] == ["a/b/c/ckpt-10", "d/ckpt-10"]
    assert found["not_searched"] == []
    assert len(json_of(capsys, "verify", tmp_path, "-R")["checkpoints"]) == 2


def test_data_without_an_index_is_listed_with_its_bytes(tmp_path, capsys):
    series(tmp_path, [0.5])
    (tmp_path / "ckpt-20.data-00000-of-00001").write_bytes(bytes(1000))
    row = by_step(json_of(capsys, "ls", tmp_path))[20]
    assert (row["state"], row["bytes"]) == ("no index", 1000)
    assert "--remove-data" in output_of(capsys, "ls", tmp_path).err
    assert [each["state"] for each in json_of(capsys, "verify", tmp_path)["checkpoints"]] == ["whole"]


def test_data_that_is_saved_now_is_not_listed(tmp_path, capsys):
    series(tmp_path, [0.5])
    (tmp_path / "ckpt-20.data-00000-of-00001").touch()
    with DEFAULT_STORAGE.create(str(tmp_path / "ckpt-20.index.milepost-0123456789abcdef-of-00001.tmp")):
        assert steps_of(capsys, tmp_path) == [10]


def test_a_directory_with_nothing_but_data_is_listed(tmp_path, capsys):
    (tmp_path / "ckpt-20.data-00000-of-00001").write_bytes(bytes(1000))
    assert steps_of(capsys, tmp_path) == [20]
