"""Weights of Keras 3 in several files, and vocabularies in ``.keras`` archives."""

import json
import zipfile

import numpy as np
import pytest

import milepost

keras = pytest.importorskip("keras")
pytest.importorskip("h5py")
tf = pytest.importorskip("tensorflow")


def net(seed=0):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(512), keras.layers.Dense(512), keras.layers.Dense(3)]
    )
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture
def shards(tmp_path):
    model = net()
    model.save_weights(tmp_path / "net.weights.json", max_shard_size=0.0011)
    assert len(list(tmp_path.glob("*.h5"))) > 2
    return model, tmp_path / "net.weights.json"


def arrays(model):
    return [np.asarray(each) for each in [*model.variables, *model.optimizer.variables]]


def test_weights_in_several_files_are_restored(shards):
    model, path = shards
    live = net(1)
    milepost.Checkpoint(live).read(path).assert_existing_objects_matched().assert_consumed()
    for found, expected in zip(arrays(live), arrays(model), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_they_are_listed_loaded_and_verified_as_one_file(shards):
    model, path = shards
    loaded = milepost.load(path)
    np.testing.assert_array_equal(loaded["layers"]["dense_1"]["vars"]["0"], np.asarray(model.layers[1].kernel))
    assert ("layers/dense_2/vars/1", [3]) in milepost.list_variables(path)
    with milepost.load_checkpoint(path) as reader:
        reader.verify()


def test_they_become_one_file(shards, tmp_path):
    model, path = shards
    milepost.convert(path, tmp_path / "one.weights.h5")
    live = net(1)
    live.load_weights(tmp_path / "one.weights.h5")
    np.testing.assert_array_equal(np.asarray(live.layers[1].kernel), np.asarray(model.layers[1].kernel))


def test_a_missing_file_is_named(shards):
    _, path = shards
    path.with_name("net_00001.weights.h5").unlink()
    with pytest.raises(milepost.CheckpointNotFoundError) as caught:
        milepost.load(path)
    assert str(caught.value.file).endswith("net_00001.weights.h5")


@pytest.mark.parametrize("name", ["../net_00000.weights.h5", "/etc/passwd", "", 3, [["x"]]])
def test_an_index_that_leads_elsewhere_is_refused(shards, name):
    _, path = shards
    path.write_text(json.dumps({"weight_map": {"/layers/dense/vars": name}}))
    with pytest.raises(milepost.CorruptCheckpointError):
        milepost.load(path)


def lookups(adapted):
    text, numbers, words, weighted = (
        keras.layers.StringLookup(),
        keras.layers.IntegerLookup(),
        keras.layers.TextVectorization(),
        keras.layers.StringLookup(output_mode="tf_idf"),
    )
    if adapted:
        text.adapt(np.array(["b", "a", "é", "b"]))
        numbers.adapt(np.array([30, 20, 30]))
        words.adapt(tf.constant(["some words", "other words"]))
    # it cannot be called before it is adapted
    weighted.adapt(tf.constant([["x", "y"], ["x", "z"]] if adapted else [["q", "x"], ["x", "p"]]))
    inputs = [keras.Input((1,), dtype=kind) for kind in ("string", "int64", "string", "string")]
    outputs = [layer(each) for layer, each in zip((text, numbers, words, weighted), inputs, strict=True)]
    model = keras.Model(inputs, outputs)
    return model, (text, numbers, words, weighted)


def test_vocabularies_in_an_archive_are_restored(tmp_path):
    saved, layers = lookups(adapted=True)
    saved.save(tmp_path / "model.keras")
    live, fresh = lookups(adapted=False)
    counts = milepost.Checkpoint(live).read(tmp_path / "model.keras").expect_partial().report().counts()
    assert (counts["unexpected"], counts["deferred"]) == (0, 0)
    for found, expected in zip(fresh, layers, strict=True):
        assert found.get_vocabulary() == expected.get_vocabulary()
    np.testing.assert_allclose(
        np.asarray(fresh[3](tf.constant([["x", "y"]]))), np.asarray(layers[3](tf.constant([["x", "y"]])))
    )


def test_vocabularies_are_listed(tmp_path):
    saved, _ = lookups(adapted=True)
    saved.save(tmp_path / "model.keras")
    loaded = milepost.load(tmp_path / "model.keras")
    assert loaded["layers"]["string_lookup"]["vocabulary"].tolist() == [b"[UNK]", b"b", "é".encode(), b"a"]


def test_other_assets_are_named_in_a_warning(tmp_path):
    model = net()
    model.save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras", "a") as archive:
        archive.writestr("assets/layers/own/table.bin", b"\0")
    with pytest.warns(milepost.UnrestoredWarning, match="assets/layers/own/table.bin"):
        milepost.Checkpoint(net(1)).read(tmp_path / "model.keras")


def test_a_vocabulary_of_far_more_tokens_than_it_has_bytes_is_refused(tmp_path):
    saved, _ = lookups(adapted=True)
    saved.save(tmp_path / "m.keras")
    lines = b"ab\n" * (8 << 20)
    with zipfile.ZipFile(tmp_path / "m.keras", "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("assets/layers/another/vocabulary.txt", lines)
    with pytest.raises(milepost.CorruptCheckpointError, match="text would take more memory"):
        milepost.list_variables(tmp_path / "m.keras")


def test_a_damaged_vocabulary_is_noticed(tmp_path):
    saved, _ = lookups(adapted=True)
    saved.save(tmp_path / "model.keras")
    data = bytearray((tmp_path / "model.keras").read_bytes())
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        content = archive.read("assets/layers/string_lookup/vocabulary.txt")
        assert archive.getinfo("assets/layers/string_lookup/vocabulary.txt").compress_type == zipfile.ZIP_STORED
    data[data.index(content) + 1] ^= 1
    (tmp_path / "model.keras").write_bytes(data)
    with pytest.raises(milepost.CorruptCheckpointError, match="checksum"):
        milepost.load(tmp_path / "model.keras")
