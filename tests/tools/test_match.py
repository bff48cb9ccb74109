"""`milepost match` says what a restore does, without doing it."""

import json
import os
import textwrap

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, Variable
from milepost.tools.cli import main
from tests.tools.commands import json_of, net, output_of, run

MODULE = """
    import numpy as np
    import milepost

    print("noise of the program")

    def net(**more):
        module = milepost.Module()
        module.w = milepost.Variable(np.zeros((2, 3), np.float32))
        for name, value in more.items():
            setattr(module, name, milepost.Variable(value))
        return module

    checkpoint = milepost.Checkpoint(net=net(b=0.0))
    manager = milepost.CheckpointManager(checkpoint, "run", max_to_keep=1)
    model = net(b=0.0)

    def function():
        return milepost.Checkpoint(net=net(b=0.0))

    def parts():
        return {"net": net(b=0.0)}

    def other():
        return milepost.Checkpoint(net=net(b=np.zeros(4, np.float32), extra=1.0))

    def renamed():
        return milepost.Checkpoint(backbone=net(b=0.0))

    def wrong():
        raise ValueError("no data")

    def ends():
        raise SystemExit(7)

    async def later():
        return checkpoint

    number = object()
"""


@pytest.fixture
def saved(tmp_path, monkeypatch, request):
    # a module of its own for each test, since Python imports one only once
    name = f"program_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return Checkpoint(net=net(b=1.0)).save(tmp_path / "ckpt"), name


@pytest.mark.parametrize("name", ["checkpoint", "manager", "function", "parts", "manager.checkpoint"])
def test_an_exact_match(saved, capsys, name):
    path, module = saved
    found = json_of(capsys, "match", path, f"{module}:{name}")
    assert found["exact"]
    assert found["counts"]["matched"] == 3
    assert sum(found["counts"].values()) == 3


@pytest.mark.parametrize("save", ["write", "write of a root"])
def test_what_no_save_has_numbered_is_matched_as_read_does(saved, tmp_path, capsys, save):
    _, module = saved
    if save == "write":
        path, name = Checkpoint(net=net(b=1.0)).write(tmp_path / "written"), "checkpoint"
    else:
        path, name = milepost.Checkpoint(net(b=1.0)).write(tmp_path / "weights"), "model"
    found = json_of(capsys, "match", path, f"{module}:{name}")
    assert found["exact"]
    assert found["counts"]["matched"] == sum(found["counts"].values()) == 2


def test_what_would_not_match(saved, capsys):
    path, module = saved
    found = json_of(capsys, "match", path, f"{module}:other", status=1)
    outcomes = {
        entry["key"].split("/")[1]: entry["outcome"] for entry in found["entries"] if entry["outcome"] != "matched"
    }
    assert outcomes == {"b": "wrong shape", "extra": "missing"}


def test_the_text(saved, capsys):
    path, module = saved
    text = output_of(capsys, "match", path, f"{module}:other", status=1)
    assert "net/b/.ATTRIBUTES/VARIABLE_VALUE saved float32[], live float32[4]" in text.out
    assert "noise" not in text.out
    assert "noise" in text.err


def test_it_offers_the_rename(saved, capsys):
    path, module = saved
    found = json_of(capsys, "match", path, f"{module}:renamed", status=1)
    assert found["offer"] == "rename={'net': 'backbone'}"
    assert json_of(capsys, "match", path, f"{module}:renamed", "--rename", "net=backbone")["exact"]


def test_a_name_that_names_nothing_is_warned_of(saved, capsys):
    path, module = saved
    assert main(["match", path, f"{module}:function", "--rename", "nat=x", "--ignore", "nett"]) == 1
    said = capsys.readouterr().err
    assert "--rename has 'nat', which fits no saved name" in said
    assert (
        "--ignore names 'nett', and neither a saved value nor a live object has this name; did you mean 'net'" in said
    )


@pytest.mark.parametrize("words", [["--only", "nett"], ["--ignore", "nett"], ["--rename", "nett=x"]])
def test_scripts_learn_of_a_name_that_names_nothing(saved, capsys, words):
    """Also if a module of the program has turned warnings off."""
    path, module = saved
    with open(f"{module}.py", "a") as file:
        file.write("import warnings\nwarnings.simplefilter('ignore')\n")
    done = run("match", path, f"{module}:function", *words, "--json")
    assert done.returncode == 1
    (unused,) = json.loads(done.stdout)["unused_names"]
    assert "nett" in unused
    assert f"warning: {path}: {words[0]} " in done.stderr


def test_ignore_and_cast(saved, capsys):
    path, module = saved
    assert json_of(capsys, "match", path, f"{module}:other", "--ignore", "net/b", "--ignore", "net/extra")["exact"]
    assert json_of(capsys, "match", path, f"{module}:other", "--only", "net/w")["exact"]


def test_no_value_is_read_and_none_is_given(saved, capsys):
    path, module = saved
    import importlib

    program = importlib.import_module(module)
    capsys.readouterr()
    with open(path + ".data-00000-of-00001", "r+b") as file:
        file.seek(0)
        file.write(b"\xff")
    assert json_of(capsys, "match", path, f"{module}:checkpoint")["exact"]
    assert float(program.checkpoint.net.b) == 0.0
    np.testing.assert_array_equal(program.checkpoint.net.w.numpy(), 0.0)


def test_it_says_what_a_restore_does_then(saved, capsys):
    """The report before and after are the same."""
    path, module = saved
    import importlib

    before = json_of(capsys, "match", path, f"{module}:renamed", status=1)["entries"]
    status = importlib.import_module(module).renamed().restore(path)
    assert status.report().to_dict()["entries"] == before
    status.expect_partial()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wrong", "raised ValueError: no data"),
        ("ends", "raised SystemExit: 7"),
        ("none", "has no object of this name"),
        ("number", "cannot be restored"),
        ("later", "an object of type builtins.coroutine"),
    ],
)
def test_what_is_no_object(saved, capsys, name, said):
    path, module = saved
    assert main(["match", path, f"{module}:{name}"]) == 3
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


@pytest.mark.parametrize("name", ["", "module", "module:", ":name"])
def test_what_names_no_object_is_a_wrong_argument(saved, capsys, name):
    with pytest.raises(SystemExit) as ended:
        main(["match", saved[0], name])
    assert ended.value.code == 2
    assert f"expected MODULE:OBJECT, such as train:make_checkpoint, found '{name}'" in capsys.readouterr().err


def test_a_module_that_is_not_there(saved):
    done = run("match", saved[0], "no_such_module:x")
    assert done.returncode == 3
    assert "ModuleNotFoundError" in done.stderr
    assert "go to the directory that it is in" in done.stderr
    assert "Traceback" not in done.stderr


def test_modules_of_the_current_directory_are_found(saved, tmp_path):
    path, module = saved
    assert run("match", path, f"{module}:checkpoint", cwd=tmp_path).returncode == 0


def test_nothing_is_written(saved, tmp_path, capsys):
    path, module = saved
    before = sorted(os.listdir(tmp_path))
    main(["match", path, f"{module}:other"])
    assert [name for name in sorted(os.listdir(tmp_path)) if name not in ("__pycache__", "run")] == [
        name for name in before if name not in ("__pycache__", "run")
    ]


def test_a_renaming_is_old_and_new(saved, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["match", saved[0], "x:y", "--rename", "net"])
    assert ended.value.code == 2
    assert "OLD=NEW" in capsys.readouterr().err


def test_more_values_than_the_program_has(saved, tmp_path, capsys):
    path = Checkpoint(net=net(b=1.0), more=Variable(1.0)).save(tmp_path / "more")
    found = json_of(capsys, "match", path, f"{saved[1]}:function", status=1)
    assert found["counts"]["deferred"] + found["counts"]["unexpected"] == 1


def test_none_is_called_so(tmp_path, capsys, monkeypatch):
    path = milepost.save(tmp_path / "state", {"same": None, "gone": None, "empty": np.zeros(0, bool)})
    text = "from milepost import Checkpoint\nmade = Checkpoint(same=None, new=None)\n"
    (tmp_path / "program_with_none.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = json_of(capsys, "match", path, "program_with_none:made", status=1)
    entries = {each["key"].partition("/.A")[0]: (each["saved"], each["live"]) for each in found["entries"]}
    assert entries["same"] == ("None", "None")
    assert entries["gone"][0] == "None"
    assert entries["new"] == ("", "None")
    assert entries["empty"] == ("bool[0]", "")
