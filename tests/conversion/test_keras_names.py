"""A checkpoint becomes a ``.weights.h5`` file that Keras loads, with the names that Keras has for the variables of a live model."""

import sys
import types

import numpy as np
import pytest

import milepost
from milepost.tools.cli import main
from tests.adapters.keras.models import INPUTS, MODELS, TARGETS, L, Nested, Subclassed, keras
from tests.tools.commands import json_of, output_of

pytest.importorskip("h5py", reason="h5py is not installed")


KINDS = ("subclassed", "nested", "lists", "made_in_build", "sequential_with_built_part", "functional", "attention")


def of_many_layers():
    inputs = keras.Input((4,))
    first = L.Dense(3, name="any_name")(inputs)
    branch = keras.Sequential([L.Dense(3), L.Dropout(0.5), L.BatchNormalization()], name="branch")(first)
    return keras.Model(inputs, L.Dense(2, dtype="bfloat16")(L.Normalization()(L.Add()([first, branch]))))


def built(make, *, seed=0):
    """A model whose variables all have values of their own."""
    keras.utils.set_random_seed(seed)
    model = make()
    model(INPUTS)
    for variable in model.variables:
        if "seed" not in variable.path and "count" not in variable.path:
            variable.assign(np.random.default_rng(seed + len(variable.shape)).random(variable.shape))
    return model


def weights(model):
    return [np.asarray(each).astype(np.float64) for each in model.get_weights()]


@pytest.fixture
def program(monkeypatch):
    """Makes a module of a program with one function."""

    def make(function):
        module = types.ModuleType("program_of_test")
        module.make = function
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return "program_of_test:make"

    return make


@pytest.mark.parametrize("make", [*map(MODELS.get, KINDS), of_many_layers], ids=[*KINDS, "of_many_layers"])
def test_keras_loads_what_was_converted(make, tmp_path, program, capsys):
    model = built(make, seed=1)
    saved = milepost.Checkpoint(model=model, step=milepost.Variable(1)).save(tmp_path / "ckpt")
    target = tmp_path / "model.weights.h5"
    output_of(capsys, "convert", saved, target, "--object", program(lambda: {"model": built(make, seed=2)}))
    fresh = built(make, seed=3)
    fresh.load_weights(target)
    assert all(map(np.array_equal, weights(fresh), weights(model)))
    model.save_weights(tmp_path / "keras.weights.h5")
    other = built(make, seed=4)
    other.load_weights(tmp_path / "keras.weights.h5")
    np.testing.assert_array_equal(fresh(INPUTS, training=False), other(INPUTS, training=False))


def test_the_names_are_those_of_keras_itself(tmp_path, program, capsys):
    model = built(Nested)
    model.save_weights(tmp_path / "keras.weights.h5")
    saved = milepost.Checkpoint(model).save(tmp_path / "ckpt")
    found = json_of(capsys, "convert", saved, tmp_path / "a.weights.h5", "--object", program(lambda: built(Nested)))
    assert sorted(each["name"] for each in found["tensors"]) == sorted(
        key for key, _ in milepost.list_variables(tmp_path / "keras.weights.h5")
    )


def test_the_optimizer_goes_along_if_all_of_it_was_saved(tmp_path, program, capsys):
    def trained(seed):
        model = built(Subclassed, seed=seed)
        model.compile("adam", "mse")
        model.fit(INPUTS, TARGETS, verbose=0)
        return model

    model = trained(1)
    saved = milepost.Checkpoint(model=model).save(tmp_path / "ckpt")
    target = tmp_path / "a.weights.h5"
    done = output_of(capsys, "convert", saved, target, "--object", program(lambda: {"model": trained(2)}))
    assert "no variables of the model: 3 tensors" in done.err, "the counter of saves, and the mean of the losses"
    fresh = trained(3)
    fresh.load_weights(target)
    for mine, other in zip(fresh.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(other))


def test_the_optimizer_goes_along_into_a_program_that_has_not_trained_yet(tmp_path, program, capsys):
    def compiled(seed):
        model = built(Subclassed, seed=seed)
        model.compile("adam", "mse")
        return model

    model = compiled(1)
    model.fit(INPUTS, TARGETS, verbose=0)
    saved = milepost.Checkpoint(model=model).save(tmp_path / "ckpt")
    target = tmp_path / "a.weights.h5"
    output_of(capsys, "convert", saved, target, "--object", program(lambda: {"model": compiled(2)}))
    fresh = compiled(3)
    fresh.fit(INPUTS, TARGETS, verbose=0)
    fresh.load_weights(target)
    assert len(fresh.optimizer.variables) > 2, "not only the counter and the learning rate"
    for mine, other in zip(fresh.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(other))


def test_a_part_of_a_model(tmp_path, program, capsys):
    saved = milepost.Checkpoint(model=built(Subclassed)).save(tmp_path / "ckpt")
    name = program(lambda: {"model": built(Subclassed)})
    found = json_of(capsys, "convert", saved, tmp_path / "a.weights.h5", "--object", name, "--only", "model/l1")
    assert {each["name"] for each in found["tensors"]} == {"l1/vars/0", "l1/vars/1"}


def test_a_checkpoint_of_other_names(tmp_path, program, capsys):
    saved = milepost.Checkpoint(net=built(Subclassed, seed=1)).save(tmp_path / "ckpt")
    name = program(lambda: {"model": built(Subclassed)})
    output_of(capsys, "convert", saved, tmp_path / "a.weights.h5", "--object", name, "--rename", "net=model")
    fresh = built(Subclassed, seed=2)
    fresh.load_weights(tmp_path / "a.weights.h5")
    assert all(map(np.array_equal, weights(fresh), weights(built(Subclassed, seed=1))))


class TestErrors:
    def refused(self, capsys, tmp_path, name, *more):
        saved = tmp_path / "ckpt-1"
        if not (tmp_path / "ckpt-1.index").exists():
            milepost.Checkpoint(model=built(Subclassed)).save(tmp_path / "ckpt")
        assert main(["convert", str(saved), str(tmp_path / "a.weights.h5"), "--object", name, *more]) == 3
        assert not (tmp_path / "a.weights.h5").exists()
        return capsys.readouterr().err

    def test_a_model_that_is_not_built(self, tmp_path, program, capsys):
        assert "build the model" in self.refused(capsys, tmp_path, program(lambda: {"model": Subclassed()}))

    def test_a_compiled_model_that_is_not_built(self, tmp_path, program, capsys):
        """Its optimizer has variables, which alone are no model."""
        model = Subclassed()
        model.compile("adam", "mse")
        milepost.Checkpoint(model=model).save(tmp_path / "ckpt")
        assert "build the model" in self.refused(capsys, tmp_path, program(lambda: {"model": model}))
        assert not model.optimizer.built

    def test_a_model_of_which_nothing_was_saved(self, tmp_path, program, capsys):
        error = self.refused(capsys, tmp_path, program(lambda: built(Subclassed)))
        assert "l1/vars/0" in error
        assert "dict(model=model)" in error

    def test_two_models(self, tmp_path, program, capsys):
        two = program(lambda: {"model": built(Subclassed), "other": built(Subclassed)})
        assert "2 models of Keras 3" in self.refused(capsys, tmp_path, two)

    def test_no_model(self, tmp_path, program, capsys):
        none = program(lambda: {"model": milepost.Module()})
        assert "0 models of Keras 3" in self.refused(capsys, tmp_path, none)

    def test_another_format(self, tmp_path, capsys):
        with pytest.raises(SystemExit) as ended:
            main(["convert", "a", str(tmp_path / "a.safetensors"), "--object", "a:b"])
        assert ended.value.code == 2
        assert "leave --object out, or write FILE.weights.h5" in capsys.readouterr().err
