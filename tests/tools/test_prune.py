"""`milepost prune` deletes what no rule keeps, and only if it is told to."""

import os
import pathlib
import warnings

import pytest

from milepost import Checkpoint, CheckpointManager, Variable
from milepost.series.pins import pin
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools.cli import main
from tests.tools.commands import contents, damage, json_of, output_of, series, truncate


@pytest.fixture
def paths(tmp_path):
    return series(tmp_path, [0.5, 0.1, 0.4, 0.3])


def steps(directory):
    return sorted(int(path.stem.partition("-")[2]) for path in pathlib.Path(directory).glob("*.index"))


def kept(found):
    return [int(each["path"].rpartition("-")[2]) for each in found["kept"]]


def test_a_metric_that_no_checkpoint_has_deletes_nothing(tmp_path, capsys):
    series(tmp_path, [0.5, 0.1, 0.3])
    before = contents(tmp_path)
    assert main(["prune", str(tmp_path), "--best", "los:min", "--delete"]) == 3
    assert "did you mean 'loss'?" in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_nothing_is_deleted_unless_asked(paths, tmp_path, capsys):
    before = contents(tmp_path)
    for options in ([], ["--dry-run"], ["--delete", "--dry-run"]):
        found = json_of(capsys, "prune", tmp_path, "--keep", "1", *options)
        assert found["dry_run"]
        assert kept(found) == [40]
        assert contents(tmp_path) == before


def test_the_newest_are_kept(paths, tmp_path, capsys):
    found = json_of(capsys, "prune", tmp_path, "--keep", "2", "--delete")
    assert kept(found) == steps(tmp_path) == [30, 40]
    assert found["bytes_freed"] > 0
    assert CheckpointManager(Checkpoint(v=Variable(0.0)), tmp_path, max_to_keep=None).steps == [30, 40]


def test_the_reason_names_the_options(paths, tmp_path, capsys):
    rules = ("--best", "loss:max", "--best", "loss:min:2", "--every-steps", "1000000", "--recent", "0.5e-9")
    found = json_of(capsys, "prune", tmp_path, *rules)
    assert found["deleted"][0]["reasons"] == [
        "not pinned, not the newest, not kept by --best loss:max --best loss:min:2 --every-steps 1000000 --recent 5e-10"
    ]


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        (["--best", "loss:min"], [20, 40]),
        (["--best", "loss:max"], [10, 40]),
        (["--best", "loss:min:2"], [20, 40]),
        (["--best", "loss:min:3"], [20, 30, 40]),
        (["--every-steps", "20"], [20, 40]),
        (["--recent", "1"], [10, 20, 30, 40]),
        (["--every-hours", "1"], [10, 40]),
        (["--keep", "1", "--best", "loss:max", "--every-steps", "30"], [10, 30, 40]),
    ],
)
def test_rules(paths, tmp_path, capsys, rules, left):
    assert kept(json_of(capsys, "prune", tmp_path, *rules, "--delete")) == left
    assert steps(tmp_path) == left


def test_the_reasons_are_printed(paths, tmp_path, capsys):
    text = output_of(capsys, "prune", tmp_path, "--best", "loss:min").out
    assert "keep    ckpt-20  the best by loss: 0.1" in text
    assert "2 checkpoints would be deleted" in text


def test_damaged_ones_stay_and_the_output_says_so(paths, tmp_path, capsys):
    """Damaged checkpoints count for no rule, and stay."""
    for path in tmp_path.glob("*.index"):
        path.write_bytes(b"damaged")
    text = output_of(capsys, "prune", tmp_path, "--keep", "1")
    *rows, last = text.out.splitlines()[1:]
    assert [row.split()[:4] for row in rows] == [["keep", f"ckpt-{step}", "not", "whole:"] for step in (10, 20, 30, 40)]
    assert last == "nothing to delete: no checkpoint here is whole"
    assert text.err == ""


def test_pinned_ones_are_kept(paths, tmp_path, capsys):
    pin(DEFAULT_STORAGE, paths[0])
    json_of(capsys, "prune", tmp_path, "--keep", "1", "--delete")
    assert steps(tmp_path) == [10, 40]


def test_the_newest_good_one_is_kept(paths, tmp_path, capsys):
    """The newest has damage that only its checksums show."""
    damage(paths[3], "net/w")
    found = json_of(capsys, "prune", tmp_path, "--keep", "1", "--delete")
    assert kept(found) == [30]
    assert [each["path"] for each in found["not_whole"]] == [paths[3]]
    assert steps(tmp_path) == [30, 40]


def test_damaged_ones_take_no_place(paths, tmp_path, capsys):
    truncate(paths[2])
    assert kept(json_of(capsys, "prune", tmp_path, "--keep", "2", "--delete")) == [20, 40]
    assert steps(tmp_path) == [20, 30, 40]


def test_if_none_is_whole_none_is_deleted(paths, tmp_path, capsys):
    for path in paths:
        truncate(path)
    assert json_of(capsys, "prune", tmp_path, "--keep", "1", "--delete")["deleted"] == []
    assert steps(tmp_path) == [10, 20, 30, 40]


def test_other_files_and_series_stay(paths, tmp_path, capsys):
    for name in ("other-1", "other-2", "weights"):
        Checkpoint(v=Variable(1.0)).write(tmp_path / name)
    assert main(["prune", str(tmp_path), "--keep", "1", "--delete"]) == 3
    assert "--name" in capsys.readouterr().err
    json_of(capsys, "prune", tmp_path, "--keep", "1", "--name", "ckpt", "--delete")
    left = sorted(name for name in os.listdir(tmp_path) if name.endswith(".index"))
    assert left == ["ckpt-40.index", "other-1.index", "other-2.index", "weights.index"]


@pytest.mark.parametrize(
    "arguments",
    [[], ["--keep", "0"], ["--keep", "x"], ["--best", "loss"], ["--best", "loss:least"], ["--recent", "-1"]],
)
def test_wrong_arguments(paths, tmp_path, arguments):
    with pytest.raises(SystemExit) as ended:
        main(["prune", str(tmp_path), *arguments])
    assert ended.value.code == 2


def test_a_slash_at_the_end_means_nothing(paths, tmp_path, capsys):
    assert kept(json_of(capsys, "prune", f"{tmp_path}/", "--keep", "1", "--delete")) == [40]
    assert steps(tmp_path) == [40]


def test_a_directory_without_numbered_checkpoints(tmp_path, capsys):
    Checkpoint(v=Variable(1.0)).write(tmp_path / "weights")
    assert main(["prune", str(tmp_path), "--keep", "1"]) == 3
    assert main(["prune", str(tmp_path / "none"), "--keep", "1"]) == 3
    capsys.readouterr()


def test_a_malformed_state_file_is_an_error(paths, tmp_path, capsys):
    (tmp_path / "checkpoint").write_text("nonsense")
    assert main(["prune", str(tmp_path), "--keep", "1", "--delete"]) == 3
    assert steps(tmp_path) == [10, 20, 30, 40]
    capsys.readouterr()


def test_the_last_finite_one_is_kept(tmp_path, capsys):
    """The newest has NaN. A finite one that is damaged does not count."""
    checkpoint = Checkpoint(v=Variable(0.0))
    manager = CheckpointManager(checkpoint, tmp_path, max_to_keep=None, nonfinite="keep_last_finite")
    for step, value in [(10, 1.0), (20, 2.0), (30, 3.0), (40, float("nan")), (50, float("nan"))]:
        checkpoint.v.assign(value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            manager.save(step)
    damage(str(tmp_path / "ckpt-30"))
    found = json_of(capsys, "prune", tmp_path, "--keep", "1", "--delete")
    assert found["kept"][0]["reasons"] == ["the last finite one"]
    assert (kept(found), steps(tmp_path)) == ([20, 50], [20, 30, 50])
