"""Training on a GPU, interrupted and resumed: the same bits. Every test here needs a CUDA device."""

import pytest

import milepost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")
if not torch.cuda.is_available():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)

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
