"""What options, paths, names and keys are refused, with what was expected and found."""

import inspect
import re

import numpy as np
import pytest

import milepost
from milepost import (
    Checkpoint,
    CheckpointManager,
    CheckpointOptions,
    MaxShardSizePolicy,
    UntrackedWarning,
    Variable,
)
from milepost.engine import options
from milepost.errors import UnmatchedError, UnsupportedError, UntrackableError
from milepost.storage import LocalStorage


class Half:
    def open(self, path): ...


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable_async", "yes"),
        ("strict", 1.5),
        ("data_alignment", "x"),
        ("data_alignment", 0),
        ("data_alignment", -1),
        ("data_alignment", 3),
        ("storage", "s3"),
        ("storage", LocalStorage),
        ("allow_unsaved", "net"),
        ("allow_unsaved", [3]),
    ],
)
def test_a_wrong_option_is_refused_when_it_is_given(name, value):
    with pytest.raises(UnsupportedError) as caught:
        CheckpointOptions(**{name: value})
    assert caught.value.key == name
    assert caught.value.expected
    assert caught.value.found
    assert caught.value.remedy


def calls_with(name, value):
    """Every function that takes options, or is of an object that does, called with one as a keyword argument."""
    checkpoint = Checkpoint(v=Variable(1.0))
    given = {name: value}
    return {
        "save": lambda: checkpoint.save("./ckpt", **given),
        "write": lambda: checkpoint.write("./ckpt", **given),
        "restore": lambda: checkpoint.restore("./ckpt", **given),
        "read": lambda: checkpoint.read("./ckpt", **given),
        "load": lambda: milepost.load("./ckpt", **given),
        "load_checkpoint": lambda: milepost.load_checkpoint("./ckpt", **given),
        "list_variables": lambda: milepost.list_variables("./ckpt", **given),
        "load_variable": lambda: milepost.load_variable("./ckpt", "v", **given),
        "make a reader": lambda: milepost.CheckpointReader("./ckpt", **given),
        "make a view": lambda: milepost.CheckpointView("./ckpt", **given),
        "latest_checkpoint": lambda: milepost.latest_checkpoint(".", **given),
        "convert": lambda: milepost.convert("./ckpt", "./out.npz", **given),
        "draw_graph": lambda: milepost.draw_graph("./ckpt", **given),
        "remove_checkpoint": lambda: milepost.tensorflow1.remove_checkpoint("./ckpt", **given),
        "save a tree": lambda: milepost.save("./ckpt", {}, **given),
        "make a manager": lambda: CheckpointManager(checkpoint, ".", 1, **given),
        "save of a manager": lambda: CheckpointManager(checkpoint, ".", 1).save(**given),
    }


@pytest.mark.parametrize("call", calls_with("progress", True))
def test_an_option_given_as_an_argument_is_told_how_to_pass(call):
    with pytest.raises(TypeError) as caught:
        calls_with("progress", True)[call]()
    assert str(caught.value).endswith(
        "() got an unexpected keyword argument 'progress': it is an option, so pass options=milepost.CheckpointOptions(progress=True)"
    )


def test_the_options_of_a_manager_are_told_to_be_its_own(tmp_path):
    manager = CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path, 1)
    for restore in (manager.restore, manager.restore_or_initialize):
        with pytest.raises(TypeError, match=r"pass options=.*\(progress=True\) to the manager when it is made"):
            restore(progress=True)


@pytest.mark.parametrize(
    ("call", "option", "alone"),
    [("restore", "strict", "saves"), ("read", "incremental", "saves"), ("save", "verify_first", "restores")],
)
def test_an_option_of_the_other_is_not_offered(call, option, alone):
    with pytest.raises(TypeError, match=f"{option}.*an option of {alone} alone"):
        calls_with(option, False)[call]()


@pytest.mark.parametrize("call", ["restore", "read"])
def test_who_passes_strict_as_to_pytorch_is_told_of_the_assertion(call):
    with pytest.raises(TypeError, match=r"for PyTorch's strict=True, call assert_consumed\(\) on the status"):
        calls_with("strict", False)[call]()


def test_the_options_of_saves_and_of_restores_are_those_that_their_description_names():
    """A line of the description begins with the name of the option, and then says for what it is."""
    description = inspect.cleandoc(CheckpointOptions.__doc__)  # Python 3.13 does so itself
    described = dict(re.findall(r"^    (\w+): (Saves|Restores|Both)\b", description, re.MULTILINE))
    assert {name for name, of in described.items() if of == "Saves"} == options._OF_SAVES
    assert {name for name, of in described.items() if of == "Restores"} == options._OF_RESTORES


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (milepost.Checkpoint.save, "file_prefix"),
        (milepost.Checkpoint.write, "file_prefix"),
        (milepost.Checkpoint.restore, "save_path"),
        (milepost.Checkpoint.read, "save_path"),
        (milepost.CheckpointReader, "prefix"),
        (milepost.CheckpointView, "save_path"),
        (milepost.load_checkpoint, "ckpt_dir_or_file"),
        (milepost.list_variables, "ckpt_dir_or_file"),
        (milepost.load_variable, "ckpt_dir_or_file"),
        (milepost.latest_checkpoint, "checkpoint_dir"),
        (milepost.checkpoints_iterator, "checkpoint_dir"),
        (milepost.get_checkpoint_state, "checkpoint_dir"),
        (milepost.convert, "source"),
        (milepost.tensorflow1.checkpoint_exists, "checkpoint_prefix"),
        (milepost.tensorflow1.remove_checkpoint, "checkpoint_prefix"),
        (milepost.tensorflow1.update_checkpoint_state, "save_dir"),
    ],
)
def test_a_path_under_an_earlier_name_is_told_the_present_one(call, name):
    given = [Checkpoint()] if call.__qualname__.startswith("Checkpoint.") else []
    with pytest.raises(TypeError, match=f"unexpected keyword argument {name!r}: pass path='run/ckpt'$"):
        call(*given, **{name: "run/ckpt"})
    assert "path" in inspect.signature(call).parameters


def test_other_unknown_arguments_are_python_s_own():
    with pytest.raises(TypeError, match=r"got an unexpected keyword argument 'foo'$"):
        Checkpoint(v=Variable(1.0)).restore("./ckpt", foo=1)


READERS = {
    "restore": lambda path: Checkpoint(v=Variable(1.0)).restore(path),
    "read": lambda path: Checkpoint(v=Variable(1.0)).read(path),
    "read into a root": lambda path: Checkpoint(Checkpoint(v=Variable(1.0))).read(path),
    "load_checkpoint": milepost.load_checkpoint,
    "list_variables": milepost.list_variables,
    "load": milepost.load,
    "CheckpointReader": milepost.CheckpointReader,
    "CheckpointView": milepost.CheckpointView,
    "convert": lambda path: milepost.convert(path, "./out.npz"),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_an_empty_path_is_shown_as_it_was_given(read, tmp_path, monkeypatch):
    """It does not mean the current directory, although that has a checkpoint."""
    monkeypatch.chdir(tmp_path)
    Checkpoint(v=Variable(1.0)).save("./ckpt")
    with pytest.raises(milepost.CheckpointNotFoundError) as caught:
        read("")
    assert caught.value.problem == "the path of the checkpoint is empty"
    assert caught.value.found == "''"
    assert "latest_checkpoint(directory)" in caught.value.remedy


def test_no_checkpoint_has_an_empty_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not milepost.tensorflow1.checkpoint_exists("")
    assert milepost.tensorflow1.get_checkpoint_mtimes([""]) == []
    with pytest.warns(milepost.MilepostWarning, match="there is no checkpoint ''"):
        milepost.tensorflow1.remove_checkpoint("")


@pytest.mark.parametrize("read", [milepost.load, milepost.load_checkpoint])
def test_none_is_told_where_it_comes_from(read):
    with pytest.raises(UnsupportedError, match=r"found: None(.|\n)*latest_checkpoint\(\) returns None"):
        read(None)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (print, "put it into a list"),
        ("name", "put it into a list"),
        ([3], "pass a list of functions"),
        ([None], "without calling"),
    ],
)
def test_what_is_no_list_of_write_callbacks_is_refused(given, remedy):
    with pytest.raises(UntrackableError) as caught:
        CheckpointOptions(experimental_write_callbacks=given)
    assert caught.value.key == "experimental_write_callbacks"
    assert remedy in caught.value.remedy


def test_an_open_file_is_told_to_be_opened_again(tmp_path):
    with (tmp_path / "log").open("w") as file, pytest.raises(UntrackableError, match="hold its path as text"):
        Checkpoint(log=file)


def test_a_value_of_another_type_and_shape_is_told_to_change_both(tmp_path):
    """To convert it would not do."""
    path = Checkpoint(v=Variable(np.zeros((2, 3), np.float32))).write(tmp_path / "ckpt")
    with pytest.raises(milepost.MismatchError) as caught:
        Checkpoint(v=Variable(np.zeros(7))).read(path)
    assert caught.value.remedy.startswith("give the live object the saved element type and shape; ")
    assert "cast" not in caught.value.remedy


@pytest.mark.parametrize(("live", "offered"), [(np.float16, True), (np.int8, False)])
def test_a_conversion_is_offered_only_where_one_is_possible(tmp_path, live, offered):
    path = Checkpoint(v=Variable(np.ones(3, np.float32))).write(tmp_path / "ckpt")
    with pytest.raises(milepost.MismatchError) as caught:
        Checkpoint(v=Variable(np.zeros(3, live))).read(path)
    assert ("cast=True" in caught.value.remedy) is offered


def test_an_option_that_was_set_later_is_checked_by_the_save(tmp_path):
    options = CheckpointOptions()
    options.allow_unsaved = "net"
    with pytest.raises(UnsupportedError, match=r"pass \['net'\]"):
        Checkpoint(v=Variable(1.0)).write(tmp_path / "ckpt", options)


def test_a_storage_that_lacks_methods_is_told_which():
    with pytest.raises(UnsupportedError, match="add create, rename"):
        CheckpointOptions(storage=Half())


@pytest.mark.parametrize("given", [{"data_alignment": np.int64(8)}, {"enable_async": np.True_}, {"strict": None}])
def test_what_means_the_same_is_accepted(given):
    CheckpointOptions(**given)


def test_the_size_of_a_shard_is_a_number():
    with pytest.raises(UnsupportedError, match="1GB"):
        MaxShardSizePolicy("1GB")


@pytest.mark.parametrize("path", ["", "w/"])
@pytest.mark.parametrize("method", ["save", "write"])
def test_a_prefix_without_a_file_name_is_refused(tmp_path, monkeypatch, method, path):
    monkeypatch.chdir(tmp_path)
    checkpoint = Checkpoint(v=Variable(1.0))
    with pytest.raises(UnsupportedError, match=f"pass '{path}ckpt'"):
        getattr(checkpoint, method)(path)
    assert list(tmp_path.iterdir()) == []
    assert int(checkpoint.save_counter) == 0


def test_a_checkpoint_keeps_its_own_state(tmp_path):
    with pytest.raises(UntrackableError, match="reserved"):
        Checkpoint(_checkpoint_state=Variable(1.0))
    checkpoint = Checkpoint(v=Variable(1.0))
    with pytest.raises(UntrackableError, match="reserved"):
        checkpoint._checkpoint_state = Variable(1.0)
    checkpoint.write(tmp_path / "ckpt")


@pytest.mark.parametrize("key", [3, None])
def test_a_key_is_text(tmp_path, key):
    path = Checkpoint(v=Variable(1.0)).write(tmp_path / "ckpt")
    for read in (milepost.load_checkpoint(path).get_tensor, lambda key: milepost.load_variable(path, key)):
        with pytest.raises(UnsupportedError, match=rf"(?s)a key must be text.*{key!r} of type {type(key).__name__}"):
            read(key)


def test_a_save_counter_alone_is_no_match(tmp_path):
    path = Checkpoint(a=Variable(1.0)).save(tmp_path / "ckpt")
    status = Checkpoint(b=Variable(0.0)).restore(path).expect_partial()
    with pytest.raises(UnmatchedError, match="no value was restored"):
        status.assert_nontrivial_match()
    Checkpoint(a=Variable(0.0)).restore(path).assert_nontrivial_match()


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("name", ["optimizer", "schedule", "scaler"])
def test_a_copy_of_the_state_of_a_live_object_is_warned_of(name, nested):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.Adam(torch.nn.Linear(2, 1).parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    live = {"optimizer": optimizer, "schedule": schedule, "scaler": torch.amp.GradScaler("cpu")}
    copy = live[name].state_dict()
    with pytest.warns(UntrackedWarning, match=f"{name} is what state_dict.. of an? {name} returned"):
        Checkpoint(**({"all": {name: copy}} if nested else {name: copy}))


def test_an_optimizer_s_copied_state_that_has_numbers_as_keys_is_refused_with_what_to_pass(tmp_path):
    checkpoint = Checkpoint(v=Variable(1.0))
    checkpoint.optimizer = {"state": {0: {"step": Variable(1.0)}}}
    with pytest.raises(UntrackableError) as caught:
        checkpoint.save(tmp_path / "ckpt")
    assert "pass the object itself" in caught.value.remedy


def test_a_path_that_was_exchanged_with_another_argument_is_recognised(tmp_path):
    with pytest.raises(UnsupportedError) as caught:
        milepost.save(Checkpoint(v=Variable(1.0)), tmp_path / "ckpt")
    assert caught.value.remedy == "exchange the two arguments"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("coordinator", [object(), "coordinator", milepost.coordination.Coordinator])
def test_a_coordinator_has_the_members_of_one(coordinator):
    with pytest.raises(UnsupportedError, match=r"members of milepost\.coordination\.Coordinator"):
        CheckpointOptions(coordinator=coordinator)
