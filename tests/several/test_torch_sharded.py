"""PyTorch over four processes: FSDP2, HSDP, tensor and sequence parallelism, restored by any number of processes in any other way."""

import numpy as np
import pytest

import milepost
from tests.several.programs import TORCH, run, same

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

KINDS = ("tensor", "hsdp", "fsdp")
_COMMON = """
from torch.distributed.tensor.debug import CommDebugMode
from tests.several import sharded_models as models

def checkpoint(kind, **settings):
    model = models.build(kind, size, **settings)
    return Checkpoint(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.01))

def restored(kind, saved, expected, **settings):
    ck = checkpoint(kind, seed=5, **settings)
    before = [id(each) for each in ck.model.parameters()]
    with CommDebugMode() as seen:
        status = ck.read(f"{directory}/{saved}", options=CheckpointOptions(**options))
    status.assert_consumed()
    found = models.state(ck.model, ck.optimizer)
    facts = {"equal": models.same(found, expected), "collectives": seen.get_total_counts()}
    facts["the same objects"] = before == [id(each) for each in ck.model.parameters()]
    facts["next"] = models.step(ck.model, ck.optimizer, 7)
    return facts
"""
FOUR = (
    _COMMON
    + """
states = {}
for kind in ("tensor", "hsdp", "fsdp", "plain"):
    ck = checkpoint(kind)
    for seed in range(2):
        models.step(ck.model, ck.optimizer, seed)
    with CommDebugMode() as seen:
        ck.write(f"{directory}/{kind}", options=CheckpointOptions(**options))
    states[kind] = models.state(ck.model, ck.optimizer)
    if rank == 0:
        np.savez(f"{directory}/{kind}.npz", **states[kind])
    results[kind] = {
        "collectives": seen.get_total_counts(),
        "placements": sorted({str(getattr(each, "placements", "")) for each in ck.model.parameters()}),
        "lengths": list(ck.model.scale.to_local().shape) if kind != "plain" else [],
        "rows": ck.model.embed.weight.to_local().shape[0] if kind != "plain" else 0,
        "next": models.step(ck.model, ck.optimizer, 7),
    }
for kind in ("tensor", "hsdp", "fsdp"):
    for saved in ("tensor", "hsdp", "fsdp", "plain"):
        device = "meta" if saved in (kind, "plain") else "cpu"
        results[f"{saved} as {kind}"] = restored(kind, saved, states[saved], device=device)
results["fsdp as plain"] = restored("plain", "fsdp", states["fsdp"])
"""
)
OTHERS = (
    _COMMON
    + """
for kind in ("fsdp", "tensor") if size == 2 else ("fsdp", "plain") if size == 1 else ("fsdp",):
    for saved in ("tensor", "hsdp", "fsdp"):
        expected = dict(np.load(f"{directory}/{saved}.npz"))
        results[f"{saved} as {kind}"] = restored(kind, saved, expected, device="meta" if kind == "fsdp" else "cpu")
"""
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("sharded")


@pytest.fixture(scope="module")
def four(directory):
    """What each of four processes has found."""
    return run(FOUR, 4, directory, TORCH)


@pytest.fixture(scope="module", params=[1, 2, 3], ids="on {} processes".format)
def others(request, directory, four):
    """What each of fewer processes has found that restored the files of four."""
    return run(OTHERS, request.param, directory, TORCH)


def whole(directory, kind):
    with np.load(directory / f"{kind}.npz") as file:
        return dict(file)


def test_the_model_is_spread_in_all_ways(four):
    placements = {kind: [each.replace("dim=", "") for each in four[0][kind]["placements"]] for kind in KINDS}
    assert placements["hsdp"] == ["(Replicate(), Shard(0))"]
    assert placements["fsdp"] == ["(Shard(0),)"]
    assert any("_StridedShard(0, sf=2), Shard(0)" in each for each in placements["tensor"])
    assert "(Shard(0), Shard(1))" in placements["tensor"]
    assert "(Shard(0), Replicate())" in placements["tensor"]
    assert "(Shard(0),)" in placements["tensor"]  # on a part of the mesh


def test_some_shards_are_uneven_and_some_are_empty(four):
    assert [each["fsdp"]["rows"] for each in four] == [3, 3, 3, 2]
    assert [each["fsdp"]["lengths"] for each in four] == [[1], [1], [0], [0]]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_gathered_in_a_save(four, kind):
    assert [each[kind]["collectives"] for each in four] == [0] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_holds_whole_tensors(four, directory, kind):
    reader = milepost.load_checkpoint(directory / kind)
    for key, expected in whole(directory, kind).items():
        found = reader.get_tensor(key)
        assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes()), key


@pytest.mark.parametrize("kind", KINDS)
def test_tensorflow_reads_the_whole_tensors(four, directory, kind):
    tf = pytest.importorskip("tensorflow")
    reader = tf.train.load_checkpoint(str(directory / kind))
    for key, expected in whole(directory, kind).items():
        assert reader.get_tensor(key).tobytes() == expected.tobytes(), key


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("saved", [*KINDS, "plain"])
def test_four_processes_restore_it_in_another_way(four, saved, kind):
    for each in four:
        facts = each[f"{saved} as {kind}"]
        assert facts["equal"]
        assert facts["collectives"] == 0
        assert facts["the same objects"]


def test_plain_tensors_are_restored_from_shards(four):
    assert same([each["fsdp as plain"]["equal"] for each in four])


@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_bit_for_bit(four, kind):
    for each in four:
        assert each[f"{kind} as {kind}"]["next"] == each[kind]["next"]


def test_fewer_processes_restore_it(others):
    for each in others:
        assert each
        for facts in each.values():
            assert facts["equal"]
            assert facts["collectives"] == 0
            assert facts["the same objects"]


def test_fewer_processes_go_on_training(four, others):
    for each in others:
        for name, facts in each.items():
            assert facts["next"] == pytest.approx(four[0][name.split()[0]]["next"], rel=1e-5)


def test_a_plain_model_restores_it_without_other_processes(four, directory):
    from tests.several import sharded_models as models

    model = models.build("plain", 1, seed=5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    milepost.Checkpoint(model=model, optimizer=optimizer).read(directory / "tensor").assert_consumed()
    assert models.same(models.state(model, optimizer), whole(directory, "tensor"))
