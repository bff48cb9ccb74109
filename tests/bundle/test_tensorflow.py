"""The same files as TensorFlow's, and each reads what the other wrote."""

import string
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from milepost.bundle import BundleWriter, Fetch, data_path, index_path, open_bundle
from milepost.storage import LocalStorage
from milepost.tensor import DType, TensorSlice
from tests.bundle.bundles import EVERY_DTYPE, NUMBERS, commit, example, same, write

tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def _has(dtype: DType) -> bool:
    try:
        tf.as_dtype(dtype.name)
    except TypeError:
        return False
    return True


COMMON = [dtype for dtype in EVERY_DTYPE if dtype.name != "variant" and _has(dtype)]
"""The element types of which this TensorFlow has tensors."""

STORAGE = LocalStorage()
ASSEMBLED = ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "bfloat16", "complex64"]
SHAPES = [(), (0,), (1,), (3, 0, 2), (2, 3)]


def tensor(array):
    """A tensor with exactly these bytes, also of types that TensorFlow cannot make from arrays."""
    dtype = DType.of(array)
    if dtype.is_bytes:
        return tf.constant(array.tolist(), tf.string, shape=array.shape)
    if dtype.numpy.names:
        return tf.bitcast(tf.constant(array.view(dtype.numpy[0])), dtype.name)
    return tf.constant(array, tf.as_dtype(dtype.name))


def plain(array):
    """What TensorFlow gives back, in the form in which milepost does."""
    array = np.asarray(array)
    return array.astype(object) if array.dtype.kind == "S" else array


def save(prefix, tensors):
    """Saves with TensorFlow; a value may be an array or (shape, {box: array})."""
    names, specs, values = [], [], []
    for key, value in tensors.items():
        if isinstance(value, tuple):
            shape, pieces = value
            for box, array in pieces.items():
                names.append(key)
                specs.append(" ".join(map(str, shape)) + " " + box)
                values.append(tensor(array))
        else:
            names.append(key)
            specs.append("")
            values.append(tensor(value))
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=specs, tensors=values)


def restore(prefix, key, dtype, spec=""):
    (value,) = tf.raw_ops.RestoreV2(
        prefix=str(prefix), tensor_names=[key], shape_and_slices=[spec], dtypes=[tf.as_dtype(dtype.name)]
    )
    return value


def raw(value, dtype):
    """The values of a tensor, also of types that TensorFlow cannot give back as arrays."""
    if dtype.numpy.names:
        return tf.bitcast(value, dtype.name[1:]).numpy().view(dtype.numpy)
    return plain(value.numpy())


def assert_same_files(tmp_path, tensors):
    """Both libraries write the same bytes for the same tensors."""
    save(tmp_path / "theirs", tensors)
    write(STORAGE, str(tmp_path / "ours"), tensors, alignment=1)
    for path in (data_path("{}", 0, 1), index_path("{}")):
        ours, theirs = ((tmp_path / path.format(name)).read_bytes() for name in ("ours", "theirs"))
        assert ours == theirs, path


class TestSameBytes:
    @pytest.mark.parametrize("dtype", COMMON, ids=str)
    def test_every_type(self, tmp_path, dtype):
        """Each type is stored as TensorFlow stores it."""
        assert_same_files(tmp_path, {f"{shape}": example(dtype, shape) for shape in SHAPES})

    def test_strings_of_any_length(self, tmp_path):
        """Lengths around the limits of a varint, empty strings, and zeros at the end."""
        elements = [b"x" * n for n in (0, 1, 127, 128, 16383, 16384, 70000)] + [b"\0", b"a\0\0"]
        assert_same_files(tmp_path, {"s": np.array(elements, object), "one": np.array(b"", object)})

    def test_text_is_utf8(self, tmp_path):
        """Text is written as TensorFlow writes its UTF-8."""
        save(tmp_path / "theirs", {"s": np.array(["é".encode()], object)})
        write(STORAGE, str(tmp_path / "ours"), {"s": np.array(["é"])}, alignment=1)
        assert same(open_bundle(STORAGE, tmp_path / "ours").read("s"), np.array(["é".encode()], object))
        for end in (".index", ".data-00000-of-00001"):
            assert (tmp_path / f"ours{end}").read_bytes() == (tmp_path / f"theirs{end}").read_bytes()

    def test_slices(self, tmp_path):
        """Keys, entries and order of slices, whole dimensions written either way, one slice that is everything."""
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        big = np.arange(300 * 9, dtype=np.int64).reshape(300, 9)
        assert_same_files(
            tmp_path,
            {
                "x": ((3, 4), {"0,2:0,4": x[:2], "2,1:-": x[2:]}),
                "whole": ((3, 4), {"-:0,4": x}),
                "odd name \xff/\u20ac": ((300, 9), {"64,236:-": big[64:], "0,64:-": big[:64]}),
                "plain": x,
                "strings": ((4,), {"0,3": example(DType.of("string"), (3,)), "3,1": example(DType.of("string"), (1,))}),
            },
        )

    def test_order_of_keys(self, tmp_path):
        """The index is sorted by bytes, the data file by when a tensor was added."""
        keys = ["b", "a/b", "a", "a.b", "Z", "é", "\U0001f600", "\uffee", "a\x00b", "_CHECKPOINTABLE_OBJECT_GRAPH"]
        assert_same_files(tmp_path, {key: np.float32(number) for number, key in enumerate(keys)})

    def test_large_tensors(self, tmp_path):
        """Tensors that are written in several chunks by several threads, between small ones."""
        rng = np.random.default_rng(7)
        assert_same_files(
            tmp_path,
            {
                "small": rng.random(3),
                "large": rng.integers(0, 255, 40_000_003, np.uint8),
                "next": rng.random(5, np.float32),
                "joined": rng.random(8000),
                "chunk": rng.random((1 << 17) + 1),
                "text": np.array([rng.bytes(3_000_000), b"", rng.bytes(70_000)], object),
                "last": rng.random(1),
            },
        )

    def test_an_index_of_many_blocks(self, tmp_path):
        """Ten thousand tensors take several blocks of the index."""
        assert_same_files(
            tmp_path, {f"layer_{n}/kernel/.ATTRIBUTES/VARIABLE_VALUE": np.int32(n) for n in range(10_000)}
        )

    @settings(max_examples=60)
    @given(st.data())
    def test_any_tensors(self, tmp_path_factory, data):
        """Random names, types, shapes and values."""
        key = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)
        types = [dtype for dtype in NUMBERS if dtype.numpy.kind in "biufc" and "float8" not in dtype.name]
        arrays = st.sampled_from(types).flatmap(
            lambda dtype: hnp.arrays(dtype.numpy, hnp.array_shapes(min_dims=0, min_side=0, max_dims=4, max_side=6))
        )
        strings = st.lists(st.binary(max_size=200), max_size=5).map(lambda elements: np.array(elements, object))
        tensors = data.draw(st.dictionaries(key, arrays | strings, min_size=1, max_size=8))
        assert_same_files(tmp_path_factory.mktemp("same"), tensors)


class TestTensorFlowReads:
    @pytest.mark.parametrize("alignment", [1, 64, 4096])
    @pytest.mark.parametrize("dtype", COMMON, ids=str)
    def test_every_type(self, tmp_path, dtype, alignment):
        """TensorFlow restores what milepost wrote, of each type, with or without gaps between tensors."""
        tensors = {f"{shape}": example(dtype, shape) for shape in SHAPES}
        write(STORAGE, str(tmp_path / "x"), tensors, alignment=alignment)
        for key, array in tensors.items():
            assert same(raw(restore(tmp_path / "x", key, dtype), dtype), array)

    @pytest.mark.parametrize("dtype", [d for d in COMMON if d.numpy.kind in "biufcO"], ids=str)
    def test_every_type_through_its_reader(self, tmp_path, dtype):
        """``tf.train.load_checkpoint`` gives what milepost was given."""
        tensors = {f"{shape}": example(dtype, shape) for shape in SHAPES}
        write(STORAGE, str(tmp_path / "x"), tensors)
        reader = tf.train.load_checkpoint(str(tmp_path / "x"))
        assert reader.get_variable_to_shape_map() == {key: list(array.shape) for key, array in tensors.items()}
        for key, array in tensors.items():
            got = np.asarray(reader.get_tensor(key), array.dtype)
            assert same(got, array)

    @pytest.mark.parametrize("shards", [2, 7])
    def test_many_shards(self, tmp_path, shards):
        """Tensors and slices spread over several data files."""
        x = np.arange(60, dtype=np.float32).reshape(6, 10)
        tensors = {f"t{n}": np.full(n, n, np.int32) for n in range(20)}
        pieces = {f"{n},1:-": x[n : n + 1] for n in range(6)}
        write(STORAGE, str(tmp_path / "x"), {**tensors, "x": ((6, 10), pieces)}, shards=shards)
        reader = tf.train.load_checkpoint(str(tmp_path / "x"))
        for key, array in {**tensors, "x": x}.items():
            np.testing.assert_array_equal(reader.get_tensor(key), array)

    @pytest.mark.parametrize("name", ASSEMBLED)
    def test_any_box_of_slices(self, tmp_path, name):
        """TensorFlow cuts boxes from slices that milepost wrote."""
        dtype = DType.of(name)
        x = example(dtype, (5, 6))
        pieces = {"0,2:-": x[:2], "2,3:0,4": x[2:, :4], "2,3:4,2": x[2:, 4:]}
        write(STORAGE, str(tmp_path / "x"), {"x": ((5, 6), pieces)})
        for box in ("0,5:0,6", "1,3:2,3", "4,1:5,1", "-:3,2", "2,3:0,4"):
            index = TensorSlice.parse(box).resolve((5, 6))
            assert same(raw(restore(tmp_path / "x", "x", dtype, f"5 6 {box}"), dtype), x[index])

    def test_variants(self, tmp_path):
        """TensorFlow reads a variant that milepost copied, and writes the same bytes for it."""
        iterator = tf.raw_ops.SerializeIterator(resource_handle=iter(tf.data.Dataset.range(5))._iterator_resource)
        save_variant(tmp_path / "theirs", iterator)
        elements = open_bundle(STORAGE, tmp_path / "theirs").read("it")
        assert elements.dtype == object
        assert len(elements) == len(iterator)
        writer = BundleWriter(alignment=1)
        writer.add("it", elements, DType.of("variant"))
        commit(writer, STORAGE, str(tmp_path / "ours"))
        for end in (".index", ".data-00000-of-00001"):
            assert (tmp_path / f"ours{end}").read_bytes() == (tmp_path / f"theirs{end}").read_bytes()
        (again,) = tf.raw_ops.RestoreV2(
            prefix=str(tmp_path / "ours"), tensor_names=["it"], shape_and_slices=[""], dtypes=[tf.variant]
        )
        assert again.shape == iterator.shape


def save_variant(prefix, value):
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=["it"], shape_and_slices=[""], tensors=[value])


class TestTensorFlowWrites:
    @pytest.mark.parametrize("dtype", COMMON, ids=str)
    def test_every_type(self, tmp_path, dtype):
        """milepost reads what TensorFlow saved, of each type, one by one or in a restore."""
        tensors = {f"{shape}": example(dtype, shape) for shape in SHAPES}
        save(tmp_path / "x", tensors)
        with open_bundle(STORAGE, tmp_path / "x") as reader:
            reader.verify()
            assert reader.keys() == sorted(tensors)
            fetch = Fetch(reader)
            for key, array in tensors.items():
                assert reader.spec(key).dtype is dtype
                assert same(reader.read(key), array)
                fetch.add(key, None)
                fetch.add(key, np.empty_like(array))
            fetch.verify()
            for number, array in enumerate(fetch.deliver()):
                assert same(array, list(tensors.values())[number // 2])

    def test_any_box_of_slices(self, tmp_path):
        """milepost cuts boxes from slices that TensorFlow saved, also of types that TensorFlow cannot join."""
        for name in (*ASSEMBLED, "float16", "uint64", "float8_e5m2", "string"):
            dtype = DType.of(name)
            x = example(dtype, (5, 6))
            pieces = {"0,2:-": x[:2], "2,3:0,4": x[2:, :4], "2,3:4,2": x[2:, 4:]}
            save(tmp_path / name, {"x": ((5, 6), pieces)})
            with open_bundle(STORAGE, tmp_path / name) as reader:
                assert same(reader.read("x"), x)
                for box in ("0,5:0,6", "1,3:2,3", "4,1:5,1", "-:3,2", "2,3:0,4"):
                    index = TensorSlice.parse(box).resolve((5, 6))
                    assert same(reader.read("x", TensorSlice.parse(box)), x[index])

    def test_merged_shards(self, tmp_path):
        """Checkpoints that TensorFlow merged from several, slices of one tensor among them."""
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        save(tmp_path / "a", {"one": np.float32(1), "x": ((3, 4), {"0,2:-": x[:2]})})
        save(tmp_path / "b", {"two": np.float32(2), "x": ((3, 4), {"2,1:-": x[2:]})})
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=[str(tmp_path / "a"), str(tmp_path / "b")],
            destination_prefix=str(tmp_path / "merged"),
        )
        with open_bundle(STORAGE, tmp_path / "merged") as reader:
            reader.verify()
            assert len(reader.shard_paths) == 2
            assert (reader.read("one"), reader.read("two")) == (1, 2)
            assert same(reader.read("x"), x)

    def test_an_object_based_checkpoint(self, tmp_path):
        """``tf.train.Checkpoint.save`` gives values, counter and graph."""
        checkpoint = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0]), s=tf.Variable(b"hi"))
        path = Path(checkpoint.save(str(tmp_path / "ckpt")))
        with open_bundle(STORAGE, path) as reader:
            assert reader.keys() == [
                "_CHECKPOINTABLE_OBJECT_GRAPH",
                "s/.ATTRIBUTES/VARIABLE_VALUE",
                "save_counter/.ATTRIBUTES/VARIABLE_VALUE",
                "v/.ATTRIBUTES/VARIABLE_VALUE",
            ]
            assert reader.read("s/.ATTRIBUTES/VARIABLE_VALUE")[()] == b"hi"
            np.testing.assert_array_equal(reader.read("v/.ATTRIBUTES/VARIABLE_VALUE"), np.float32([1, 2]))
            graph = reader.read("_CHECKPOINTABLE_OBJECT_GRAPH")
            assert (graph.shape, type(graph[()])) == ((), bytes)

    @settings(max_examples=30)
    @given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, min_side=0, max_dims=5, max_side=4)))
    def test_any_array(self, tmp_path_factory, array):
        """Any shape, any bits."""
        path = tmp_path_factory.mktemp("any") / "x"
        save(path, {string.printable: array})
        with open_bundle(STORAGE, path) as reader:
            assert same(reader.read(string.printable), array)

    def test_bfloat16_keeps_its_bits(self, tmp_path):
        """Every bit pattern of a bfloat16 arrives."""
        array = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
        save(tmp_path / "x", {"x": array})
        with open_bundle(STORAGE, tmp_path / "x") as reader:
            assert same(reader.read("x"), array)
