"""A callback is told of each call of ``fit()`` that uses it, with every trainer."""

import importlib.util
import json

import pytest

import milepost
from tests import programs
from tests.callbacks.runs import X, Y, trainer  # noqa: F401 - a fixture

TRAINERS = {
    "jax": ("keras", ["keras", "jax"]),
    "torch": ("keras", ["keras", "torch"]),
    "tensorflow": ("keras", ["keras", "tensorflow"]),
    "tf_keras": ("tf_keras", ["tf_keras"]),
}
PROGRAM = """
import contextlib, importlib, json, sys
import numpy as np
from milepost.callbacks.fit import tell_of_calls
keras = importlib.import_module(sys.argv[1])
seen = []
class Told(keras.callbacks.Callback):
    @contextlib.contextmanager
    def _serve(self, call):
        seen.append([type(each).__name__ for each in call.others] + [call.arguments["initial_epoch"], call.arguments["epochs"]])
        call.arguments["initial_epoch"] = 2
        try:
            yield
        finally:
            seen.append("left")
    def on_epoch_begin(self, epoch, logs=None):
        seen.append(epoch)
        if epoch == 3:
            raise KeyboardInterrupt
original = keras.Model.fit
for _ in range(2):
    tell_of_calls(keras.Model, Told, list)
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, y = np.zeros((4, 1)), np.zeros((4, 1))
model.fit(x, y, verbose=0, callbacks=[keras.callbacks.TerminateOnNaN()])
with contextlib.suppress(KeyboardInterrupt):
    model.fit(x, y, 2, epochs=4, verbose=0, callbacks=[Told(), keras.callbacks.TerminateOnNaN()])
print(json.dumps([keras.Model.fit.__wrapped__ is original, keras.Model.fit.__doc__ == original.__doc__, *seen]))
"""


@pytest.mark.parametrize("name", list(TRAINERS))
def test_a_call_is_told_with_its_arguments_and_its_end(name):
    package, needed = TRAINERS[name]
    missing = [each for each in needed if importlib.util.find_spec(each) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    backend = "tensorflow" if name == "tf_keras" else name
    done = programs.run(
        ["-c", PROGRAM, package],
        imports=programs.imports(*needed),
        environment=programs.environment(backend),
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == [True, True, ["TerminateOnNaN", 0, 4], 2, 3, "left"]


def test_a_program_that_calls_the_callback_itself_is_warned_of_the_others(trainer, tmp_path):  # noqa: F811
    model, callback = trainer.model(), trainer.callback(tmp_path)
    model.train_on_batch(X, Y)
    callback.set_model(model)
    callback.set_params({"epochs": 2, "steps": None})
    model.history = trainer.keras.callbacks.History()
    model.history.on_train_begin()
    with pytest.warns(milepost.MilepostWarning, match="knows no other callbacks"):
        callback.on_train_begin()
    callback.on_epoch_begin(0)
    callback.on_epoch_end(0, {"loss": 1.0})
    callback.on_train_end()
    assert len(callback.manager.checkpoints) == 1


def test_a_callback_becomes_the_last_one(trainer, tmp_path):  # noqa: F811
    seen = []
    callback = trainer.callback(tmp_path)
    others = [trainer.on(event, lambda _: seen.append("other")) for event in ("on_epoch_begin", "on_epoch_end")]
    own = callback.on_epoch_begin
    callback.on_epoch_begin = lambda epoch, logs=None: (seen.append("own"), own(epoch, logs))
    trainer.fit(trainer.model(), callback, *others, epochs=1, last=False)
    assert seen == ["other", "own", "other"]


def test_no_other_callback_is_passed_over(trainer, tmp_path):  # noqa: F811
    seen = []
    others = [trainer.on("on_train_begin", lambda _, name=name: seen.append(name)) for name in "abc"]
    callback = trainer.callback(tmp_path)
    data = callback.resumable(X, Y, batch_size=8)
    trainer.model().fit(data, verbose=0, callbacks=[others[0], callback, others[1], others[2]])
    assert seen == ["a", "b", "c"]
