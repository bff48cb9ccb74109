"""Training on a GPU, interrupted and resumed: the same bits. Every test here needs a CUDA device, and CUDA_VISIBLE_DEVICES=0."""

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

import milepost
import milepost.saving.snapshot

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")
if not torch.cuda.is_available():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)

on_gpu = pytest.importorskip("milepost.adapters.torch.on_gpu")
GPU = "cuda:0"


def program(seed, *, make, scaled=False):
    """A model with dropout on the GPU, its optimizer, and the random generators that it draws from."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 1)).to(GPU)
    children = {"net": net, "optimizer": make(net.parameters()), "random": milepost.RandomState()}
    if scaled:
        children["scaler"] = torch.amp.GradScaler("cuda", init_scale=256.0, growth_interval=2)
    return milepost.Checkpoint(**children)


def train(run, steps):
    losses = []
    scaler = getattr(run, "scaler", None)
    for _ in range(steps):
        x = torch.randn(32, 8, device=GPU)
        run.optimizer.zero_grad()
        with torch.autocast("cuda", enabled=scaler is not None):
            loss = run.net(x).square().mean()
        if scaler is None:
            loss.backward()
            run.optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(run.optimizer)
            scaler.update()
        losses.append(loss.item())
    return losses


OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "fused": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
    "capturable": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, capturable=True),
    "lr is a tensor": lambda parameters: torch.optim.AdamW(
        parameters, lr=torch.tensor(0.01, device=GPU), capturable=True
    ),
    "foreach": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, foreach=True),
    "asgd": lambda parameters: torch.optim.ASGD(parameters, lr=0.01, capturable=True),
    "rprop": lambda parameters: torch.optim.Rprop(parameters, lr=0.01, capturable=True),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=0.01, capturable=True),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_run_goes_on_with_the_same_bits(tmp_path, make):
    first = program(0, make=make)
    train(first, 5)
    path = first.write(tmp_path / "ckpt")
    expected = train(first, 5)
    second = program(1, make=make)
    train(second, 1)
    second.read(path).assert_consumed()
    assert train(second, 5) == expected


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_run_that_has_not_begun_takes_the_state_of_its_optimizer(tmp_path, make):
    first = program(0, make=make)
    train(first, 5)
    path = first.write(tmp_path / "ckpt")
    expected = train(first, 5)
    second = program(1, make=make)
    second.read(path).assert_consumed()
    assert train(second, 5) == expected


def test_state_is_on_the_device_where_the_optimizer_would_have_made_it(tmp_path):
    first = program(0, make=OPTIMIZERS["fused"])
    train(first, 2)
    path = first.write(tmp_path / "ckpt")
    second = program(1, make=OPTIMIZERS["fused"])
    second.read(path).assert_consumed()
    devices = [[str(each.device) for each in state.values()] for state in first.optimizer.state.values()]
    assert [[str(each.device) for each in state.values()] for state in second.optimizer.state.values()] == devices


def test_a_gradient_scaler_is_restored(tmp_path):
    first = program(0, make=OPTIMIZERS["adamw"], scaled=True)
    train(first, 5)
    path = first.write(tmp_path / "ckpt")
    expected, scale = train(first, 5), first.scaler.get_scale()
    second = program(1, make=OPTIMIZERS["adamw"], scaled=True)
    second.read(path).assert_consumed()
    assert train(second, 5) == expected
    assert second.scaler.get_scale() == scale


def test_a_generator_of_the_gpu_is_restored(tmp_path):
    generator = torch.Generator(GPU).manual_seed(3)
    torch.rand(5, device=GPU, generator=generator)
    path = milepost.Checkpoint(generator=generator).write(tmp_path / "ckpt")
    expected = torch.rand(5, device=GPU, generator=generator)
    fresh = torch.Generator(GPU).manual_seed(4)
    milepost.Checkpoint(generator=fresh).read(path).assert_consumed()
    assert torch.equal(torch.rand(5, device=GPU, generator=fresh), expected)


def test_pinned_memory_stays_pinned(tmp_path):
    path = milepost.Checkpoint(t=torch.arange(6.0).pin_memory()).write(tmp_path / "ckpt")
    live = torch.zeros(6).pin_memory()
    address = live.data_ptr()
    milepost.Checkpoint(t=live).read(path).assert_consumed()
    assert live.is_pinned()
    assert (live.data_ptr(), live.tolist()) == (address, [0, 1, 2, 3, 4, 5])


def test_parameters_are_restored_in_their_own_memory_on_the_gpu(tmp_path):
    net = nn.Linear(3, 2).to(GPU)
    path = milepost.Checkpoint(net=net).write(tmp_path / "ckpt")
    other = nn.Linear(3, 2).to(GPU)
    address = other.weight.data_ptr()
    milepost.Checkpoint(net=other).read(path).assert_consumed()
    assert torch.equal(other.weight, net.weight)
    assert other.weight.data_ptr() == address


def test_a_file_from_the_gpu_fits_the_processor_and_back(tmp_path):
    net = nn.Linear(3, 2).to(GPU)
    path = milepost.Checkpoint(net=net).write(tmp_path / "ckpt")
    here = nn.Linear(3, 2)
    milepost.Checkpoint(net=here).read(path).assert_consumed()
    assert torch.equal(here.weight, net.weight.cpu())
    back = nn.Linear(3, 2).to(GPU)
    milepost.Checkpoint(net=back).read(milepost.Checkpoint(net=here).write(tmp_path / "b")).assert_consumed()
    assert torch.equal(back.weight, net.weight)


def test_a_late_module_on_the_gpu_gets_its_values_when_it_is_called(tmp_path):
    net = nn.Linear(3, 2).to(GPU)
    path = milepost.Checkpoint(net=net).write(tmp_path / "ckpt")
    lazy = nn.LazyLinear(2).to(GPU)
    status = milepost.Checkpoint(net=lazy).read(path)
    x = torch.ones(1, 3, device=GPU)
    assert torch.equal(lazy(x), net(x))
    status.assert_consumed()


def test_an_asynchronous_save_holds_what_was_there_when_it_was_called(tmp_path):
    weights = torch.zeros(1 << 20, device=GPU)
    checkpoint = milepost.Checkpoint(weights=weights)
    path = checkpoint.write(tmp_path / "ckpt", milepost.CheckpointOptions(enable_async=True))
    weights += 1
    checkpoint.sync()
    assert not milepost.load_variable(path, "weights/.ATTRIBUTES/VARIABLE_VALUE").any()


LARGE = (512, 1024)


def values_of(path):
    return milepost.load_variable(path, "t/.ATTRIBUTES/VARIABLE_VALUE")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["at once", "asynchronous"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int64", "bool", "complex64"])
def test_a_large_tensor_of_any_type_and_strides_is_saved(tmp_path, dtype, asynchronous):
    tensor = (torch.arange(1 << 19, device=GPU).reshape(LARGE) % 7).to(getattr(torch, dtype))
    for number, each in enumerate((tensor, tensor.t(), tensor[::2, 3:])):
        checkpoint = milepost.Checkpoint(t=each)
        path = checkpoint.write(tmp_path / str(number), milepost.CheckpointOptions(enable_async=asynchronous))
        checkpoint.sync()
        other = torch.zeros_like(each)
        milepost.Checkpoint(t=other).read(path).assert_consumed()
        found, expected = (one.contiguous().view(torch.uint8) for one in (other, each))
        assert torch.equal(found, expected)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["at once", "asynchronous"])
def test_what_another_stream_still_computes_is_saved(tmp_path, asynchronous):
    factor = torch.eye(4096, device=GPU)
    checkpoint = milepost.Checkpoint(t=torch.zeros(4096, 4096, device=GPU))
    options = milepost.CheckpointOptions(enable_async=asynchronous)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(50):
            checkpoint.t.copy_(checkpoint.t @ factor + 1)
        path = checkpoint.write(tmp_path / "ckpt", options)
        checkpoint.t.zero_()
    checkpoint.sync()
    assert (values_of(path) == 50).all()


def test_each_asynchronous_save_holds_the_values_of_its_time(tmp_path):
    checkpoint = milepost.Checkpoint(t=torch.zeros(LARGE, device=GPU))
    options = milepost.CheckpointOptions(enable_async=True)
    paths = []
    for number in range(4):
        checkpoint.t.fill_(number)
        paths.append(checkpoint.write(tmp_path / str(number), options))
        checkpoint.t.fill_(-1)
    checkpoint.sync()
    assert [np.unique(values_of(path)).tolist() for path in paths] == [[0], [1], [2], [3]]


def test_an_incremental_save_finds_what_is_unchanged(tmp_path):
    checkpoint = milepost.Checkpoint(t=torch.ones(LARGE, device=GPU), u=torch.ones(LARGE, device=GPU))
    options = milepost.CheckpointOptions(incremental=True)
    checkpoint.save(tmp_path / "ckpt", options=options)
    checkpoint.t += 1
    path = checkpoint.save(tmp_path / "ckpt", options=options)
    assert (values_of(path) == 2).all()
    assert (milepost.load_variable(path, "u/.ATTRIBUTES/VARIABLE_VALUE") == 1).all()


def resident(field):
    """Bytes of memory of this process: now (VmRSS), or at most since the peak was reset (VmHWM)."""
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(field))
    return int(line.split()[1]) << 10


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells")
def test_a_save_holds_no_second_copy_of_what_is_on_the_gpu(tmp_path):
    tensors = [torch.zeros(64 << 18, device=GPU) for _ in range(16)]  # 64 MiB each
    milepost.Checkpoint(t=tensors[:1]).write(tmp_path / "warm-up")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident("VmRSS")
    milepost.Checkpoint(t=tensors).write(tmp_path / "ckpt")
    assert resident("VmHWM") - before < 256 << 20


def is_pinned(array):
    return torch.from_numpy(array).is_pinned()


def pages(size):
    """Whole pages in an array."""
    owner = np.zeros(size + 4096, np.uint8)
    begin = -owner.ctypes.data % 4096
    return owner[begin : begin + size]


def test_memory_that_is_prepared_is_pinned_as_long_as_a_part_is_used():
    source = on_gpu.in_place(torch.zeros(8, device=GPU)).on_device[0]
    memory = pages(1 << 20)
    source.prepare(memory)
    part = memory[1 << 16 :][:4096]
    assert is_pinned(part)
    del memory
    gc.collect()
    assert is_pinned(part)


def test_the_copies_of_an_asynchronous_save_are_pinned():
    memory = milepost.saving.snapshot.SnapshotMemory()
    tensors = [torch.full((size,), float(size), device=GPU) for size in (20_000, 1 << 20, 33_333)]
    copies = memory.copy([on_gpu.elements(each) for each in tensors])
    assert all(is_pinned(copied[:1]) and is_pinned(copied[-1:]) for copied in copies)
    assert all(np.array_equal(copied, each.cpu()) for copied, each in zip(copies, tensors, strict=True))


def test_memory_that_cannot_be_pinned_leaves_no_error_for_the_program():
    source = on_gpu.in_place(torch.zeros(8, device=GPU)).on_device[0]
    memory = pages(1 << 20)
    source.prepare(memory)
    source.prepare(memory)  # CUDA refuses to pin it a second time
    assert torch.ones(3, device=GPU).sum().item() == 3


def test_memory_can_be_pinned_again_once_it_was_freed():
    source = on_gpu.in_place(torch.zeros(8, device=GPU)).on_device[0]
    for _ in range(20):
        memory = pages(64 << 20)
        source.prepare(memory)
        assert is_pinned(memory[-4096:])
        del memory


@pytest.mark.parametrize("verify_first", [True, False])
@pytest.mark.parametrize("shape", [(3, 5 << 20), (11 << 20,), (2, 3, 1 << 20), (1 << 20, 9)])
def test_a_large_value_is_read_part_by_part(tmp_path, shape, verify_first):
    tensor = torch.randn(shape, device=GPU)
    path = milepost.Checkpoint(t=tensor).write(tmp_path / "ckpt")
    live = torch.zeros(shape, device=GPU)
    milepost.Checkpoint(t=live).read(path, milepost.CheckpointOptions(verify_first=verify_first)).assert_consumed()
    assert torch.equal(live, tensor)


def test_a_restore_comes_after_what_another_stream_was_asked_for(tmp_path):
    path = milepost.Checkpoint(t=torch.full((4096, 4096), 7.0, device=GPU)).write(tmp_path / "ckpt")
    live = torch.eye(4096, device=GPU)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(50):
            live.copy_(live @ live)
        milepost.Checkpoint(t=live).read(path).assert_consumed()
        found = (live + 1).sum()
    torch.cuda.synchronize()
    assert found.item() == 8 * 4096 * 4096


def test_a_damaged_checkpoint_changes_nothing(tmp_path):
    path = milepost.Checkpoint(t=torch.ones(8 << 20, device=GPU)).write(tmp_path / "ckpt")
    data = next(tmp_path.glob("*data*"))
    content = bytearray(data.read_bytes())
    content[-9] ^= 1
    data.write_bytes(content)
    live = torch.zeros(8 << 20, device=GPU)
    with pytest.raises(milepost.errors.CorruptCheckpointError):
        milepost.Checkpoint(t=live).read(path)
    assert not live.any()


def test_several_threads_restore_at_a_time(tmp_path):
    tensors = [torch.full((8 << 20,), float(number), device=GPU) for number in range(4)]
    paths = [milepost.Checkpoint(t=each).write(tmp_path / str(number)) for number, each in enumerate(tensors)]
    live = [torch.zeros(8 << 20, device=GPU) for _ in tensors]

    def restore(number):
        for _ in range(5):
            milepost.Checkpoint(t=live[number]).read(paths[number]).assert_consumed()

    threads = [threading.Thread(target=restore, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found, expected) for found, expected in zip(live, tensors, strict=True))
