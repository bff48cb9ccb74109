"""What Keras 3 objects hold beside weights, and under which keys it is saved."""

import collections
import re
import warnings

import numpy as np
import pytest

import milepost
from tests.adapters.keras.models import INPUTS, TARGETS, Nested, Subclassed, functional, keras, sequential

BACKEND = keras.backend.backend()
layers = keras.layers


def numpy(tensor):
    return np.asarray(keras.ops.convert_to_numpy(tensor))


def keys(path):
    return {
        key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")
        for key, _ in milepost.list_variables(path)
        if not key.startswith("_CHECKPOINTABLE")
    }


class TestKeys:
    def test_of_a_subclassed_model_are_its_attributes(self, tmp_path):
        model = Nested()
        model(INPUTS)
        assert keys(milepost.Checkpoint(net=model).write(tmp_path / "c")) == {
            f"net/{path}/{weight}" for path in ("inner/l1", "inner/l2", "head") for weight in ("kernel", "bias")
        }

    @pytest.mark.parametrize("make", [sequential, functional])
    def test_of_layered_models_are_those_of_keras_2(self, tmp_path, make):
        model = make()
        model(INPUTS)
        found = keys(milepost.Checkpoint(net=model).write(tmp_path / "c"))
        assert {key.split("/")[1] for key in found} == {f"layer_with_weights-{k}" for k in range(len(found) // 2)} - (
            {"layer_with_weights-4"} if make is sequential else set()
        )

    def test_of_layers_in_lists_and_dicts_are_positions_and_names(self, tmp_path):
        model = keras.Model()
        model.blocks = [layers.Dense(2)]
        model.named = {"head": layers.Dense(2)}
        for layer in (model.blocks[0], model.named["head"]):
            layer.build((None, 3))
        found = keys(milepost.Checkpoint(net=model).write(tmp_path / "c"))
        assert {"net/blocks/0/kernel", "net/named/head/bias"} <= found

    def test_a_weight_that_no_attribute_holds_is_saved_by_its_position(self, tmp_path):
        class Hidden(layers.Layer):
            def build(self, shape):
                self.add_weight(shape=(2,), initializer="ones", name="hidden")

        layer = Hidden()
        layer.build((None, 2))
        layer.variables[0].assign([3.0, 4.0])
        path = milepost.Checkpoint(layer=layer).write(tmp_path / "c")
        fresh = Hidden()
        status = milepost.Checkpoint(layer=fresh).read(path)
        fresh.build((None, 2))
        assert numpy(fresh.variables[0]).tolist() == [3.0, 4.0]
        status.assert_consumed()


@pytest.mark.skipif(BACKEND != "torch", reason="only on PyTorch are there modules with buffers")
def test_buffers_of_pytorch_modules_are_saved(tmp_path):
    import torch

    def made():
        return layers.TorchModuleWrapper(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)))

    layer = made()
    layer(torch.tensor(INPUTS), training=True)
    path = milepost.Checkpoint(layer=layer).write(tmp_path / "c")
    fresh = made()
    milepost.Checkpoint(layer=fresh).read(path).assert_consumed()
    for name, tensor in layer.module.state_dict().items():
        assert torch.equal(fresh.module.state_dict()[name], tensor)


class TestRandomness:
    def test_dropout_goes_on_with_the_next_mask(self, tmp_path):
        if BACKEND == "torch":
            pytest.skip("on PyTorch, Keras' dropout draws from PyTorch's own generator, not from its seed")

        def made():
            return layers.Dropout(0.5, seed=7)

        ones = np.ones((4, 50), "float32")
        layer = made()
        layer(ones, training=True)
        path = milepost.Checkpoint(layer=layer).write(tmp_path / "c")
        expected = numpy(layer(ones, training=True))
        fresh = made()
        milepost.Checkpoint(layer=fresh).read(path).assert_consumed()
        np.testing.assert_array_equal(numpy(fresh(ones, training=True)), expected)

    def test_a_seed_generator_is_a_trackable_object_of_its_own(self, tmp_path):
        generator = keras.random.SeedGenerator(3)
        generator.next()
        path = milepost.Checkpoint(seed=generator).write(tmp_path / "c")
        fresh = keras.random.SeedGenerator(4)
        milepost.Checkpoint(seed=fresh).read(path).assert_consumed()
        np.testing.assert_array_equal(numpy(fresh.next()), numpy(generator.next()))


class TestMetrics:
    def test_keep_counting(self, tmp_path):
        metric = keras.metrics.MeanSquaredError()
        metric.update_state([1.0, 2.0], [2.0, 4.0])
        path = milepost.Checkpoint(metric=metric).write(tmp_path / "c")
        fresh = keras.metrics.MeanSquaredError()
        milepost.Checkpoint(metric=fresh).read(path).assert_consumed()
        assert float(fresh.result()) == 2.5

    @pytest.mark.parametrize("kind", ["F1Score", "R2Score"])
    def test_that_make_their_variables_late_get_them_before_the_first_update(self, tmp_path, kind):
        def made():
            return getattr(keras.metrics, kind)()

        truth, guess = np.eye(3, dtype="float32"), np.full((3, 3), 0.4, "float32") + np.eye(3, dtype="float32") / 5
        metric = made()
        metric.update_state(truth, guess)
        path = milepost.Checkpoint(metric=metric).write(tmp_path / "c")
        metric.update_state(truth, truth)
        fresh = made()
        status = milepost.Checkpoint(metric=fresh).read(path)
        fresh.update_state(truth, truth)
        np.testing.assert_array_equal(numpy(fresh.result()), numpy(metric.result()))
        status.assert_consumed()


class TestPreprocessing:
    def test_an_adapted_normalization_computes_with_the_restored_numbers(self, tmp_path):
        layer = layers.Normalization()
        layer.adapt(INPUTS * 3 + 1)
        path = milepost.Checkpoint(layer=layer).write(tmp_path / "c")
        fresh = layers.Normalization()
        status = milepost.Checkpoint(layer=fresh).read(path)
        np.testing.assert_array_equal(numpy(fresh(INPUTS)), numpy(layer(INPUTS)))
        status.assert_consumed()

    def test_one_that_is_built_already_does_too(self, tmp_path):
        layer = layers.Normalization()
        layer.adapt(INPUTS * 3 + 1)
        path = milepost.Checkpoint(layer=layer).write(tmp_path / "c")
        fresh = layers.Normalization()
        fresh.build(INPUTS.shape)
        milepost.Checkpoint(layer=fresh).read(path).assert_consumed()
        np.testing.assert_array_equal(numpy(fresh(INPUTS)), numpy(layer(INPUTS)))

    @pytest.mark.parametrize(
        ("kind", "data"),
        [
            (lambda: layers.StringLookup(), [["a", "b", "a"]]),
            (lambda: layers.IntegerLookup(), [[7, 9, 7]]),
            (lambda: layers.Discretization(num_bins=3), np.arange(12.0)[:, None]),
            (lambda: layers.StringLookup(output_mode="tf_idf"), [["a", "b", "a"]]),
        ],
        ids=["strings", "integers", "bins", "tf_idf"],
    )
    def test_a_vocabulary_is_restored(self, tmp_path, kind, data):
        pytest.importorskip("tensorflow", reason="Keras' lookups are TensorFlow's on every backend")
        layer = kind()
        layer.adapt(np.array(data))
        path = milepost.Checkpoint(layer=layer).write(tmp_path / "c")
        fresh = kind()
        milepost.Checkpoint(layer=fresh).read(path)
        np.testing.assert_array_equal(numpy(fresh(np.array(data))), numpy(layer(np.array(data))))

    @pytest.mark.parametrize(
        "made", [layers.StringLookup, layers.IntegerLookup, layers.TextVectorization, layers.Normalization]
    )
    def test_a_layer_that_was_not_adapted_is_saved(self, tmp_path, made):
        pytest.importorskip("tensorflow", reason="Keras' lookups are TensorFlow's on every backend")
        path = milepost.Checkpoint(layer=made()).write(tmp_path / "c")
        milepost.Checkpoint(layer=made()).read(path).assert_consumed()


FEATURES = {"a": np.arange(6.0, dtype=np.float32), "b": np.array(list("xyzxyx")), "c": np.arange(6.0, dtype=np.float32)}


class TestFeatureSpace:
    @pytest.fixture(autouse=True)
    def tensorflow(self):
        return pytest.importorskip("tensorflow", reason="a FeatureSpace computes with TensorFlow on every backend")

    def made(self):
        space = keras.utils.FeatureSpace
        words = layers.TextVectorization(output_mode="multi_hot")
        features = {"a": space.float_normalized(), "c": space.float_discretized(3, output_mode="one_hot")}
        return space({**features, "b": space.feature("string", words, "float")}, output_mode="dict")

    def adapted(self, tensorflow):
        space = self.made()
        space.adapt(tensorflow.data.Dataset.from_tensor_slices(FEATURES).batch(2))
        return space

    def test_it_counts_as_adapted_after_a_restore(self, tmp_path, tensorflow):
        space, fresh = self.adapted(tensorflow), self.made()
        status = milepost.Checkpoint(space=fresh).read(milepost.Checkpoint(space=space).write(tmp_path / "c"))
        found, expected = fresh(FEATURES), space(FEATURES)
        for name in FEATURES:
            np.testing.assert_array_equal(numpy(found[name]), numpy(expected[name]))
        status.assert_consumed().assert_existing_objects_matched()

    def test_one_that_was_not_adapted_stays_so(self, tmp_path):
        fresh = self.made()
        milepost.Checkpoint(space=fresh).read(milepost.Checkpoint(space=self.made()).write(tmp_path / "c"))
        with pytest.raises(ValueError, match="adapt"):
            fresh(FEATURES)

    def test_one_of_which_a_part_is_restored_stays_so(self, tmp_path, tensorflow):
        fresh = self.made()
        path = milepost.Checkpoint(space=self.adapted(tensorflow)).write(tmp_path / "c")
        milepost.Checkpoint(space=fresh).read(path, ignore="space/preprocessors/b")
        with pytest.raises(ValueError, match="adapt"):
            fresh(FEATURES)


class TestPrivateValues:
    """What TensorFlow would not save is saved, but TensorFlow is not told of it."""

    def test_are_in_the_file_but_not_in_what_tensorflow_reads_of_the_graph(self, tmp_path):
        model = keras.Sequential([layers.Dense(2), layers.Dropout(0.5)])
        model.compile("adam", "mse", metrics=["mae"])
        model.fit(INPUTS, TARGETS, verbose=0)
        path = milepost.Checkpoint(net=model).write(tmp_path / "c")
        assert any("seed_generator" in key for key in keys(path))
        assert any("_loss_tracker" in key for key in keys(path))
        graph = milepost.load_checkpoint(path).get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
        object_graph = pytest.importorskip("tensorflow.core.protobuf.trackable_object_graph_pb2")
        seen = object_graph.TrackableObjectGraph.FromString(bytes(np.asarray(graph).item()))
        listed = [attribute.checkpoint_key for node in seen.nodes for attribute in node.attributes]
        assert not [key for key in listed if re.search("seed_generator|_loss_tracker|_compile_metrics", key)]
        assert [key for key in listed if "kernel" in key]


class TestNothingIsDroppedInSilence:
    def test_a_layer_in_a_container_that_cannot_be_tracked_is_named(self, tmp_path):
        model = keras.Model()
        model.queue = collections.deque([layers.Dense(2)])
        with pytest.warns(milepost.UntrackedWarning, match="net/queue"):
            milepost.Checkpoint(net=model).write(tmp_path / "c")

    def test_strict_refuses_it(self, tmp_path):
        model = keras.Model()
        model.queue = collections.deque([layers.Dense(2)])
        with pytest.raises(milepost.UntrackableError, match="net/queue"):
            milepost.Checkpoint(net=model).write(tmp_path / "c", milepost.CheckpointOptions(strict=True))

    def test_an_ordinary_compiled_model_gives_no_warning(self, tmp_path):
        model = keras.Sequential([layers.Dense(3), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(2)])
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
        model.fit(INPUTS, TARGETS, verbose=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error", milepost.MilepostWarning)
            milepost.Checkpoint(net=model).write(tmp_path / "c")

    def test_a_lost_layer_is_reported_by_its_key(self, tmp_path):
        model = Subclassed()
        model(INPUTS)
        path = milepost.Checkpoint(net=model).write(tmp_path / "c")
        other = Nested()
        other(INPUTS)
        report = milepost.Checkpoint(net=other).read(path).report()
        assert {entry.key.split("/")[1] for entry in report.deferred} == {"l1", "l2"}
        assert {entry.key.split("/")[1] for entry in report.missing} == {"inner", "head"}


class TestDuringFit:
    def saved_in_callback(self, checkpoint, path):
        class Save(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if batch == 1:
                    checkpoint.write(path)

        return Save()

    def test_a_checkpoint_of_the_model_has_the_values_of_that_batch(self, tmp_path):
        def made():
            keras.utils.set_random_seed(1)
            model = Subclassed()
            model.compile("adam", "mse")
            return model, milepost.Checkpoint(model=model)

        model, checkpoint = made()
        callback = self.saved_in_callback(checkpoint, tmp_path / "c")
        model.fit(INPUTS, TARGETS, batch_size=3, shuffle=False, verbose=0, callbacks=[callback])
        expected = [numpy(variable) for variable in model.trainable_variables]
        other, checkpoint = made()
        checkpoint.read(tmp_path / "c")
        other.build(INPUTS.shape) if other.built else other(INPUTS)
        for ours, theirs in zip(other.trainable_variables, expected, strict=True):
            np.testing.assert_array_equal(numpy(ours), theirs)

    @pytest.mark.skipif(BACKEND != "jax", reason="only on JAX does the trainer hold the values")
    def test_a_checkpoint_without_the_model_says_what_to_do(self, tmp_path):
        model = Subclassed()
        model.compile("adam", "mse")
        callback = self.saved_in_callback(milepost.Checkpoint(layer=model.l1), tmp_path / "c")
        # Keras hands the state to the trainer only where it thinks that nobody looks.
        model.fit(INPUTS, TARGETS, batch_size=3, verbose=0)
        model._jax_state_synced = True
        with pytest.raises(milepost.UnsupportedError, match="jax_state_sync"):
            model.fit(INPUTS, TARGETS, batch_size=3, verbose=0, callbacks=[callback])
