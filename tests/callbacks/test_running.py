"""The call of ``fit()`` that a callback serves is found with every trainer."""

import importlib.util
import json

import pytest

from tests import programs
from tests.callbacks.runs import X, Y, trainer  # noqa: F401 - a fixture

TRAINERS = {
    "jax": ("keras", ["keras", "jax"]),
    "torch": ("keras", ["keras", "torch"]),
    "tensorflow": ("keras", ["keras", "tensorflow"]),
    "tf_keras": ("tf_keras", ["tf_keras"]),
}
PROGRAM = """
import importlib, json, sys
import numpy as np
from milepost.callbacks.running import RunningFit
keras = importlib.import_module(sys.argv[1])
class Look(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.fit = RunningFit(self)
        self.running = [self.fit.is_running()]
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
look = Look()
model.fit(np.zeros((4, 1)), np.zeros((4, 1)), verbose=0, initial_epoch=1, epochs=2, callbacks=[look])
others = [type(each).__name__ for each in look.fit.others(look)]
print(json.dumps([others, look.fit.arguments["initial_epoch"], look.fit.reader is not None,
                  *look.running, look.fit.is_running()]))
"""


@pytest.mark.parametrize("name", list(TRAINERS))
def test_a_call_is_found_with_its_arguments(name):
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
    assert json.loads(done.stdout.splitlines()[-1]) == [["History"], 1, True, True, False]


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
