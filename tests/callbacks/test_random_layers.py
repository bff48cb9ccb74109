"""Layers of Keras 2 that draw random numbers, once they draw from generators that can be saved."""

import pytest

from tests.callbacks.runs import Interrupted, Trainer, X, Y, computed, weights  # noqa: F401 - a fixture
from tests.callbacks.test_counting import Unsized


@pytest.fixture
def tf_keras():
    trainer = Trainer("tf_keras")
    trainer.keras.backend.experimental.enable_tf_random_generator()
    yield trainer
    trainer.keras.backend.experimental.disable_tf_random_generator()


@pytest.mark.parametrize("sized", [True, False], ids=["sized", "unsized"])
@pytest.mark.parametrize("is_built", [True, False], ids=["built", "not built"])
@pytest.mark.parametrize("interrupted_at", [4, 6], ids=["between epochs", "within an epoch"])
def test_dropout_goes_on_as_in_a_whole_run(tf_keras, tmp_path, computed, interrupted_at, is_built, sized):  # noqa: F811
    layers = tf_keras.keras.layers

    def run(directory, *others):
        tf_keras.keras.utils.set_random_seed(0)
        first = [tf_keras.keras.Input((3,))] if is_built else []
        model = tf_keras.keras.Sequential([*first, layers.Dense(8), layers.Dropout(0.5), layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=is_built)  # steps in functions draw random numbers in another way
        callback = tf_keras.callback(tmp_path / directory, every_steps=1)
        data = callback.resumable(X, Y, batch_size=8, seed=1) if sized else callback.resumable(Unsized())
        return tf_keras.fit(model, callback, *others, data=data).history, weights(model)

    seen = []

    def count(batch):
        seen.append(batch)
        if len(seen) > interrupted_at:
            raise Interrupted

    with pytest.raises(Interrupted):
        run("parts", tf_keras.on("on_train_batch_begin", count))
    assert run("parts") == computed((is_built, sized), lambda: run("whole"))
