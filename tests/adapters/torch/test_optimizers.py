"""PyTorch optimizers: slot variables, hyperparameters, and when they come."""

import copy
import pickle

import pytest

import milepost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")


def key(name):
    return name + "/.ATTRIBUTES/VARIABLE_VALUE"


def step(net, optimizer, times=1):
    for number in range(times):
        optimizer.zero_grad()
        x = torch.linspace(-1, 1, 6).reshape(2, 3) * (number + 1)
        optimizer.step(lambda x=x: closure(net, optimizer, x))


def closure(net, optimizer, x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    return loss


def adam(net, **settings):
    return torch.optim.Adam(net.parameters(), **settings)


def saved(directory, net, optimizer, **more):
    return milepost.Checkpoint(net=net, optimizer=optimizer, **more).write(directory / "c")


def restored(path, net, optimizer, **more):
    return milepost.Checkpoint(net=net, optimizer=optimizer, **more).read(path)


def test_per_parameter_state_is_saved_as_slot_variables_of_the_parameter(tmp_path):
    net = nn.Linear(3, 2)
    optimizer = adam(net)
    step(net, optimizer)
    reader = milepost.load_checkpoint(saved(tmp_path, net, optimizer))
    saved_average = reader.get_tensor(key("net/weight/.OPTIMIZER_SLOT/optimizer/exp_avg"))
    assert saved_average.tolist() == optimizer.state[net.weight]["exp_avg"].tolist()


def test_hyperparameters_are_saved_as_numbers(tmp_path):
    net = nn.Linear(3, 2)
    reader = milepost.load_checkpoint(saved(tmp_path, net, adam(net, lr=0.25, betas=(0.5, 0.75))))
    assert reader.get_tensor(key("optimizer/param_groups/0/lr")) == 0.25
    assert reader.get_tensor(key("optimizer/param_groups/0/betas")).tolist() == [0.5, 0.75]


def test_slots_are_saved_only_if_their_parameter_is(tmp_path):
    net = nn.Linear(3, 2)
    optimizer = adam(net)
    step(net, optimizer)
    checkpoint = milepost.Checkpoint(optimizer=optimizer, bias=net.bias)
    with pytest.raises(milepost.UntrackableError, match=r"key: optimizer\n  remedy: add the model"):
        checkpoint.write(tmp_path / "c")
    path = checkpoint.write(tmp_path / "c", milepost.CheckpointOptions(allow_unsaved=["optimizer"]))
    slots = [name for name, _ in milepost.list_variables(path) if "OPTIMIZER_SLOT" in name]
    assert slots
    assert all(name.startswith("bias/") for name in slots)


def test_an_optimizer_without_its_model_is_refused(tmp_path):
    net = nn.Linear(3, 2)
    optimizer = adam(net)
    step(net, optimizer)
    with (
        pytest.warns(milepost.UntrackedWarning, match=r"^optimizer: not saved: the state that this Adam has"),
        pytest.raises(milepost.UntrackableError, match=r"the state that this Adam has[\s\S]*key: optimizer"),
    ):
        milepost.Checkpoint(optimizer=optimizer).write(tmp_path / "c")


def test_slots_exist_after_a_restore_before_the_first_step(tmp_path):
    net, fresh = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizer, its = adam(net), adam(fresh)
    step(net, optimizer)
    restored(saved(tmp_path, net, optimizer), fresh, its).assert_consumed()
    for name, value in optimizer.state[net.weight].items():
        assert torch.equal(its.state[fresh.weight][name], value)


def test_an_optimizer_saved_before_its_first_step_has_no_state_after_a_restore(tmp_path):
    net, fresh = nn.Linear(3, 2), nn.Linear(3, 2)
    its = adam(fresh)
    restored(saved(tmp_path, net, adam(net)), fresh, its).assert_consumed()
    assert not its.state


def test_state_keeps_its_element_type_where_load_state_dict_would_not(tmp_path):
    def make():
        net = nn.Linear(3, 2, dtype=torch.bfloat16)
        return net, torch.optim.NAdam(net.parameters())

    (net, optimizer), (fresh, its) = make(), make()
    for _ in range(2):
        net(torch.ones(1, 3, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
    restored(saved(tmp_path, net, optimizer), fresh, its)
    state = its.state[fresh.weight]
    assert state["mu_product"].dtype == optimizer.state[net.weight]["mu_product"].dtype == torch.float32
    assert torch.equal(state["mu_product"], optimizer.state[net.weight]["mu_product"])


def test_state_that_exists_is_restored_in_place(tmp_path):
    net = nn.Linear(3, 2)
    optimizer = adam(net)
    step(net, optimizer)
    average = optimizer.state[net.weight]["exp_avg"]
    before = average.clone()
    path = saved(tmp_path, net, optimizer)
    step(net, optimizer)
    restored(path, net, optimizer)
    assert optimizer.state[net.weight]["exp_avg"] is average
    assert torch.equal(average, before)


def test_a_failed_restore_leaves_no_state_behind(tmp_path):
    net, optimizer = nn.Linear(3, 2), None
    optimizer = adam(net)
    step(net, optimizer)
    path = saved(tmp_path, net, optimizer, other=torch.ones(3))
    fresh = nn.Linear(3, 2)
    its = adam(fresh)
    with pytest.raises(milepost.MismatchError):
        restored(path, fresh, its, other=torch.ones(4))
    assert not its.state


def test_state_that_a_step_exchanges_stays_restored(tmp_path):
    net, fresh = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizer, its = adam(net), adam(fresh)
    step(net, optimizer)
    status = restored(saved(tmp_path, net, optimizer), fresh, its)
    its.state[fresh.weight]["exp_avg"] = its.state[fresh.weight]["exp_avg"] * 0.5
    status.assert_consumed()


def test_slots_can_be_skipped(tmp_path):
    net, fresh = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizer, its = adam(net), adam(fresh)
    step(net, optimizer)
    path = saved(tmp_path, net, optimizer)
    options = milepost.CheckpointOptions(experimental_skip_slot_variables=True)
    milepost.Checkpoint(net=fresh, optimizer=its).read(path, options).assert_consumed()
    assert not its.state


def test_lbfgs_goes_on_bit_for_bit(tmp_path):
    def make():
        net = nn.Linear(3, 2)
        return net, torch.optim.LBFGS(net.parameters(), max_iter=3, history_size=3)

    (net, optimizer), (fresh, its) = make(), make()
    step(net, optimizer, 3)
    path = saved(tmp_path, net, optimizer)
    step(net, optimizer, 2)
    restored(path, fresh, its).assert_consumed()
    step(fresh, its, 2)
    assert torch.equal(fresh.weight, net.weight)


def test_an_older_state_can_be_restored_into_a_running_lbfgs(tmp_path):
    net = nn.Linear(3, 2)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2)
    step(net, optimizer)
    path = saved(tmp_path, net, optimizer)
    step(net, optimizer)
    expected = net.weight.clone()
    step(net, optimizer, 2)
    restored(path, net, optimizer)
    step(net, optimizer)
    assert torch.equal(net.weight, expected)


def test_hyperparameters_come_back_with_their_types(tmp_path):
    net = nn.Linear(3, 2)
    optimizer = adam(net, lr=0.5, weight_decay=1, amsgrad=True)
    optimizer.param_groups[0]["note"] = {"names": ("a", None)}
    its = adam(net, weight_decay=0.0)
    its.param_groups[0]["note"] = None
    restored(saved(tmp_path, net, optimizer), net, its).assert_consumed()
    group = its.param_groups[0]
    assert (group["lr"], group["betas"], group["amsgrad"]) == (0.5, (0.9, 0.999), True)
    assert type(group["weight_decay"]) is int
    assert group["note"] == {"names": ("a", None)}


def test_hyperparameters_that_the_optimizer_does_not_have_yet_are_added(tmp_path):
    net = nn.Linear(3, 2)
    optimizer, its = adam(net), adam(net)
    optimizer.param_groups[0]["initial_lr"] = 0.125
    restored(saved(tmp_path, net, optimizer), net, its).assert_consumed()
    assert its.param_groups[0]["initial_lr"] == 0.125


def test_how_a_step_is_computed_is_not_restored(tmp_path):
    net = nn.Linear(3, 2)
    its = adam(net, foreach=False)
    restored(saved(tmp_path, net, adam(net, fused=True)), net, its).assert_consumed()
    assert its.param_groups[0]["foreach"] is False
    assert not its.param_groups[0]["fused"]


def test_a_learning_rate_in_a_tensor_is_restored_in_place(tmp_path):
    net = nn.Linear(3, 2)
    rate = torch.tensor(0.1)
    its = adam(net, lr=rate)
    restored(saved(tmp_path, net, adam(net, lr=torch.tensor(0.25))), net, its).assert_consumed()
    assert its.param_groups[0]["lr"] is rate
    assert rate.item() == 0.25


def test_learning_rates_in_tensors_and_in_numbers_are_interchangeable(tmp_path):
    net = nn.Linear(3, 2)
    number, tensor = adam(net, lr=0.125), adam(net, lr=torch.tensor(0.25))
    from_number = milepost.Checkpoint(o=number).write(tmp_path / "n")
    from_tensor = milepost.Checkpoint(o=tensor).write(tmp_path / "t")
    milepost.Checkpoint(o=tensor).read(from_number).assert_consumed()
    milepost.Checkpoint(o=number).read(from_tensor).assert_consumed()
    assert (tensor.param_groups[0]["lr"].item(), number.param_groups[0]["lr"]) == (0.125, 0.25)


def test_several_groups_keep_their_own(tmp_path):
    def make(*rates):
        return torch.optim.SGD([{"params": [nn.Parameter(torch.ones(1))], "lr": rate} for rate in rates])

    its = make(1.0, 2.0)
    restored(saved(tmp_path, nn.Linear(1, 1), make(0.25, 0.5)), nn.Linear(1, 1), its).assert_consumed()
    assert [group["lr"] for group in its.param_groups] == [0.25, 0.5]


def test_a_group_that_is_added_after_the_restore_has_its_values_before_the_next_step(tmp_path):
    def make():
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        return net, torch.optim.SGD(net[0].parameters(), lr=0.1, momentum=0.9)

    net, optimizer = make()
    optimizer.add_param_group({"params": net[1].parameters(), "lr": 0.5})
    step(net, optimizer, 2)
    path = saved(tmp_path, net, optimizer)
    step(net, optimizer)
    fresh, its = make()
    status = restored(path, fresh, its)
    its.add_param_group({"params": fresh[1].parameters(), "lr": 7.0})
    step(fresh, its)
    status.assert_consumed()
    assert torch.equal(fresh[1].weight, net[1].weight)


def test_a_restored_optimizer_can_be_pickled_and_copied(tmp_path):
    net = nn.Linear(3, 2)
    optimizer = adam(net)
    step(net, optimizer)
    restored(saved(tmp_path, net, optimizer), net, optimizer)
    pickle.loads(pickle.dumps(optimizer))
    copy.deepcopy(optimizer)


def test_keys_of_parameters_are_those_of_the_module_however_deep_it_is(tmp_path):
    net = nn.Sequential(nn.Sequential(nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(1, 1))))))
    path = milepost.Checkpoint(a=adam(net), net=net).write(tmp_path / "c")
    assert key("net/0/0/0/0/0/weight") in dict(milepost.list_variables(path))


def test_a_model_of_many_parameters_is_saved_in_reasonable_time(tmp_path):
    parameters = nn.ParameterList([torch.zeros(1) for _ in range(3000)])
    optimizer = torch.optim.SGD(parameters, momentum=0.9)
    for each in parameters:
        each.grad = torch.ones(1)
    optimizer.step()
    path = saved(tmp_path, parameters, optimizer)
    fresh = nn.ParameterList([torch.zeros(1) for _ in range(3000)])
    restored(path, fresh, torch.optim.SGD(fresh, momentum=0.9)).assert_consumed()


@pytest.mark.parametrize("order", [("net", "optimizer"), ("optimizer", "net")])
def test_model_and_optimizer_may_be_attached_after_the_restore_in_either_order(tmp_path, order):
    net = nn.Linear(3, 2)
    optimizer = adam(net, lr=0.25)
    step(net, optimizer, 2)
    path = saved(tmp_path, net, optimizer)
    step(net, optimizer)
    fresh = nn.Linear(3, 2)
    parts = {"net": fresh, "optimizer": adam(fresh)}
    checkpoint = milepost.Checkpoint()
    status = checkpoint.read(path)
    for name in order:
        setattr(checkpoint, name, parts[name])
    status.assert_consumed()
    step(fresh, parts["optimizer"])
    assert torch.equal(fresh.weight, net.weight)


def test_a_frozen_parameter_has_no_state_and_its_saved_state_waits(tmp_path):
    net, fresh = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizer = adam(net)
    step(net, optimizer)
    its = torch.optim.Adam([fresh.weight])
    status = restored(saved(tmp_path, net, optimizer), fresh, its)
    assert fresh.bias not in its.state
    assert {entry.key.partition("/.OPT")[0] for entry in status.report().deferred} == {"net/bias"}


def test_a_scheduler_that_is_made_after_the_restore_does_not_reset_the_learning_rate(tmp_path):
    def make():
        net = nn.Linear(3, 2)
        return net, torch.optim.SGD(net.parameters(), lr=0.5)

    def schedule(optimizer):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=20)

    net, optimizer = make()
    scheduler = schedule(optimizer)
    for _ in range(5):
        step(net, optimizer)
        scheduler.step()
    path = saved(tmp_path, net, optimizer, scheduler=scheduler)
    fresh, its = make()
    checkpoint = milepost.Checkpoint(net=fresh, optimizer=its)
    status = checkpoint.read(path)
    checkpoint.scheduler = schedule(its)
    status.assert_consumed()
    assert its.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    for _ in range(3):
        step(net, optimizer), scheduler.step()
        step(fresh, its), checkpoint.scheduler.step()
    assert torch.equal(fresh.weight, net.weight)


def test_a_scaler_is_restored_before_its_first_use(tmp_path):
    path = milepost.Checkpoint(scaler=torch.amp.GradScaler("cpu", init_scale=8.0)).write(tmp_path / "c")
    scaler = torch.amp.GradScaler("cpu")
    milepost.Checkpoint(scaler=scaler).read(path).assert_consumed()
    assert scaler.get_scale() == 8.0


class Refusing(milepost.PythonState):
    def serialize(self):
        return "text"

    def deserialize(self, string):
        raise ValueError("not this one")


def deep(obj, levels=5):
    for _ in range(levels):
        module = milepost.Module()
        module.below = obj
        obj = module
    return obj


@pytest.mark.parametrize("rate", [0.5, torch.tensor(0.5)], ids=["number", "tensor"])
def test_hyperparameters_are_put_back_if_a_later_object_refuses(tmp_path, rate):
    path = saved(tmp_path, nn.Linear(3, 1), adam_with(0.1, amsgrad=True, extra="saved"), late=deep(Refusing()))
    optimizer = adam_with(rate)
    before = copy.deepcopy(optimizer.param_groups[0])
    with pytest.raises(milepost.RefusedError, match="not this one"):
        milepost.Checkpoint(net=nn.Linear(3, 1), optimizer=optimizer, late=deep(Refusing())).read(path)
    now = optimizer.param_groups[0]
    assert now.keys() == before.keys()
    assert {name: now[name] for name in now if name != "params"} == {n: before[n] for n in before if n != "params"}
    assert now["lr"] is rate


def adam_with(rate, extra=None, **settings):
    optimizer = torch.optim.Adam([nn.Parameter(torch.ones(1))], lr=rate, **settings)
    if extra is not None:
        optimizer.param_groups[0]["extra"] = extra
    return optimizer
