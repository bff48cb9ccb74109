"""`milepost show` lists tensors, and shows values and statistics of one."""

import json
import os

import ml_dtypes
import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointOptions, MaxShardSizePolicy, Variable
from milepost.tools.cli import main
from tests.tools.commands import damage, json_of, most_memory, net, output_of, series

W = "net/w/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.fixture
def saved(tmp_path):
    model = net(b=np.arange(5000, dtype=np.float32))
    return Checkpoint(net=model, name=Variable("text\x1b"), step=Variable(7)).write(tmp_path / "ckpt")


def test_a_name_without_characters_is_shown_as_such(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    path = tmp_path / "w.pt"
    torch.save({"": torch.ones(2), "a": {"": torch.zeros(1)}}, path)
    assert [row["key"] for row in json_of(capsys, "show", path)["tensors"]] == ["", "a/"]
    assert [line.split()[-1] for line in output_of(capsys, "show", path).out.splitlines()[2:]] == ["''", "a/"]
    for name in ("", "''"):
        assert json_of(capsys, "show", path, name)["first_values"] == [1.0, 1.0]


def test_the_metadata_of_a_file_of_another_library(tmp_path, capsys):
    path = tmp_path / "w.safetensors"
    milepost.convert(milepost.save(tmp_path / "c", {"a": np.ones(2)}), path, metadata={"run": "first"})
    assert json_of(capsys, "show", path)["metadata"]["run"] == "first"


def test_every_tensor_is_listed(saved, capsys):
    listed = json_of(capsys, "show", saved)
    rows = {row["key"]: row for row in listed["tensors"]}
    assert sorted(rows) == [key for key, _ in milepost.list_variables(saved)]
    assert rows[W] == {
        "key": W,
        "dtype": "float32",
        "shape": [2, 3],
        "bytes": 24,
        "shard": 0,
        "pieces": 1,
        "is_none": False,
    }
    assert rows["name/.ATTRIBUTES/VARIABLE_VALUE"]["bytes"] > len("text")


def test_plain_text_is_one_line_for_each(saved, capsys):
    summary, head, *lines = output_of(capsys, "show", saved).out.splitlines()
    assert summary.startswith(f"{saved}: checkpoint, 5 tensors, ")
    assert head.split() == ["TYPE", "BYTES", "KEY"]
    assert [line.split() for line in lines if W in line] == [["float32[2,3]", "24", W]]
    assert len(lines) == 5


def test_a_tree(saved, capsys):
    text = output_of(capsys, "show", saved, "--tree").out
    assert "net\n  b  " in text.replace("\r", "")
    assert ".ATTRIBUTES" not in text


def test_a_tree_is_folded(saved, capsys):
    text = output_of(capsys, "show", saved, "--depth", "1").out
    assert "(2 tensors)" in text
    assert "  w" not in text


def test_shards_are_shown_where_there_are_several(tmp_path, capsys):
    options = CheckpointOptions(experimental_sharding_callback=MaxShardSizePolicy(64))
    path = Checkpoint(a=Variable(np.zeros(8)), b=Variable(np.zeros(64))).write(tmp_path / "ckpt", options)
    rows = {row["key"][0]: row for row in json_of(capsys, "show", path)["tensors"] if row["key"][0] in "ab"}
    assert rows["a"]["shard"] is not None
    assert (rows["b"]["shard"], rows["b"]["pieces"] > 1, rows["b"]["bytes"]) == (None, True, 512)
    assert "SHARD" in output_of(capsys, "show", path).out


def test_metrics_and_metadata(tmp_path, capsys):
    path = series(tmp_path, [0.5])[0]
    assert json_of(capsys, "show", path)["metrics"] == {"loss": 0.5}
    assert "metrics: loss=0.5" in output_of(capsys, "show", path).out


@pytest.mark.parametrize("name", ["net", "net/", "net/*", "n*/[wb]"])
def test_a_part(saved, capsys, name):
    assert {row["key"].split("/")[1] for row in json_of(capsys, "show", saved, name)["tensors"]} == {"w", "b"}


@pytest.mark.parametrize("name", [W, "net/w", "*/w"])
def test_one_tensor_has_values_and_statistics(saved, capsys, name):
    shown = json_of(capsys, "show", saved, name)
    assert shown["key"] == W
    assert shown["statistics"]["mean"] == 1.0
    assert shown["first_values"] == [1.0] * 6


def test_the_text_of_one_tensor(saved, capsys):
    text = output_of(capsys, "show", saved, "net/w").out
    assert "float32[2,3], 24 B, shard 0" in text
    assert "min 1  max 1  mean 1  std 0  norm 2.44949" in text
    assert "[[1. 1. 1.]" in text


def test_many_values_are_not_all_printed(saved, capsys):
    text = output_of(capsys, "show", saved, "net/b").out
    assert "first 100 of 5,000 values" in text
    assert "histogram  0 |" in text
    shown = json_of(capsys, "show", saved, "net/b")
    assert len(shown["first_values"]) == 100
    assert sum(shown["histogram"]["counts"]) == 5000


def test_strings_are_escaped(saved, capsys):
    assert json_of(capsys, "show", saved, "name")["first_values"] == ["text\\x1b"]
    assert "\x1b" not in output_of(capsys, "show", saved, "name").out


def test_what_is_not_finite_is_valid_json(tmp_path, capsys):
    path = Checkpoint(v=Variable(np.float32([np.nan, np.inf, -np.inf]))).write(tmp_path / "ckpt")
    assert main(["show", path, "v", "--json"]) == 0
    text = capsys.readouterr().out
    shown = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert shown["first_values"] == ["NaN", "Infinity", "-Infinity"]
    assert (shown["statistics"]["nan"], shown["statistics"]["infinite"], shown["statistics"]["mean"]) == (1, 2, None)


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.complex64, bool, np.uint64, ml_dtypes.int4]
)
@pytest.mark.parametrize("shape", [(), (0, 3), (4,)])
def test_every_kind_of_number(tmp_path, capsys, dtype, shape):
    path = Checkpoint(v=Variable(np.ones(shape).astype(dtype))).write(tmp_path / "ckpt")
    assert json_of(capsys, "show", path, "v")["statistics"]["count"] == int(np.prod(shape))
    output_of(capsys, "show", path, "v")


def test_a_tensor_in_pieces(tmp_path, capsys):
    values = np.random.default_rng(0).standard_normal((64, 8))
    options = CheckpointOptions(experimental_sharding_callback=MaxShardSizePolicy(512))
    path = Checkpoint(v=Variable(values)).write(tmp_path / "ckpt", options)
    shown = json_of(capsys, "show", path, "v")
    assert shown["pieces"] > 1
    assert shown["statistics"]["mean"] == pytest.approx(values.mean())
    assert shown["first_values"] == pytest.approx(values.reshape(-1)[:100])


def test_a_wrong_checksum_is_no_statistics(saved, capsys):
    data = damage(saved, "net/b")
    assert main(["show", saved]) == 0
    capsys.readouterr()
    assert main(["show", saved, "net/b"]) == 3
    captured = capsys.readouterr()
    assert "wrong checksum" in captured.err
    assert data in captured.err
    assert captured.out == ""


def test_a_wrong_key_names_similar_ones(saved, capsys):
    assert main(["show", saved, "net/ww"]) == 3
    assert "did you mean" in capsys.readouterr().err


def test_a_directory_means_its_latest(tmp_path, capsys):
    paths = series(tmp_path, [0.5, 0.25])
    assert json_of(capsys, "show", tmp_path)["checkpoint"] == paths[1]


def test_memory_does_not_grow_with_a_tensor(tmp_path):
    """Of 256 MB, a megabyte is in memory at once."""
    path = Checkpoint(v=Variable(np.ones(1 << 25))).write(tmp_path / "ckpt")
    assert os.path.getsize(path + ".data-00000-of-00001") > 256e6
    assert most_memory("show", path, "v") < 100 << 20


def test_memory_for_a_hundred_thousand_tensors(tmp_path):
    tree = {f"l{number}": {f"w{other}": np.float32(number) for other in range(100)} for number in range(1000)}
    path = milepost.save(tmp_path / "ckpt", tree)
    commands = [["show", path, "--tree"], ["diff", "--names-only", path, path]]
    assert max(most_memory(*arguments) for arguments in commands) < 250 << 20


def test_none_is_shown_as_what_it_is(tmp_path, capsys):
    """It is saved as an empty tensor; an empty array is another thing."""
    path = milepost.save(tmp_path / "tree", {"best": None, "mask": np.zeros(0, bool), "step": 3})
    rows = {row["key"].partition("/")[0]: row["is_none"] for row in json_of(capsys, "show", path)["tensors"]}
    assert {name: rows[name] for name in ("best", "mask", "step")} == {"best": True, "mask": False, "step": False}
    text = output_of(capsys, "show", path, "--tree").out
    assert [line.split()[:2] for line in text.splitlines() if line.startswith(("best", "mask"))] == [
        ["best", "None"],
        ["mask", "bool[0]"],
    ]
    assert output_of(capsys, "show", path, "best").out.splitlines()[1:] == ["None"]
    assert json_of(capsys, "show", path, "best")["first_values"] == [None]
    other = milepost.save(tmp_path / "other", {"best": 0.5, "mask": np.zeros(0, bool), "step": 3})
    assert "None -> float64[]" in output_of(capsys, "diff", path, other, status=1).out
    empty = milepost.save(tmp_path / "empty", {"best": np.zeros(0, bool), "mask": np.zeros(0, bool), "step": 3})
    assert "None -> bool[0]" in output_of(capsys, "diff", path, empty, status=1).out


def test_what_no_array_can_hold_is_listed(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(2), "none": None, "li\nst": []}, tmp_path / "a.pt")
    assert json_of(capsys, "show", tmp_path / "a.pt")["not_arrays"] == ["li\nst", "none"]
    assert output_of(capsys, "show", tmp_path / "a.pt").out.splitlines()[-1].endswith(r": li\nst, none")
