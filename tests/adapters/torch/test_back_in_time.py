"""A run that goes back to an earlier checkpoint has the optimizer state of that checkpoint, and no other."""

import copy
import pickle

import pytest

import milepost
from milepost.checkpoint.checkpoint import view_of
from milepost.engine.options import resolved
from milepost.restoring import restore as restoration
from milepost.restoring.load import preview

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")
late_groups = pytest.importorskip("milepost.adapters.torch.optimizers.late_groups")


def made():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    return net, torch.optim.Adam(net.parameters(), lr=0.1)


def steps(net, optimizer, count=2):
    losses = []
    for number in range(count):
        optimizer.zero_grad()
        loss = net(torch.linspace(-1, 1, 6).reshape(2, 3) * (number + 1)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def before_the_first_step(directory):
    """A net and an optimizer that was saved before its first step, and has made two since, with the losses of these."""
    net, optimizer = made()
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    path = checkpoint.write(directory / "c")
    return net, optimizer, checkpoint, path, steps(net, optimizer)


def held(optimizer):
    """The state as it is: the tensors themselves, in their order."""
    return [
        (id(each), [(name, id(value)) for name, value in state.items()] if isinstance(state, dict) else state)
        for each, state in optimizer.state.items()
    ]


def test_state_that_was_not_saved_is_removed(tmp_path):
    net, optimizer, checkpoint, path, losses = before_the_first_step(tmp_path)
    checkpoint.read(path)
    assert not optimizer.state
    assert steps(net, optimizer) == losses


def test_state_that_was_removed_counts_as_matched(tmp_path, recwarn):
    *_, checkpoint, path, _ = before_the_first_step(tmp_path)
    status = checkpoint.read(path).assert_consumed().assert_existing_objects_matched()
    assert status.report().complete
    assert [str(each.message) for each in recwarn] == []


def test_a_preview_removes_nothing_and_reports_what_the_restore_does(tmp_path):
    _, optimizer, checkpoint, path, _ = before_the_first_step(tmp_path)
    before = held(optimizer)
    found = preview(path, lambda: view_of(checkpoint), resolved(milepost.CheckpointOptions()))
    assert held(optimizer) == before
    assert found.to_dict() == checkpoint.read(path).report().to_dict()


def test_state_of_parameters_that_were_frozen_at_the_save_is_removed(tmp_path):
    net, optimizer = made()
    net[0].requires_grad_(False)
    steps(net, optimizer)
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    path = checkpoint.write(tmp_path / "c")
    net[0].requires_grad_(True)
    losses = steps(net, optimizer)
    optimizer.zero_grad()
    checkpoint.read(path).assert_consumed()
    assert list(optimizer.state) == list(net[1].parameters())
    assert steps(net, optimizer) == losses


def test_one_value_of_a_parameters_state_that_was_not_saved_is_removed(tmp_path):
    net, optimizer = made()
    steps(net, optimizer)
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    path = checkpoint.write(tmp_path / "c")
    optimizer.state[net[0].weight]["extra"] = torch.ones(())
    optimizer.state[net[0].bias]["number"] = 5
    checkpoint.read(path).assert_consumed()
    assert {tuple(state) for state in optimizer.state.values()} == {("step", "exp_avg", "exp_avg_sq")}


def test_common_state_that_was_not_saved_is_removed(tmp_path):
    net, optimizer = made()
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    first = checkpoint.write(tmp_path / "first")
    optimizer.state["count"] = 1
    second = checkpoint.write(tmp_path / "second")
    optimizer.state["other"] = 2
    checkpoint.read(second).assert_consumed()
    assert optimizer.state == {"count": 1}
    checkpoint.read(first).assert_consumed()
    assert optimizer.state == {}


@pytest.mark.parametrize(
    "arguments",
    [
        {"ignore": "optimizer"},
        {"only": "net"},
        {"rename": lambda name: None if name.startswith("optimizer") else name},
        {"options": milepost.CheckpointOptions(experimental_skip_slot_variables=True)},
    ],
)
def test_a_restore_of_weights_alone_touches_no_state(tmp_path, arguments):
    net, optimizer, checkpoint, path, _ = before_the_first_step(tmp_path)
    before, copies = held(optimizer), copy.deepcopy(optimizer.state_dict())
    saved = milepost.load_checkpoint(path).get_tensor("net/0/weight/.ATTRIBUTES/VARIABLE_VALUE")
    checkpoint.read(path, **arguments).expect_partial()
    assert net[0].weight.tolist() == saved.tolist()
    assert held(optimizer) == before
    assert str(optimizer.state_dict()) == str(copies)


def test_a_checkpoint_without_the_optimizer_touches_no_state(tmp_path):
    net, optimizer = made()
    path = milepost.Checkpoint(net=net).write(tmp_path / "c")
    steps(net, optimizer)
    before = held(optimizer)
    milepost.Checkpoint(net=net, optimizer=optimizer).read(path).expect_partial()
    assert held(optimizer) == before


@pytest.mark.parametrize("kind", ["own", "torch"])
@pytest.mark.parametrize(
    "arguments", [{"ignore": "net/1"}, {"rename": lambda name: None if name.startswith("net/1") else name}]
)
def test_state_of_a_parameter_that_is_left_alone_stays(tmp_path, kind, arguments):
    net, optimizer, checkpoint, path, _ = before_the_first_step(tmp_path)
    if kind == "torch":
        of_its_own, other = made()
        path = str(tmp_path / "c.pt")
        torch.save({"net": of_its_own.state_dict(), "optimizer": other.state_dict()}, path)
    checkpoint.read(path, **arguments).expect_partial()
    assert list(optimizer.state) == list(net[1].parameters())


def test_state_of_a_parameter_that_the_checkpoint_does_not_cover_stays(tmp_path):
    net, optimizer = made()
    checkpoint = milepost.Checkpoint(net=net[0], optimizer=optimizer)
    path = checkpoint.write(tmp_path / "c")
    steps(net, optimizer)
    checkpoint.read(path).expect_partial()
    assert list(optimizer.state) == list(net[1].parameters())


def test_state_that_may_be_unsaved_stays(tmp_path):
    net, optimizer, checkpoint, path, _ = before_the_first_step(tmp_path)
    name = "net/0/weight/.OPTIMIZER_SLOT/optimizer/exp_avg"
    checkpoint.read(path, milepost.CheckpointOptions(allow_unsaved=[name]))
    assert [list(state) for state in optimizer.state.values()] == [["exp_avg"]]
    assert list(optimizer.state) == [net[0].weight]


def test_state_is_put_back_if_the_restore_fails(tmp_path, monkeypatch):
    _, optimizer, checkpoint, path, _ = before_the_first_step(tmp_path)
    before = held(optimizer)
    inside = [id(state) for state in optimizer.state.values()]

    def fail(*arguments):
        assert not optimizer.state
        raise KeyboardInterrupt

    monkeypatch.setattr(restoration.Restoration, "_remember", fail)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.read(path)
    assert held(optimizer) == before
    assert [id(state) for state in optimizer.state.values()] == inside


def test_state_of_some_parameters_is_put_back_in_its_order_if_the_restore_fails(tmp_path, monkeypatch):
    net, optimizer = made()
    net[0].requires_grad_(False)
    steps(net, optimizer)
    path = milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "c")
    net, optimizer = made()
    optimizer.state["common"] = 1
    steps(net, optimizer)
    before = held(optimizer)
    monkeypatch.setattr(restoration.Restoration, "_remember", lambda *arguments: 1 / 0)
    with pytest.raises(milepost.RefusedError):
        milepost.Checkpoint(net=net, optimizer=optimizer).read(path)
    assert held(optimizer) == before


def test_common_state_is_put_back_in_its_order_if_the_restore_fails(tmp_path, monkeypatch):
    net, optimizer = made()
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    optimizer.state.update(first=1, second=2)
    path = checkpoint.write(tmp_path / "c")
    optimizer.state.clear()
    optimizer.state.update(other=3, second=4, first=5)
    monkeypatch.setattr(restoration.Restoration, "_remember", lambda *arguments: 1 / 0)
    with pytest.raises(milepost.RefusedError):
        checkpoint.read(path)
    assert list(optimizer.state.items()) == [("other", 3), ("second", 4), ("first", 5)]


class Partly(torch.optim.Optimizer):  # type: ignore[name-defined]
    """Has state for matrices alone, and touches that of all, as programs do with ``self.state[parameter]``."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    def step(self):
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if parameter.ndim > 1:
                state["sum"] = state.get("sum", 0) + parameter.detach()


def with_partly():
    net, _ = made()
    return net, Partly(net.parameters())


@pytest.mark.parametrize("kind", ["checkpoint", "torch.save"])
@pytest.mark.parametrize("live", ["fresh", "other state"])
def test_an_empty_state_of_a_parameter_comes_back(tmp_path, kind, live):
    net, optimizer = with_partly()
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    if kind == "checkpoint":
        path = milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "c")
    else:
        path = str(tmp_path / "c.pt")
        torch.save({"net": net.state_dict(), "optimizer": saved}, path)
    net, optimizer = with_partly()
    if live == "other state":
        for parameter in net.parameters():
            optimizer.state[parameter] = {} if parameter.ndim > 1 else {"other": torch.ones(2)}
    milepost.Checkpoint(net=net, optimizer=optimizer).read(path).assert_consumed().assert_existing_objects_matched()
    assert str(sorted(optimizer.state_dict()["state"].items())) == str(sorted(saved["state"].items()))


def test_an_empty_state_that_was_not_saved_is_removed(tmp_path):
    net, optimizer = with_partly()
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    path = checkpoint.write(tmp_path / "c")
    optimizer.step()
    checkpoint.write(tmp_path / "later")
    for parameter in net.parameters():
        optimizer.state[parameter].setdefault("sum", 1)
    checkpoint.read(path).assert_consumed()
    assert not optimizer.state


def test_empty_states_are_put_back_if_the_restore_fails(tmp_path, monkeypatch):
    net, optimizer = with_partly()
    optimizer.step()
    path = milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "c")
    net, optimizer = with_partly()
    for parameter in net.parameters():
        optimizer.state[parameter] = {} if parameter.ndim > 1 else {"other": torch.ones(2)}
    before = held(optimizer)
    monkeypatch.setattr(restoration.Restoration, "_remember", lambda *arguments: 1 / 0)
    with pytest.raises(milepost.RefusedError):
        milepost.Checkpoint(net=net, optimizer=optimizer).read(path)
    assert sorted(held(optimizer)) == sorted(before)


def test_a_newer_restore_without_state_ends_the_wait_for_that_of_an_older_one(tmp_path):
    net, optimizer, checkpoint, path, losses = before_the_first_step(tmp_path)
    later = checkpoint.write(tmp_path / "later")
    net, optimizer = made()
    optimizer.param_groups[0]["params"] = []
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    checkpoint.read(later).expect_partial()
    checkpoint.read(path).expect_partial()
    optimizer.param_groups[0]["params"] = list(net.parameters())
    assert steps(net, optimizer) == losses


@pytest.mark.parametrize("state", ["empty", "partial"])
def test_a_file_of_torch_save_removes_state_as_well(tmp_path, state):
    net, optimizer = made()
    if state == "partial":
        net[0].requires_grad_(False)
        steps(net, optimizer)
        net[0].requires_grad_(True)
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    losses = steps(net, optimizer)
    optimizer.zero_grad()
    status = milepost.Checkpoint(net=net, optimizer=optimizer).read(str(tmp_path / "c.pt")).assert_consumed()
    assert list(optimizer.state) == ([] if state == "empty" else list(net[1].parameters()))
    assert status.report().complete
    assert steps(net, optimizer) == losses


def test_a_file_of_torch_save_whose_state_is_ignored_touches_none(tmp_path):
    net, optimizer = made()
    net[0].requires_grad_(False)
    steps(net, optimizer)
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    net[0].requires_grad_(True)
    steps(net, optimizer)
    before = held(optimizer)
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    checkpoint.read(str(tmp_path / "c.pt"), ignore="optimizer/state").expect_partial()
    assert held(optimizer) == before


def test_a_directory_of_dcp_removes_state_as_well(tmp_path):
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    net, optimizer = made()
    dcp.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint_id=tmp_path / "dcp")
    losses = steps(net, optimizer)
    milepost.Checkpoint(net=net, optimizer=optimizer).read(str(tmp_path / "dcp")).assert_consumed()
    assert not optimizer.state
    assert steps(net, optimizer) == losses


LAYOUTS = {
    "contiguous": lambda: nn.Conv2d(3, 4, 3),
    "channels last": lambda: nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last),
    "channels last, one pixel": lambda: nn.Conv2d(3, 4, 1).to(memory_format=torch.channels_last),
    "channels last, three dimensions": lambda: nn.Conv3d(3, 4, 3).to(memory_format=torch.channels_last_3d),
    "transposed": lambda: with_weight(torch.randn(4, 3).T),
    "with gaps": lambda: with_weight(torch.randn(4, 6)[:, ::2]),
    "permuted": lambda: with_weight(torch.randn(2, 3, 4).permute(2, 0, 1)),
}


def with_weight(tensor):
    net = nn.Module()
    net.weight = nn.Parameter(tensor)
    net.forward = lambda: net.weight.square()
    return net


def stepped(net, optimizer):
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_moments_of_any_layout_stay_the_same_tensors(tmp_path, layout):
    net = LAYOUTS[layout]()
    optimizer = torch.optim.Adam(net.parameters())
    stepped(net, optimizer)
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    path = checkpoint.write(tmp_path / "c")
    saved = copy.deepcopy([*optimizer.state.values()])
    stepped(net, optimizer)
    tensors = [each for state in optimizer.state.values() for each in state.values()]
    where = [(each.data_ptr(), each.stride()) for each in tensors]
    checkpoint.read(path).assert_consumed()
    now = [each for state in optimizer.state.values() for each in state.values()]
    assert all(one is other for one, other in zip(now, tensors, strict=True))
    assert [(each.data_ptr(), each.stride()) for each in now] == where
    assert all(
        torch.equal(a[name], b[name]) for a, b in zip(saved, optimizer.state.values(), strict=True) for name in a
    )


def listed(value):
    return [
        each
        for part in (value.values() if isinstance(value, dict) else value)
        for each in (part if isinstance(part, tuple) else [part])
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: [torch.rand(3, 2), torch.rand(4).bfloat16()],
        lambda: (torch.rand(2, 3).T, torch.rand(())),
        lambda: {"a": torch.rand(3), "b": (torch.rand(2), torch.arange(3))},
    ],
)
def test_tensors_in_lists_and_dicts_of_the_state_stay_the_same(tmp_path, make):
    net, optimizer = made()
    state = optimizer.state[net[0].weight]
    state["q"] = make()
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    path = checkpoint.write(tmp_path / "c")
    saved = copy.deepcopy(state["q"])
    state["q"] = make()
    before = listed(state["q"])
    checkpoint.read(path).assert_consumed()
    assert repr(state["q"]) == repr(saved)
    assert [id(each) for each in listed(state["q"])] == [id(each) for each in before]


def test_the_state_of_lbfgs_stays_in_place(tmp_path):
    net, _ = made()
    optimizer = torch.optim.LBFGS(net.parameters())

    def train():
        optimizer.step(lambda: loss_of(net, optimizer))

    train()
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    path = checkpoint.write(tmp_path / "c")
    state = optimizer.state[net[0].weight]
    direction, saved = state["d"], state["d"].clone()
    train()
    present = state["d"]
    checkpoint.read(path).assert_consumed()
    assert optimizer.state[net[0].weight]["d"] is present
    assert torch.equal(present, saved)
    assert direction is not present


def loss_of(net, optimizer):
    optimizer.zero_grad()
    loss = net(torch.ones(2, 3)).square().mean()
    loss.backward()
    return loss


@pytest.mark.parametrize("shared", ["present", "saved"])
def test_tensors_that_are_shared_in_a_list_are_not_written_twice(tmp_path, shared):
    net, optimizer = made()
    state, tensor = optimizer.state[net[0].weight], torch.rand(3)
    state["q"] = [tensor, tensor] if shared == "saved" else [torch.rand(3), torch.rand(3)]
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    path = checkpoint.write(tmp_path / "c")
    saved = copy.deepcopy(state["q"])
    state["q"] = [tensor, tensor] if shared == "present" else [torch.rand(3), torch.rand(3)]
    checkpoint.read(path).assert_consumed()
    assert repr(state["q"]) == repr(saved)
    assert (state["q"][0] is state["q"][1]) == (shared == "saved")


@pytest.mark.parametrize("last", [True, False])
def test_moments_of_another_layout_take_the_saved_strides(tmp_path, last):
    net = nn.Conv2d(3, 4, 3)
    optimizer = torch.optim.Adam(net.parameters())
    stepped(net, optimizer)
    state, formats = optimizer.state[net.weight], [torch.contiguous_format, torch.channels_last]
    state["exp_avg"] = state["exp_avg"].to(memory_format=formats[last])
    strides, value = state["exp_avg"].stride(), state["exp_avg"].clone()
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    path = checkpoint.write(tmp_path / "c")
    state["exp_avg"] = torch.zeros_like(value).to(memory_format=formats[not last])
    checkpoint.read(path).assert_consumed()
    assert optimizer.state[net.weight]["exp_avg"].stride() == strides
    assert torch.equal(optimizer.state[net.weight]["exp_avg"], value)


def test_moments_that_took_other_strides_are_put_back_if_the_restore_fails(tmp_path, monkeypatch):
    net = nn.Conv2d(3, 4, 3)
    optimizer = torch.optim.Adam(net.parameters())
    stepped(net, optimizer)
    state = optimizer.state[net.weight]
    state["exp_avg"] = state["exp_avg"].to(memory_format=torch.channels_last)
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    path = checkpoint.write(tmp_path / "c")
    present = state["exp_avg"] = torch.rand(4, 3, 3, 3)
    pointer, strides, value = present.data_ptr(), present.stride(), present.clone()
    monkeypatch.setattr(restoration.Restoration, "_remember", lambda *arguments: 1 / 0)
    with pytest.raises(milepost.RefusedError):
        checkpoint.read(path)
    assert optimizer.state[net.weight]["exp_avg"] is present
    assert (present.data_ptr(), present.stride()) == (pointer, strides)
    assert torch.equal(present, value)


def frozen_first():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    return net, torch.optim.SGD(net[1].parameters(), 0.1, momentum=0.9)


def unfreeze(net, optimizer, **settings):
    optimizer.add_param_group({"params": list(net[0].parameters()), **settings})


def saved_with_two_groups(directory):
    net, optimizer = frozen_first()
    unfreeze(net, optimizer, lr=0.25)
    steps(net, optimizer)
    path = milepost.Checkpoint(net=net, optimizer=optimizer).write(directory / "c")
    return net, optimizer, path


def test_a_group_that_is_added_after_the_restore_has_its_hyperparameters_at_once(tmp_path):
    *_, path = saved_with_two_groups(tmp_path)
    net, optimizer = frozen_first()
    milepost.Checkpoint(net=net, optimizer=optimizer).read(path)
    unfreeze(net, optimizer, lr=0.75)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.25]


def test_what_the_program_sets_in_a_group_that_it_has_added_stays(tmp_path):
    net, optimizer, path = saved_with_two_groups(tmp_path)
    expected, its = frozen_first()
    status = milepost.Checkpoint(net=expected, optimizer=its).read(path)
    unfreeze(expected, its)
    for each in (optimizer, its):
        each.param_groups[1]["lr"] = 0.5
    assert steps(net, optimizer) == steps(expected, its)
    assert its.param_groups[1]["lr"] == 0.5
    status.assert_consumed()


def test_the_group_of_an_optimizer_inside_another_one_has_its_hyperparameters_at_once(tmp_path):
    class Around(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner, self.param_groups, self.state, self.defaults = inner, inner.param_groups, inner.state, {}

        def add_param_group(self, group):
            self.inner.add_param_group(group)

    net, inner, path = saved_with_two_groups(tmp_path)
    net, inner = frozen_first()
    optimizer = Around(inner)
    milepost.Checkpoint(net=net, optimizer=optimizer).read(path)
    unfreeze(net, optimizer)
    assert optimizer.param_groups[1]["lr"] == 0.25


def test_a_group_that_is_refused_is_not_added(tmp_path):
    *_, path = saved_with_two_groups(tmp_path)
    net, optimizer = frozen_first()
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    checkpoint.read(path).expect_partial()
    for file in tmp_path.glob("c.*"):
        file.unlink()
    with pytest.raises(milepost.CheckpointNotFoundError):
        unfreeze(net, optimizer)
    assert len(optimizer.param_groups) == 1


def test_pytorchs_own_function_is_back_when_nothing_waits_for_groups(tmp_path):
    late_groups._watch._waiting.clear()  # of other tests
    late_groups._watch._look_again()
    add = torch.optim.Optimizer.add_param_group
    *_, path = saved_with_two_groups(tmp_path)
    net, optimizer = frozen_first()
    milepost.Checkpoint(net=net, optimizer=optimizer).read(path)
    assert torch.optim.Optimizer.add_param_group is not add
    unfreeze(net, optimizer)
    assert torch.optim.Optimizer.add_param_group is add


def test_an_optimizer_that_waits_for_groups_is_copied_and_pickled_as_before(tmp_path):
    *_, path = saved_with_two_groups(tmp_path)
    net, optimizer = frozen_first()
    milepost.Checkpoint(net=net, optimizer=optimizer).read(path).expect_partial()
    for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        other.add_param_group({"params": [torch.ones(1)], "lr": 0.75})
        assert other.param_groups[1]["lr"] == 0.75


def test_a_newer_restore_without_a_group_ends_the_wait_of_an_older_one_for_it(tmp_path):
    net, optimizer = frozen_first()
    steps(net, optimizer)
    before = milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "before")
    *_, path = saved_with_two_groups(tmp_path)
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    checkpoint.read(path).expect_partial()
    checkpoint.read(before)
    unfreeze(net, optimizer, lr=0.75)
    assert optimizer.param_groups[1]["lr"] == 0.75


class Counting(torch.optim.SGD):  # type: ignore[name-defined]
    """Counts its steps in a group, and takes smaller ones the later."""

    def step(self, closure=None):
        group = self.param_groups[0]
        group["steps"] = group.get("steps", 0) + 1
        group["norm"] = torch.ones(1) * group["steps"]
        group["lr"] = 0.1 / group["steps"]
        return super().step(closure)


class InItsOwnForm(Counting):
    def state_dict(self):
        return {"own": super().state_dict()}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict["own"])


def written(kind, net, optimizer, directory):
    if kind == "own":
        return milepost.Checkpoint(net=net, optimizer=optimizer).write(directory / "c")
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, directory / "c.pt")
    return str(directory / "c.pt")


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("kind", ["own", "torch"])
@pytest.mark.parametrize("optimizer", [Counting, InItsOwnForm])
def test_what_steps_have_added_to_a_group_is_removed(tmp_path, optimizer, kind, before):
    net, _ = made()
    optimizer = optimizer(net.parameters(), 0.1, momentum=0.5)
    steps(net, optimizer, before)
    path = written(kind, net, optimizer, tmp_path)
    saved = str(optimizer.state_dict())
    losses = steps(net, optimizer)
    milepost.Checkpoint(net=net, optimizer=optimizer).read(path).assert_consumed()
    assert str(optimizer.state_dict()) == saved
    assert steps(net, optimizer) == losses


def test_what_steps_have_added_to_a_group_is_removed_also_if_they_made_no_other_state(tmp_path):
    net, _ = made()
    optimizer = Counting(net.parameters(), 0.1)
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    path = checkpoint.write(tmp_path / "c")
    saved = str(optimizer.state_dict())
    losses = steps(net, optimizer)
    checkpoint.read(path).assert_consumed()
    assert str(optimizer.state_dict()) == saved
    assert steps(net, optimizer) == losses


def test_what_the_program_has_put_into_a_group_before_the_first_step_stays(tmp_path):
    net, optimizer = made()
    path = milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "c")
    optimizer.param_groups[0]["scale"] = 2.0
    milepost.Checkpoint(net=net, optimizer=optimizer).read(path).expect_partial()
    assert optimizer.param_groups[0]["scale"] == 2.0


def test_what_a_scheduler_has_noted_in_a_group_stays(tmp_path):
    net, optimizer, checkpoint, path, _ = before_the_first_step(tmp_path)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10)
    noted = optimizer.param_groups[0]["max_lr"]
    checkpoint.read(path).expect_partial()
    assert optimizer.param_groups[0]["max_lr"] == noted
    steps(net, optimizer)
    scheduler.step()


def test_a_group_is_put_back_if_the_restore_fails(tmp_path, monkeypatch):
    net, _ = made()
    optimizer = Counting(net.parameters(), 0.1, momentum=0.5)
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    path = checkpoint.write(tmp_path / "c")
    steps(net, optimizer)
    before = str(optimizer.state_dict())
    monkeypatch.setattr(restoration.Restoration, "_remember", lambda *arguments: 1 / 0)
    with pytest.raises(milepost.RefusedError):
        checkpoint.read(path)
    assert str(optimizer.state_dict()) == before


def test_tensors_in_the_groups_of_a_file_of_torch_save_stay_tensors(tmp_path):
    net, optimizer = made()
    steps(net, optimizer)
    optimizer.param_groups[0].update(lr=torch.tensor(0.5), norm=torch.ones(2, dtype=torch.bfloat16))
    path = written("torch", net, optimizer, tmp_path)
    lr = optimizer.param_groups[0]["lr"]
    lr.fill_(1.0)
    del optimizer.param_groups[0]["norm"]
    milepost.Checkpoint(net=net, optimizer=optimizer).read(path).assert_consumed()
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr == 0.5
    assert torch.equal(optimizer.param_groups[0]["norm"], torch.ones(2, dtype=torch.bfloat16))


OPTIMIZERS = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type)
    and issubclass(kind, torch.optim.Optimizer)
    and name not in ("Optimizer", "SparseAdam")  # which takes sparse gradients only
)
NEEDED = {"SGD": {"lr": 0.1, "momentum": 0.9}, "LBFGS": {"max_iter": 3, "history_size": 2}}


@pytest.mark.parametrize("when", ["before the first step", "after two steps", "before it unfreezes"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_goes_back_as_with_its_own_load(tmp_path, name, when):
    def rewound(saved):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))
        optimizer = getattr(torch.optim, name)(net.parameters(), **NEEDED.get(name, {}))

        def train(count):
            return [float(optimizer.step(lambda: loss_of(net, optimizer))) for _ in range(count)]

        net[0].requires_grad_(when != "before it unfreezes")
        train(0 if when == "before the first step" else 2)
        back = saved(net, optimizer)
        net.requires_grad_(True)
        first = train(2)
        optimizer.zero_grad()
        back()
        return str(optimizer.state_dict()), train(2), first

    def by_milepost(net, optimizer):
        checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
        path = checkpoint.write(tmp_path / "c")
        return lambda: checkpoint.read(path).assert_consumed()

    def by_pytorch(net, optimizer):
        kept = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
        return lambda: (net.load_state_dict(kept[0]), optimizer.load_state_dict(kept[1]))

    state, again, first = rewound(by_milepost)
    assert again == first
    assert (state, again, first) == rewound(by_pytorch)
