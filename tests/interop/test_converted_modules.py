"""A converted module has exactly the names of its ``state_dict()``, and loads with ``strict=True``."""

import json

import pytest

import milepost
from milepost import Checkpoint, MilepostWarning
from milepost.errors import UnrestoredWarning, UnsupportedError

torch = pytest.importorskip("torch")
nn = pytest.importorskip("torch.nn")
load_file = pytest.importorskip("safetensors.torch").load_file

from tests.adapters.torch.test_older_states import Metres  # noqa: E402 - after the frameworks that it needs


class Tied(nn.Module):  # type: ignore[name-defined]
    """An embedding whose weight is that of the head, too."""

    def __init__(self, tied=True):
        super().__init__()
        self.emb = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        if tied:
            self.head.weight = self.emb.weight


class Twice(nn.Module):  # type: ignore[name-defined]
    """One layer in two places of a list, and one in an attribute, too."""

    def __init__(self):
        super().__init__()
        layer = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.layers = nn.ModuleList([layer, layer])
        self.again = layer[0]


class Buffers(nn.Module):  # type: ignore[name-defined]
    def __init__(self, tied=True):
        super().__init__()
        self.register_buffer("a", torch.rand(3))
        self.register_buffer("b", self.a if tied else torch.rand(3))
        self.register_buffer("c", torch.rand(2), persistent=False)


class Hidden(nn.Module):  # type: ignore[name-defined]
    """A module that another one has, too, without registering it. Its shortest path is the one that PyTorch does not list."""

    def __init__(self):
        super().__init__()
        self.deep = nn.ModuleList([nn.ModuleList([nn.Linear(2, 2)])])
        object.__setattr__(self, "twin", self.deep[0][0])


class Migrating(nn.Module):  # type: ignore[name-defined]
    """Its first version had the weight transposed."""

    _version = 2

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(2, 2))

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if local_metadata.get("version", 1) < 2:
            state_dict[f"{prefix}w"] = state_dict[f"{prefix}w"].T
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class Removing(nn.Module):  # type: ignore[name-defined]
    """Its hooks take registered values out of its state, and rename one."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(2, 2)
        self.inner = nn.Sequential(nn.Linear(2, 1))
        self.secret = nn.Parameter(torch.rand(3))
        self.register_state_dict_post_hook(self.change)
        self.register_load_state_dict_pre_hook(self.change_back)

    @staticmethod
    def change(module, state_dict, prefix, _metadata):
        del state_dict[f"{prefix}secret"], state_dict[f"{prefix}inner.0.bias"]
        state_dict[f"{prefix}dense.w"] = state_dict.pop(f"{prefix}dense.weight")

    @staticmethod
    def change_back(module, state_dict, prefix, *rest):
        state_dict[f"{prefix}dense.weight"] = state_dict.pop(f"{prefix}dense.w")
        state_dict[f"{prefix}secret"] = module.secret.detach()
        state_dict[f"{prefix}inner.0.bias"] = module.inner[0].bias.detach()


MODELS = {
    "tied": Tied,
    "twice": Twice,
    "tied buffers": Buffers,
    "a module that is not registered": Hidden,
    "channels_last": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(memory_format=torch.channels_last),
    "bfloat16": lambda: nn.LSTM(3, 4, 2).bfloat16(),
    "weight_norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)),
    "names with slashes": lambda: nn.ModuleDict({"x": nn.ParameterDict({"a/b": torch.rand(2), "c": torch.rand(1)})}),
    "names like levels": lambda: nn.ParameterDict({"a/b": torch.rand(2), "%2F": torch.rand(1)}),
    "the version of the whole": Migrating,
    "values that hooks remove": lambda: nn.Sequential(Removing(), nn.Linear(2, 2)),
    "versions": lambda: nn.Sequential(Migrating(), nn.BatchNorm1d(2)),
}


@pytest.fixture(params=MODELS)
def make(request):
    return MODELS[request.param]


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert found[name].equal(tensor)


@pytest.mark.parametrize("form", ["pt", "safetensors", "several", "load"])
def test_it_loads_strictly(tmp_path, make, form):
    model, live = make(), make()
    path = Checkpoint(model=model, n=milepost.Variable(1)).save(tmp_path / "ckpt")
    part = {"only": "model", "rename": {"model": ""}}
    if form == "load":
        found = milepost.load(path, arrays="torch", **part, separator=".")
    elif form == "several":
        milepost.convert(path, tmp_path / "m.safetensors", separator=".", max_shard_size=40, **part)
        index = tmp_path / "m.safetensors.index.json"
        files = json.loads(index.read_text())["weight_map"].values() if index.exists() else ["m.safetensors"]
        found = {name: each for file in sorted(set(files)) for name, each in load_file(tmp_path / file).items()}
    else:
        milepost.convert(path, tmp_path / f"m.{form}", separator=".", **part)
        load = load_file if form == "safetensors" else torch.load
        found = load(tmp_path / f"m.{form}")
    same(found, model.state_dict())
    if form in ("pt", "load"):  # safetensors has no versions
        live.load_state_dict(found, strict=True)
        same(live.state_dict(), model.state_dict())


def removing_checkpoint(directory):
    return Checkpoint(model=Removing()).write(directory / "ckpt")


def test_values_that_hooks_remove_are_named(tmp_path):
    done = milepost.convert(removing_checkpoint(tmp_path), tmp_path / "m.pt", separator=".")
    assert done.not_carried_over[-1] == (
        "what the state_dict() of a module leaves out: model/dense/weight, model/inner/0/bias, model/secret"
    )


def test_values_that_hooks_remove_stay_out_if_a_function_renames(tmp_path):
    path = removing_checkpoint(tmp_path)
    milepost.convert(path, tmp_path / "m.pt", rename=lambda name: name.removeprefix("model/"), separator=".")
    assert {*torch.load(tmp_path / "m.pt")} == {"dense.bias", "dense.w", "inner.0.weight"}


def test_a_checkpoint_of_a_checkpoint_keeps_values_that_hooks_remove(tmp_path):
    path = removing_checkpoint(tmp_path)
    milepost.convert(path, tmp_path / "again")
    model = Removing()
    Checkpoint(model=model).read(tmp_path / "again").assert_consumed()
    assert model.secret.equal(milepost.load(path, arrays="torch")["model"]["secret"])


def test_a_pt_file_holds_a_tied_weight_once_and_the_versions_of_modules(tmp_path):
    model = nn.Sequential(Tied(), Migrating())
    path = Checkpoint(model).write(tmp_path / "ckpt")
    milepost.convert(path, tmp_path / "m.pt", separator=".")
    state = torch.load(tmp_path / "m.pt", weights_only=True)
    assert state["0.emb.weight"].data_ptr() == state["0.head.weight"].data_ptr()
    assert dict(state._metadata) == dict(model.state_dict()._metadata)


@pytest.mark.parametrize("kind", [Tied, Buffers])
def test_a_tied_checkpoint_in_a_model_that_is_not_tied(tmp_path, kind):
    model, live = kind(), kind(tied=False)
    path = Checkpoint(model=model).write(tmp_path / "ckpt")
    status = Checkpoint(model=live).read(path).assert_consumed().assert_existing_objects_matched()
    same(live.state_dict(), model.state_dict())
    assert status.report().counts()["missing"] == 0
    if kind is Tied:
        assert live.emb.weight.data_ptr() != live.head.weight.data_ptr()


def test_a_tied_checkpoint_whose_second_name_is_a_whole_module(tmp_path):
    model = Twice()
    live = nn.ModuleDict(
        {
            "layers": nn.ModuleList([nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)) for _ in range(2)]),
            "again": nn.Linear(2, 2),
        }
    )
    path = Checkpoint(model=model).write(tmp_path / "ckpt")
    Checkpoint(model=live).read(path).assert_consumed()
    same(live.state_dict(), model.state_dict())


@pytest.mark.parametrize("rename", [{"model": ""}, {"model": "net"}, [("^model", "net")], {"model/head": "model/top"}])
def test_the_second_name_of_a_tied_weight_is_renamed_too(tmp_path, rename):
    path = Checkpoint(model=Tied()).write(tmp_path / "ckpt")
    names = {*milepost.load(path, rename=rename, arrays="torch", separator=".")}
    assert (
        names
        == {
            str(rename): {"model.emb.weight", "model.top.weight"},
            "{'model': ''}": {"emb.weight", "head.weight"},
            "{'model': 'net'}": {"net.emb.weight", "net.head.weight"},
            "[('^model', 'net')]": {"net.emb.weight", "net.head.weight"},
        }[str(rename)]
    )


def test_plain_state_is_left_out_as_a_whole(tmp_path):
    class Extra(nn.Linear):
        def get_extra_state(self):
            return {"scale": torch.ones(3), "n": 3}

        def set_extra_state(self, state):
            pass

    path = Checkpoint(model=Extra(2, 2)).write(tmp_path / "ckpt")
    with pytest.raises(milepost.UnsupportedError, match="plain state"):
        milepost.convert(path, tmp_path / "m.safetensors", only="model", separator=".")
    done = milepost.convert(path, tmp_path / "m.safetensors", only="model", separator=".", partial=True)
    assert done.tensors.keys() == {"model.weight", "model.bias"}
    assert all("_extra_state" in key for key in done.left_out)


def test_no_warning_is_given(tmp_path, recwarn):
    path = Checkpoint(model=Tied()).write(tmp_path / "ckpt")
    milepost.convert(path, tmp_path / "m.pt", only="model", rename={"model": ""}, separator=".")
    assert not [each for each in recwarn if issubclass(each.category, MilepostWarning)]


def test_parameters_without_values_are_named(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3))
    path = Checkpoint(model=model).write(tmp_path / "ckpt")
    part = {"only": "model", "rename": {"model": ""}, "separator": "."}
    with pytest.raises(UnsupportedError, match=r"model/1/weight: a parameter or buffer of a lazy module"):
        milepost.convert(path, tmp_path / "m.pt", **part)
    done = milepost.convert(path, tmp_path / "m.pt", partial=True, **part)
    assert set(done.left_out) == {"model/1/weight", "model/1/bias"}
    assert not milepost.convert(path, tmp_path / "m.pt", overwrite=True, **part | {"only": "model/0"}).left_out
    with pytest.warns(UnrestoredWarning, match=r"have no values for model\.1\.weight, model\.1\.bias"):
        assert set(milepost.load(path, only="model", separator=".")) == {"model.0.weight", "model.0.bias"}


def test_a_lazy_module_that_was_called_has_nothing_without_a_value(tmp_path):
    model = nn.Sequential(nn.LazyLinear(3))
    model(torch.ones(1, 2))
    path = Checkpoint(model=model).write(tmp_path / "ckpt")
    assert not milepost.convert(path, tmp_path / "m.pt", separator=".").left_out


@pytest.fixture
def file_with_versions(tmp_path):
    torch.save({"net": nn.Sequential(Metres([3.0])).state_dict(), "epoch": 1}, tmp_path / "a.pt")
    return tmp_path / "a.pt"


PART = {"only": "net", "rename": {"net": ""}}


@pytest.mark.parametrize("through", ["pt", "several", "checkpoint", "state dict", "tree"])
def test_versions_in_a_file_of_pytorch_stay_with_its_values(tmp_path, file_with_versions, through):
    if through == "tree":
        state = milepost.load(file_with_versions, arrays="torch")["net"]
    elif through == "state dict":
        state = milepost.load(file_with_versions, arrays="torch", **PART, separator=".")
    elif through == "several":
        milepost.convert(file_with_versions, tmp_path / "b.pt", separator=".", max_shard_size=1, **PART)
        state = milepost.load(tmp_path / "b.pt", arrays="torch", separator=".")
    else:
        source = file_with_versions
        if through == "checkpoint":
            milepost.convert(source, source := tmp_path / "c")
        milepost.convert(source, tmp_path / "b.pt", separator=".", **PART)
        state = torch.load(tmp_path / "b.pt")
    model = nn.Sequential(Metres([0.0]))
    model.load_state_dict(state)
    assert model[0].lengths.tolist() == [3.0]


def test_a_restore_under_another_name_knows_the_versions(file_with_versions):
    model = nn.Sequential(Metres([0.0]))
    milepost.Checkpoint(model=model).read(file_with_versions, rename={"net": "model"}, ignore="epoch")
    assert model[0].lengths.tolist() == [3.0]
    milepost.Checkpoint(model).read(file_with_versions, rename={"net": ""}, only="0")
    assert model[0].lengths.tolist() == [3.0]


def test_so_does_one_from_a_model_in_a_wrapper(tmp_path):
    torch.save({"model": nn.DataParallel(nn.Sequential(Metres([3.0]))).state_dict(), "other": 1}, tmp_path / "a.pt")
    model = nn.Sequential(Metres([0.0]))
    milepost.Checkpoint(model=model).read(tmp_path / "a.pt")
    assert model[0].lengths.tolist() == [3.0]


class Extra(nn.Module):  # type: ignore[name-defined]
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(9, 9)

    def get_extra_state(self):
        return {"values": torch.ones(2), "rest": [1, None]}

    def set_extra_state(self, state):
        self.state = state


def test_extra_state_in_several_files_is_read(tmp_path):
    model = nn.Sequential(Extra(), Extra())
    path = Checkpoint(model=model).write(tmp_path / "ckpt")
    part = {"only": "model", "rename": {"model": ""}, "separator": "."}
    index = milepost.convert(path, tmp_path / "m.pt", max_shard_size=400, **part).files[-1]
    assert set(milepost.load(index, arrays="torch", separator=".")) == set(model.state_dict())
    live = nn.Sequential(Extra(), Extra())
    milepost.Checkpoint(live).read(index).assert_consumed()
    assert live[1].state["rest"] == [1, None]
    assert live[1].state["values"].tolist() == [1.0, 1.0]
    assert live[1].layer.weight.equal(model[1].layer.weight)
