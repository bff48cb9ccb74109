"""Directories of torch.distributed.checkpoint that nobody would save: refused by milepost's errors, or read as they are."""

import contextlib
import itertools
import pickle
import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost import CheckpointNotFoundError, CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign.pytorch.nested import nested
from milepost.foreign.pytorch.tiling import check_tiling

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
dcp = pytest.importorskip("torch.distributed.checkpoint")
directories = pytest.importorskip("tests.interop.dcp_directories")
kinds = pytest.importorskip("torch.distributed.checkpoint.metadata")

saved, changed, in_pieces = directories.saved, directories.changed, directories.in_pieces


def restored(path):
    """What becomes of a directory that is restored into an object that is not in it, and read; an error, if one comes."""
    try:
        reader = milepost.load_checkpoint(path)
        for key in reader.keys():  # noqa: SIM118 - a reader is no mapping
            reader.get_tensor(key)
        return milepost.Checkpoint(other=milepost.Variable(np.float32(0))).restore(path).expect_partial().report()
    except MilepostError as error:
        return error


def tensor_of(metadata):
    return metadata.state_dict_metadata["w"]


def place_of(metadata):
    return metadata.storage_data[kinds.MetadataIndex("w", [0])]


def set_chunk(offset, size):
    def change(metadata):
        chunk = tensor_of(metadata).chunks[0]
        chunk.offsets, chunk.sizes = torch.Size([offset]), torch.Size([size])
        metadata.storage_data[kinds.MetadataIndex("w", [offset])] = place_of(metadata)

    return change


def doubled(metadata):
    tensor_of(metadata).chunks *= 2


def without_place(metadata):
    del metadata.storage_data[kinds.MetadataIndex("w", [0])]


def set_place(**fields):
    return lambda metadata: vars(place_of(metadata)).update(fields)


def set_field(name, value):
    return lambda metadata: setattr(metadata, name, value)


def set_tensor(name, value):
    return lambda metadata: setattr(tensor_of(metadata), name, value)


def path_of(*steps):
    return set_field("planner_data", {"w": steps})


DEFECTS = {
    "no chunks": (set_tensor("chunks", []), "do not cover it"),
    "a chunk that is too small": (set_chunk(0, 3), "do not cover it"),
    "a chunk that reaches outside": (set_chunk(1, 4), "reaches outside its tensor"),
    "a chunk far outside": (set_chunk(1 << 60, 4), "reaches outside its tensor"),
    "a chunk twice": (doubled, "overlap"),
    "a chunk of another rank": (lambda m: setattr(tensor_of(m).chunks[0], "sizes", torch.Size([2, 2])), "box of 1 dim"),
    "a chunk without a place": (without_place, "do not say where a value is"),
    "a larger tensor": (set_tensor("size", torch.Size([1 << 50])), "do not cover it"),
    "a tensor of exabytes": (
        lambda m: (set_tensor("size", torch.Size([1 << 60]))(m), set_chunk(0, 1 << 60)(m)),
        "longer than the bytes",
    ),
    "another shape": (lambda m: (set_tensor("size", torch.Size([2]))(m), set_chunk(0, 2)(m)), "is not the piece"),
    "another element type": (
        lambda m: setattr(tensor_of(m).properties, "dtype", torch.int32),
        "is not the piece",
    ),
    "no element type": (lambda m: setattr(tensor_of(m).properties, "dtype", 3), "an element type"),
    "a shape that is no shape": (set_tensor("size", "text"), "a shape"),
    "a value of no known class": (lambda m: m.state_dict_metadata.update(w=3), "TensorStorageMetadata"),
    "a name that is no text": (lambda m: m.state_dict_metadata.update({5: tensor_of(m)}), "names of values"),
    "no values": (set_field("state_dict_metadata", None), "a dict of values"),
    "no places": (set_field("storage_data", None), "a dict of values"),
    "a file elsewhere": (set_place(relative_path="../../etc/passwd"), "without directories"),
    "an absolute path": (set_place(relative_path="/etc/passwd"), "without directories"),
    "a name that no file has": (set_place(relative_path="\ud800"), "is missing"),
    "the directory itself": (set_place(relative_path="."), "without directories"),
    "the metadata as data": (set_place(relative_path=".metadata", offset=0, length=50), "cut off or damaged"),
    "a negative offset": (set_place(offset=-5), "the position and the length"),
    "a number of very many digits": (set_place(offset=1 << 30_000), "too many digits"),
    "an offset beyond the end": (set_place(offset=1 << 40), "cut off"),
    "a length beyond the end": (set_place(length=1 << 40), "cut off"),
    "a length that is too short": (set_place(length=3), "longer than the bytes"),
    "another item": (lambda m: set_place(offset=place_of(m).offset + 8)(m), "cut off"),
    "a place of another class": (
        lambda m: m.storage_data.update({kinds.MetadataIndex("w", [0]): 3}),
        "not written to plain files",
    ),
    "bytes that two values claim": (
        lambda m: m.storage_data.update({kinds.MetadataIndex("w", [0]): m.storage_data[kinds.MetadataIndex("n")]}),
        "claim the same bytes",
    ),
    "a path without steps": (path_of(), "steps or less"),
    "a path of very many steps": (path_of(*"w" * 1000), "steps or less"),
    "a path of a number": (path_of(0), "steps or less"),
    "a path that is no path": (set_field("planner_data", {"w": 3}), "steps or less"),
    "paths that are no dict": (set_field("planner_data", [3]), "the paths of the values"),
    "one path twice": (set_field("planner_data", {"w": ("a",), "n": ("a",)}), "the same path"),
    "a path inside a value": (set_field("planner_data", {"w": ("a",), "n": ("a", "b")}), "the same path"),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_every_defect_of_the_metadata_is_refused_with_key_and_file(tmp_path, defect):
    change, message = DEFECTS[defect]
    path = changed(saved(tmp_path / "dcp", {"n": 3, "w": torch.ones(4)}), lambda metadata: change(metadata) and None)
    error = restored(path)
    assert isinstance(error, (CheckpointNotFoundError, CorruptCheckpointError, UnsupportedError))
    assert message in str(error)
    assert error.file.startswith(str(path))
    assert error.remedy


def test_an_uncovered_tensor_is_refused_by_key_and_file(tmp_path):
    path = in_pieces(tmp_path / "dcp", {"a.w": (torch.ones(4, 2), [((0, 2), (0, 2)), ((3, 4), (0, 2))])})
    with pytest.raises(CorruptCheckpointError, match="do not cover it") as caught:
        milepost.load_checkpoint(path)
    assert (caught.value.key, caught.value.file) == ("a.w", str(path / ".metadata"))
    assert caught.value.expected == "8 elements, for the shape [4,2]"
    assert caught.value.found == "pieces of 6 elements"


def test_a_list_that_lacks_members_takes_no_memory_for_them(tmp_path):
    state = {"n": 3, "w": torch.ones(4)}
    path = changed(saved(tmp_path / "dcp", state), path_of("a", 1 << 40))
    assert milepost.load_variable(path, f"a/{1 << 40}").tolist() == [1] * 4


def test_what_is_no_metadata_is_refused(tmp_path):
    path = saved(tmp_path / "dcp", {"n": 3})
    for content in (pickle.dumps({"w": 3}), pickle.dumps(None), b"\x80\x04", b"\x80", b"", b"text", b"{}"):
        (path / ".metadata").write_bytes(content)
        error = restored(path)
        assert isinstance(error, CorruptCheckpointError)
        assert error.file == str(path / ".metadata")


def test_metadata_that_are_too_long_are_refused_before_they_are_read(tmp_path):
    path = saved(tmp_path / "dcp", {"n": 3})
    with (path / ".metadata").open("r+b") as file:
        file.truncate((1 << 30) + 1)
    tracemalloc.start()
    error = restored(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(error, UnsupportedError)
    assert "too long" in str(error)
    assert peak < 8 << 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A directory, the bytes of its files, and its values."""
    state = {"w": torch.arange(6.0).reshape(2, 3), "n": 3, "l": [1, "a"], "p": (torch.ones(2),)}
    path = saved(tmp_path_factory.mktemp("whole") / "dcp", state)
    reader = milepost.load_checkpoint(path)
    values = {key: reader.get_tensor(key) for key in reader.keys()}  # noqa: SIM118 - a reader is no mapping
    return path, {name: (path / name).read_bytes() for name in (".metadata", directories.DATA)}, values


@given(data=st.data())
def test_damage_gives_errors_of_milepost_only(whole, data):
    path, files, _ = whole
    name = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[name])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (path / name).write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2]))])
    try:
        restored(path)
    finally:
        (path / name).write_bytes(files[name])


def test_every_damaged_byte_of_the_data_is_found_or_has_no_effect(whole):
    path, files, values = whole
    content = files[directories.DATA]
    positions = random.Random(0).sample(range(len(content)), 600)
    try:
        for position in positions:
            damaged = bytearray(content)
            damaged[position] ^= 1
            (path / directories.DATA).write_bytes(damaged)
            with contextlib.suppress(CorruptCheckpointError, UnsupportedError):
                reader = milepost.load_checkpoint(path)
                for key in reader.keys():  # noqa: SIM118 - a reader is no mapping
                    assert np.array_equal(reader.get_tensor(key), values[key]), position
    finally:
        (path / directories.DATA).write_bytes(content)


def cut(shape, draw, depth=4):
    """Boxes that planes divide, as shards are."""
    boxes = [tuple((0, length) for length in shape)]
    for _ in range(depth):
        new = []
        for box in boxes:
            axis = draw(st.integers(0, len(shape) - 1))
            start, stop = box[axis]
            at = draw(st.integers(start, stop))
            parts = [(*box[:axis], part, *box[axis + 1 :]) for part in ((start, at), (at, stop)) if part[0] < part[1]]
            new += parts
        boxes = new
    return boxes


class TestTiling:
    @given(data=st.data(), shape=st.lists(st.integers(1, 6), min_size=1, max_size=3))
    def test_boxes_that_planes_divide_are_accepted_in_any_order(self, data, shape):
        boxes = cut(shape, data.draw)
        check_tiling(data.draw(st.permutations(boxes)), shape)

    @given(data=st.data(), shape=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def test_boxes_are_refused_exactly_if_they_do_not_cover_it_once(self, data, shape):
        boxes = cut(shape, data.draw, depth=2)
        for _ in range(data.draw(st.integers(0, 2))):
            position = data.draw(st.integers(0, len(boxes) - 1))
            boxes[position] = tuple(
                tuple(sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))))
                for n in shape
            )
        counts = np.zeros(shape, int)
        for box in boxes:
            counts[tuple(slice(*bounds) for bounds in box)] += 1
        if (counts == 1).all():
            check_tiling(boxes, shape)
        else:
            with pytest.raises(CorruptCheckpointError):
                check_tiling(boxes, shape)

    def test_a_few_boxes_that_no_plane_divides_are_compared(self):
        pinwheel = [((0, 1), (0, 2)), ((0, 2), (2, 3)), ((2, 3), (1, 3)), ((1, 3), (0, 1)), ((1, 2), (1, 2))]
        check_tiling(pinwheel, (3, 3))

    def test_a_scalar_has_one_box(self):
        check_tiling([()], ())
        with pytest.raises(CorruptCheckpointError, match="overlap"):
            check_tiling([(), ()], ())

    def test_200000_boxes_of_a_grid_are_checked(self):
        grid = itertools.product(range(200), range(100), range(10))
        check_tiling([tuple((at, at + 1) for at in place) for place in grid], (200, 100, 10))

    def test_a_layout_that_would_take_long_is_refused(self):
        # each plane divides off one row or column, so that all others would be looked at again and again
        size = 4000
        boxes = []
        for n in range(size // 2):
            boxes += [((n, n + 1), (n, size)), ((n + 1, size), (n, n + 1))]
        boxes.append(((size // 2, size), (size // 2, size)))
        with pytest.raises(UnsupportedError, match="too irregular"):
            check_tiling(boxes, (size, size))


def test_pieces_of_very_many_processes_are_read(tmp_path):
    tensor = torch.arange(3_000.0)
    path = in_pieces(tmp_path / "dcp", {"w": (tensor, [((n, n + 1),) for n in range(3_000)])})
    assert np.array_equal(milepost.load_variable(path, "w"), tensor.numpy())


def test_lists_that_lack_a_member_become_dicts():
    assert nested([(("a", 1), "x"), (("a", 3), "y"), (("b", 0), "z")]) == {"a": {1: "x", 3: "y"}, "b": ["z"]}
