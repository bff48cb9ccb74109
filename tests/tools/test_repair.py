"""`milepost repair` puts a directory in order, and says before what it would do."""

import os
import subprocess
import sys

import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, Variable, get_checkpoint_state, latest_checkpoint
from milepost.tools.cli import main
from tests.tools.commands import contents, damage, data_of, json_of, output_of, run, series, truncate

TOKEN = "0123456789abcdef"


@pytest.fixture
def paths(tmp_path):
    return series(tmp_path, [0.3, 0.2, 0.1])


def repaired(directory, capsys):
    """What a dry run says; then that of the repair, which must be the same; then that nothing is left to do."""
    before = contents(directory)
    planned = json_of(capsys, "repair", directory, "--dry-run", status=1)
    assert contents(directory) == before
    done = json_of(capsys, "repair", directory)
    assert done | {"dry_run": True} == planned
    removed = set(before) - set(contents(directory))
    assert {os.path.basename(path) for path in done["removed"]} == removed - {"checkpoint"}
    assert not json_of(capsys, "repair", directory)["needed"]
    return done


def test_nothing_is_to_be_repaired(paths, tmp_path, capsys):
    before = contents(tmp_path)
    assert output_of(capsys, "repair", tmp_path).out == "nothing is to be repaired\n"
    assert main(["repair", str(tmp_path), "--dry-run"]) == 0
    assert contents(tmp_path) == before


def test_leftovers_of_a_killed_save_go(paths, tmp_path, capsys):
    (tmp_path / f"ckpt-40.index.milepost-{TOKEN}-of-00001.tmp").touch()
    (tmp_path / "ckpt-40.data-00000-of-00001").touch()
    (tmp_path / f"checkpoint.milepost-{TOKEN}.tmp").touch()
    assert len(repaired(tmp_path, capsys)["removed"]) == 3


def test_leftovers_of_a_running_save_stay(paths, tmp_path, capsys):
    path = str(tmp_path / f"ckpt-40.index.milepost-{TOKEN}-of-00001.tmp")
    with milepost.storage.default.DEFAULT_STORAGE.create(path):
        assert not json_of(capsys, "repair", tmp_path)["needed"]
        assert os.path.exists(path)


def test_files_of_others_stay(paths, tmp_path, capsys):
    for name in ("notes.txt", "x.tmp", "copy-1.data-00000-of-00001"):
        (tmp_path / name).touch()
    assert not json_of(capsys, "repair", tmp_path)["needed"]


def test_a_damaged_latest_leaves_the_list_and_its_files_stay(paths, tmp_path, capsys):
    damage(paths[2])
    found = repaired(tmp_path, capsys)
    assert [each["path"] for each in found["unlisted"]] == [paths[2]]
    assert found["latest"] == paths[1]
    assert list(get_checkpoint_state(tmp_path).all_model_checkpoint_paths) == paths[:2]
    assert os.path.exists(data_of(paths[2]))


def test_a_missing_one_leaves_the_list(paths, tmp_path, capsys):
    os.remove(paths[0] + ".index")
    os.remove(data_of(paths[0]))
    repaired(tmp_path, capsys)
    assert list(get_checkpoint_state(tmp_path).all_model_checkpoint_paths) == paths[1:]


def test_quick_compares_no_checksums(paths, tmp_path, capsys):
    damage(paths[0])
    assert not json_of(capsys, "repair", tmp_path, "--quick")["needed"]
    truncate(paths[0])
    assert json_of(capsys, "repair", tmp_path, "--quick", "--dry-run", status=1)["needed"]


@pytest.mark.parametrize("text", [b"", bytes(300), b"model_checkpoint_path: ", b"\xff\xfe", b"nonsense"])
def test_a_malformed_state_file_is_made_anew(paths, tmp_path, capsys, text):
    (tmp_path / "checkpoint").write_bytes(text)
    damage(paths[2])
    assert "malformed" in repaired(tmp_path, capsys)["state_file"]
    assert latest_checkpoint(tmp_path) == paths[1]
    assert list(get_checkpoint_state(tmp_path).all_model_checkpoint_paths) == paths[:2]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_the_place_of_the_state_file_is_replaced(paths, tmp_path, capsys):
    """Opening it to read would wait for a writer forever."""
    (tmp_path / "checkpoint").unlink()
    os.mkfifo(tmp_path / "checkpoint")
    for command in ("ls", "verify"):
        listed = run(command, tmp_path, timeout=60)
        assert listed.returncode == 1
        assert "found: not a regular file" in listed.stderr
    assert "malformed" in repaired(tmp_path, capsys)["state_file"]
    assert latest_checkpoint(tmp_path) == paths[-1]


def test_a_directory_that_is_named_like_a_leftover_stays(paths, tmp_path, capsys):
    name = f"ckpt-7.milepost-{TOKEN}.tmp"
    (tmp_path / name).mkdir()
    assert output_of(capsys, "repair", tmp_path).out == "nothing is to be repaired\n"
    assert (tmp_path / name).is_dir()


def test_a_lost_state_file_is_made_anew(paths, tmp_path, capsys):
    os.remove(tmp_path / "checkpoint")
    repaired(tmp_path, capsys)
    assert latest_checkpoint(tmp_path) == paths[2]


def test_times_of_copies_do_not_count(paths, tmp_path, capsys):
    """Copies are younger than what was saved after them."""
    os.remove(tmp_path / "checkpoint")
    os.utime(paths[0] + ".index")
    repaired(tmp_path, capsys)
    assert latest_checkpoint(tmp_path) == paths[2]


def test_a_manager_goes_on_after_that(paths, tmp_path, capsys):
    os.remove(tmp_path / "checkpoint")
    repaired(tmp_path, capsys)
    checkpoint = Checkpoint(v=Variable(0.0))
    manager = CheckpointManager(checkpoint, tmp_path, max_to_keep=None)
    assert manager.steps == [10, 20, 30]


def test_a_list_of_nothing_good_is_left(paths, tmp_path, capsys):
    """A restore must fail then, and not start anew in silence."""
    for path in paths:
        damage(path)
    before = contents(tmp_path)
    found = json_of(capsys, "repair", tmp_path)
    assert (found["unlisted"], len(found["damaged"])) == ([], 3)
    assert contents(tmp_path) == before


def test_a_directory_of_written_checkpoints_gets_no_state_file(tmp_path, capsys):
    """`write` names what it wrote in none."""
    Checkpoint(v=Variable(1.0)).write(tmp_path / "weights")
    assert not json_of(capsys, "repair", tmp_path)["needed"]


def test_a_file_of_orbax_or_flax_is_kept(paths, tmp_path, capsys):
    """It has the name of a state file, and is none."""
    (tmp_path / "checkpoint").write_bytes(b"\x81\xa1a\x01")
    before = contents(tmp_path)
    assert main(["repair", str(tmp_path)]) == 3
    assert "Orbax" in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_a_killed_deletion_is_completed(paths, tmp_path, capsys):
    """The process dies when it has noted what it deletes."""
    code = (
        "import os, sys; from milepost.series.pins import removal; from milepost.storage.default import DEFAULT_STORAGE\n"
        "with removal(DEFAULT_STORAGE, [sys.argv[1]], complete=True): os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code, paths[0]], check=False)
    found = repaired(tmp_path, capsys)
    assert {os.path.basename(path) for path in found["removed"]} >= {"ckpt-10.index", "ckpt-10.data-00000-of-00001"}
    assert list(get_checkpoint_state(tmp_path).all_model_checkpoint_paths) == paths[1:]


def test_a_save_that_was_killed_before_it_was_listed(paths, tmp_path, capsys):
    """Its announcement is there, and so is the checkpoint."""
    from milepost.series.announcement import Announcement
    from milepost.storage.default import DEFAULT_STORAGE

    path = Checkpoint(v=Variable(1.0)).write(tmp_path / "ckpt-40")
    announcement = Announcement()
    with open(path + ".index", "rb") as index:
        announcement.make(DEFAULT_STORAGE, path, TOKEN, index.read())
    announcement.leave()
    assert repaired(tmp_path, capsys)["latest"] == path
    assert latest_checkpoint(tmp_path) == path


def test_what_is_no_directory_is_an_error(paths, tmp_path, capsys):
    assert main(["repair", str(tmp_path / "none")]) == 3
    assert main(["repair", paths[0]]) == 3


def test_the_text_of_a_dry_run(paths, tmp_path, capsys):
    (tmp_path / f"checkpoint.milepost-{TOKEN}.tmp").touch()
    assert output_of(capsys, "repair", tmp_path, "-n", status=1).out.startswith("would be removed: ")


def without_index(directory, name="ckpt-40"):
    path = directory / f"{name}.data-00000-of-00002"
    path.write_bytes(bytes(1000))
    return path


def test_data_without_an_index_stays_and_is_said(paths, tmp_path, capsys):
    path = without_index(tmp_path)
    assert json_of(capsys, "repair", tmp_path)["data_without_index"] == [
        {"path": str(tmp_path / "ckpt-40"), "bytes": 1000}
    ]
    assert "--remove-data" in output_of(capsys, "repair", tmp_path).err
    assert path.exists()


def test_data_without_an_index_goes_if_asked(paths, tmp_path, capsys):
    path = without_index(tmp_path)
    before = contents(tmp_path)
    planned = json_of(capsys, "repair", tmp_path, "--remove-data", "--dry-run", status=1)
    assert (planned["removed"], contents(tmp_path)) == ([str(path)], before)
    assert json_of(capsys, "repair", tmp_path, "--remove-data")["removed"] == [str(path)]
    assert not path.exists()
    assert main(["verify", str(tmp_path)]) == 0


def test_data_that_is_saved_now_stays(paths, tmp_path, capsys):
    path = without_index(tmp_path)
    with milepost.storage.default.DEFAULT_STORAGE.create(f"{tmp_path}/ckpt-40.index.milepost-{TOKEN}-of-00002.tmp"):
        assert not json_of(capsys, "repair", tmp_path, "--remove-data")["needed"]
    assert path.exists()


def test_data_of_an_index_stays(paths, tmp_path, capsys):
    assert not json_of(capsys, "repair", tmp_path, "--remove-data")["needed"]


def test_directories_below_are_repaired_if_asked(tmp_path, capsys):
    above, below = series(tmp_path, [0.1]), series(tmp_path / "a" / "b", [0.1, 0.2])
    truncate(below[1])
    (tmp_path / "c").mkdir()
    without_index(tmp_path / "c")
    text = output_of(capsys, "repair", tmp_path)
    assert text.out == "nothing is to be repaired\n"
    assert (
        f"not looked into: 1 directory further down that may have checkpoints, such as {tmp_path / 'c'}; -R" in text.err
    )
    found = json_of(capsys, "repair", tmp_path, "-R")
    assert [os.path.relpath(each["directory"], tmp_path) for each in found["directories"]] == [".", "a/b", "c"]
    assert [each["needed"] for each in found["directories"]] == [False, True, False]
    assert list(get_checkpoint_state(tmp_path / "a" / "b").all_model_checkpoint_paths) == below[:1]
    assert list(get_checkpoint_state(tmp_path).all_model_checkpoint_paths) == above


def test_a_directory_that_cannot_be_repaired_does_not_keep_others_from_it(tmp_path, capsys):
    bad, good = series(tmp_path / "a", [0.1]), series(tmp_path / "b", [0.1, 0.2])
    truncate(bad[0])
    (tmp_path / "a" / "checkpoint").write_text("malformed")
    truncate(good[1])
    assert "malformed" in output_of(capsys, "repair", tmp_path, "-R", status=3).err
    assert list(get_checkpoint_state(tmp_path / "b").all_model_checkpoint_paths) == good[:1]


def test_what_is_not_looked_at_is_said(paths, tmp_path, capsys):
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    error = output_of(capsys, "repair", tmp_path, "--quick").err
    assert "no checksums were compared" in error
    assert f"of other libraries, such as {tmp_path / 'model.safetensors'}" in error
