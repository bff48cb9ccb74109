"""Files of safetensors, alone and as the shards of a model, restored through the same machinery as any checkpoint."""

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost import CheckpointNotFoundError, CorruptCheckpointError, MilepostError, MismatchError, UnsupportedError
from milepost.tools.cli import main
from tests.counting import most_bytes

ARRAYS = {
    "l1.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "l1.bias": np.ones(3, np.float16),
    "step": np.int64(7),
}


def entry(dtype="F32", shape=(2,), begin=0, end=None):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, 8 if end is None else end]}


def content(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def write(tmp_path, arrays, name="model.safetensors", metadata=None):
    names = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.int64): "I64"}
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for key, array in arrays.items():
        array = np.asarray(array)
        end = len(data) + array.nbytes
        header[key] = entry(names[array.dtype], array.shape, len(data), end)
        data += array.tobytes()
    path = tmp_path / name
    path.write_bytes(content(header, data))
    return path


def net():
    model = milepost.Module()
    model.l1 = milepost.Module()
    model.l1.weight = milepost.Variable(np.zeros((2, 3), np.float32))
    model.l1.bias = milepost.Variable(np.zeros(3, np.float16))
    model.step = milepost.Variable(np.int64(0))
    return model


class TestFiles:
    def test_names_with_dots_are_paths(self, tmp_path):
        model = net()
        milepost.Checkpoint(model).read(write(tmp_path, ARRAYS)).assert_consumed()
        np.testing.assert_array_equal(model.l1.weight.numpy(), ARRAYS["l1.weight"])
        assert model.l1.bias.numpy().tolist() == [1.0, 1.0, 1.0]
        assert int(model.step) == 7

    @pytest.mark.skipif(os.name == "nt", reason="the file would take all of its size on the disk")
    def test_tensors_beyond_the_first_gigabytes_are_read(self, tmp_path):
        path, begin = tmp_path / "model.safetensors", 4 << 30
        header = content({"a": entry("U8", (begin,), 0, begin), "b": entry("F32", (2,), begin, begin + 8)})
        with path.open("wb") as file:
            file.write(header)
            file.truncate(len(header) + begin)  # a hole, which takes no room
            file.seek(0, os.SEEK_END)
            file.write(np.float32([1, 2]).tobytes())
        assert milepost.load_variable(path, "b").tolist() == [1.0, 2.0]

    def test_a_checkpoint_of_the_model_as_root_takes_it(self, tmp_path):
        model = net()
        milepost.Checkpoint(model).restore(write(tmp_path, ARRAYS)).assert_consumed()
        assert int(model.step) == 7

    def test_what_libraries_write_is_read(self, tmp_path):
        library = pytest.importorskip("safetensors.numpy")
        path = tmp_path / "theirs.safetensors"
        library.save_file({name: np.asarray(array) for name, array in ARRAYS.items()}, path, metadata={"format": "np"})
        model = net()
        milepost.Checkpoint(model).read(path).assert_consumed()
        np.testing.assert_array_equal(model.l1.weight.numpy(), ARRAYS["l1.weight"])

    @pytest.mark.parametrize(
        "name",
        [
            *("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "bool", "complex64"),
            *("uint8", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"),
            *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
        ],
    )
    def test_every_element_type_of_pytorch_is_restored(self, tmp_path, name):
        torch = pytest.importorskip("torch")
        library = pytest.importorskip("safetensors.torch")
        tensor = torch.arange(1, 5).to(getattr(torch, name))
        try:
            library.save_file({"it": tensor}, tmp_path / "typed.safetensors")
        except (KeyError, ValueError):
            pytest.skip("this safetensors cannot write it")
        module = torch.nn.Module()
        module.register_buffer("it", torch.zeros(4, dtype=tensor.dtype))
        milepost.Checkpoint(module).read(tmp_path / "typed.safetensors").assert_consumed()
        assert module.it.view(torch.uint8).tolist() == tensor.view(torch.uint8).tolist()

    def test_names_are_those_of_the_file(self, tmp_path):
        listed = milepost.list_variables(write(tmp_path, ARRAYS))
        assert listed == [("l1.bias", [3]), ("l1.weight", [2, 3]), ("step", [])]

    def test_the_command_line_lists_and_verifies_it(self, tmp_path, capsys):
        path = str(write(tmp_path, ARRAYS))
        assert main(["show", path]) == 0
        assert "float32[2,3]     24  l1.weight" in capsys.readouterr().out
        assert main(["verify", path]) == 0
        assert (
            capsys.readouterr().out
            == f"{path}: 3 tensors, all readable; no checksums were compared, so changed bytes may go unnoticed\n"
        )

    def test_another_ending_will_do(self, tmp_path):
        assert milepost.list_variables(write(tmp_path, ARRAYS, "model.bin"))[0] == ("l1.bias", [3])

    def test_an_empty_tensor_is_restored(self, tmp_path):
        variable = milepost.Variable(np.zeros((0, 2), np.float32))
        path = write(tmp_path, {"v": np.zeros((0, 2), np.float32)})
        milepost.Checkpoint(v=variable).restore(path).assert_consumed()

    def test_another_element_type_is_refused_and_changes_nothing(self, tmp_path):
        model = net()
        model.l1.bias = milepost.Variable(np.zeros(3, np.float32))
        with pytest.raises(MismatchError, match=r"float32\[3\], as the live object has it"):
            milepost.Checkpoint(model).read(write(tmp_path, ARRAYS))
        assert int(model.step) == 0

    def test_a_name_that_was_left_out_is_that_of_its_twin(self, tmp_path):
        path = write(tmp_path, {"a": ARRAYS["l1.weight"]}, metadata={"b": "a", "format": "pt"})
        checkpoint = milepost.Checkpoint(
            a=milepost.Variable(np.zeros((2, 3), np.float32)), b=milepost.Variable(np.zeros((2, 3), np.float32))
        )
        checkpoint.restore(path).assert_consumed()
        np.testing.assert_array_equal(checkpoint.b.numpy(), ARRAYS["l1.weight"])

    def test_tied_weights_that_were_saved_twice_are_one(self, tmp_path):
        shared = milepost.Variable(np.zeros(2, np.float32))
        path = write(tmp_path, {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)})
        milepost.Checkpoint(a=shared, b=shared).restore(path).assert_consumed()
        assert shared.numpy().tolist() == [1.0, 1.0]

    def test_tied_weights_that_differ_in_the_file_are_not_passed_over(self, tmp_path):
        shared = milepost.Variable(np.zeros(2, np.float32))
        path = write(tmp_path, {"a": np.ones(2, np.float32), "b": np.full(2, 2, np.float32)})
        status = milepost.Checkpoint(a=shared, b=shared).restore(path).expect_partial()
        assert [each.key for each in status.report().unexpected] == ["b"]

    def test_tied_weights_of_a_pytorch_model_are_found_by_either_name(self, tmp_path):
        torch = pytest.importorskip("torch")
        library = pytest.importorskip("safetensors.torch")

        def made():
            model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False))
            model[1].weight = model[0].weight
            return model

        model, fresh = made(), made()
        library.save_model(model, str(tmp_path / "tied.safetensors"))
        milepost.Checkpoint(fresh).read(tmp_path / "tied.safetensors").assert_consumed()
        assert torch.equal(model[0].weight, fresh[1].weight)

    def test_trees_of_jax_take_it(self, tmp_path):
        jax = pytest.importorskip("jax")
        import milepost.jax

        tree = {"l1": {"weight": jax.numpy.zeros((2, 3)), "bias": jax.numpy.zeros(3, "float16")}, "step": 0}
        new, status = milepost.jax.restore(write(tmp_path, ARRAYS), tree)
        status.assert_consumed()
        np.testing.assert_array_equal(new["l1"]["weight"], ARRAYS["l1.weight"])
        assert new["step"] == 7


class TestShards:
    def sharded(self, tmp_path, **changes):
        write(tmp_path, {name: ARRAYS[name] for name in ("l1.weight", "step")}, "a.safetensors")
        write(tmp_path, {"l1.bias": ARRAYS["l1.bias"]}, "b.safetensors")
        files = {"l1.weight": "a.safetensors", "step": "a.safetensors", "l1.bias": "b.safetensors", **changes}
        index = tmp_path / "model.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {"total_size": 38}, "weight_map": files}))
        return index

    def test_an_index_is_one_model(self, tmp_path):
        model = net()
        milepost.Checkpoint(model).read(self.sharded(tmp_path)).assert_consumed()
        assert int(model.step) == 7
        assert model.l1.bias.numpy().tolist() == [1.0, 1.0, 1.0]

    def test_a_directory_stands_for_its_index(self, tmp_path):
        self.sharded(tmp_path)
        milepost.Checkpoint(net()).read(tmp_path).assert_consumed()
        assert [name for name, _ in milepost.list_variables(tmp_path)] == ["l1.bias", "l1.weight", "step"]

    def test_a_directory_stands_for_its_only_file(self, tmp_path):
        write(tmp_path, ARRAYS)
        milepost.Checkpoint(net()).read(tmp_path).assert_consumed()

    def test_a_shard_that_is_missing_is_named(self, tmp_path):
        index = self.sharded(tmp_path)
        (tmp_path / "b.safetensors").unlink()
        with pytest.raises(CheckpointNotFoundError, match=r"b\.safetensors"):
            milepost.Checkpoint(net()).read(index)

    def test_a_tensor_that_its_shard_lacks_is_named(self, tmp_path):
        with pytest.raises(CorruptCheckpointError, match="does not hold") as caught:
            milepost.Checkpoint(net()).read(self.sharded(tmp_path, more="a.safetensors"))
        assert caught.value.key == "more"

    @pytest.mark.parametrize("file", ["../a.safetensors", "/etc/passwd", "..", "", 3, None])
    def test_files_elsewhere_are_refused(self, tmp_path, file):
        with pytest.raises(CorruptCheckpointError, match="without directories"):
            milepost.Checkpoint(net()).read(self.sharded(tmp_path, step=file))

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', "{" * 9999])
    def test_an_index_that_is_none_is_refused(self, tmp_path, text):
        (tmp_path / "model.safetensors.index.json").write_text(text)
        with pytest.raises(CorruptCheckpointError):
            milepost.Checkpoint(net()).read(tmp_path)


DEFECTS = {
    "an empty file": b"",
    "a length and nothing else": (5).to_bytes(8, "little"),
    "a header longer than the file": content({"v": entry()}, bytes(8), length=1000),
    "a header of exabytes": content({"v": entry()}, bytes(8), length=1 << 62),
    "a header that is no JSON": content(b'{"v": '),
    "a header that is no object": content(b"[1, 2]"),
    "a header that is not UTF-8": content(b'{"\xff": 1}'),
    "a header without end": content(b'{"a":' * 20_000),
    "numbers of thousands of digits": content(b'{"v": ' + b"9" * 10_000 + b"}"),
    "a name that comes twice": content(b'{"v": 1, "v": 2}'),
    "an entry that is no object": content({"v": 3}),
    "an entry without a type": content({"v": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "an entry without a place": content({"v": {"dtype": "F32", "shape": [2]}}, bytes(8)),
    "a negative dimension": content({"v": entry(shape=(-2,))}, bytes(8)),
    "a dimension that is no whole number": content({"v": entry(shape=(2.0,))}, bytes(8)),
    "a dimension that is a truth": content({"v": entry(shape=(True, 2))}, bytes(8)),
    "a dimension that is a truth, after one that equals it": content(
        {"a": entry(shape=(1,), end=4), "v": entry(shape=(True,), begin=4)}, bytes(8)
    ),
    "a shape that is the text of one before": content(
        {"a": entry(shape=(1,), end=4), "v": {**entry(begin=4), "shape": "[1]"}}, bytes(8)
    ),
    "a shape of lists inside each other": content(
        b'{"v": {"dtype": "F32", "shape": ' + b"[" * 700 + b"]" * 700 + b', "data_offsets": [0, 8]}}', bytes(8)
    ),
    "a size beyond 64 bits": content({"v": entry("F64", shape=((1 << 63) - 1,), end=(1 << 63) - 1)}, bytes(8)),
    "a place that is a truth": content({"v": entry("U8", (1,), False, True)}, bytes(1)),
    "a place beyond 64 bits": content({"v": entry(begin=1 << 64, end=(1 << 64) + 8)}, bytes(8)),
    "a place with three numbers": content({"v": {**entry(), "data_offsets": [0, 8, 8]}}, bytes(8)),
    "a shape of exabytes": content({"v": entry(shape=(1 << 31, 1 << 31, 1 << 31))}, bytes(8)),
    "a shape of too many dimensions": content({"v": entry(shape=(1,) * 300, end=4)}, bytes(4)),
    "a place that does not fit the shape": content({"v": entry(end=4)}, bytes(4)),
    "a place that ends before it begins": content({"v": entry(begin=8, end=0)}, bytes(8)),
    "a place beyond the end": content({"v": entry(begin=0, end=8)}, bytes(4)),
    "a negative place": content({"v": entry(begin=-8, end=0)}, bytes(8)),
    "tensors that overlap": content({"a": entry(), "b": entry(begin=4, end=12)}, bytes(12)),
    "two tensors in one place": content({"a": entry(), "b": entry()}, bytes(8)),
    "a gap": content({"a": entry(), "b": entry(begin=12, end=20)}, bytes(20)),
    "bytes that belong to none": content({"v": entry()}, bytes(9)),
    "metadata that is no object": content({"__metadata__": [1], "v": entry()}, bytes(8)),
    "metadata that is no text": content({"__metadata__": {"a": 1}, "v": entry()}, bytes(8)),
}


class TestHostileFiles:
    @pytest.mark.parametrize("defect", DEFECTS)
    def test_every_defect_is_refused(self, tmp_path, defect):
        path = tmp_path / "defect.safetensors"
        path.write_bytes(DEFECTS[defect])
        with pytest.raises((CorruptCheckpointError, UnsupportedError)) as caught:
            milepost.list_variables(path)
        assert caught.value.file == str(path)

    @pytest.mark.parametrize(
        ("wrong", "problem"),
        [
            (entry("F32", (3,), 16, 24), "do not fit its shape"),
            (entry("F32", (-2,), 16, 24), "not the shape"),
            (entry("F32", (2,), 16.0, 24), "not the offsets"),
            (entry("F32", (2,), 12, 20), "overlap, or leave a gap"),
            (5, "not the description"),
        ],
    )
    def test_the_wrong_one_of_several_is_named(self, tmp_path, wrong, problem):
        path = tmp_path / "model.safetensors"
        path.write_bytes(content({"a": entry(), "b": entry(begin=8, end=16), "v": wrong}, bytes(24)))
        with pytest.raises(CorruptCheckpointError, match=problem) as caught:
            milepost.list_variables(path)
        assert caught.value.key == "v"

    @pytest.mark.parametrize("dtype", ["F6_E2M3", "Q8", "", None, 3, ["F32"]])
    def test_an_unknown_element_type_is_refused_by_name(self, tmp_path, dtype):
        path = tmp_path / "typed.safetensors"
        path.write_bytes(content({"v": entry(dtype)}, bytes(8)))
        with pytest.raises(UnsupportedError) as caught:
            milepost.list_variables(path)
        assert caught.value.key == "v"

    @given(data=st.data())
    def test_damage_anywhere_gives_errors_of_milepost_only(self, tmp_path_factory, data):
        header = {
            "__metadata__": {"b": "a"},
            "a": entry(),
            "c.d": entry("BF16", (2, 2), 8, 16),
            "e": entry("F64", (), 16, 24),
        }
        damaged = bytearray(content(header, bytes(range(24))))
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        open_all(tmp_path_factory, bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))

    _JSON = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["F32", "I8"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["dtype", "shape", "data_offsets", "__metadata__", "v"]), inner, max_size=3
            )
        ),
        max_leaves=12,
    )

    @given(header=_JSON, data=st.binary(max_size=16))
    def test_any_header_gives_errors_of_milepost_only(self, tmp_path_factory, header, data):
        open_all(tmp_path_factory, content(header, data))

    @given(
        entries=st.dictionaries(
            st.text(max_size=3),
            st.fixed_dictionaries(
                {
                    "dtype": st.sampled_from(["F32", "U8", "F8_E8M0"]),
                    "shape": st.lists(st.integers(0, 3), max_size=3),
                    "data_offsets": st.lists(st.integers(0, 16), min_size=2, max_size=2),
                }
            ),
            max_size=3,
        ),
        data=st.binary(max_size=16),
    )
    def test_any_entries_give_errors_of_milepost_only(self, tmp_path_factory, entries, data):
        open_all(tmp_path_factory, content(entries, data))


def open_all(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzzed.safetensors"
    path.write_bytes(data)
    try:
        reader = milepost.load_checkpoint(path)
        for key in reader.get_variable_to_shape_map():
            reader.get_tensor(key)
    except MilepostError:
        pass


def test_a_restore_takes_little_more_memory_than_the_state(tmp_path):
    path = write(tmp_path, {f"v{n}": np.zeros((4 << 20,), np.float32) for n in range(10)})
    live = {f"v{n}": milepost.Variable(np.ones((4 << 20,), np.float32)) for n in range(10)}
    checkpoint = milepost.Checkpoint(**live)
    assert most_bytes(lambda: checkpoint.restore(path).assert_consumed()) < 64 << 20
