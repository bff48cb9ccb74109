"""`milepost diff` finds every difference, and how large it is."""

import os

import ml_dtypes
import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointOptions, MaxShardSizePolicy, Variable
from milepost.tools.cli import main
from tests.tools.commands import damage, json_of, net, output_of, series

COMPLEX = getattr(ml_dtypes, "complex32", np.complex64)  # older ones have none


def write(path, **values):
    return Checkpoint(**{name: Variable(value) for name, value in values.items()}).write(path)


@pytest.fixture
def pair(tmp_path):
    a = write(
        tmp_path / "a",
        same=np.arange(4.0),
        changed=np.float32([3.0, 4.0]),
        gone=1.0,
        reshaped=np.zeros(3),
        retyped=np.float32([0.1]),
        text="old",
    )
    b = write(
        tmp_path / "b",
        same=np.arange(4.0),
        changed=np.float32([3.0, 4.5]),
        new=1.0,
        reshaped=np.zeros(4),
        retyped=np.float32([0.1]).astype(ml_dtypes.bfloat16),
        text="new",
    )
    return a, b


def by_name(found):
    return {change["key"].split("/")[0]: change for change in found["changes"]}


def test_every_kind_of_difference(pair, capsys):
    found = json_of(capsys, "diff", *pair, status=1)
    kinds = {name: change["change"] for name, change in by_name(found).items()}
    assert kinds == {
        "gone": "removed",
        "new": "added",
        "reshaped": "reshaped",
        "retyped": "retyped",
        "changed": "changed",
        "text": "changed",
    }
    assert found["counts"] == {"removed": 1, "added": 1, "reshaped": 1, "retyped": 1, "changed": 2, "unchanged": 1}


def test_by_how_much(pair, capsys):
    changes = by_name(json_of(capsys, "diff", *pair, status=1))
    change = changes["changed"]
    assert (change["elements"], change["changed"], change["max_abs_difference"]) == (2, 1, 0.5)
    assert change["relative_norm"] == pytest.approx(0.1)
    assert 0 < changes["retyped"]["max_abs_difference"] < 1e-3


def test_the_text(pair, capsys):
    text = output_of(capsys, "diff", *pair, status=1).out
    lines = {line.split()[-1]: line for line in text.splitlines()}
    assert lines["gone"].startswith("-  float32[]")
    assert lines["new"].startswith("+  float32[]")
    assert "float64[3] -> float64[4]" in lines["reshaped"]
    assert "max 0.5, relative 0.1, 1 of 2" in lines["changed"]
    assert text.splitlines()[-1] == "1 removed, 1 added, 1 reshaped, 1 retyped, 2 changed, 1 the same"


def test_the_same_have_status_0(pair, capsys):
    assert json_of(capsys, "diff", pair[0], pair[0])["changes"] == []
    assert output_of(capsys, "diff", pair[0], pair[0]).out == "6 the same\n"


def test_names_only_reads_no_values(pair, capsys):
    for path in pair:
        os.remove(path + ".data-00000-of-00001")
    changes = by_name(json_of(capsys, "diff", "--names-only", *pair, status=1))
    assert sorted(changes) == ["gone", "new", "reshaped", "retyped"]


def test_a_tensor_of_another_shape_is_not_read(tmp_path, capsys):
    a, b = write(tmp_path / "a", v=np.zeros(3)), write(tmp_path / "b", v=np.zeros(4))
    damage(a, "v")
    assert json_of(capsys, "diff", a, b, status=1)["counts"]["reshaped"] == 1


def test_what_cannot_be_read_is_not_a_difference(pair, tmp_path, capsys):
    """A script tells it from 1."""
    damage(pair[0], "changed")
    assert main(["diff", *pair]) == 3
    assert "wrong checksum" in capsys.readouterr().err
    assert main(["diff", pair[0], str(tmp_path / "none")]) == 3


def test_checksums_are_trusted_only_if_asked(pair, capsys):
    """The bytes of a tensor are changed behind the back of its checksum: who trusts it does not see that."""
    damage(pair[1], "same")
    assert main(["diff", *pair]) == 3
    capsys.readouterr()
    assert "same" not in by_name(json_of(capsys, "diff", "--trust-checksums", *pair, status=1))


def test_pieces_and_whole_tensors_are_compared(tmp_path, capsys):
    values = np.random.default_rng(0).standard_normal((300, 7))
    options = CheckpointOptions(experimental_sharding_callback=MaxShardSizePolicy(1000))
    a = Checkpoint(v=Variable(values)).write(tmp_path / "a", options)
    b = write(tmp_path / "b", v=values)
    assert json_of(capsys, "diff", a, b)["counts"]["unchanged"] == 1
    values[299, 6] += 1
    c = write(tmp_path / "c", v=values)
    (change,) = json_of(capsys, "diff", a, c, status=1)["changes"]
    assert (change["changed"], change["max_abs_difference"]) == (1, pytest.approx(1.0))


def test_two_of_a_series(tmp_path, capsys):
    paths = series(tmp_path, [0.5, 0.25])
    changes = by_name(json_of(capsys, "diff", *paths, status=1))
    assert sorted(changes) == ["_MILEPOST_METADATA", "net", "save_counter"]


def test_a_directory_means_its_latest(tmp_path, capsys):
    paths = series(tmp_path, [0.5, 0.25])
    assert json_of(capsys, "diff", tmp_path, paths[1])["a"] == paths[1]


def test_names_with_dots_in_a_tree_and_in_its_file(tmp_path, capsys):
    tree = {"model": {"head.bias": np.zeros(2), "a/b": np.ones(3)}}
    milepost.convert(milepost.save(tmp_path / "a", tree), tmp_path / "a.npz")
    assert json_of(capsys, "diff", tmp_path / "a", tmp_path / "a.npz")["counts"]["unchanged"] == 2


def test_a_tree_and_a_checkpoint_of_other_objects(tmp_path, capsys):
    a = milepost.save(tmp_path / "a", {"x": {"y": np.zeros(2)}})
    b = milepost.save(tmp_path / "b", {"x": {"z": np.zeros(2)}})
    kinds = {
        change["key"].split("/")[1]: change["change"] for change in json_of(capsys, "diff", a, b, status=1)["changes"]
    }
    assert kinds == {"y": "removed", "z": "added"}


@pytest.mark.parametrize("rename", ["net=model", "net=model/", "n*t=model"])
def test_names_that_differ_are_compared_by_rename(tmp_path, capsys, rename):
    a = Checkpoint(net=net(b=np.float32(1)), step=Variable(1)).write(tmp_path / "a")
    b = Checkpoint(model=net(b=np.float32(2)), step=Variable(1)).write(tmp_path / "b")
    (change,) = json_of(capsys, "diff", a, b, "--rename", rename, status=1)["changes"]
    assert (change["change"], change["key"]) == ("changed", "net/b/.ATTRIBUTES/VARIABLE_VALUE")
    assert change["after"]["key"] == "model/b/.ATTRIBUTES/VARIABLE_VALUE"


def test_a_file_of_weights_is_compared_by_rename_with_a_checkpoint(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    torch.save({"body.w": torch.ones(2, 3)}, tmp_path / "a.pt")
    path = Checkpoint(net=net()).write(tmp_path / "b")
    found = json_of(capsys, "diff", tmp_path / "a.pt", path, "--rename", "body=net")
    assert found["counts"] == {"removed": 0, "added": 0, "reshaped": 0, "retyped": 0, "changed": 0, "unchanged": 1}
    found = json_of(capsys, "diff", path, tmp_path / "a.pt", "--rename", "net=body")
    assert found["counts"]["unchanged"] == 1


def test_a_rename_that_names_nothing_is_told(tmp_path, capsys):
    path = Checkpoint(net=net()).write(tmp_path / "a")
    assert "'other'" in output_of(capsys, "diff", path, path, "--rename", "other=x", status=1).err
    assert len(json_of(capsys, "diff", path, path, "--rename", "other=x", status=1)["unused_names"]) == 1


def test_two_tensors_of_one_new_name_are_an_error(tmp_path, capsys):
    path = Checkpoint(a=Variable(1.0), b=Variable(1.0)).write(tmp_path / "a")
    told = output_of(capsys, "diff", path, path, "--rename", "a=b", status=3).err
    assert "two tensors of A would have the same name" in told
    assert "--ignore" not in told


def test_names_that_are_one_path_are_all_compared(tmp_path, capsys):
    """``a.b`` and ``a/b`` are the same path, and two tensors."""
    torch = pytest.importorskip("torch")
    torch.save({"a.b": torch.zeros(1), "a/b": torch.ones(1)}, tmp_path / "a.pt")
    path = Checkpoint(a={"b": Variable(np.ones(1, np.float32))}).write(tmp_path / "b")
    counts = json_of(capsys, "diff", tmp_path / "a.pt", path, status=1)["counts"]
    assert (counts["unchanged"], counts["removed"]) == (1, 1)


@pytest.fixture
def with_none(tmp_path):
    """Two files of PyTorch that differ only in what no array can hold, and the first one as a checkpoint."""
    torch = pytest.importorskip("torch")
    first = {"same": None, "gone": None, "net": {"list": [], "kept": {}}, "w": torch.ones(2)}
    second = {"same": None, "net": {"list": (), "kept": {}, "new": None}, "w": torch.ones(2)}
    paths = [str(tmp_path / name) for name in ("a.pt", "b.pt", "ckpt")]
    torch.save(first, paths[0])
    torch.save(second, paths[1])
    milepost.convert(paths[0], paths[2])
    return paths


def test_none_and_empty_containers_of_files_are_compared(with_none, capsys):
    a, b, _ = with_none
    out = output_of(capsys, "diff", a, b, status=1).out
    assert "only in A: gone = None\n" in out
    assert "only in B: net/new = None\n" in out
    assert "changed: net/list = [] -> ()\n" in out
    assert json_of(capsys, "diff", a, b, status=1)["not_arrays"] == {
        "removed": ["gone"],
        "added": ["net/new"],
        "changed": ["net/list"],
    }
    assert json_of(capsys, "diff", a, a)["counts"]["unchanged"] == 1


def test_none_and_empty_containers_of_a_file_and_a_checkpoint_are_compared(with_none, capsys):
    a, b, checkpoint = with_none
    for pair in ((a, checkpoint), (checkpoint, a)):
        assert not any(json_of(capsys, "diff", *pair)["not_arrays"].values())
    found = json_of(capsys, "diff", checkpoint, b, status=1)
    assert [each["key"].partition("/.A")[0] for each in found["changes"]] == ["gone"]
    assert found["not_arrays"] == {"removed": [], "added": ["net/new"], "changed": ["net/list"]}


def test_a_rename_gives_none_another_name(with_none, capsys):
    a, b, _ = with_none
    found = json_of(capsys, "diff", a, b, "--rename", "gone=net/new", status=1)
    assert found["not_arrays"] == {"removed": [], "added": [], "changed": ["net/list"]}
    assert not found["unused_names"]


def test_objects_that_are_not_read_are_not_compared_in_silence(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    torch.save({"made": ..., "w": torch.ones(1)}, tmp_path / "a.pt")
    assert "not compared" in output_of(capsys, "diff", tmp_path / "a.pt", tmp_path / "a.pt").err


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (np.array([b"abcd", b"efgh"], "V4"), np.array([b"abcd", b"efgx"], "V4")),
        (np.array([1 + 2j]).astype(COMPLEX), np.array([1 + 3j]).astype(COMPLEX)),
        (np.array([(1, 2.0)], "i4,f4"), np.array([(1, 3.0)], "i4,f4")),
    ],
    ids=["bytes", "complex32", "records"],
)
def test_elements_of_several_parts_are_compared_whole(tmp_path, capsys, old, new):
    paths = [milepost.save(tmp_path / name, {"x": array}) for name, array in (("a", old), ("b", new))]
    assert main(["diff", *paths]) == 1
    assert "1 changed" in capsys.readouterr().out
    assert main(["show", paths[0], "x"]) == 0
    shown = capsys.readouterr().out
    assert str(old[0]) in shown or np.array2string(old) in shown
