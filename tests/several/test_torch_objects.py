"""Objects of PyTorch in two processes: what is saved of them together, and what is refused."""

import pytest

import milepost
from tests.several.programs import TORCH, run, same

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

OPTIMIZERS = ("Adagrad", "NAdam", "Adam", "ASGD", "SGD")
_BEGIN = """
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

def opts(**more):
    return CheckpointOptions(**options, **more)

def at(name):
    return f"{directory}/{name}"

def written(name, **more):
    return Checkpoint(**more).write(at(name), options=opts()) == at(name)

def read(name, **objects):
    return bool(Checkpoint(**objects).read(at(name), options=opts()).assert_consumed())

mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("data",))

def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))

def sharded(seed=0):
    return fully_shard(net(seed), mesh=mesh)

def momentum(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

def train(model, optimizer):
    loss = model(torch.arange(6.0).reshape(2, 3)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()
"""
_GATHERED = """
model = sharded()
optimizer = momentum(model)
train(model, optimizer)
attempt("trained", lambda: written("trained", model=model, optimizer=optimizer))
values = [parameter.to_local().tolist() for parameter in model.parameters()]

def gradients(between=lambda: None):
    loss = model(torch.arange(6.0).reshape(2, 3)).square().sum()
    between()
    loss.backward()
    found = [parameter.grad.to_local().tolist() for parameter in model.parameters()]
    optimizer.zero_grad()
    return found

expected = gradients()
results["gradients after a save"] = gradients(
    lambda: attempt("save gathered", lambda: written("gathered", model=model))
) == expected
results["gradients after a restore"] = gradients(
    lambda: attempt("restore gathered", lambda: read("trained", model=model, optimizer=optimizer))
) == expected
with torch.no_grad():
    model(torch.ones(2, 3))
attempt("save after evaluation", lambda: written("evaluated", model=model))
with torch.no_grad():
    model(torch.ones(2, 3))
attempt("restore after evaluation", lambda: read("trained", model=model, optimizer=optimizer))
results["values"] = [parameter.to_local().tolist() for parameter in model.parameters()] == values

class Saving(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 3))
    def forward(self, value):
        attempt("save in forward", lambda: written("inside", model=inside))
        return value @ self.weight.T

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

def recomputed(seed):
    model = net(seed)
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, nn.Linear))
    fully_shard(model[0], mesh=mesh, reshard_after_forward=False)
    return fully_shard(model, mesh=mesh)

one, two = recomputed(1), recomputed(2)
for model_of, name in ((one, "save"), (two, "restore")):
    optimizer_of = momentum(model_of)
    train(model_of, optimizer_of)
    with torch.no_grad():
        model_of(torch.ones(2, 3))
    action = written if name == "save" else read
    attempt(f"{name} recomputed", lambda: action("recomputed", model=model_of, optimizer=optimizer_of))
    results[f"{name} recomputed goes on"] = [train(model_of, optimizer_of) for _ in range(2)]

inside = fully_shard(Saving(), mesh=mesh, reshard_after_forward=False)
inside(torch.ones(2, 3)).sum().backward()
attempt("alone", lambda: Checkpoint(model=model).write(at(f"alone{rank}"), options=CheckpointOptions(process_local=True)))
"""
_VALUES = """
attempt("partial", lambda: written("partial", sum=DTensor.from_local(torch.ones(3), mesh, [Partial()])))
own = DTensor.from_local(torch.full((3,), float(rank)), mesh, [Replicate()], run_check=False)
attempt("replicas", lambda: written("replicas", own=own))
wrong = DTensor.from_local(torch.ones(3 - 2 * rank), mesh, [Shard(0)], shape=torch.Size([4]), stride=(1,))
attempt("wrong shard", lambda: written("wrong", wrong=wrong))

class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", distribute_tensor(torch.arange(6.0).bfloat16().reshape(2, 3), mesh, [Shard(1)]))

vector = distribute_tensor(torch.arange(5.0), mesh, [Shard(0)])
number = distribute_tensor(torch.tensor(3.0), mesh, [Replicate()])
odd = distribute_tensor(torch.arange(4).to(torch.float32), mesh, [Shard(0)]).to(torch.complex32)
attempt("values", lambda: written("values", vector=vector, held={"m": Buffered()}, number=number, odd=odd))
others = dict(vector=distribute_tensor(torch.zeros(5), mesh, [Replicate()]), held={"m": Buffered()}, number=torch.zeros(()))
others["odd"] = torch.zeros(4, dtype=torch.complex32)
others["held"]["m"].b.zero_()
attempt("values restored", lambda: read("values", **others))
results["found"] = [others["vector"].to_local().tolist(), others["held"]["m"].b.full_tensor().tolist(), others["number"].item()]
results["odd"] = others["odd"].to(torch.complex64).real.tolist()

large = distribute_tensor(torch.arange(2_000_000).reshape(1000, 2000), mesh, [Shard(1)])
attempt("large", lambda: written("large", large=large))
rows = distribute_tensor(torch.zeros(1000, 2000, dtype=torch.int64), mesh, [Shard(0)])
turned = distribute_tensor(torch.zeros(2000, 1000, dtype=torch.int64), mesh, [Shard(1)]).T
attempt("large restored", lambda: read("large", large=rows))
results["large equal"] = torch.equal(rows.full_tensor(), large.full_tensor())
attempt("turned restored", lambda: read("large", large=turned))
results["turned equal"] = torch.equal(turned.full_tensor(), large.full_tensor())

from torch.distributed.device_mesh import DeviceMesh
several = [distribute_tensor(torch.zeros(4), init_device_mesh("cpu", (size,)), [Shard(0)])]
several += [distribute_tensor(torch.zeros(4), several[0].device_mesh, [Shard(0)]) for _ in range(9)]
asked, plain = [], getattr(DeviceMesh, "mesh", None)
if isinstance(plain, property):
    DeviceMesh.mesh = property(lambda self: asked.append(self) or plain.fget(self))
attempt("one mesh", lambda: written("one mesh", several=several))
results["meshes computed"] = len(asked)
"""
_OPTIMIZERS = """
for name in OPTIMIZERS:
    def make(model):
        return momentum(model) if name == "SGD" else getattr(torch.optim, name)(model.parameters())
    one, two = sharded(1), sharded(2)
    first, second = make(one), make(two)
    train(one, first), train(one, first)
    attempt(f"{name} written", lambda: written(name, model=one, optimizer=first))
    attempt(f"{name} read", lambda: read(name, model=two, optimizer=second))
    results[f"{name} kinds"] = [
        [(slot, type(value).__name__, str(getattr(value, "placements", ""))) for slot, value in each.state[model[0].weight].items()]
        for model, each in ((one, first), (two, second))
    ]
    results[f"{name} losses"] = [[train(model, each) for _ in range(2)] for model, each in ((one, first), (two, second))]

late = Checkpoint(model=sharded(3))
status = late.read(at("trained"), options=opts())
late.optimizer = momentum(late.model)
attempt("optimizer after the restore", lambda: bool(status.assert_consumed()))
results["made like its parameter"] = type(late.optimizer.state[late.model[0].weight]["momentum_buffer"]).__name__
late = Checkpoint()
status = late.read(at("trained"), options=opts())
late.model = sharded(4)
late.optimizer = momentum(late.model)
attempt("all after the restore", lambda: bool(status.assert_consumed()))
plain = Checkpoint(model=net(5))
plain.read(at("trained"), options=opts()).expect_partial()
fully_shard(plain.model, mesh=mesh)
results["sharded after the restore"] = torch.equal(plain.model[0].weight.full_tensor(), late.model[0].weight.full_tensor())
plain.optimizer = momentum(plain.model)
attempt("optimizer after that", lambda: bool(plain.read(at("trained"), options=opts()).assert_consumed()))
"""
_PLAIN = """
class Whole(torch.optim.Optimizer):
    # keeps plain tensors for each parameter: one that is the same on all processes, and one of the size of its own shard
    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state, whole, shard = self.state[p], p.grad.full_tensor(), p.grad.to_local()
            if not state:
                state["whole"] = torch.zeros_like(whole).T if whole.ndim == 2 else torch.zeros_like(whole)
                state["gram"], state["shard"] = torch.eye(len(whole)), torch.zeros_like(shard)
            state["whole"] += whole.T
            state["gram"] += torch.outer(whole.reshape(len(whole), -1)[:, 0], whole.reshape(len(whole), -1)[:, 0])
            state["shard"] += shard
            update = torch.linalg.solve(state["gram"], state["whole"].T)
            p.sub_(distribute_tensor(update, p.device_mesh, p.placements), alpha=0.01)
            p.to_local().sub_(state["shard"], alpha=0.1)

def kinds(optimizer):
    return [(name, type(each).__name__, list(each.shape), each.stride()) for state in optimizer.state.values() for name, each in state.items()]

def whole(seed):
    model = sharded(seed)
    return model, Whole(model.parameters())

model, optimizer = whole(10)
train(model, optimizer)
own = dict(each_process=[f"model/{name}/.OPTIMIZER_SLOT/optimizer/shard" for name in ("0/weight", "0/bias", "2/weight", "2/bias")])

def write_own(name, **objects):
    return Checkpoint(**objects).write(at(name), options=opts(**own)) == at(name)

attempt("plain written", lambda: write_own("plain", model=model, optimizer=optimizer))
results["plain kinds"] = [kinds(optimizer)]
results["plain losses"] = [[train(model, optimizer) for _ in range(2)]]
fresh, its = whole(11)
attempt("plain read", lambda: read("plain", model=fresh, optimizer=its))
results["plain kinds"].append(kinds(its))
attempt("plain written again", lambda: write_own("plain again", model=fresh, optimizer=its))
results["plain losses"].append([train(fresh, its) for _ in range(2)])
before = {name: each for state in its.state.values() for name, each in state.items()}
attempt("plain read again", lambda: read("plain again", model=fresh, optimizer=its))
results["plain in place"] = all(each is before[name] for state in list(its.state.values())[-1:] for name, each in state.items())
results["plain losses"].append([train(fresh, its) for _ in range(2)])
"""
_ORDERS = """
import warnings
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

def parallel(model):
    return parallelize_module(model, mesh, {"0": ColwiseParallel(output_layouts=Replicate())})

def goes_on(restored):
    return [train(restored.model, restored.optimizer) for _ in range(2)]

usual = Checkpoint(model=sharded(6))
usual.optimizer = momentum(usual.model)
usual.read(at("trained"), options=opts())
results["usual"] = goes_on(usual)
for name, spread in ({"fully_shard": lambda model: fully_shard(model, mesh=mesh), "parallelize_module": parallel}).items():
    restored = Checkpoint(model=net(7))
    status = restored.read(at("trained"), options=opts())
    spread(restored.model)
    attempt(f"{name} model", lambda: bool(status.assert_existing_objects_matched()))
    restored.optimizer = momentum(restored.model)
    attempt(f"{name} optimizer", lambda: bool(status.assert_consumed()))
    results[f"{name} goes on"] = goes_on(restored)

with torch.device("meta"):
    restored = Checkpoint(model=fully_shard(net(8), mesh=mesh))
status = restored.read(at("trained"), options=opts())
restored.optimizer = momentum(restored.model)
attempt("meta optimizer", lambda: bool(status.assert_consumed()))
results["meta goes on"] = goes_on(restored)

restored = Checkpoint(model=net(9))
status = restored.read(at("trained"), options=opts())
with torch.no_grad():
    restored.model[0].weight.zero_()
fully_shard(restored.model, mesh=mesh)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    restored.optimizer = momentum(restored.model)
results["changed"] = [str(each.message) for each in caught if issubclass(each.category, milepost.UnrestoredWarning)]
results["changed slots"] = [len(restored.optimizer.state.get(each, ())) for each in restored.model.parameters()]
attempt("changed consumed", lambda: bool(status.assert_consumed()))
"""
_REPLICATED = """
torch.manual_seed(0)
norm = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
wrapped = nn.parallel.DistributedDataParallel(norm)
wrapped(torch.randn(4, 3, generator=torch.Generator().manual_seed(rank))).sum().backward()
wrapped.zero_grad()
results["mean"] = norm[1].running_mean.tolist()
attempt("wrapped", lambda: written("wrapped", net=wrapped))
attempt("wrapped and compiled", lambda: written("compiled", net=torch.compile(wrapped, backend="eager")))
attempt("inner", lambda: written("inner", net=norm))
attempt("inner of process 0", lambda: Checkpoint(net=norm).write(at("inner"), options=opts(first_process=["net/1"])) == at("inner"))
wrapped.broadcast_buffers = False
attempt("not broadcast", lambda: written("not-broadcast", net=wrapped))
attempt("wrapped restored", lambda: read("wrapped", net=norm))
results["restored mean"] = norm[1].running_mean.tolist()

generator, state = torch.Generator().manual_seed(rank), milepost.RandomState()
torch.manual_seed(100 + rank)
attempt("random", lambda: written("random", generator=generator, state=state))
expected = [torch.rand(1, generator=generator).item(), torch.rand(1).item()]
torch.manual_seed(0)
generator.manual_seed(9)
attempt("random restored", lambda: read("random", generator=generator, state=state))
results["random goes on"] = expected == [torch.rand(1, generator=generator).item(), torch.rand(1).item()]
results["drawn"] = expected

try:
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    StatefulDataLoader = None
if StatefulDataLoader is not None:
    def loader():
        sampler = torch.utils.data.DistributedSampler(range(20), shuffle=True, seed=1)
        return StatefulDataLoader(range(20), batch_size=2, sampler=sampler)
    first = loader()
    batches = iter(first)
    next(batches), next(batches)
    attempt("loader", lambda: written("loader", loader=first))
    rest = [each.tolist() for each in batches]
    second = loader()
    attempt("loader restored", lambda: read("loader", loader=second))
    results["rest"] = [rest, [each.tolist() for each in second]]
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("objects")


@pytest.fixture(scope="module")
def two(directory):
    """What each of two processes has found."""
    program = (
        _BEGIN + f"OPTIMIZERS = {OPTIMIZERS!r}\n" + _GATHERED + _VALUES + _OPTIMIZERS + _PLAIN + _ORDERS + _REPLICATED
    )
    return run(program, 2, directory, TORCH)


GATHERED = ("save gathered", "restore gathered", "save after evaluation", "restore after evaluation")


@pytest.mark.parametrize("name", GATHERED)
def test_gathered_parameters_are_put_back_before_a_save_and_a_restore(two, name):
    assert same([each[name] for each in two]) is True


def test_a_save_and_a_restore_before_the_backward_pass_leave_its_gradients(two):
    names = ("gradients after a save", "gradients after a restore")
    assert same([[each[name] for name in names] for each in two]) == [True, True]


@pytest.mark.parametrize("name", ["gathered", "evaluated"])
def test_a_save_of_gathered_parameters_holds_the_shards_values(two, directory, name):
    expected, found = (milepost.load_checkpoint(f"{directory}/{each}") for each in ("trained", name))
    for key in found.get_variable_to_shape_map():
        if key.startswith("model/"):
            assert (found.get_tensor(key) == expected.get_tensor(key)).all(), key
    assert same([each["values"] for each in two]) is True


def test_modules_in_activation_wrappers_are_saved_and_restored_under_their_own_names(two, directory):
    found = same([[each["save recomputed"], each["restore recomputed"]] for each in two])
    assert found == [True, True]
    for each in two:
        assert each["save recomputed goes on"] == each["restore recomputed goes on"]
    shapes = milepost.load_checkpoint(f"{directory}/recomputed").get_variable_to_shape_map()
    assert "model/0/weight/.ATTRIBUTES/VARIABLE_VALUE" in shapes


def test_a_save_in_a_forward_pass_is_refused(two):
    for each in two:
        assert each["save in forward"].startswith("UntrackableError: the forward pass of this module is running")
        assert "key: model" in each["save in forward"]
        assert "after the forward pass" in each["save in forward"]


def test_a_process_alone_cannot_save_its_shards(two):
    for each in two:
        assert each["alone"].startswith("UnsupportedError: other processes hold parts of this tensor")
        assert "float32[5,3], (S(0)) over a mesh of 2 processes: 0, 1" in each["alone"]


def test_a_sum_that_is_not_done_is_refused(two):
    for each in two:
        assert each["partial"].startswith("UntrackableError")
        assert "tensor.redistribute(placements=[Replicate()])" in each["partial"]


def test_replicas_that_differ_are_refused(two):
    message = same([each["replicas"] for each in two])
    assert message.startswith(
        "CoordinationError: processes 0 and 1 of 2 hold different values of one tensor; nothing was saved"
    )
    assert "key: own/.ATTRIBUTES/VARIABLE_VALUE" in message


def test_a_local_shard_of_another_shape_is_refused(two):
    for each in two:
        assert (
            "the local shard of a DTensor has a different shape than its mesh and placements say" in each["wrong shard"]
        )


def test_dtensors_in_attributes_and_buffers_come_back(two):
    for each in two:
        assert (each["values"], each["values restored"]) == (True, True)
        assert each["found"] == [[0, 1, 2, 3, 4], [[0, 1, 2], [3, 4, 5]], 3]


def test_the_processes_of_a_mesh_are_computed_once_for_all_its_tensors(two):
    """PyTorch computes them each time it is asked, which took most of the planning of a save."""
    for each in two:
        assert each["one mesh"] is True
        assert each["meshes computed"] <= 1


def test_elements_without_a_type_in_the_file_come_back(two):
    assert same([each["odd"] for each in two]) == [0, 1, 2, 3]


def test_large_tensors_are_read_box_by_box(two):
    for each in two:
        assert (each["large"], each["large restored"], each["large equal"]) == (True, True, True)


def test_a_local_shard_that_is_not_contiguous_is_restored(two):
    for each in two:
        assert (each["turned restored"], each["turned equal"]) == (True, True)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_without_state_gets_that_of_its_parameters(two, name):
    for each in two:
        assert (each[f"{name} written"], each[f"{name} read"]) == (True, True)
        saved, made = each[f"{name} kinds"]
        assert made == saved
        assert any(kind == "DTensor" for _, kind, _ in made) or name == "ASGD"
        one, other = each[f"{name} losses"]
        assert one == other


def test_plain_tensors_in_the_state_of_dtensors_stay_plain(two):
    for each in two:
        assert (each["plain written"], each["plain read"]) == (True, True)
        saved, made = each["plain kinds"]
        assert made == saved
        assert {kind for _, kind, *_ in made} == {"Tensor"}


def test_state_of_each_process_can_be_trained_saved_and_restored_again(two):
    for each in two:
        assert (each["plain written again"], each["plain read again"], each["plain in place"]) == (True, True, True)
        expected, *others = each["plain losses"]
        assert others == [expected, expected]


def test_what_is_made_after_the_restore_gets_its_values(two):
    for each in two:
        assert each["optimizer after the restore"] is True
        assert each["made like its parameter"] == "DTensor"
        assert each["all after the restore"] is True


def test_a_restored_model_may_be_sharded(two):
    for each in two:
        assert each["sharded after the restore"] is True
        assert each["optimizer after that"] is True


@pytest.mark.parametrize("order", ["fully_shard", "parallelize_module"])
def test_a_model_may_be_spread_between_its_restore_and_its_optimizer(two, order):
    for each in two:
        assert (each[f"{order} model"], each[f"{order} optimizer"]) == (True, True)
        assert each[f"{order} goes on"] == pytest.approx(each["usual"], rel=1e-6)


def test_a_model_on_the_meta_device_is_restored_before_its_optimizer(two):
    for each in two:
        assert each["meta optimizer"] is True
        assert each["meta goes on"] == each["usual"]


def test_state_of_parameters_that_have_changed_before_they_were_spread_is_left_out_with_a_warning(two):
    assert two[0]["changed slots"] == [0, 1, 1, 1]
    (message,) = two[0]["changed"]
    assert "Restore after fully_shard() or parallelize_module()" in message
    assert "model/0/weight/.OPTIMIZER_SLOT/optimizer/momentum_buffer" in message
    assert "model/0/bias" not in message
    assert two[0]["changed consumed"].startswith("UnmatchedError")
    assert "deferred: model/0/weight/.OPTIMIZER_SLOT/optimizer/momentum_buffer" in two[0]["changed consumed"]


def test_buffers_that_are_broadcast_are_those_of_process_0(two, directory):
    assert [each["wrapped"] for each in two] == [True, True]
    assert [each["wrapped and compiled"] for each in two] == [True, True]
    assert two[0]["mean"] != two[1]["mean"]
    assert milepost.load_variable(directory / "wrapped", "net/1/running_mean").tolist() == pytest.approx(two[0]["mean"])
    assert [each["wrapped restored"] for each in two] == [True, True]
    assert [each["restored mean"] for each in two] == [two[0]["mean"]] * 2


@pytest.mark.parametrize("name", ["inner", "not broadcast"])
def test_other_buffers_that_differ_are_refused_by_name(two, name):
    message = same([each[name] for each in two])
    assert message.startswith("CoordinationError: process 1 of 2 and process 0 hold different values")
    assert "net/1/running_mean" in message
    assert "CheckpointOptions(first_process=['net/1/running_mean', 'net/1/running_var'])" in message


def test_the_remedy_saves_those_of_process_0(two, directory):
    assert [each["inner of process 0"] for each in two] == [True, True]
    assert milepost.load_variable(directory / "inner", "net/1/running_mean").tolist() == pytest.approx(two[0]["mean"])


def test_every_process_has_its_own_random_state(two):
    assert two[0]["drawn"] != two[1]["drawn"]
    for each in two:
        assert (each["random"], each["random restored"], each["random goes on"]) == (True, True, True)


def test_every_process_has_its_own_place_in_the_data(two):
    pytest.importorskip("torchdata")
    for each in two:
        assert (each["loader"], each["loader restored"]) == (True, True)
        expected, found = each["rest"]
        assert found == expected
    assert two[0]["rest"] != two[1]["rest"]
