"""Objects of classes in files of torch.save: they are named, what they hold is read, and they hide nothing else."""

import argparse
import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import io
import pathlib
import pickle
import subprocess
import sys
import uuid
import warnings
import zipfile

import numpy as np
import pytest

import milepost
from milepost import UnrestoredWarning, UnsupportedError
from milepost.engine.report import Outcome

torch = pytest.importorskip("torch")
nn = pytest.importorskip("torch.nn")

pytestmark = pytest.mark.filterwarnings("ignore:.*objects that are not listed", "ignore::DeprecationWarning")


class Colour(enum.Enum):
    RED = 1


class Point(collections.namedtuple("Point", "x y")):
    __slots__ = ()


@dataclasses.dataclass
class Settings:
    lr: float = 0.1
    path: pathlib.Path = pathlib.Path("x")


class AttributeDict(dict):  # type: ignore[type-arg]
    """As Lightning's class of this name."""

    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        return self[name]


class Words(list):  # type: ignore[type-arg]
    pass


class Slotted:
    __slots__ = ("mean", "other")


class Average:
    """Keeps a running mean of a model's parameters, as many training scripts do."""

    def __init__(self, model):
        self.decay = 0.99
        self.shadow = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        self.itself = self


class Mine(torch.Tensor):  # type: ignore[name-defined]
    pass


class Net(nn.Module):  # type: ignore[name-defined]
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        self.head = nn.Linear(3, 1, bias=False)
        self.loss = nn.MSELoss()
        self.register_buffer("table", torch.ones(4), persistent=False)
        self.register_buffer("scale", torch.ones(1))


def doubled(value):
    return 2 * value


OBJECTS = {
    "Namespace": argparse.Namespace(lr=1),
    "path": pathlib.PurePosixPath("x"),
    "datetime": datetime.datetime(2020, 1, 1),
    "timedelta": datetime.timedelta(1),
    "function": doubled,
    "function of torch": torch.nn.functional.relu,
    "class": Settings,
    "method": Average.__init__,
    "bound method": Colour.RED.__str__,
    "enum": Colour.RED,
    "dataclass": Settings(),
    "module": nn.MSELoss(),
    "partial": functools.partial(doubled, 3),
    "objects": np.array(["a", None], object),
    "text": np.array(["a", "b"]),
    "bytes": np.array([b"a"]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "record": np.zeros(2, [("a", "i4"), ("b", "f4")]),
    "masked": np.ma.array([1, 2], mask=[False, True]),
    "text scalar": np.str_("a"),
    "date": np.datetime64("2020-01-01"),
    "element type": np.dtype("f4"),
    "generator": np.random.default_rng(0),
    "random state": np.random.RandomState(0),
    "deque": collections.deque([1, 2], 3),
    "named tuple": Point(1, 2),
    "slice": slice(1, 2),
    "range": range(3),
    "ellipsis": ...,
    "not implemented": NotImplemented,
    "decimal": decimal.Decimal("1.5"),
    "uuid": uuid.UUID(int=3),
    "attributes": AttributeDict(lr=0.1, other={"a": 1}),
    "list": Words("ab"),
    "factory": collections.defaultdict(Settings, a=Settings()),
    "member": {"deep": [{"in": argparse.Namespace()}]},
    "set": {Colour.RED, 3},
    "exception": ValueError("a"),
    "lazy": nn.LazyLinear(3),
}
UNSEALED = (
    "Namespace",
    "dataclass",
    "enum",
    "path",
    "datetime",
    "objects",
    "text",
    "dates",
    "module",
    "slice",
    "partial",
)


def saved(path, value, **how):
    torch.save(value, path, **how)
    return path


def listed(path):
    return dict(milepost.list_variables(path))


HOW = {
    "archive, protocol 2": {},
    **{f"archive, protocol {number}": {"pickle_protocol": number} for number in (1, 3, 5)},
    "legacy, protocol 2": {"_use_new_zipfile_serialization": False},
    "legacy, protocol 4": {"_use_new_zipfile_serialization": False, "pickle_protocol": 4},
    "legacy, protocol 1": {"_use_new_zipfile_serialization": False, "pickle_protocol": 1},
}


class TestObjects:
    @pytest.mark.parametrize("how", HOW.values(), ids=HOW)
    @pytest.mark.parametrize("name", OBJECTS)
    def test_one_beside_tensors_leaves_them_readable(self, tmp_path, name, how):
        state = {"before": torch.arange(3.0), "it": OBJECTS[name], "after": {"w": torch.ones(2), "epoch": 3}}
        path = saved(tmp_path / "it.pt", state, **how)
        assert listed(path).items() >= {"before": [3], "after/w": [2], "after/epoch": []}.items()
        assert milepost.load_variable(path, "before").tolist() == [0.0, 1.0, 2.0]
        checkpoint = milepost.Checkpoint(before=milepost.Variable(np.zeros(3, np.float32)))
        status = checkpoint.restore(path).expect_partial().assert_existing_objects_matched()
        assert any(key.partition("/")[0] == "it" for key in milepost.load_checkpoint(path).objects())
        assert "which milepost does not make" in str(status.report())

    @pytest.mark.parametrize("name", [name for name in OBJECTS if name not in ("member", "set")])
    def test_one_is_refused_when_it_is_asked_for(self, tmp_path, name):
        path = saved(tmp_path / "it.pt", {"w": torch.ones(2), "it": OBJECTS[name]})
        with pytest.raises(UnsupportedError) as caught:
            milepost.load_variable(path, "it")
        assert (caught.value.key, caught.value.file) == ("it", str(path))
        assert caught.value.remedy

    def test_one_as_a_key_is_called_by_its_class(self, tmp_path):
        value = {((1, 2), 3): 4, frozenset({(1, 2)}): 5, Colour.RED: 6, Settings: 7}
        path = saved(tmp_path / "it.pt", {"it": value, "w": torch.ones(2)})
        assert listed(path)["w"] == [2]
        read = [milepost.load_variable(path, key) for key in listed(path) if key.startswith("it/")]
        assert sorted(read) == [4, 5, 6, 7]

    def test_an_array_of_text_is_unsupported_and_not_damaged(self, tmp_path):
        path = saved(tmp_path / "it.pt", {"it": np.array(["a"])})
        with pytest.raises(UnsupportedError, match="NumPy values of this type"):
            milepost.load_variable(path, "it")

    def test_a_live_value_that_needs_one_refuses_it_and_nothing_changes(self, tmp_path):
        path = saved(tmp_path / "it.pt", {"w": torch.ones(2), "args": argparse.Namespace(lr=1)})
        w, args = milepost.Variable(np.zeros(2, np.float32)), milepost.Variable(0)
        with pytest.raises(UnsupportedError, match=r"argparse\.Namespace"):
            milepost.Checkpoint(w=w, args=args).restore(path)
        assert w.numpy().tolist() == [0, 0]

    def test_a_live_object_without_values_needs_none(self, tmp_path):
        path = saved(tmp_path / "it.pt", {"w": torch.ones(2), "loss": nn.MSELoss()})
        checkpoint = milepost.Checkpoint(w=milepost.Variable(np.zeros(2, np.float32)), loss=nn.MSELoss())
        checkpoint.restore(path).expect_partial().assert_existing_objects_matched()

    @pytest.mark.parametrize("name", ["class", "Namespace", "enum"])
    def test_a_file_of_nothing_else_is_refused_by_its_class(self, tmp_path, name):
        path = saved(tmp_path / "it.pt", OBJECTS[name])
        with pytest.raises(UnsupportedError, match="milepost never does"):
            milepost.load_checkpoint(path)

    def test_a_scheduler_that_was_pickled_whole_is_refused(self, tmp_path):
        def made():
            return torch.optim.lr_scheduler.StepLR(torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0), 2)

        path = saved(tmp_path / "it.pt", {"scheduler": made()})
        with pytest.raises(UnsupportedError, match="StepLR"):
            milepost.Checkpoint(scheduler=made()).restore(path)

    def test_an_optimizer_that_was_pickled_whole_is_refused(self, tmp_path):
        net = nn.Linear(1, 1)
        path = saved(tmp_path / "it.pt", {"net": net.state_dict(), "optimizer": torch.optim.Adam(net.parameters())})
        with pytest.raises(UnsupportedError, match="Adam"):
            milepost.Checkpoint(net=net, optimizer=torch.optim.Adam(net.parameters())).restore(path)

    def test_listing_warns_of_what_it_leaves_out(self, tmp_path):
        path = saved(tmp_path / "it.pt", {"w": torch.ones(2), "args": argparse.Namespace(lr=1)})
        with pytest.warns(UnrestoredWarning, match=r"args: argparse\.Namespace"):
            milepost.list_variables(path)

    def test_reading_one_value_warns_of_nothing(self, tmp_path):
        path = saved(tmp_path / "it.pt", {"w": torch.ones(2), "args": argparse.Namespace(lr=1)})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            milepost.load_variable(path, "w")

    def test_the_command_names_them(self, tmp_path, capsys):
        from milepost.tools.cli import main

        path = saved(tmp_path / "it.pt", {"w": torch.ones(2), "args": argparse.Namespace(lr=1)})
        assert main(["show", str(path)]) == 0
        assert "args  argparse.Namespace" in capsys.readouterr().out

    def test_assert_consumed_names_an_object_that_nothing_took(self, tmp_path):
        path = saved(tmp_path / "it.pt", {"w": torch.ones(2), "args": argparse.Namespace(lr=1)})
        status = milepost.Checkpoint(w=milepost.Variable(np.zeros(2, np.float32))).restore(path).expect_partial()
        with pytest.raises(milepost.UnmatchedError, match=r"args argparse\.Namespace"):
            status.assert_consumed()

    def test_verifying_a_file_passes_over_them(self, tmp_path):
        path = saved(tmp_path / "it.pt", {"w": torch.ones(2), "args": argparse.Namespace(lr=1)})
        milepost.load_checkpoint(path).verify()


class TestWhatTheyHold:
    def test_tensors_in_attributes_are_read_by_their_names(self, tmp_path):
        net = nn.Linear(2, 3)
        path = saved(tmp_path / "it.pt", {"ema": Average(net), "args": argparse.Namespace(lr=1)})
        assert listed(path) == {"ema/decay": [], "ema/shadow/bias": [3], "ema/shadow/weight": [3, 2]}
        np.testing.assert_array_equal(milepost.load_variable(path, "ema/shadow/weight"), net.weight.detach().numpy())
        assert milepost.load_checkpoint(path).objects().keys() >= {"args", "ema"}

    def test_such_tensors_go_into_live_objects(self, tmp_path):
        net, fresh = nn.Linear(2, 3), nn.Linear(2, 3)
        path = saved(tmp_path / "it.pt", {"ema": Average(net)})
        holder = milepost.Module()
        holder.shadow = fresh
        milepost.Checkpoint(ema=holder).restore(path).expect_partial().assert_existing_objects_matched()
        assert torch.equal(net.weight, fresh.weight)

    def test_a_kind_of_dict_holds_its_entries(self, tmp_path):
        path = saved(tmp_path / "it.pt", {"hyper_parameters": AttributeDict(lr=0.5, path=pathlib.PurePosixPath("a"))})
        assert listed(path) == {"hyper_parameters/lr": []}
        objects = milepost.load_checkpoint(path).objects()
        assert objects["hyper_parameters"].endswith("AttributeDict")
        assert "Path" in objects["hyper_parameters/path"]

    @pytest.mark.parametrize("protocol", [1, 2, 4])
    def test_tensors_in_any_kind_of_object_are_found(self, tmp_path, protocol):
        slotted = Slotted()
        slotted.mean = torch.ones(1)
        objects = np.empty(1, object)
        objects[0] = torch.ones(2)
        state = {
            "deque": collections.deque([torch.ones(3)]),
            "point": Point(torch.ones(4), 1),
            "partial": functools.partial(doubled, torch.ones(5)),
            "objects": objects,
            "set": {torch.ones(6)},
            "list": Words([torch.ones(7)]),
        }
        if protocol > 1:
            state["slotted"] = slotted
        shapes = listed(saved(tmp_path / "it.pt", state, pickle_protocol=protocol)).values()
        assert sorted(shape[0] for shape in shapes if shape) == [*([1] if protocol > 1 else []), 2, 3, 4, 5, 6, 7]

    def test_a_tensor_of_a_class_of_its_own_is_read_by_name(self, tmp_path):
        path = saved(tmp_path / "it.pt", {"image": torch.ones(3).as_subclass(Mine)})
        assert listed(path) == {"image/data": [3]}
        assert milepost.load_checkpoint(path).objects()["image"].endswith("Mine")

    def test_storages_are_read_as_they_are(self, tmp_path):
        tensor = torch.arange(3, dtype=torch.int16)
        state = {
            "typed": torch.storage.TypedStorage(
                wrap_storage=tensor.untyped_storage(), dtype=tensor.dtype, _internal=True
            )
        }
        path = saved(tmp_path / "it.pt", state)
        assert milepost.load_variable(path, "typed").tolist() == [0, 1, 2]


class TestModules:
    @pytest.mark.parametrize("how", HOW.values(), ids=HOW)
    def test_a_module_that_was_pickled_whole_is_read_as_its_state_dict(self, tmp_path, how):
        net, fresh = Net(), Net()
        with torch.no_grad():
            for tensor in net.state_dict().values():
                tensor.copy_(torch.rand_like(tensor.float()).to(tensor.dtype))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that it cannot find the source
            path = saved(tmp_path / "net.pt", net, **how)
        assert listed(path).keys() == net.state_dict().keys() - {"loss"}
        status = milepost.Checkpoint(fresh).read(path).assert_consumed()
        assert all(torch.equal(tensor, fresh.state_dict()[name]) for name, tensor in net.state_dict().items())
        assert "Net" in str(status.report())

    def test_one_under_a_name_is_read_too(self, tmp_path):
        net, fresh = nn.DataParallel(Net()), Net()
        path = saved(tmp_path / "net.pt", {"model": net, "epoch": 3})
        milepost.Checkpoint(model=fresh, epoch=milepost.Variable(0)).restore(path).assert_consumed()
        assert torch.equal(net.module.head.weight, fresh.head.weight)

    def test_a_module_that_is_there_twice_has_both_names(self, tmp_path):
        layer = nn.Linear(2, 2)
        net = nn.ModuleDict({"a": layer, "b": layer})
        assert listed(saved(tmp_path / "net.pt", net)).keys() == net.state_dict().keys()


class TestNumPy:
    @pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
    def test_arrays_of_either_byte_order_that_share_their_type_are_right(self, tmp_path, protocol):
        big = np.arange(6, dtype=">i4").reshape(2, 3)
        state = {"first": big, "again": big, "part": big[:, 1], "turned": big.T, "empty": big[:0], "number": big[1, 1]}
        reader = milepost.load_checkpoint(saved(tmp_path / "it.pt", state, pickle_protocol=protocol))
        for name, value in state.items():
            np.testing.assert_array_equal(reader.get_tensor(name), value)

    @pytest.mark.parametrize("module", ["numpy.core", "numpy._core"])
    def test_arrays_of_any_version_are_read(self, tmp_path, module):
        pickled = pickle.dumps({"it": np.arange(3.0), "number": np.float32(2)}, 2)
        pickled = pickled.replace(b"numpy._core", b"numpy.core").replace(b"numpy.core", module.encode())
        path = tmp_path / "it.pt"
        path.write_bytes(archive(pickled))
        assert milepost.load_variable(path, "it").tolist() == [0, 1, 2]
        assert milepost.load_variable(path, "number") == 2

    def test_arrays_of_python_2_are_read(self, tmp_path):
        dtype = b"cnumpy\ndtype\n(U\x02f4K\x00K\x01tR(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        array = (
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR(K\x01(K\x01t"
            + dtype
            + b"\x89U\x04"
        )
        pickled = b"\x80\x02}(" + b"".join(
            b"U\x01" + name + array + data + b"tb" for name, data in ((b"a", b"\x00\x00\x80\xbf"), (b"b", b"abcd"))
        )
        path = tmp_path / "it.pt"
        path.write_bytes(archive(pickled + b"u."))
        assert milepost.load_variable(path, "a").tolist() == [-1]
        assert milepost.load_variable(path, "b").tobytes() == b"abcd"


class TestOldForms:
    def test_text_instructions_of_the_first_protocol_are_read(self, tmp_path):
        value = {"a": [1, 2.5, True, None, "text\n\u20ac", (1, (2,))], "b": {"c": -3}}
        path = tmp_path / "it.pt"
        path.write_bytes(archive(pickle.dumps({**value, "args": argparse.Namespace(lr=1)}, 0)))
        reader = milepost.load_checkpoint(path)
        assert reader.get_tensor("a/4") == "text\n\u20ac".encode()
        assert reader.get_tensor("b/c") == -3
        assert reader.objects() == {"args": "argparse.Namespace"}

    def test_text_of_python_2_is_read(self, tmp_path):
        path = tmp_path / "it.pt"
        path.write_bytes(archive(b"(dS'a\\n'\nS\"it's\"\ns."))
        assert milepost.load_variable(path, "a\n") == b"it's"

    @pytest.mark.parametrize(
        "made",
        [b"(iargparse\nNamespace\n", b"(cargparse\nNamespace\no", b"cargparse\nNamespace\n)}\x92", b"\x82\x07)R"],
        ids=["INST", "OBJ", "NEWOBJ_EX", "EXT1"],
    )
    def test_every_way_to_make_an_object_is_known(self, tmp_path, made):
        path = tmp_path / "it.pt"
        path.write_bytes(archive(b"\x80\x04}(X\x01\x00\x00\x00aK\x05X\x02\x00\x00\x00it" + made + b"u."))
        assert milepost.load_variable(path, "a") == 5
        assert list(milepost.load_checkpoint(path).objects()) == ["it"]

    def test_views_of_storages_are_read(self, tmp_path):
        """As PyTorch before 0.4 wrote tensors of storages that are parts of others."""

        def text(word):
            return b"X" + len(word).to_bytes(4, "little") + word

        def tensor(key, view, count):
            storage = (
                b"("
                + text(b"storage")
                + b"ctorch\nFloatStorage\n"
                + text(b"7")
                + text(b"cpu")
                + b"K\x06"
                + view
                + b"tQ"
            )
            return text(key) + b"ctorch._utils\n_rebuild_tensor\n(" + storage + b"K\x00(K" + count + b"t(K\x01ttR"

        numbers = np.arange(6, dtype=np.float32).tobytes()
        content = b"".join(pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
        content += (
            b"\x80\x02}("
            + tensor(b"all", b"N", b"\x06")
            + tensor(b"part", b"(" + text(b"8") + b"K\x02K\x03t", b"\x03")
            + b"u."
        )
        content += pickle.dumps(["7"], 2) + (6).to_bytes(8, "little") + numbers
        path = tmp_path / "old.pth"
        path.write_bytes(content)
        assert milepost.load_variable(path, "part").tolist() == [2, 3, 4]
        assert milepost.load_variable(path, "all").tolist() == [0, 1, 2, 3, 4, 5]


class TestLimits:
    def test_objects_that_hold_each_other_end(self, tmp_path):
        first, second = argparse.Namespace(w=torch.ones(2)), argparse.Namespace()
        first.other, second.other, second.many = second, first, [first, second] * 3
        path = saved(tmp_path / "it.pt", {"a": first, "b": second, "w": torch.ones(3)})
        assert listed(path) == {"a/w": [2], "w": [3]}

    def test_a_list_in_an_object_that_holds_itself_hides_nothing(self, tmp_path):
        endless = []
        endless += [endless, torch.ones(1)]
        path = saved(tmp_path / "it.pt", {"it": argparse.Namespace(endless=endless), "w": torch.ones(3)})
        assert listed(path)["w"] == [3]

    def test_a_long_chain_of_objects_hides_nothing(self, tmp_path):
        pickled = b"\x80\x02}(X\x01\x00\x00\x00aK\x05X\x01\x00\x00\x00b"
        pickled += b"cm\nC\n)\x81}X\x01\x00\x00\x00n" * 50_000 + b"K\x01" + b"sb" * 50_000 + b"u."
        path = tmp_path / "it.pt"
        path.write_bytes(archive(pickled))
        assert listed(path) == {"a": []}

    def test_one_object_in_very_many_places_takes_little(self, tmp_path):
        pickled = b"\x80\x02}(X\x01\x00\x00\x00acm\nC\n)\x81q\x00X\x01\x00\x00\x00b](" + b"h\x00" * 200_000 + b"eu."
        path = tmp_path / "it.pt"
        path.write_bytes(archive(pickled))
        assert len(milepost.load_checkpoint(path).objects()) == 200_001

    def test_modules_that_double_with_each_level_are_refused(self, tmp_path):
        layer = nn.Linear(1, 1)
        for _ in range(25):
            layer = nn.ModuleList([layer, layer])
        with pytest.raises(UnsupportedError, match="too many parts"):
            milepost.list_variables(saved(tmp_path / "it.pt", layer))


def archive(pickled):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("it/data.pkl", pickled)
    return buffer.getvalue()


def test_a_level_that_is_matched_is_said_to_be(tmp_path):
    net = nn.Linear(1, 1)
    status = milepost.Checkpoint(nn.Linear(1, 1)).read(saved(tmp_path / "net.pt", {"module": net}))
    entries = [entry for entry in status.report() if entry.saved.endswith("Linear")]
    assert [entry.outcome for entry in entries] == [Outcome.MATCHED]


class TestStreams:
    """`io.BytesIO` in files of PyTorch, such as the extra state of layers in float8."""

    class Scaled(nn.Module):  # type: ignore[name-defined]
        def __init__(self, scale):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))
            self.scale = torch.full((3,), float(scale))

        def get_extra_state(self):
            stream = io.BytesIO()
            torch.save({"scale": self.scale}, stream)
            return stream

        def set_extra_state(self, stream):
            stream.seek(0)
            self.scale = torch.load(stream)["scale"]

    @pytest.mark.parametrize("form", ["own", "pt"])
    def test_extra_state_is_restored(self, tmp_path, form):
        saved, live = self.Scaled(5), self.Scaled(1)
        path = milepost.Checkpoint(model=saved).write(tmp_path / "own")
        if form == "pt":
            torch.save({"model": saved.state_dict()}, path := tmp_path / "a.pt")
        milepost.Checkpoint(model=live).read(path).assert_consumed().assert_existing_objects_matched()
        assert live.scale.equal(saved.scale)

    def test_a_stream_is_loaded_at_its_position(self, tmp_path):
        stream = io.BytesIO(b"abcdef")
        stream.seek(4)
        torch.save({"s": stream, "w": torch.ones(1)}, tmp_path / "a.pt")
        for path in (tmp_path / "a.pt", milepost.save(tmp_path / "own", {"s": [stream, {1: stream}]})):
            loaded = milepost.load(path)["s"]
            loaded = loaded if isinstance(loaded, io.BytesIO) else loaded[1][1]
            assert (loaded.tell(), loaded.getvalue()) == (4, b"abcdef")


def test_tensors_that_are_not_read_are_named_as_what_they_are(tmp_path):
    values = {"repeated": torch.zeros(1).expand(1 << 30), "sparse": torch.eye(2).to_sparse(), "w": torch.ones(1)}
    torch.save(values, tmp_path / "a.pt")
    objects = milepost.load_checkpoint(tmp_path / "a.pt").objects()
    assert objects["repeated"].startswith("torch.Tensor: this tensor has far more elements than are stored")
    assert objects["sparse"] == "torch.Tensor: a sparse tensor"


def test_a_sharded_tensor_is_named_by_its_class(tmp_path):
    program = f"""
import os, torch, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec
tensor = sharded_tensor.ones(ChunkShardingSpec(dim=0, placements=["rank:0/cpu"]), 4, 3)
torch.save({{"t": tensor, "w": torch.ones(2)}}, {str(tmp_path / "a.pt")!r})
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    reader = milepost.load_checkpoint(tmp_path / "a.pt")
    assert reader.objects() == {"t": "torch.distributed._shard.sharded_tensor.api.ShardedTensor"}
    with pytest.raises(milepost.UnsupportedError) as caught:
        reader.get_tensor("t")
    assert "ShardedTensor" in caught.value.found
