"""State and hyperparameters of optimizers come back as what they were saved as, whatever the program has there."""

import copy
import enum

import pytest

import milepost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")
optim = pytest.importorskip("torch.optim")


class Plain(optim.Optimizer):  # type: ignore[name-defined]
    """Steps as it is told, with whatever state it is told."""

    def __init__(self, parameters, update=lambda group, parameter, state: None, **defaults):
        super().__init__(parameters, {"lr": 0.1, **defaults})
        self.update = update

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.update(group, parameter, self.state[parameter])


class Wrapping(optim.Optimizer):  # type: ignore[name-defined]
    """Runs another optimizer, and counts; initialized without its base class, as wrappers often are."""

    def __init__(self, inner):
        self._inner = inner
        self.defaults = inner.defaults
        self.count = 0

    @property
    def state(self):
        return self._inner.state

    @property
    def param_groups(self):
        return self._inner.param_groups

    def step(self, closure=None):
        self.count += 1
        self._inner.step(closure)

    def state_dict(self):
        return {"inner": self._inner.state_dict(), "count": self.count}

    def load_state_dict(self, state):
        self._inner.load_state_dict(state["inner"])
        self.count = state["count"]


def saved(directory, net, optimizer):
    return milepost.Checkpoint(net=net, optimizer=optimizer).write(directory / "c")


def restored(path, net, optimizer):
    return milepost.Checkpoint(net=net, optimizer=optimizer).read(path)


VALUES = [
    torch.tensor(0.1),
    torch.tensor(0.1, dtype=torch.float64),
    torch.tensor(0.5, dtype=torch.bfloat16),
    torch.tensor(3),
    torch.ones(1),
    torch.tensor([0.5, 0.25]),
    torch.arange(6.0).reshape(2, 3).T,
    (torch.tensor(0.1), torch.tensor(0.2)),
    [torch.tensor(0.1), 0.5],
    [0.5, 0.25],
    (0.5, 0.25),
    (1, 0.5),
    0.1,
    3,
    True,
    None,
    "cosine",
]


@pytest.mark.parametrize("present", [..., 0.5, torch.tensor(2.0), [1.0, 2.0]], ids=repr)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_hyperparameter_comes_back_as_what_it_was_saved_as(tmp_path, value, present):
    net = nn.Linear(2, 1)
    optimizer, its = Plain(net.parameters()), Plain(net.parameters())
    optimizer.param_groups[0]["d"] = copy.deepcopy(value)
    if present is not ...:
        its.param_groups[0]["d"] = copy.deepcopy(present)
    its.state[net.weight]["step"] = 1  # a step has been taken, so what is there is none of the program's choices
    restored(saved(tmp_path, net, optimizer), net, its).expect_partial()
    back = its.param_groups[0]["d"]
    assert repr(back) == repr(value)
    assert type(back) is type(value)
    if isinstance(value, torch.Tensor):
        assert (back.dtype, back.shape, back.stride()) == (value.dtype, value.shape, value.stride())


@pytest.mark.parametrize("present", [..., 0.5, torch.tensor(2.0), torch.ones(3, 3)], ids=repr)
@pytest.mark.parametrize(
    "value", [torch.tensor(0.1), torch.ones(1), torch.arange(6.0).reshape(2, 3).T, 3, 0.5, None, (1, 2)], ids=repr
)
def test_state_comes_back_as_what_it_was_saved_as(tmp_path, value, present):
    net = nn.Linear(2, 1)
    optimizer, its = Plain(net.parameters()), Plain(net.parameters())
    optimizer.state[net.weight]["d"] = copy.deepcopy(value)
    if present is not ...:
        its.state[net.weight]["d"] = copy.deepcopy(present)
    restored(saved(tmp_path, net, optimizer), net, its).assert_consumed()
    back = its.state[net.weight]["d"]
    assert repr(back) == repr(value)
    assert type(back) is type(value)
    if isinstance(value, torch.Tensor):
        assert (back.dtype, back.stride()) == (value.dtype, value.stride())


def test_state_of_another_shape_is_put_back_if_the_restore_fails(tmp_path):
    net = nn.Linear(2, 1)
    optimizer, its = Plain(net.parameters()), Plain(net.parameters())
    optimizer.state[net.weight]["d"] = torch.ones(3)
    present = its.state[net.weight]["d"] = torch.zeros(2)
    path = milepost.Checkpoint(net=net, optimizer=optimizer, other=torch.ones(3)).write(tmp_path / "c")
    with pytest.raises(milepost.MismatchError):
        milepost.Checkpoint(net=net, optimizer=its, other=torch.ones(4)).read(path)
    assert its.state[net.weight]["d"] is present


@pytest.mark.parametrize(
    "arrange",
    [
        lambda: torch.arange(12.0).reshape(3, 4).T,
        lambda: torch.arange(24.0).reshape(2, 3, 4).permute(1, 2, 0),
        lambda: torch.arange(16.0).reshape(4, 4)[:, :2],
        lambda: torch.arange(5.0).reshape(1, 5).T,
        lambda: torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ],
)
def test_state_keeps_its_strides(tmp_path, arrange):
    net = nn.Linear(2, 1)
    optimizer, its = Plain(net.parameters()), Plain(net.parameters())
    value = optimizer.state[net.weight]["q"] = arrange()
    optimizer.state[net.weight]["list"] = [arrange()]
    restored(saved(tmp_path, net, optimizer), net, its).assert_consumed()
    state = its.state[net.weight]
    for back in (state["q"], state["list"][0]):
        assert torch.equal(back, value)
        assert back.stride() == value.stride()


@pytest.mark.parametrize("last", [True, False])
def test_averages_of_parameters_that_are_not_contiguous_keep_their_own_strides(tmp_path, last):
    def make():
        net = nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last)
        return net, Plain(net.parameters())

    (net, optimizer), (fresh, its) = make(), make()
    average = torch.randn(3, 2, 2, 2)
    optimizer.state[net.weight]["average"] = average.to(memory_format=torch.channels_last) if last else average
    restored(saved(tmp_path, net, optimizer), fresh, its).assert_consumed()
    back = its.state[fresh.weight]["average"]
    assert torch.equal(back, average)
    assert back.stride() == optimizer.state[net.weight]["average"].stride()


def test_parameters_that_a_restore_makes_keep_their_strides(tmp_path):
    net = nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last)
    path = milepost.Checkpoint(net).write(tmp_path / "w")
    with torch.device("meta"):
        fresh = nn.Conv2d(2, 3, 2)
    milepost.Checkpoint(fresh).read(path).assert_consumed()
    assert torch.equal(fresh.weight, net.weight)
    assert fresh.weight.stride() == net.weight.stride()


def test_parameters_that_have_memory_keep_the_strides_that_the_program_gave_them(tmp_path):
    net, fresh = nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last), nn.Conv2d(2, 3, 2)
    strides = fresh.weight.stride()
    milepost.Checkpoint(fresh).read(milepost.Checkpoint(net).write(tmp_path / "w")).assert_consumed()
    assert torch.equal(fresh.weight, net.weight)
    assert fresh.weight.stride() == strides


def test_one_tensor_in_the_state_of_several_parameters_stays_one(tmp_path):
    net = nn.Linear(2, 1)
    optimizer, its = Plain(net.parameters()), Plain(net.parameters())
    shared = torch.ones(())
    optimizer.state[net.weight]["scale"] = optimizer.state[net.bias]["scale"] = shared
    restored(saved(tmp_path, net, optimizer), net, its).assert_consumed()
    assert torch.equal(its.state[net.weight]["scale"], shared)
    assert its.state[net.weight]["scale"] is its.state[net.bias]["scale"]


def test_state_that_was_shared_is_again_where_the_program_has_several(tmp_path):
    net = nn.Linear(2, 1)
    optimizer, its = Plain(net.parameters()), Plain(net.parameters())
    optimizer.state[net.weight]["scale"] = optimizer.state[net.bias]["scale"] = torch.ones(())
    its.state[net.weight]["scale"], its.state[net.bias]["scale"] = torch.zeros(()), torch.zeros(())
    restored(saved(tmp_path, net, optimizer), net, its).assert_consumed()
    assert its.state[net.weight]["scale"] is its.state[net.bias]["scale"]
    assert its.state[net.bias]["scale"] == 1


def test_a_wrapper_with_a_state_dict_of_its_own_comes_back_whole(tmp_path):
    def make():
        net = nn.Linear(2, 1)
        return net, Wrapping(torch.optim.Adam(net.parameters()))

    (net, optimizer), (fresh, its) = make(), make()
    net(torch.ones(2)).sum().backward()
    optimizer.step()
    restored(saved(tmp_path, net, optimizer), fresh, its).assert_consumed()
    assert its.count == 1
    assert repr(its.state_dict()) == repr(optimizer.state_dict())


def test_a_wrapper_that_refuses_its_state_changes_nothing(tmp_path):
    net = nn.Linear(2, 1)
    path = saved(tmp_path, net, Wrapping(torch.optim.SGD(net.parameters(), lr=0.1)))
    fresh = nn.Linear(2, 1)
    before = fresh.weight.clone()
    its = Wrapping(torch.optim.SGD([{"params": [fresh.weight]}, {"params": [fresh.bias]}], lr=0.2))
    with pytest.raises(milepost.MismatchError, match="nothing was changed"):
        restored(path, fresh, its)
    assert torch.equal(fresh.weight, before)
    assert its.param_groups[0]["lr"] == 0.2


def test_hooks_of_an_optimizers_state_dict_are_followed(tmp_path):
    class Counting(torch.optim.SGD):
        count = 0

    def make():
        net = nn.Linear(2, 1)
        optimizer = Counting(net.parameters(), lr=0.1)
        optimizer.register_state_dict_post_hook(lambda own, state: {**state, "count": own.count})
        optimizer.register_load_state_dict_pre_hook(lambda own, state: setattr(own, "count", state["count"]))
        return net, optimizer

    (net, optimizer), (fresh, its) = make(), make()
    optimizer.count = 3
    restored(saved(tmp_path, net, optimizer), fresh, its).assert_consumed()
    assert its.count == 3


def test_what_an_optimizer_does_when_it_is_loaded_is_done(tmp_path):
    class Derived(Plain):
        total = 0.0

        def load_state_dict(self, state):
            super().load_state_dict(state)
            self.total = sum(each["d"].item() for each in self.state.values())

    net = nn.Linear(2, 1, dtype=torch.bfloat16)
    optimizer, its = Derived(net.parameters()), Derived(net.parameters())
    optimizer.state[net.weight]["d"] = torch.tensor(0.1)
    restored(saved(tmp_path, net, optimizer), net, its).assert_consumed()
    assert its.total > 0
    assert its.state[net.weight]["d"].dtype == torch.float32
    assert torch.equal(its.state[net.weight]["d"], torch.tensor(0.1))


def test_state_under_keys_that_are_no_parameters_comes_back(tmp_path):
    net = nn.Linear(2, 1)
    optimizer, its = Plain(net.parameters()), Plain(net.parameters())
    optimizer.state["total"], optimizer.state[7] = torch.ones(2), {"a": 1}
    restored(saved(tmp_path, net, optimizer), net, its).assert_consumed()
    assert repr(its.state["total"]) == repr(torch.ones(2))
    assert its.state[7] == {"a": 1}


def test_a_hyperparameter_that_cannot_be_saved_is_named_with_its_whole_path(tmp_path):
    kind = enum.Enum("Kind", "ONE TWO").ONE
    net = nn.Linear(2, 1)
    optimizer = Plain([{"params": net.parameters(), "kind": kind}])
    with pytest.raises(milepost.UnsupportedError, match=r"key: optimizer/param_groups/0/kind\n"):
        saved(tmp_path, net, optimizer)


def test_tensorflow_does_not_hear_of_types_of_hyperparameters(tmp_path):
    from milepost.graph.saved.object_graph import ObjectGraph

    net = nn.Linear(2, 1)
    optimizer = Plain(net.parameters(), d=torch.ones(()))
    reader = milepost.load_checkpoint(saved(tmp_path, net, optimizer))
    graph = ObjectGraph.deserialize(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    skipped = {
        value.key.partition("/.ATTRIBUTES/")[2]
        for node in graph.nodes
        for value in node.values
        if value.skipped_by_tensorflow
    }
    assert skipped == {"py_state"}
