"""A program's defaults and modes change nothing in what is restored."""

import contextlib

import pytest

import milepost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn


@contextlib.contextmanager
def double_by_default():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


CONTEXTS = {
    "meta device": lambda: torch.device("meta"),
    "inference mode": torch.inference_mode,
    "no gradients": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "float64 by default": double_by_default,
}


def program(seed):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    optimizer = torch.optim.NAdam(net.parameters())
    return milepost.Checkpoint(
        net=net,
        optimizer=optimizer,
        schedule=torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20),
        empty=torch.zeros(0, 3),
        seldom=torch.ones(2, dtype=torch.uint8).view(torch.int3),
        generator=torch.Generator().manual_seed(seed),
        random=milepost.RandomState(),
    )


def train(program):
    loss = program.net(torch.rand(4, 2, generator=program.generator)).square().mean()
    program.optimizer.zero_grad()
    loss.backward()
    program.optimizer.step()
    program.schedule.step()
    return loss.item()


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_a_training_goes_on_bit_for_bit_after_a_restore_in_any_of_them(tmp_path, context):
    first, second = program(1), program(2)
    train(first)
    path = first.write(tmp_path / "c")
    train(second)
    with context():
        second.read(path).assert_consumed()
    assert [train(second) for _ in range(3)] == [train(first) for _ in range(3)]


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_what_is_saved_in_any_of_them_is_the_same(tmp_path, context):
    first = program(1)
    train(first)
    with context():
        path = first.write(tmp_path / "c")
    second = program(2)
    second.read(path).assert_consumed()
    assert [train(second) for _ in range(3)] == [train(first) for _ in range(3)]


def test_a_program_that_is_made_on_the_meta_device_is_restored_there(tmp_path):
    first = program(1)
    train(first)
    path = first.write(tmp_path / "c")
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        optimizer = torch.optim.NAdam(net.parameters())
        milepost.Checkpoint(net=net, optimizer=optimizer).read(path).expect_partial().assert_existing_objects_matched()
    held = [*net.state_dict().values(), *(each for slots in optimizer.state.values() for each in slots.values())]
    assert {tensor.device.type for tensor in held} == {"cpu"}


def test_two_optimizers_of_one_module_keep_their_own_state(tmp_path):
    def make(seed):
        torch.manual_seed(seed)
        net = nn.Linear(2, 2)
        adam, sgd = torch.optim.Adam(net.parameters()), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        return milepost.Checkpoint(net=net, adam=adam, others=[sgd])

    def both(program):
        for optimizer in (program.adam, *program.others):
            optimizer.zero_grad()
            program.net(torch.ones(1, 2)).square().sum().backward()
            optimizer.step()
        return program.net.weight.tolist()

    first, second = make(1), make(2)
    both(first)
    second.read(first.write(tmp_path / "c")).assert_consumed()
    assert [both(second) for _ in range(2)] == [both(first) for _ in range(2)]


def test_automatic_differentiation_notices_that_a_restore_has_changed_what_a_gradient_needs(tmp_path):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    checkpoint = milepost.Checkpoint(net=net)
    path = checkpoint.write(tmp_path / "c")
    loss = net(torch.ones(1, 2)).sum()
    checkpoint.read(path)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.fixture
def _alone():
    distributed = pytest.importorskip("torch.distributed")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("_alone")
def test_shards_over_one_process_are_saved_as_wholes(tmp_path):
    fsdp = pytest.importorskip("torch.distributed.fsdp")

    def make(seed, *, sharded):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
        if sharded:
            fsdp.fully_shard(net)
        return milepost.Checkpoint(net=net, optimizer=torch.optim.Adam(net.parameters(), lr=0.1))

    def train(program):
        program.optimizer.zero_grad()
        loss = program.net(torch.ones(2, 3)).square().mean()
        loss.backward()
        program.optimizer.step()
        return loss.item()

    saved = [make(seed, sharded=sharded) for seed, sharded in ((1, True), (2, False))]
    for number, program in enumerate(saved):
        train(program)
        path = program.write(tmp_path / f"c{number}")
        others = [make(5, sharded=sharded) for sharded in (True, False)]
        for other in others:
            other.read(path).assert_consumed()
        assert [train(other) for other in others] == pytest.approx([train(program)] * 2)


@pytest.mark.usefixtures("_alone")
def test_a_dtensor_in_plain_state_is_refused(tmp_path):
    tensor = pytest.importorskip("torch.distributed.tensor")
    mesh = pytest.importorskip("torch.distributed.device_mesh").init_device_mesh("cpu", (1,))

    class Held(nn.Module):
        def get_extra_state(self):
            return {"sharded": tensor.distribute_tensor(torch.ones(2), mesh, [tensor.Shard(0)])}

        def set_extra_state(self, state):
            raise AssertionError("nothing was saved")

    with pytest.raises(
        milepost.UnsupportedError, match=r"a DTensor, whose parts other processes hold[\s\S]*full_tensor\(\)"
    ):
        milepost.Checkpoint(net=Held()).write(tmp_path / "c")


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize("kind", ["FSDP1", "ZeRO"])
def test_what_each_process_holds_a_part_of_is_refused(tmp_path, kind):
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    sharding = pytest.importorskip("torch.distributed.optim")
    net = nn.Linear(3, 2)
    path = milepost.Checkpoint(net=net, optimizer=torch.optim.Adam(net.parameters())).write(tmp_path / "plain")
    if kind == "FSDP1":
        net = fsdp.FullyShardedDataParallel(nn.Linear(3, 2), device_id=torch.device("cpu"))
    if kind == "ZeRO":
        optimizer = sharding.ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam)
    else:
        optimizer = torch.optim.Adam(net.parameters())
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    with pytest.raises(
        milepost.UntrackableError, match=r"process[\s\S]*key: (net|optimizer)/[\s\S]*(full_|Distributed)"
    ):
        checkpoint.write(tmp_path / "c")
    status = checkpoint.read(path)
    for assertion in (status.assert_consumed, status.assert_existing_objects_matched):
        with pytest.raises(milepost.UnmatchedError):
            assertion()
    status.expect_partial()
