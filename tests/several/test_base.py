"""Frozen values that several processes hold: left out of a save, and compared by digests that do not depend on how they are spread."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint
from tests.several.programs import FILES, TORCH, run

MODELS = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

class Adapted(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = torch.nn.Linear(base.in_features, 2, bias=False)
        self.up = torch.nn.Linear(2, base.out_features, bias=False)

def made(kind, seed, base=0):
    torch.manual_seed(base)
    layers = [torch.nn.Linear(301, 403), torch.nn.Linear(403, 201)]
    torch.manual_seed(seed)
    model = torch.nn.Sequential(*map(Adapted, layers))
    if kind == "fsdp":
        for each in (*model, model):
            fully_shard(each)
    elif kind == "tensor":
        plan = {"0.base": ColwiseParallel(), "1.base": RowwiseParallel()}
        parallelize_module(model, init_device_mesh("cpu", (size,)), plan)
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad])
    return Checkpoint(model=model, optimizer=optimizer, epoch=seed)

def whole(model):
    full = lambda each: (each.full_tensor() if hasattr(each, "full_tensor") else each).detach()
    return {name: full(each).clone() for name, each in model.named_parameters()}

settings = CheckpointOptions(base="hub://b", **options)
"""
PROGRAM = (
    MODELS
    + """
import milepost
KINDS = ("fsdp", "tensor", "plain")
for kind in KINDS:
    saved = made(kind, 1)
    with CommDebugMode() as seen:
        saved.write(f"{directory}/{kind}", settings)
        saved.write(f"{directory}/{kind}-again", settings)
    live = {other: made(other, 2) for other in KINDS}
    for other, each in live.items():
        each.read(f"{directory}/{kind}", CheckpointOptions(**options)).assert_consumed()
    expected = whole(saved.model)
    wrong = made(kind, 2, base=5)
    before = whole(wrong.model)
    attempt(f"{kind}, another base", lambda: wrong.read(f"{directory}/{kind}", CheckpointOptions(**options)))
    after = whole(wrong.model)
    results[kind] = {
        "equal": [all(torch.equal(whole(each.model)[name], expected[name]) for name in expected) for each in live.values()],
        "unchanged": all(torch.equal(before[name], after[name]) for name in before),
        "collectives": seen.get_total_counts(),
        "digest": milepost.digest(saved.model, CheckpointOptions(**options)),
    }
differ = made("plain", 2, base=rank)
attempt("differ, restored", lambda: differ.read(f"{directory}/plain", CheckpointOptions(**options)))
attempt("differ, saved", lambda: differ.write(f"{directory}/differ", settings))
"""
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("base")


@pytest.fixture(scope="module")
def two(directory):
    """What each of two processes has found."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    return run(PROGRAM, 2, directory, TORCH)


KINDS = ("fsdp", "tensor", "plain")


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_is_trained_is_in_the_files(two, directory, kind):
    names = {key.partition("/.ATT")[0] for key, _ in milepost.list_variables(directory / kind)}
    assert {name for name in names if name.startswith("model") and "SLOT" not in name} == {
        f"model/{number}/{factor}/weight" for number in (0, 1) for factor in ("down", "up")
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_base_fits_however_it_is_spread(two, kind):
    assert [each[kind]["equal"] for each in two] == [[True] * 3] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_another_base_is_refused_on_all_processes_before_anything_changes(two, kind):
    for each in two:
        assert "MismatchError: the base is another one" in each[f"{kind}, another base"]
        assert "model/0/base/weight" in each[f"{kind}, another base"]
        assert each[kind]["unchanged"]


def test_digests_do_not_depend_on_how_values_are_spread(two, directory):
    """Those of two processes that hold the model, and those of the files that they have written."""
    of_files = {milepost.digest(directory / kind, below="model") for kind in KINDS}
    assert {each[kind]["digest"] for each in two for kind in KINDS} == of_files
    assert len(of_files) == 1


def test_a_process_alone_computes_the_digest_of_two(two, directory):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = [torch.nn.Linear(301, 403), torch.nn.Linear(403, 201)]
    live = Checkpoint(model=torch.nn.ModuleList([torch.nn.ModuleDict({"base": each}) for each in layers]))
    for kind in KINDS:
        assert milepost.digest(directory / kind, only="model/*/base") == milepost.digest(live)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_gathered(two, kind):
    assert [each[kind]["collectives"] for each in two] == [0, 0]


def test_processes_with_different_bases_are_refused(two):
    for each in two:
        for what in ("differ, restored", "differ, saved"):
            assert "CoordinationError: process 1 holds another value than process 0" in each[what]


COLUMNS = """
from milepost.adapters import Adapter, DType, Value, register
from milepost.tensor import Shard, ShardedArray

class Spread:
    pass

class SpreadAdapter(Adapter):
    leaf = True
    def handles(self, kind):
        return kind is Spread
    def values(self, obj):
        half = obj.array.shape[1] // 2
        part = np.ascontiguousarray(obj.array[:, rank * half : (rank + 1) * half])
        shard = Shard((0, rank * half), part, (rank,))
        whole = ShardedArray(obj.array.dtype, obj.array.shape, [shard], "columns")
        return [Value("VARIABLE_VALUE", DType.of(obj.array), obj.array.shape, lambda: whole)]

register(SpreadAdapter())
for name, rows in (("small", 300), ("large", 40_000)):
    obj = Spread()
    obj.array = np.random.default_rng(0).normal(size=(rows, 128))
    attempt(name, lambda: milepost.digest(Checkpoint(v=obj), CheckpointOptions(**options)))
    np.save(f"{directory}/{name}-{rank}.npy", obj.array)
"""


def test_columns_are_sent_up_to_a_limit(tmp_path):
    found = run(COLUMNS, 2, tmp_path, FILES)
    assert found[0]["small"] == found[1]["small"] == milepost.digest({"v": np.load(tmp_path / "small-0.npy")})
    for each in found:
        assert "spread over the processes by columns" in each["large"]
        assert "v/.ATTRIBUTES/VARIABLE_VALUE" in each["large"]


def test_a_part_without_a_base(tmp_path):
    program = """
checkpoint = Checkpoint(a=Variable(np.arange(5.0)), b=Variable(np.ones(3)))
results["path"] = checkpoint.write(f"{directory}/ckpt", CheckpointOptions(ignore="b", **options))
status = checkpoint.read(f"{directory}/ckpt", CheckpointOptions(**options))
results["left out"] = [entry.key for entry in status.report().left_out]
attempt("unnamed", lambda: checkpoint.write(f"{directory}/none", CheckpointOptions(ignore="c", **options)))
"""
    for each in run(program, 2, tmp_path, FILES):
        assert each["left out"] == ["b/.ATTRIBUTES/VARIABLE_VALUE"]
        assert "no live object has this name" in each["unnamed"]
    assert [key for key, _ in milepost.list_variables(tmp_path / "ckpt") if key[0] != "_"] == [
        "a/.ATTRIBUTES/VARIABLE_VALUE"
    ]
