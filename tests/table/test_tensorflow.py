"""Against TensorFlow itself: the same bytes for the same entries, and each reads what the other wrote."""

import numpy as np
import pytest

from milepost.storage import LocalStorage
from milepost.table import TableReader
from tests.table.tables import contents, entry, pairs_in, table, write

tf = pytest.importorskip("tensorflow")


def save(tmp_path, tensors, slices=None):
    """Saves tensors by name, and returns the path of the index."""
    prefix = str(tmp_path / "ckpt")
    names = list(tensors)
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=slices or [""] * len(names),
        tensors=[tf.constant(tensors[name]) for name in names],
    )
    return prefix + ".index"


def same_bytes(path):
    """Reads an index of TensorFlow, writes it again, and returns the number of its blocks."""
    reader = TableReader(LocalStorage().open(path))
    reader.verify()
    with open(path, "rb") as file:
        assert write(pairs_in(reader)) == file.read()
    return len(reader._handles)


def scalars(names):
    return {name: np.int8(n % 100) for n, name in enumerate(names)}


def test_thirty_thousand_keys(tmp_path):
    """Blocks are closed after exactly as many entries."""
    names = [f"model/layer_with_weights-{n % 97}/cell/{n}/.ATTRIBUTES/VARIABLE_VALUE" for n in range(30000)]
    assert same_bytes(save(tmp_path, scalars(names))) > 3


@pytest.mark.parametrize("seed", range(8))
def test_random_keys(tmp_path, seed):
    """Index keys between blocks are shortened in the same way, whatever the bytes around them."""
    random = np.random.default_rng(seed)
    names = set()
    while len(names) < 3000:
        length = int(random.choice([1, 3, 40, 300, 2000]))
        names.add(random.choice([b"\x01", b"\x02", b"a", b"b", b"\xfe", b"\xff"], length).tobytes())
    assert same_bytes(save(tmp_path, scalars(names))) > 2


@pytest.mark.parametrize("length", [524_287, 524_288, 524_289, 600_000, 2_000_000])
def test_keys_of_half_a_megabyte(tmp_path, length):
    """A very large entry begins a block of its own, from exactly the same size on."""
    names = ["a", "b" * length, "c", "d" * length, "d" * length + "e", "f"]
    assert same_bytes(save(tmp_path, scalars(names))) >= 3


@pytest.mark.parametrize("shorter", range(0, 40, 3))
def test_entries_around_the_large_size(tmp_path, shorter):
    """The length that counts is that of key and value together."""
    assert same_bytes(save(tmp_path, scalars(["a", "b" * (524_288 - shorter), "c"]))) >= 2


@pytest.mark.parametrize("length", range(262_144 - 60, 262_144 + 10, 5))
def test_entries_around_the_block_size(tmp_path, length):
    """A block is closed once its entries, restarts and their count reach the block size."""
    assert same_bytes(save(tmp_path, scalars(["a", "b" * length, "c", "d"]))) in (1, 2)


def test_sliced_tensors(tmp_path):
    """The binary keys of slices, and their long parent entry, come out the same."""
    prefix = str(tmp_path / "ckpt")
    count = 30000
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=["table"] * count,
        shape_and_slices=[f"{count} 2 {n},1:-" for n in range(count)],
        tensors=[tf.zeros([1, 2])] * count,
    )
    assert same_bytes(prefix + ".index") > 3


def test_an_empty_checkpoint_object(tmp_path):
    """The smallest checkpoint comes out the same."""
    assert same_bytes(tf.train.Checkpoint().save(str(tmp_path / "ckpt")) + ".index") == 1


@pytest.mark.parametrize(("block_size", "interval"), [(1, 1), (64, 2), (300, 4), (1000, 16), (262144, 1)])
def test_tensorflow_reads_other_block_sizes(tmp_path, block_size, interval):
    """What is written with any block size and restart interval opens in TensorFlow."""
    tensors = {f"layer/{n:03d}/kernel": np.arange(n % 7, dtype=np.float32) for n in range(200)}
    path = save(tmp_path, tensors)
    pairs = pairs_in(TableReader(LocalStorage().open(path)))
    with open(path, "wb") as file:
        file.write(write(pairs, block_size=block_size, restart_interval=interval))
    reader = tf.train.load_checkpoint(str(tmp_path / "ckpt"))
    assert sorted(reader.get_variable_to_shape_map()) == sorted(tensors)
    for name, value in tensors.items():
        np.testing.assert_array_equal(reader.get_tensor(name), value)


def test_tensorflow_reads_the_tables_of_these_tests(tmp_path):
    """Tables put together by hand, with gaps and compression, are tables for TensorFlow too."""
    cramjam = pytest.importorskip("cramjam")
    path = save(tmp_path, {"a": np.float32(1), "b": np.float32(2)})
    pairs = pairs_in(TableReader(LocalStorage().open(path)))
    blocks = [contents([entry(0, key, value)]) for key, value in pairs]
    for options in ({}, {"gap": b"xyz"}, {"compress": lambda b: bytes(cramjam.snappy.compress_raw(b))}):
        with open(path, "wb") as file:
            file.write(table(*blocks, limits=[key for key, _ in pairs], **options))
        assert pairs_in(TableReader(LocalStorage().open(path))) == pairs
        reader = tf.train.load_checkpoint(str(tmp_path / "ckpt"))
        assert [reader.get_tensor(name) for name in ("a", "b")] == [1, 2]
