"""Modules whose ``state_dict`` holds something else than their parameters and buffers."""

import copy

import pytest

import milepost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")


class Persisting(nn.Module):  # type: ignore[name-defined]
    """Writes and reads an attribute that is not registered, as metrics do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.total = torch.zeros(2)
        self.seen = []

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "total"] = self.total
        destination[prefix + "seen"] = list(self.seen)

    def _load_from_state_dict(self, state, prefix, *rest):
        self.total = state.pop(prefix + "total")
        self.seen = list(state.pop(prefix + "seen"))
        super()._load_from_state_dict(state, prefix, *rest)


class Counting(nn.Module):  # type: ignore[name-defined]
    """Has its count in its state by hooks."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.count = 0
        self.register_state_dict_post_hook(type(self)._add)
        self.register_load_state_dict_pre_hook(type(self)._take)

    def _add(self, state, prefix, metadata):
        state[prefix + "count"] = torch.tensor(self.count)

    def _take(self, state, prefix, *rest):
        self.count = int(state.pop(prefix + "count"))


class Overriding(nn.Module):  # type: ignore[name-defined]
    """Overrides both methods whole, with other names."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.epoch = 0

    def state_dict(self, *args, **kwargs):
        return {"inner": dict(self.layer.state_dict()), "epoch": self.epoch}

    def load_state_dict(self, state, strict=True, assign=False):
        self.epoch = state["epoch"]
        return self.layer.load_state_dict(state["inner"])


class Syncing(nn.Module):  # type: ignore[name-defined]
    """Writes an attribute into a buffer when it is asked for its state, and reads it when it has been loaded."""

    def __init__(self):
        super().__init__()
        self.register_buffer("stored", torch.zeros(()))
        self.count = 0.0
        self.register_state_dict_pre_hook(lambda module, prefix, keep: module.stored.fill_(module.count))
        self.register_load_state_dict_post_hook(lambda module, keys: setattr(module, "count", module.stored.item()))


def trained(kind):
    net = kind()
    if kind is Persisting:
        net.total, net.seen = torch.tensor([1.0, 2.0]), [torch.ones(3), torch.zeros(1)]
    elif kind is Counting:
        net.count = 7
    elif kind is Overriding:
        net.epoch = 3
    else:
        net.count = 5.0
    return net


def told(net):
    return {name: value for name, value in vars(net).items() if not name.startswith("_") and name != "training"}


KINDS = [Persisting, Counting, Overriding, Syncing]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_class_adds_to_its_state_dict_comes_back(tmp_path, kind):
    net = trained(kind)
    path = milepost.Checkpoint(net).write(tmp_path / "w", milepost.CheckpointOptions(strict=True))
    fresh, reference = kind(), kind()
    milepost.Checkpoint(fresh).read(path).assert_consumed()
    reference.load_state_dict(copy.deepcopy(net.state_dict()))
    assert repr(told(fresh)) == repr(told(reference)) == repr(told(net))
    assert repr(fresh.state_dict()) == repr(net.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_module_inside_others_adds_comes_back(tmp_path, kind):
    def make(inner):
        return nn.Sequential(nn.Linear(1, 1), nn.ModuleDict({"inner": inner}))

    path = milepost.Checkpoint(make(trained(kind))).write(tmp_path / "w")
    fresh = make(kind())
    milepost.Checkpoint(fresh).read(path).assert_consumed()
    assert repr(told(fresh[1]["inner"])) == repr(told(trained(kind)))


def test_parameters_of_a_class_with_a_state_dict_of_its_own_keep_their_slots(tmp_path):
    def make():
        net = trained(Counting)
        return net, torch.optim.Adam(net.parameters())

    net, optimizer = make()
    net.layer(torch.ones(1)).sum().backward()
    optimizer.step()
    path = milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "c")
    fresh, its = make()
    milepost.Checkpoint(net=fresh, optimizer=its).read(path).assert_consumed()
    average = optimizer.state[net.layer.weight]["exp_avg"]
    assert torch.equal(its.state[fresh.layer.weight]["exp_avg"], average)


def test_a_hook_that_renames_is_followed(tmp_path):
    def make():
        net = nn.Linear(2, 2)
        net.register_state_dict_post_hook(lambda m, state, *_: state.update(w=state.pop("weight")))
        net.register_load_state_dict_pre_hook(lambda m, state, *_: state.update(weight=state.pop("w")))
        return net

    net, fresh = make(), make()
    milepost.Checkpoint(fresh).read(milepost.Checkpoint(net).write(tmp_path / "w")).assert_consumed()
    assert torch.equal(fresh.weight, net.weight)


def test_a_module_that_refuses_what_it_added_changes_nothing(tmp_path):
    path = milepost.Checkpoint(nn.Sequential(nn.Linear(1, 1), trained(Counting))).write(tmp_path / "w")
    fresh = nn.Sequential(nn.Linear(1, 1), Counting())
    before = fresh[0].weight.clone()

    def refuse(module, state, prefix, *rest):
        if module.count == 7:
            raise ValueError("no more than 6")

    fresh[1].register_load_state_dict_pre_hook(refuse)
    with pytest.raises(milepost.MismatchError, match="nothing was changed"):
        milepost.Checkpoint(fresh).read(path)
    assert torch.equal(fresh[0].weight, before)


def test_what_is_no_plain_data_is_refused_with_its_path(tmp_path):
    net = trained(Overriding)
    net.epoch = object()
    with pytest.raises(milepost.UnsupportedError, match=r"net/state_dict[\s\S]*epoch"):
        milepost.Checkpoint(net=net).write(tmp_path / "c")


def test_a_state_dict_that_fails_is_an_error_with_the_path(tmp_path):
    net = nn.Linear(1, 1)
    net.register_state_dict_post_hook(lambda *_: {}["nothing"])
    with pytest.raises(milepost.UntrackableError, match=r"state_dict\(\) of this Linear fails[\s\S]*key: net"):
        milepost.Checkpoint(net=net).write(tmp_path / "c")
