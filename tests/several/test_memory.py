"""What a save and a restore need of memory, on each of several processes, beyond what the process held before."""

from __future__ import annotations

import pytest

from tests.several.programs import FILES, JAX, TORCH, run
from tests.systems import needs_clear_refs

pytestmark = needs_clear_refs

MOST = 64
"""MiB that are allowed, beside copies of the process' own part where these are meant."""
_MEASURE = """
import gc

def memory(which):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(which))

def measured(name, action):
    gc.collect()
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    before = memory("VmRSS")
    kept = action()
    results[name] = memory("VmHWM") - before
    return kept

def together(**more):
    return CheckpointOptions(**options, **more)

def saved_in_background(checkpoint, name):
    manager = CheckpointManager(checkpoint, directory + "/" + name, max_to_keep=1, options=together(experimental_enable_async_checkpoint=True))
    manager.save()
    manager.sync()

SHAPES = [(2048, 4096)] * 4 + [(512, 512)] * 192  # 32 MiB and 1 MiB each: 320 MiB
"""
_TENSORS = (
    _MEASURE
    + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

mesh = init_device_mesh("cpu", (size,))

def checkpoint(placement, shapes=SHAPES, least=0):
    tensors = torch.nn.ParameterList()
    for number, shape in enumerate(shapes, least):
        lengths = list(shape)
        if isinstance(placement, Shard):
            lengths[placement.dim] //= size
        local = torch.full(lengths, float(number))
        tensors.append(torch.nn.Parameter(local if placement is None else DTensor.from_local(local, mesh, [placement])))
    return Checkpoint(tensors=tensors)

def is_restored(restored):
    locals = [getattr(each, "to_local", lambda each=each: each)() for each in restored.tensors]
    return all(bool((each == number).all()) for number, each in enumerate(locals))

def restored(saved, placement, name):
    live = checkpoint(placement, least=1000)
    measured(name, lambda: live.read(directory + "/" + saved, options=together()).assert_consumed())
    assert is_restored(live), name

small = checkpoint(Shard(0), [(8, 8), (512, 128)])
small.write(directory + "/small", options=together())
small.read(directory + "/small", options=together())
"""
)
_TWO = (
    _TENSORS
    + """
for name, placement in (("rows", Shard(0)), ("columns", Shard(1)), ("alike", None)):
    live = checkpoint(placement)
    measured(f"save {name}", lambda: live.write(f"{directory}/{name}", options=together()))
    if name == "rows":
        measured("save in the background", lambda: saved_in_background(live, "background"))
    del live
for saved in ("rows", "columns", "alike"):
    for name, placement in (("rows", Shard(0)), ("columns", Shard(1)), ("replicas", Replicate()), ("alike", None)):
        restored(saved, placement, f"restore {saved} as {name}")
"""
)
_FOUR = (
    _TENSORS
    + """
for saved in ("rows", "columns", "alike"):
    restored(saved, Shard(0), f"restore {saved} as rows")
"""
)


def check(results, more=None):
    """Compares what was measured, in MiB, with what is allowed, by the beginning of the name."""
    for rank, measured in enumerate(results):
        for name, found in measured.items():
            allowed = MOST + next((each for start, each in (more or {}).items() if name.startswith(start)), 0)
            assert found < allowed, (rank, name, found, allowed)


def test_tensors_of_pytorch_need_no_copy(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    two = run(_TWO, 2, tmp_path, TORCH, forked=False)
    assert len(two[0]) == 16
    check(two, {"save in the background": 320 // 2})
    check(run(_FOUR, 4, tmp_path, TORCH, forked=False))
    check(run(_FOUR, 1, tmp_path, TORCH, forked=False))


def test_arrays_of_jax_need_no_copy_but_the_new_arrays(tmp_path):
    pytest.importorskip("jax", reason="JAX is not installed")
    body = (
        _MEASURE
        + """
import milepost.jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices()), ("d",))

def arrays(parts, shapes=SHAPES, least=0):
    sharding = NamedSharding(mesh, PartitionSpec(*parts))
    def made(number, shape):
        return jax.make_array_from_callback(shape, sharding, lambda box: np.full([len(range(*part.indices(length))) for part, length in zip(box, shape)], number, np.float32))
    # JAX copies in the background, which would count as memory of what comes next
    return jax.block_until_ready({f"a{number}": made(number + least, shape) for number, shape in enumerate(shapes)})

def restored(saved, parts, name):
    live = arrays(parts, least=1000)
    given, _ = measured(name, lambda: milepost.jax.restore(directory + "/" + saved, live, together()))
    for number in range(len(SHAPES)):
        assert all(bool((np.asarray(shard.data) == number).all()) for shard in given[f"a{number}"].addressable_shards)

KINDS = {"rows": ("d",), "columns": (None, "d"), "replicas": ()}
milepost.jax.save(directory + "/small", arrays(("d",), [(8, 8), (512, 128)]), together())
milepost.jax.restore(directory + "/small", arrays(("d",), [(8, 8), (512, 128)]), together())
for name, parts in KINDS.items():
    live = arrays(parts)
    measured(f"save {name}", lambda: milepost.jax.save(f"{directory}/{name}", live, together()))
    del live
for saved in KINDS:
    for name, parts in KINDS.items():
        restored(saved, parts, f"restore as {name} from {saved}")
"""
    )
    found = run(body, 2, tmp_path, JAX, forked=False)
    check(found, {"restore as rows": 160, "restore as columns": 160, "restore as replicas": 320})


def test_values_that_all_hold_alike_need_no_copy(tmp_path):
    body = (
        _MEASURE
        + """
live = Checkpoint(values=[Variable(np.full(shape, number, np.float32)) for number, shape in enumerate(SHAPES)])
live.write(directory + "/warm", options=together())
measured("save", lambda: live.write(directory + "/saved", options=together()))
measured("save in the background", lambda: saved_in_background(live, "background"))
measured("restore", lambda: live.read(directory + "/saved", options=together()))
"""
    )
    check(run(body, 2, tmp_path, FILES, forked=False), {"save in the background": 320 // 2})
