"""What may be the root, what children may be called, and what can be copied."""

import copy
import gc
import pickle
import sys
import weakref

import pytest

import milepost
from milepost import Checkpoint, Module, UntrackableError, Variable


def model(value):
    made = Module()
    made.v = Variable(value)
    return made


@pytest.mark.parametrize("name", ["save", "write", "restore", "read", "sync", "build", "saver_def", "_write"])
def test_a_child_cannot_have_the_name_of_a_method(name):
    with pytest.raises(UntrackableError, match=f"{name}_="):
        Checkpoint(**{name: Variable(1.0)})
    with pytest.raises(UntrackableError, match=name):
        setattr(Checkpoint(), name, Variable(1.0))


def test_a_method_can_still_be_replaced_by_a_function(tmp_path):
    checkpoint = Checkpoint(v=Variable(1.0))
    checkpoint.save = lambda prefix: "instead"
    assert checkpoint.save(tmp_path) == "instead"


def test_names_of_attributes_that_a_subclass_declares_are_free(tmp_path):
    class Training(Checkpoint):
        step = None

    assert Training(step=Variable(1)).step == 1


def test_a_root_that_is_referred_to_weakly_is_saved_and_restored_and_not_kept_alive(tmp_path):
    root = model(1.0)
    checkpoint = Checkpoint(root=weakref.ref(root), extra=Variable(5))
    path = checkpoint.save(tmp_path / "ckpt")
    root.v.assign(2.0)
    checkpoint.restore(path).assert_consumed()
    assert root.v == 1
    gone = weakref.ref(root)
    del root
    gc.collect()
    assert gone() is None
    with pytest.raises(UntrackableError, match="no longer exists"):
        checkpoint.save(tmp_path / "ckpt")


def test_a_weak_root_writes_what_a_root_writes(tmp_path):
    root = model(1.0)
    weak = Checkpoint(root=weakref.ref(root), extra=Variable(5)).write(tmp_path / "weak")
    strong = Checkpoint(root=root, extra=Variable(5)).write(tmp_path / "strong")
    assert milepost.list_variables(weak) == milepost.list_variables(strong)
    assert milepost.CheckpointView(weak).children(0) == milepost.CheckpointView(strong).children(0)


def test_a_weak_root_that_is_gone_or_not_trackable_is_refused():
    class Plain:
        pass

    plain = Plain()
    with pytest.raises(UntrackableError):
        Checkpoint(root=weakref.ref(plain))
    gone = weakref.ref(model(1.0))
    with pytest.raises(UntrackableError, match="no longer exists"):
        Checkpoint(root=gone)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_a_copy_of_a_checkpoint_saves_its_own_objects(duplicate, tmp_path):
    original = Checkpoint(v=Variable(1.0), net=model(3.0))
    original.save(tmp_path / "ckpt")
    twin = duplicate(original)
    twin.v.assign(2.0)
    assert original.v == 1
    path = twin.save(tmp_path / "ckpt")
    assert path.endswith("ckpt-2")
    original.restore(path).assert_consumed()
    assert original.v == 2


def test_a_shallow_copy_saves_the_same_objects(tmp_path):
    original = Checkpoint(v=Variable(1.0))
    twin = copy.copy(original)
    twin.v.assign(2.0)
    assert milepost.load_variable(twin.write(tmp_path / "ckpt"), "v/.ATTRIBUTES/VARIABLE_VALUE") == 2


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_checkpoint_with_a_weak_root_says_that_it_cannot_be_copied(duplicate):
    root = model(1.0)
    with pytest.raises(milepost.UnsupportedError, match="weak reference"):
        duplicate(Checkpoint(root=weakref.ref(root)).__dict__["_checkpoint_state"])


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_manager_says_that_it_cannot_be_copied(duplicate, tmp_path):
    manager = milepost.CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path, max_to_keep=1)
    with pytest.raises(milepost.UnsupportedError, match="cannot be copied or pickled") as caught:
        duplicate(manager)
    assert caught.value.remedy


def test_a_manager_of_something_else_is_refused(tmp_path):
    with pytest.raises(UntrackableError, match=r"milepost\.Checkpoint"):
        milepost.CheckpointManager(model(1.0), tmp_path, max_to_keep=1)


@pytest.mark.parametrize(("mistake", "meant"), [("restor", "restore"), ("stepp", "step")])
def test_a_misspelt_name_says_what_may_be_meant(mistake, meant, capsys):
    """As Python prints the error of a program that ends with it."""
    checkpoint = Checkpoint(step=Variable(0))
    with pytest.raises(AttributeError, match=mistake) as caught:
        getattr(checkpoint, mistake)
    sys.__excepthook__(caught.type, caught.value, None)
    assert f"Did you mean: '{meant}'?" in capsys.readouterr().err


def test_a_misspelt_method_of_a_variable_says_what_may_be_meant(capsys):
    with pytest.raises(AttributeError, match="a Variable has no attribute 'asign'") as caught:
        Variable(0).asign(1)
    sys.__excepthook__(caught.type, caught.value, None)
    assert "Did you mean: 'assign'?" in capsys.readouterr().err


def test_a_typed_checkpoint_saves_and_restores_what_it_declares(tmp_path):
    class Training(Checkpoint):
        step: Variable
        epoch: int

    path = Training(step=Variable(3), epoch=2).save(tmp_path / "ckpt")
    fresh = Training(step=Variable(0), epoch=0)
    fresh.restore(path).assert_consumed()
    assert (int(fresh.step), fresh.epoch) == (3, 2)
    milepost.Checkpoint(step=Variable(0), epoch=0).restore(path).assert_consumed()
