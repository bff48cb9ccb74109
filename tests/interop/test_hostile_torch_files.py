"""Files of PyTorch that nobody would save: refused by milepost's errors, within the limits that are stated."""

import io
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign import zip_directory
from milepost.foreign.opaque import Opaque
from milepost.foreign.pytorch.pickled import PickledData
from milepost.foreign.zip_directory import read_directory
from milepost.storage import LocalStorage

START = b"\x80\x02"
KEY = b"}X\x01\x00\x00\x00a"
"""A dict that gets what follows under the name ``a``."""


def text(name):
    return b"X" + struct.pack("<I", len(name)) + name


def archive(pickled, **records):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("it/data.pkl", pickled)
        for name, data in records.items():
            file.writestr(f"it/data/{name}", data)
    return buffer.getvalue()


def restored(path, content):
    """What becomes of a file that is restored into an object that is not in it; an error, if one comes."""
    path.write_bytes(content)
    target = milepost.Checkpoint(w=milepost.Variable(np.float32(0)))
    try:
        status = target.restore(path).expect_partial()
    except MilepostError as error:
        return error
    return status.report()


def read(data):
    """What a stream means whose names all stay names."""
    return PickledData(data, lambda name: name, Opaque, lambda value, _: value, lambda identity: identity).read()


def is_refused_with_file(error, path):
    return isinstance(error, (CorruptCheckpointError, UnsupportedError)) and error.file == str(path) and error.remedy


def nested_lists(levels):
    bomb = b"](" + b"N" * 10 + b"eq\x00"
    for level in range(1, levels):
        bomb += b"](" + bytes([ord("h"), level - 1]) * 10 + b"eq" + bytes([level])
    return START + KEY + b"(" + bomb + b"ts."


class TestPickledData:
    def test_more_containers_than_the_limit_are_refused(self, tmp_path):
        path = tmp_path / "many.pt"
        error = restored(path, archive(b"\x80\x04" + KEY + b"](" + b"\x8f" * 1_100_000 + b"es."))
        assert is_refused_with_file(error, path)
        assert "too many lists, tuples, dicts, sets and calls" in str(error)

    @pytest.mark.parametrize("nest", [b"\x85", b"]", b"}"], ids=["tuples", "lists", "dicts"])
    def test_very_many_levels_are_refused(self, tmp_path, nest):
        path = tmp_path / "deep.pt"
        deep = {b"\x85": b")" + b"\x85" * 200_000, b"]": b"]" * 200_000 + b"a" * 199_999}
        pickled = deep.get(nest, KEY * 200_000 + b"K\x01" + b"s" * 200_000)
        assert is_refused_with_file(restored(path, archive(START + KEY + pickled + b"s.")), path)

    @pytest.mark.parametrize(
        "keys",
        [
            [b"\x8a\x0a" + (number * ((1 << 61) - 1)).to_bytes(10, "little") for number in range(5000)],
            [b"G" + struct.pack(">d", 2.0 ** (61 * power)) for power in range(-17, 17)] * 100,
        ],
        ids=["whole numbers", "fractions"],
    )
    def test_keys_of_one_hash(self, tmp_path, keys):
        path = tmp_path / "alike.pt"
        outcome = restored(path, archive(START + b"}(" + b"".join(key + b"N" for key in keys) + b"u."))
        if len(set(keys)) > 100:
            assert is_refused_with_file(outcome, path)
            assert "one hash" in str(outcome)
        else:
            assert not isinstance(outcome, MilepostError)

    def test_a_long_key_is_not_hashed_again_and_again(self, tmp_path):
        path = tmp_path / "key.pt"
        pickled = START + b"((" + b"K\x01" * 100_000 + b"tq\x000" + b"}h\x00K\x05s" * 20_000 + b"l."
        path.write_bytes(archive(pickled))
        assert len(milepost.list_variables(path)) == 20_000
        assert milepost.load_variable(path, "3/builtins.tuple") == 5

    @pytest.mark.parametrize("size", [1024, 1025, 4096])
    def test_integers_that_python_cannot_write_as_text_are_refused(self, tmp_path, size):
        path = tmp_path / "number.pt"
        number = b"\x8b" + struct.pack("<I", size) + b"\x7f" * size
        outcome = restored(path, archive(START + b"}" + number + b"K\x01s."))
        assert is_refused_with_file(outcome, path) if size > 1024 else not isinstance(outcome, MilepostError)

    @pytest.mark.parametrize(
        "pickled",
        [b"N(q\x00", b"N(2", b"N(\x85", b"N((00tt", b"(0t"],
        ids=["remembered", "repeated", "in a tuple", "dropped twice", "dropped"],
    )
    def test_a_mark_is_no_value(self, tmp_path, pickled):
        path = tmp_path / "mark.pt"
        assert is_refused_with_file(restored(path, archive(START + KEY + pickled + b"s.")), path)

    @given(
        st.recursive(
            st.none() | st.integers() | st.text(), lambda each: st.tuples(each, each) | st.dictionaries(st.text(), each)
        )
    )
    def test_what_python_pickles_is_read_as_python_reads_it(self, value):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            data = pickle.dumps((value, value), protocol)
            assert read(data) == (value, value)
            assert read(memoryview(data)) == (value, value)

    @pytest.mark.parametrize("numbers", [(0, 1), (1, 0), (3, 7), (1, 300), (300, 0), (0, 0)])
    def test_values_are_remembered_under_any_numbers(self, numbers):
        puts = [
            text(name) + b"r" + struct.pack("<I", number) for name, number in zip([b"a", b"b"], numbers, strict=True)
        ]
        gets = [b"j" + struct.pack("<I", number) for number in numbers]
        expected = ("a", "b") if numbers[0] != numbers[1] else ("b", "b")
        assert read(START + puts[0] + b"0" + puts[1] + b"0" + b"".join(gets) + b"\x86.") == expected

    def test_no_more_values_are_remembered_than_the_limit(self):
        puts = b"".join(b"r" + struct.pack("<I", number) for number in range((1 << 21) + 2))
        with pytest.raises(CorruptCheckpointError, match="a place in the memo"):
            read(START + b"N" + puts + b".")


class TestNames:
    def test_a_few_bytes_that_stand_for_very_many_items_are_refused_early(self, tmp_path):
        path = tmp_path / "laughs.pt"
        error = restored(path, archive(nested_lists(30)))
        assert is_refused_with_file(error, path)
        assert "1000000 parts" in error.expected

    def test_a_list_longer_than_the_limit_is_refused_before_it_is_looked_through(self, tmp_path):
        path = tmp_path / "long.pt"
        path.write_bytes(archive(START + KEY + b"](" + b"N" * 1_000_001 + b"es."))
        tracemalloc.start()
        try:
            with pytest.raises(UnsupportedError, match="too many parts"):
                milepost.list_variables(path)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 64 << 20

    def test_long_names_over_many_items_are_refused(self, tmp_path):
        path = tmp_path / "names.pt"
        pickled = START + (b"}" + text(b"k" * 30_000)) * 90 + b"](" + b"N" * 100_000 + b"e" + b"s" * 90 + b"."
        error = restored(path, archive(pickled))
        assert is_refused_with_file(error, path)
        assert "names are too long" in str(error)
        assert len(str(error)) < 1000

    def test_keys_that_look_the_same_get_names_of_their_own(self, tmp_path):
        path = tmp_path / "alike.pt"
        keys = [text(b"x" * 210 + b"%05d" % number) + b"\x85" for number in range(5000)]
        path.write_bytes(archive(START + b"}(" + b"".join(key + b"K\x01" for key in keys) + b"u."))
        assert len(milepost.list_variables(path)) == 5000

    @pytest.mark.parametrize("levels", [99, 101, 100_000])
    def test_a_name_with_very_many_dots_is_read(self, tmp_path, levels):
        name = ".".join("a" * levels)
        path = tmp_path / "dots.pt"
        path.write_bytes(archive(START + b"}" + text(name.encode()) + b"K\x07s."))
        reader = milepost.load_checkpoint(path)
        assert reader.get_tensor(name) == 7
        assert not isinstance(restored(path, path.read_bytes()), MilepostError)


def directory(entries, *, count=None, start=None):
    """An archive of these entries of a directory, each the fields that differ from those of an empty record."""
    body = b"PK\x03\x04" + bytes(26 + 200)
    rows = b""
    for entry in entries:
        field = {
            "name": b"a",
            "offset": 0,
            "size": 0,
            "stored": 0,
            "method": 0,
            "flags": 0,
            "crc": 0,
            "extra": b"",
        } | entry
        rows += struct.pack(
            "<4s4HL3L5H2L", b"PK\1\2", 20, 20, field["flags"], field["method"], 0, field["crc"], field["stored"],
            field["size"], len(field["name"]), len(field["extra"]), 0, 0, 0, 0, field["offset"],
        )  # fmt: skip
        rows += field["name"] + field["extra"]
    total = len(entries) if count is None else count
    many = total > 0xFFFE
    at = len(body) if start is None else start
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, total, total, len(rows), at)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(body) + len(rows), 1)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, *([min(total, 0xFFFF)] * 2), len(rows), at, 0)
    return body + rows + (end64 + locator if many else b"") + end


DEFECTS = {
    "two records of one name": directory([{"name": b"it/data.pkl"}, {"name": b"it/data.pkl", "offset": 100}]),
    "records that overlap": directory([{"name": b"it/data.pkl"}, {"name": b"b", "offset": 10}]),
    "a record in the directory": directory([{"name": b"it/data.pkl", "offset": 225}]),
    "a size of exabytes": directory(
        [{"name": b"it/data.pkl", "size": 0xFFFFFFFF, "stored": 0xFFFFFFFF, "extra": struct.pack("<HHQQ", 1, 16, *[1 << 62] * 2)}]
    ),
    "more bytes than are stored": directory([{"name": b"it/data.pkl", "size": 100, "stored": 10}]),
    "fewer entries than are said": directory([{"name": b"it/data.pkl"}], count=2),
    "more entries than are said": directory([{"name": b"it/data.pkl"}, {"name": b"b", "offset": 60}], count=1),
    "a directory elsewhere": directory([{"name": b"it/data.pkl"}], start=1 << 30),
    "a wide size without its field": directory([{"name": b"it/data.pkl", "size": 0xFFFFFFFF}]),
    "a name that is not UTF-8": directory([{"name": b"it/data.pkl"}, {"name": b"\xff", "offset": 60}]),
}  # fmt: skip


class TestArchives:
    @pytest.mark.parametrize("defect", DEFECTS)
    def test_every_defect_of_the_directory_is_refused(self, tmp_path, defect):
        path = tmp_path / "defect.pt"
        error = restored(path, DEFECTS[defect])
        assert isinstance(error, CorruptCheckpointError)
        assert is_refused_with_file(error, path)

    @pytest.mark.parametrize("count", [500_001, 1_000_000, 1 << 60])
    def test_too_many_records_are_refused_before_they_are_read(self, tmp_path, count):
        path = tmp_path / "many.pt"
        path.write_bytes(directory([{"name": b"it/data.pkl"}], count=count))
        tracemalloc.start()
        try:
            with pytest.raises(UnsupportedError, match="too many records") as caught:
                milepost.list_variables(path)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert caught.value.file == str(path)
        assert peak < 8 << 20

    def test_the_directory_of_a_file_is_read_once(self, tmp_path, monkeypatch):
        path = tmp_path / "one.pt"
        path.write_bytes(archive(START + KEY + b"Ns."))
        parsed = []
        monkeypatch.setattr(zip_directory, "read_directory", lambda file: parsed.append(1) or read_directory(file))
        with milepost.load_checkpoint(path):
            assert parsed == [1]

    def test_70000_records_are_read(self, tmp_path):
        path = tmp_path / "many.zip"
        with zipfile.ZipFile(path, "w") as file:
            for number in range(70_000):
                file.writestr(zipfile.ZipInfo(f"it/data/{number}"), b"")
        assert len(read_directory(LocalStorage().open(str(path)))) == 70_000

    @given(
        names=st.lists(st.text("abc/", min_size=1, max_size=4), unique=True, max_size=5),
        data=st.binary(max_size=20),
        comment=st.binary(max_size=30),
        wide=st.booleans(),
    )
    def test_what_python_writes_is_read_as_python_reads_it(self, tmp_path_factory, names, data, comment, wide):
        path = tmp_path_factory.getbasetemp() / "records.zip"
        with zipfile.ZipFile(path, "w") as file:
            file.comment = comment.replace(b"PK\5\6", b"")
            for name in names:
                with file.open(name, "w", force_zip64=wide) as record:
                    record.write(data)
        found = read_directory(LocalStorage().open(str(path)))
        with zipfile.ZipFile(path) as file:
            expected = {each.filename: (each.header_offset, each.file_size, each.CRC) for each in file.infolist()}
        assert {name: tuple(record)[:3] for name, record in found.items()} == expected

    @given(data=st.data())
    def test_damage_to_the_directory_gives_errors_of_milepost_only(self, tmp_path_factory, data):
        content = bytearray(archive(START + KEY + b"K\x01s.", **{"0": b"12345678"}))
        begin = content.index(b"PK\1\2")
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(begin, len(content) - 1))] = data.draw(st.integers(0, 255))
        restored(tmp_path_factory.getbasetemp() / "damaged.pt", bytes(content))


def test_tensors_that_share_one_storage_and_would_take_far_more_memory_than_the_file_are_refused(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    shared = torch.zeros(4 << 20)
    path = tmp_path / "shared.pt"
    torch.save({f"w{number}": shared[: -number or None] for number in range(100)}, path)
    with pytest.raises(UnsupportedError, match="share their storage") as caught:
        milepost.load_checkpoint(path)
    assert caught.value.file == str(path)
    torch.save({f"w{number}": shared[: -number or None] for number in range(70)}, path)
    assert len(milepost.load_checkpoint(path).get_variable_to_shape_map()) == 70


def measured(path):
    """The megabytes that looking into a file takes at most, and the error, if one comes."""
    tracemalloc.start()
    try:
        milepost.list_variables(path)
        error = None
    except MilepostError as caught:
        error = caught
    finally:
        most = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
    return most, error


def test_names_that_grow_by_each_other_take_little_memory(tmp_path):
    body = b"](cbuiltins\ngetattr\nq\x000" + text(b"x" * 300) + b"q\x010cm\nn\nr\x02\0\0\x000"
    for number in range(1000):
        body += b"h\x00j" + struct.pack("<I", 2 + number) + b"h\x01\x86Rr" + struct.pack("<I", 3 + number)
    (tmp_path / "a.pt").write_bytes(archive(START + body + b"e."))
    most, _ = measured(tmp_path / "a.pt")
    assert most < 20


def test_a_call_of_the_call_itself_takes_little_memory(tmp_path):
    body = b"ccopyreg\n__newobj__\nq\x00(" + b"h\x00" * 400 + b"N" * 10_000 + b"tR."
    (tmp_path / "a.pt").write_bytes(archive(START + body))
    most, _ = measured(tmp_path / "a.pt")
    assert most < 20


def test_an_object_in_very_many_wrappers_is_refused(tmp_path):
    function = b"ctorch._utils\n_rebuild_tensor_v2\n"
    (tmp_path / "a.pt").write_bytes(
        archive(START + KEY + function + b"q\x000" + b"h\x00" * 5000 + b"cm\nn\n)R" + b"\x85R" * 5000 + b"s.")
    )
    with pytest.raises(UnsupportedError, match=r"(?s)m\.n"):
        milepost.load(tmp_path / "a.pt")
