"""Modules that convert states of older versions when they load them."""

import pytest

import milepost
from milepost.errors import MismatchError, RefusedError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")


class Old(nn.Module):  # type: ignore[name-defined]
    """What the classes below were once."""

    def __init__(self):
        super().__init__()
        self.old = nn.Parameter(torch.arange(1.0, 4.0))
        self.q = nn.Linear(2, 2, bias=False)
        self.k = nn.Linear(2, 2, bias=False)
        self.layer = nn.Linear(1, 1)


class Layer(nn.Module):  # type: ignore[name-defined]
    def __init__(self):
        super().__init__()
        self.new = nn.Parameter(torch.zeros(3))
        self.both = nn.Linear(2, 4, bias=False)
        self.layer = nn.Linear(1, 1)


def take(state, prefix):
    if prefix + "old" in state:
        state[prefix + "new"] = state.pop(prefix + "old")
        state[prefix + "both.weight"] = torch.cat([state.pop(prefix + "q.weight"), state.pop(prefix + "k.weight")])


class Overriding(Layer):
    def _load_from_state_dict(self, state, prefix, *rest):
        take(state, prefix)
        super()._load_from_state_dict(state, prefix, *rest)


class Hooked(Layer):
    def __init__(self):
        super().__init__()
        self.register_load_state_dict_pre_hook(lambda own, state, prefix, *rest: take(state, prefix))


class Loading(Layer):
    """Overrides the method that only the outermost module has called."""

    def load_state_dict(self, state_dict, strict=True):
        state_dict = dict(state_dict)
        take(state_dict, "")
        return super().load_state_dict(state_dict, strict)


class Metres(nn.Module):  # type: ignore[name-defined]
    """Had its lengths in kilometres in its first version."""

    _version = 2

    def __init__(self, lengths):
        super().__init__()
        self.lengths = nn.Parameter(torch.tensor(lengths))

    def _load_from_state_dict(self, state, prefix, metadata, *rest):
        if metadata.get("version", 1) < 2:
            state[prefix + "lengths"] = state[prefix + "lengths"] * 1000
        super()._load_from_state_dict(state, prefix, metadata, *rest)


class Kilometres(nn.Module):  # type: ignore[name-defined]
    def __init__(self, lengths):
        super().__init__()
        self.lengths = nn.Parameter(torch.tensor(lengths))


def nested(kind, *args):
    return nn.Sequential(nn.Linear(1, 1), kind(*args))


@pytest.fixture(params=["pt", "safetensors", "checkpoint"])
def saved(request, tmp_path):
    """A function that saves a module, in each format."""

    def save(module):
        if request.param == "pt":
            torch.save(module.state_dict(), tmp_path / "w.pt")
            return tmp_path / "w.pt"
        if request.param == "safetensors":
            pytest.importorskip("safetensors.torch").save_file(module.state_dict(), tmp_path / "w.safetensors")
            return tmp_path / "w.safetensors"
        return milepost.Checkpoint(module).write(tmp_path / "w")

    return save


def restored(module, path, **arguments):
    status = milepost.Checkpoint(module).read(path, **arguments)
    status.assert_consumed()
    status.assert_existing_objects_matched()
    return module


def is_loaded(module, old):
    former = type(module)()
    former.load_state_dict(old.state_dict())
    return all(map(torch.equal, module.state_dict().values(), former.state_dict().values()))


@pytest.mark.parametrize("kind", [Overriding, Hooked, Loading])
def test_old_names_are_renamed_and_fused_as_by_load_state_dict(saved, kind):
    old = Old()
    assert is_loaded(restored(kind(), saved(old)), old)


@pytest.mark.parametrize("kind", [Overriding, Hooked])
def test_so_are_those_of_a_module_inside(saved, kind):
    old = nested(Old)
    assert is_loaded(restored(nested(kind), saved(old))[1], old[1])


def test_values_of_an_older_version_are_converted(saved):
    assert restored(nested(Metres, [0.0]), saved(nested(Kilometres, [3.0])))[1].lengths.tolist() == [3000.0]


def test_values_of_the_same_version_are_not(tmp_path):
    torch.save({"model": nested(Metres, [7.0]).state_dict()}, tmp_path / "w.pt")
    model = nested(Metres, [0.0])
    milepost.Checkpoint(model=model).read(tmp_path / "w.pt").assert_consumed()
    assert model[1].lengths.tolist() == [7.0]


def test_a_file_without_versions_is_of_none_as_for_load_state_dict(tmp_path):
    torch.save(dict(nested(Metres, [7.0]).state_dict()), tmp_path / "w.pt")
    assert restored(nested(Metres, [0.0]), tmp_path / "w.pt")[1].lengths.tolist() == [7000.0]


def test_what_the_code_does_not_take_is_unexpected(saved):
    old = nested(Old)
    old[1].register_buffer("other", torch.ones(1))
    with pytest.raises(AssertionError, match="other") as caught:
        milepost.Checkpoint(nested(Overriding)).read(saved(old)).assert_consumed()
    assert "old" not in str(caught.value)


def test_what_the_code_does_not_fill_is_missing(saved):
    new = nested(Overriding)
    new[1].register_buffer("other", torch.ones(1))
    with pytest.raises(AssertionError, match="other") as caught:
        milepost.Checkpoint(new).read(saved(nested(Old))).assert_existing_objects_matched()
    assert "new" not in str(caught.value)


def test_what_is_ignored_keeps_its_value(tmp_path):
    path = milepost.Checkpoint(nested(Old)).write(tmp_path / "w")
    model = nested(Overriding)
    milepost.Checkpoint(model).read(path, ignore="1/new")
    assert model[1].new.tolist() == [0.0, 0.0, 0.0]


def test_an_error_of_the_code_leaves_the_module_as_it_was(saved):
    old = nested(Old)
    old[1].old = nn.Parameter(torch.ones(4))
    model = nested(Overriding)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(RefusedError, match="size mismatch for new"):
        milepost.Checkpoint(model).read(saved(old))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_an_optimizer_of_a_file_of_torch_save_has_its_state_by_the_order_of_parameters(tmp_path):
    old = Old()
    moments = torch.optim.SGD([old.old], lr=1.0, momentum=0.5)
    (old.old.sum() * 2).backward()
    moments.step()
    torch.save({"model": old.state_dict(), "optimizer": moments.state_dict()}, tmp_path / "w.pt")
    new = Overriding()
    optimizer = torch.optim.SGD([new.new], lr=1.0, momentum=0.5)
    milepost.Checkpoint(model=new, optimizer=optimizer).read(tmp_path / "w.pt").assert_consumed()
    assert optimizer.state[new.new]["momentum_buffer"].tolist() == [2.0, 2.0, 2.0]


def test_a_shape_that_the_code_adapts_is_loaded(saved):
    class Column(Kilometres):
        def _load_from_state_dict(self, state, prefix, *rest):
            state[prefix + "lengths"] = state[prefix + "lengths"].reshape(2)
            super()._load_from_state_dict(state, prefix, *rest)

    model = restored(nested(Column, [0.0, 0.0]), saved(nested(Kilometres, [[1.0], [2.0]])))
    assert model[1].lengths.tolist() == [1.0, 2.0]


def test_one_number_with_a_dimension_is_one_without(saved):
    assert restored(nested(Kilometres, 0.0), saved(nested(Kilometres, [5.0])))[1].lengths.tolist() == 5.0


def test_several_numbers_are_not(saved):
    with pytest.raises(MismatchError, match="wrong shape"):
        milepost.Checkpoint(nested(Kilometres, 0.0)).read(saved(nested(Kilometres, [5.0, 6.0])))


def test_spectral_norm_of_pytorch_computes_what_its_first_version_did_not_save(tmp_path):
    def normed():
        return nn.Sequential(nn.utils.spectral_norm(nn.Linear(3, 4)))

    old, new, other = normed(), normed(), normed()
    state = {key: value.clone() for key, value in old.state_dict().items() if not key.endswith("_v")}
    state["0.weight"] = old[0].weight.detach()
    torch.save(state, tmp_path / "w.pt")
    other.load_state_dict(state)
    restored(new, tmp_path / "w.pt")
    assert all(map(torch.equal, new.state_dict().values(), other.state_dict().values()))
