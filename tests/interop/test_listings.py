"""Files of very many tensors are listed in columns. These say the same as the objects of the tensors."""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost import CorruptCheckpointError, MilepostError
from milepost.bundle.catalogue import UNKNOWN, Catalogue
from milepost.foreign import open_foreign
from milepost.foreign.safetensors import _header, _in_any_form, _in_usual_form
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tensor import DType, TensorSpec
from milepost.tools.cli import main

save_file = pytest.importorskip("safetensors.numpy").save_file

ARRAYS = {
    "l1.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "l1.bias": np.ones(3, np.float16),
    "l2.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "é ☃": np.array(7),
    "nothing": np.zeros((0, 4), np.float32),
}


def header_of(path):
    with closing(DEFAULT_STORAGE.open(str(path))) as file:
        return _header(file)[0]


def safetensors(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(ARRAYS, path, metadata={"format": "np", "config": '{"a": [1, 2], "b": "\\"}"}'})
    return path


def with_a_name_left_out(tmp_path):
    path = tmp_path / "tied.safetensors"
    save_file(ARRAYS, path, metadata={"head.weight": "l1.weight", "l1.bias": "l1.weight", "other": "none"})
    return path


def in_shards(tmp_path):
    names = [*ARRAYS]
    files = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(names)}
    for file in {*files.values()}:
        save_file({name: ARRAYS[name] for name in names if files[name] == file}, tmp_path / file)
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": files}))
    return path


def npz(tmp_path):
    path = tmp_path / "a.npz"
    others = {"net/columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "net/big": np.arange(5, dtype=">i4")}
    np.savez(path, **{name.replace(".", "/"): array for name, array in ARRAYS.items()}, **others)
    return path


@pytest.fixture(params=[safetensors, with_a_name_left_out, in_shards, npz])
def path(request, tmp_path):
    return str(request.param(tmp_path))


def test_a_listing_says_what_the_tensors_are(path):
    with open_foreign(DEFAULT_STORAGE, path) as listed, open_foreign(DEFAULT_STORAGE, path) as made:
        made.spec(made.keys()[0])  # makes them
        made._listing = made._catalogue = None
        found, expected = listed.catalogue(), made.catalogue()
        assert found.keys == expected.keys == made.keys()
        assert found.spec_of_each() == expected.spec_of_each() == [made.spec(key) for key in found.keys]
        assert listed.stored_bytes == made.stored_bytes
        for name in ("start", "size", "checksum", "before", "is_run"):
            assert getattr(found, name).tolist() == getattr(expected, name).tolist()
        paths = [
            [each.files[number].path if number != UNKNOWN else None for number in each.file]
            for each in (found, expected)
        ]
        assert paths[0] == paths[1]
        assert listed._tensors is None, "no tensor was made for a list"


def test_values_are_read_after_a_listing(path):
    with open_foreign(DEFAULT_STORAGE, path) as reader:
        reader.catalogue()
        for key in [*reader.keys()]:
            name = {"head.weight": "l1.weight"}.get(key, key.replace("/", "."))
            if name in ARRAYS:
                np.testing.assert_array_equal(reader.read(key), ARRAYS[name])


def test_a_name_of_another_tensor_is_added_to_a_listing(path):
    with open_foreign(DEFAULT_STORAGE, path) as reader:
        reader.add("new", np.ones(3))
        found = reader.catalogue()
        assert not found.is_run[found.keys.index("new")], "it is no tensor of the file"
        assert reader.read("new").tolist() == [1, 1, 1]


def test_what_safetensors_writes_has_the_usual_form(tmp_path):
    for make in (safetensors, with_a_name_left_out):
        found = _in_usual_form(header_of(make(tmp_path)))
        assert found is not None
        assert {*found.names} == {*ARRAYS}


def told(found):
    kinds = [found.kinds[number] for number in found.kind]
    return sorted(zip(found.names, kinds, found.begins, found.ends, strict=True)), found.metadata


NAMES = st.text(st.sampled_from("ab.é\u2028 {}[],:"), max_size=4) | st.sampled_from(
    ["__metadata__", "dtype", "a\n", '"']
)
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "F8_E8M0", "I64", "X9", "f32"]),
        "shape": st.lists(st.integers(0, 3) | st.sampled_from([True, -1, 1 << 70]), max_size=3),
        "data_offsets": st.lists(
            st.integers(0, 99) | st.sampled_from([10**17, 10**18, 1 << 63, -1]), min_size=2, max_size=2
        ),
    }
)
HEADERS = st.tuples(
    st.dictionaries(NAMES, ENTRIES, max_size=3),
    st.none() | st.dictionaries(NAMES, NAMES | st.just(1), max_size=2),
    st.integers(0, 9),
).map(
    lambda each: (
        json.dumps(
            each[0] if each[1] is None else {"__metadata__": each[1], **each[0]},
            separators=(",", ":"),
            ensure_ascii=False,
        ).encode()
        + b" " * each[2]
    )
)
PIECES = st.sampled_from([b"", b"{", b"}", b",", b'"', b":", b"[", b"]", b"0", b"1", b" ", b"\n", b"\\", b"a", b"\xff"])


@given(HEADERS, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 2), PIECES), max_size=2))
def test_the_usual_form_is_read_as_any_other(header, changes):
    for place, length, piece in changes:
        header = header[:place] + piece + header[place + length :]
    try:
        usual = _in_usual_form(header)
    except MilepostError:
        with pytest.raises(MilepostError):
            _in_any_form(header)
        return
    if usual is not None:
        assert told(usual) == told(_in_any_form(header))


def flipped(path, place):
    data = bytearray(Path(path).read_bytes())
    data[place] ^= 1
    Path(path).write_bytes(data)


def start_of(reader, key):
    found = reader.catalogue()
    return int(found.start[found.keys.index(key)])


def test_a_damaged_array_is_named_in_a_comparison(tmp_path, capsys):
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", **{f"w{number}": np.full(9, number) for number in range(300)})
    with open_foreign(DEFAULT_STORAGE, path := str(tmp_path / "b.npz")) as reader:
        start = start_of(reader, "w123")
    flipped(path, start + 9)
    assert main(["diff", str(tmp_path / "a.npz"), path]) == 3
    told = capsys.readouterr().err
    assert "wrong checksum" in told
    assert "w123" in told
    assert path in told


def test_a_damaged_header_of_an_array_is_no_value(tmp_path):
    np.savez(path := str(tmp_path / "a.npz"), **{f"w{number}": np.full(9, number, np.int32) for number in range(3)})
    with open_foreign(DEFAULT_STORAGE, path) as reader:
        start = start_of(reader, "w1")
    data = Path(path).read_bytes()
    header = data[start - 128 : start]
    Path(path).write_bytes(data.replace(header, header.replace(b"<i4", b"<f4"), 2))  # as long, and fits the bytes
    with open_foreign(DEFAULT_STORAGE, path) as reader:
        data = reader._file._file.read(start, 36)
        assert reader.catalogue().unproven(np.array([0]), [data]).tolist() == [0]
        with pytest.raises(CorruptCheckpointError, match="wrong checksum"):
            reader.read("w1")


@given(st.lists(st.integers(0, 3), max_size=12))
def test_parts_of_a_catalogue_are_joined_in_the_order_of_their_keys(groups):
    files = [object() for _ in range(4)]
    extents = [None if group == 3 else (files[group], place) for place, group in enumerate(groups)]
    specs, names = [TensorSpec(DType.of("uint8"), ())], [f"{place:02}" for place in range(len(groups))]
    of_all = Catalogue.of_extents(names, specs, np.zeros(len(groups), np.int64), extents)
    parts = [of_all.take(np.flatnonzero(np.array(groups, int) == wanted)) for wanted in {*groups}]
    joined = Catalogue.joined(parts).by_key()
    for found in (joined, of_all):
        assert [*found.keys] == names
        assert [
            (found.files[number], start) if number != UNKNOWN else None
            for number, start in zip(found.file.tolist(), found.start.tolist(), strict=True)
        ] == extents


def test_a_model_in_shards_of_which_one_holds_more_is_read(tmp_path):
    path = in_shards(tmp_path)
    index = json.loads(path.read_text())
    del index["weight_map"]["l1.bias"]
    path.write_text(json.dumps(index))
    found = milepost.load(path)
    assert {*found} == {*ARRAYS} - {"l1.bias"}


def test_a_second_name_in_a_shard_is_that_of_its_twin(tmp_path):
    path = in_shards(tmp_path)
    names = ["l1.weight", "l2.weight", "nothing"]
    save_file({name: ARRAYS[name] for name in names}, tmp_path / "model-0.safetensors", metadata={"head": "l1.weight"})
    assert milepost.load(path)["head"].tolist() == ARRAYS["l1.weight"].tolist()
