"""What commands print as the name of a tensor can be typed again."""

import numpy as np
import pytest

import milepost
from milepost.tools.cli import main
from tests.tools.commands import json_of, output_of

NAMES = ["a/b", "w.x", "li\nne", "red\x1b[31m", "\u202eleft", "tab\there"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    values = {name: np.full(2, place, np.float32) for place, name in enumerate(NAMES)}
    return milepost.save(tmp_path_factory.mktemp("names") / "state", {"d": values, "other": np.zeros(1)})


def key(name):
    return f"d/{name.replace('.', '..').replace('/', '.S')}/.ATTRIBUTES/VARIABLE_VALUE"


def printed(path, capsys, *options):
    """What `show` prints as names."""
    lines = output_of(capsys, "show", path, *options).out.splitlines()
    return [line.split(maxsplit=2)[2] for line in lines if line.startswith("float32[2]")]


@pytest.mark.parametrize("place", range(len(NAMES)))
def test_a_printed_key_is_accepted(saved, capsys, tmp_path, place):
    keys = sorted(map(key, NAMES))
    shown = printed(saved, capsys)[place]
    assert shown.isprintable()
    for name in (shown, shown.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")):
        assert json_of(capsys, "show", saved, name)["key"] == keys[place]
        assert main(["cat", saved, name, "-o", str(tmp_path / "a.npy"), "--overwrite"]) == 0
        done = json_of(capsys, "convert", saved, tmp_path / "a.npz", "--only", name, "--overwrite")
        assert [each["key"] for each in done["tensors"]] == [keys[place]]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_accepted_as_the_program_has_it(saved, capsys, tmp_path, name):
    assert json_of(capsys, "show", saved, f"d/{name}")["key"] == key(name)
    done = json_of(capsys, "convert", saved, tmp_path / "a.npz", "--only", f"d/{name}")
    assert [each["key"] for each in done["tensors"]] == [key(name)]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_accepted_as_the_tree_has_it(saved, capsys, name):
    lines = [
        line.rpartition("float32[2]")[0].strip() for line in output_of(capsys, "show", saved, "--tree").out.splitlines()
    ]
    found = [line for line in lines if line and json_of(capsys, "show", saved, f"d/{line}").get("key") == key(name)]
    assert len(found) == 1


def test_an_object_whose_name_has_a_slash(tmp_path, capsys):
    path = milepost.save(tmp_path / "state", {"a/b": {"w": np.ones(1), "v": np.ones(1)}, "c": np.ones(1)})
    rows = json_of(capsys, "show", path, "a/b")["tensors"]
    assert [row["key"].partition("/.A")[0] for row in rows] == ["a.Sb/v", "a.Sb/w"]


def test_two_that_a_name_can_mean_are_an_error(tmp_path, capsys):
    path = milepost.save(tmp_path / "state", {"x": {"a/b": {"c": np.ones(1)}, "a": {"b/c": np.ones(1)}}})
    assert "stands for 2 tensors" in output_of(capsys, "cat", path, "x/a/b/c", "-o", tmp_path / "a.npy", status=3).err


def test_a_name_with_a_backslash_is_itself(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    torch.save({r"C:\new": torch.ones(1), "other": torch.ones(1)}, tmp_path / "a.pt")
    assert json_of(capsys, "show", tmp_path / "a.pt", r"C:\new")["key"] == r"C:\new"
    done = json_of(capsys, "convert", tmp_path / "a.pt", tmp_path / "a.npz", "--ignore", r"C:\new")
    assert done["unwanted"] == [r"C:\new"]


@pytest.mark.parametrize("name", [r"d/li\nne", "d/li\nne", r"d/li\nne/.ATTRIBUTES/VARIABLE_VALUE"])
def test_rename_takes_printed_names(saved, capsys, tmp_path, name):
    done = json_of(
        capsys, "convert", saved, tmp_path / "a.npz", "--rename", rf"{name}=new\nname", "--only", r"new\nname"
    )
    assert [(each["name"], each["key"]) for each in done["tensors"]] == [("new\nname", key("li\nne"))]


@pytest.mark.parametrize("name", ["d/a/b", "d/a.Sb", r"d/li\nne"])
def test_match_and_graph_take_printed_names(saved, capsys, monkeypatch, tmp_path, name):
    (tmp_path / "names_of_a_program.py").write_text(
        "import numpy as np\nfrom milepost import Checkpoint\n"
        f"made = Checkpoint(d={{name: np.zeros(2, np.float32) for name in {NAMES!r}}})\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = json_of(capsys, "match", saved, "names_of_a_program:made", "--only", name)
    assert found["unused_names"] == []
    matched = [
        each["key"] for each in found["entries"] if each["outcome"] == "matched" and each["key"].startswith("d/")
    ]
    assert matched == [key("li\nne" if "ne" in name else "a/b")]
    assert len(json_of(capsys, "graph", saved, "--root", name)["nodes"]) == 1


def test_the_value_of_a_whole_file_has_one_name(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    torch.save(torch.ones(2), tmp_path / "a.pt")
    torch.save(torch.zeros(2), tmp_path / "b.pt")
    root = "/.ATTRIBUTES/VARIABLE_VALUE"
    for options in ([], ["--tree"]):
        assert "(the whole file)" in output_of(capsys, "show", tmp_path / "a.pt", *options).out.splitlines()[2]
    for name in ("(the whole file)", root, ""):
        assert output_of(capsys, "show", tmp_path / "a.pt", name).out.startswith("(the whole file)\n")
        assert json_of(capsys, "show", tmp_path / "a.pt", name)["key"] == root
    told = output_of(capsys, "diff", tmp_path / "a.pt", tmp_path / "b.pt", status=1).out
    assert told.splitlines()[1].endswith("(the whole file)")
    told = output_of(capsys, "convert", tmp_path / "a.pt", tmp_path / "a.npz", status=3).err
    assert "found: (the whole file): it has no name; --rename =weight gives it this one" in told
    for name in ("", "(the whole file)"):
        done = json_of(
            capsys, "convert", tmp_path / "a.pt", tmp_path / "a.npz", "--rename", f"{name}=weight", "--overwrite"
        )
        assert [each["name"] for each in done["tensors"]] == ["weight"]


def test_match_calls_a_whole_file_so(tmp_path, capsys, monkeypatch):
    torch = pytest.importorskip("torch")
    torch.save(torch.ones(2), tmp_path / "a.pt")
    (tmp_path / "program_without_tensors.py").write_text("from milepost import Checkpoint\nmade = Checkpoint(step=1)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    told = output_of(capsys, "match", tmp_path / "a.pt", "program_without_tensors:made", status=1).out
    assert "  (the whole file) float32[2] (" in told


def test_a_whole_file_that_is_an_object_has_the_same_name(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(1, 1), tmp_path / "a.pt")
    assert "object, read in part: (the whole file)  torch" in output_of(capsys, "show", tmp_path / "a.pt").out
    (found,) = json_of(capsys, "show", tmp_path / "a.pt")["objects_not_read"]
    assert found["key"] == "/.ATTRIBUTES/VARIABLE_VALUE"


def test_a_member_without_a_name_is_not_called_the_whole_file(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    torch.save({"": torch.ones(2), "w": torch.ones(2), "none": {"": None}}, tmp_path / "a.pt")
    told = output_of(capsys, "convert", tmp_path / "a.pt", tmp_path / "a.npz", status=1)
    assert "left out: '': it has no name" in told.err
    assert "the whole file" not in output_of(capsys, "show", tmp_path / "a.pt").out
    torch.save({"": torch.nn.Linear(1, 1)}, tmp_path / "b.pt")
    assert "object, read in part: ''  torch" in output_of(capsys, "show", tmp_path / "b.pt").out


def test_a_file_that_is_an_empty_dict_holds_nothing(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    torch.save({}, tmp_path / "a.pt")
    assert output_of(capsys, "show", tmp_path / "a.pt").out.endswith("TYPE  BYTES  KEY\n")


def test_a_value_of_the_root_of_a_checkpoint(tmp_path, capsys):
    path = milepost.Checkpoint(milepost.Variable(1.0)).write(tmp_path / "ckpt")
    tree = output_of(capsys, "show", path, "--tree").out
    assert "(the root)" in tree
    assert json_of(capsys, "show", path, "(the root)")["key"] == "/.ATTRIBUTES/VARIABLE_VALUE"
