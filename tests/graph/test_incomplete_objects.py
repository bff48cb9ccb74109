"""Classes that are not written as they should be end in our errors, which say what to do about that very object."""

import argparse
import functools
import random
from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest

import milepost
from milepost import (
    Checkpoint,
    CheckpointManager,
    CheckpointOptions,
    Module,
    UntrackableError,
    UntrackedWarning,
    Variable,
)


class ForgottenCheckpoint(Checkpoint):
    def __init__(self):
        self.value = Variable(1)


class ForgottenManager(CheckpointManager):
    def __init__(self):
        self.mine = 1


class ForgottenVariable(Variable):
    def __init__(self):
        pass


class ForgottenModule(Module):
    def __init__(self):
        self.value = Variable(1)


@pytest.mark.parametrize(
    "use",
    [
        lambda checkpoint, path: checkpoint.save(path),
        lambda checkpoint, path: checkpoint.write(path),
        lambda checkpoint, path: checkpoint.restore(path),
        lambda checkpoint, path: checkpoint.read(path),
        lambda checkpoint, path: checkpoint.sync(),
        lambda checkpoint, path: checkpoint.save_counter,
        lambda checkpoint, path: CheckpointManager(checkpoint, path, max_to_keep=1).save(),
    ],
)
def test_a_checkpoint_that_was_not_initialized_says_so(use, tmp_path):
    with pytest.raises(UntrackableError, match="not initialized") as caught:
        use(ForgottenCheckpoint(), str(tmp_path / "ckpt"))
    assert "ForgottenCheckpoint.__init__() call super().__init__(...)" in caught.value.remedy


@pytest.mark.parametrize("name", ["save", "restore_or_initialize", "sync"])
def test_a_manager_that_was_not_initialized_says_so(name):
    with pytest.raises(UntrackableError, match="ForgottenManager was not initialized"):
        getattr(ForgottenManager(), name)()


@pytest.mark.parametrize("name", ["latest_checkpoint", "checkpoints", "directory", "checkpoint"])
def test_properties_of_a_manager_that_was_not_initialized_say_so(name):
    with pytest.raises(UntrackableError, match="ForgottenManager was not initialized"):
        getattr(ForgottenManager(), name)


def test_a_manager_has_no_other_attributes_than_its_own(tmp_path):
    manager = CheckpointManager(Checkpoint(), tmp_path, max_to_keep=1)
    assert not hasattr(manager, "missing")
    with pytest.raises(AttributeError, match="'CheckpointManager' object has no attribute 'missing'"):
        _ = manager.missing


def test_modules_need_no_initialization(tmp_path):
    path = Checkpoint(module=ForgottenModule()).write(tmp_path / "ckpt")
    assert milepost.load_variable(path, "module/value/.ATTRIBUTES/VARIABLE_VALUE") == 1


def save_and_restore(make_good, make_bad, tmp_path):
    """The errors of saving and restoring a bad object below the root."""
    path = Checkpoint(net={"layer": make_good()}).write(tmp_path / "good")
    errors = []
    for use in (
        lambda: Checkpoint(net={"layer": make_bad()}).write(tmp_path / "bad"),
        lambda: Checkpoint(net={"layer": make_bad()}).read(path),
    ):
        with pytest.raises(UntrackableError) as caught:
            use()
        errors.append(caught.value)
    return errors


def test_a_variable_that_was_not_initialized_is_named_with_its_path(tmp_path):
    for error in save_and_restore(lambda: Variable(1), ForgottenVariable, tmp_path):
        assert error.key == "net/layer"
        assert error.remedy == "let ForgottenVariable.__init__() call super().__init__() first"
        assert isinstance(error.__cause__, AttributeError)


def test_modules_of_pytorch_that_were_not_initialized(tmp_path):
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            self.size = 3

    for error in save_and_restore(lambda: torch.nn.Linear(2, 2), Net, tmp_path):
        assert error.key == "net/layer"
        assert error.remedy == "let Net.__init__() call super().__init__() first"


def test_optimizers_of_pytorch_that_were_not_initialized(tmp_path):
    torch = pytest.importorskip("torch")

    class Steps(torch.optim.SGD):
        def __init__(self):
            pass

    weight = torch.nn.Parameter(torch.ones(2))
    for error in save_and_restore(lambda: torch.optim.SGD([weight], momentum=0.5), Steps, tmp_path):
        assert error.key == "net/layer"
        assert "Steps.__init__()" in error.remedy


def test_optimizers_of_keras_that_were_not_initialized(tmp_path):
    keras = pytest.importorskip("keras")

    class Steps(keras.optimizers.SGD):
        def __init__(self):
            pass

    with pytest.raises(UntrackableError) as caught:
        Checkpoint(optimizer=Steps()).write(tmp_path / "ckpt")
    assert caught.value.key == "optimizer"
    assert caught.value.remedy == "let Steps.__init__() call super().__init__() first"


def test_modules_of_tensorflow_that_answer_none_to_every_name(tmp_path):
    tf = pytest.importorskip("tensorflow")

    class Net(tf.Module):
        def __getattr__(self, name):
            return None

    with pytest.raises(UntrackableError) as caught:
        Checkpoint(net=Net()).write(tmp_path / "ckpt")
    assert caught.value.key == "net"
    assert caught.value.remedy == "let Net.__getattr__() raise AttributeError for names that it does not know"


def answers_none(self, name):
    return None


def raises_another_error(self, name):
    raise KeyError(name)


@pytest.mark.parametrize("lookup", [answers_none, raises_another_error])
def test_modules_with_an_answer_to_every_name_are_saved_and_restored(lookup, tmp_path):
    kind = type("Net", (Module,), {"__getattr__": lookup})
    saved, live = kind(), kind()
    saved.value, live.value = Variable(1), Variable(0)
    path = Checkpoint(net=saved).write(tmp_path / "ckpt")
    Checkpoint(net=live).read(path).assert_consumed()
    assert int(live.value) == 1


class Rude:
    """Has no answer to anything, not even to what it is."""

    def __getattribute__(self, name):
        raise RuntimeError(name)


def test_an_object_that_fails_at_every_name_is_left_alone(tmp_path):
    module = Module()
    module.rude, module.value = Rude(), Variable(1)
    assert Checkpoint(module=module).write(tmp_path / "ckpt")


class Own:
    pass


@dataclass
class Data:
    value: Variable


def numbers():
    yield 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Own, "pass an object of Own, and not the class itself"),
        (numbers, "pass the objects that the function uses"),
        (numbers(), "state_dict() and load_state_dict(state)"),
        (Own(), "derive it from milepost.Module"),
        (deque(), "hold its members in a list, tuple or dict instead"),
        (frozenset(), "hold its members in a list, tuple or dict instead"),
        (Own(), "treats numbers and text as settings"),
        (np.zeros(2, [("a", object)]), "hold each of its fields as an array"),
        (np.dtype("float32"), "hold it as text, as str() gives it"),
        (np.ma.array([1, 2], mask=[False, True]), "hold its data and its mask as two arrays"),
        (random, "pass milepost.RandomState()"),
        (np.random, "pass milepost.RandomState()"),
        (np, "pass the objects to be saved; a Python module"),
        (argparse.Namespace(rate=0.1), "hold its attributes in a dict, as vars() gives them"),
        (CheckpointOptions(), "leave it out: a CheckpointOptions of milepost works on the state"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_remedy_fits_what_was_given(value, words):
    with pytest.raises(UntrackableError) as caught:
        Checkpoint(value=value)
    assert words in caught.value.remedy


def test_the_remedy_for_settings_of_pytorch_is_text():
    torch = pytest.importorskip("torch")
    for value in (torch.device("cpu"), torch.float32):
        with pytest.raises(UntrackableError, match=r"hold it as text, as str\(\) gives it"):
            Checkpoint(value=value)


def test_the_remedy_for_a_data_loader_is_one_that_has_state():
    data = pytest.importorskip("torch.utils.data")
    loader = data.DataLoader([1, 2, 3])
    for value in (loader, iter(loader)):
        with pytest.raises(UntrackableError) as caught:
            Checkpoint(loader=value)
        assert "pass milepost.accelerate.DataPosition(loader)" in caught.value.remedy
        assert "torchdata.stateful_dataloader.StatefulDataLoader" in caught.value.remedy


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (deque([Variable(1)]), "hold its members in a list, tuple or dict instead"),
        (Data(Variable(1)), "make it a subclass of milepost.Module"),
    ],
    ids=["deque", "dataclass"],
)
def test_what_is_in_an_attribute_is_not_told_to_be_held_in_one(value, words, tmp_path):
    module = Module()
    module.value = value
    with pytest.warns(UntrackedWarning) as caught:
        Checkpoint(module=module).write(tmp_path / "ckpt")
    text = str(caught[0].message)
    assert words in text
    assert "hold it in an attribute" not in text
    with pytest.raises(UntrackableError) as refused:
        Checkpoint(module=module).write(tmp_path / "ckpt", CheckpointOptions(strict=True))
    assert words in refused.value.remedy


def test_nothing_is_said_of_functions_in_attributes(tmp_path, recwarn):
    module = Module()
    module.activation, module.value = functools.partial(np.maximum, 0), Variable(1)
    Checkpoint(module=module).write(tmp_path / "ckpt")
    assert not recwarn.list
