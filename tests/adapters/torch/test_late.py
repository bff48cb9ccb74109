"""Values that wait for what PyTorch modules make after the restore."""

import gc

import pytest

import milepost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")
hooks = pytest.importorskip("milepost.adapters.torch.hooks")


@pytest.fixture(autouse=True)
def _no_compiled_code():
    torch._dynamo.reset()


@pytest.fixture(params=["eager", "compiled"])
def run(request):
    """Calls a module, as it is or compiled."""
    if request.param == "eager":
        return lambda module, x: module(x)
    return lambda module, x: torch.compile(module, backend="eager")(x)


class Late(nn.Module):  # type: ignore[name-defined]
    """Makes what ``make`` says in its first call."""

    def __init__(self, make):
        super().__init__()
        self.make = make
        self.first = nn.Linear(3, 3)

    def forward(self, x):
        x = self.first(x)
        if not hasattr(self, "late"):
            self.make(self)
        return self.late(x) if isinstance(self.late, nn.Module) else x @ self.late


def as_module(self):
    self.late = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def as_parameter(self):
    self.late = nn.Parameter(torch.randn(3, 2))


def as_buffer(self):
    self.register_buffer("late", torch.randn(3, 2))


def as_parameter_that_is_initialized_after(self):
    self.late = nn.Parameter(torch.empty(3, 2))
    nn.init.xavier_uniform_(self.late)


X = torch.linspace(-1, 1, 6).reshape(2, 3)


def saved(directory, module):
    expected = module(X)
    return milepost.Checkpoint(net=module).write(directory / "c"), expected


def waiting_again(path, module):
    return milepost.Checkpoint(net=module).read(path)


@pytest.mark.parametrize("make", [as_module, as_parameter, as_buffer])
def test_what_is_made_in_forward_has_its_value_before_it_is_used(tmp_path, run, make):
    path, expected = saved(tmp_path, Late(make))
    module = Late(make)
    status = waiting_again(path, module)
    assert torch.equal(run(module, X), expected)
    status.assert_consumed()


def test_initializing_what_is_restored_does_nothing_in_the_first_call(tmp_path):
    path, expected = saved(tmp_path, Late(as_parameter_that_is_initialized_after))
    module = Late(as_parameter_that_is_initialized_after)
    waiting_again(path, module)
    assert torch.equal(module(X), expected)


def test_a_compiled_call_that_overwrites_what_is_restored_is_an_error(tmp_path):
    path, expected = saved(tmp_path, Late(as_parameter_that_is_initialized_after))
    module = Late(as_parameter_that_is_initialized_after)
    waiting_again(path, module)
    with pytest.raises(milepost.UnmatchedError, match="late"):
        torch.compile(module, backend="eager")(X)
    assert torch.equal(module(X), expected)


def test_a_later_call_that_overwrites_what_is_restored_is_an_error(tmp_path):
    path, expected = saved(tmp_path, Late(as_parameter_that_is_initialized_after))
    module = Late(lambda self: setattr(self, "late", torch.eye(3)))
    waiting_again(path, module)
    module(X)
    del module.late
    module.make = as_parameter_that_is_initialized_after
    with pytest.raises(milepost.UnmatchedError, match="late"):
        module(X)
    assert torch.equal(module(X), expected)


def test_what_is_initialized_before_the_first_call_has_its_value_in_it(tmp_path, run):
    class Built(nn.Module):
        def build(self):
            self.w = nn.Parameter(torch.empty(3, 2))
            nn.init.normal_(self.w)
            return self

        def forward(self, x):
            return x @ self.w

    path, expected = saved(tmp_path, Built().build())
    module = Built()
    waiting_again(path, module)
    module.build()
    assert torch.equal(run(module, X), expected)


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (lambda: nn.LazyLinear(4), torch.randn(2, 3)),
        (lambda: nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d()), torch.randn(2, 3, 8, 8)),
    ],
)
def test_lazy_modules_have_their_values_in_the_first_call(tmp_path, run, make, x):
    net = make()
    net(x)
    net.eval()
    expected = net(x)
    path = milepost.Checkpoint(net=net).write(tmp_path / "c")
    fresh = make().eval()
    status = waiting_again(path, fresh)
    assert torch.equal(run(fresh, x), expected)
    status.assert_consumed()


def test_lazy_modules_are_as_torch_makes_them(tmp_path):
    net = nn.LazyConv2d(4, 3)
    net(torch.randn(2, 5, 8, 8))
    path = milepost.Checkpoint(net=net).write(tmp_path / "c")
    fresh = nn.LazyConv2d(4, 3)
    waiting_again(path, fresh)
    fresh(torch.randn(2, 5, 8, 8))
    assert type(fresh) is nn.Conv2d
    assert fresh.in_channels == 5


def test_initializing_lazy_parameters_does_not_reset_what_was_restored_before(tmp_path):
    net = nn.LazyBatchNorm1d()
    for _ in range(3):
        net(X)
    path = milepost.Checkpoint(net=net).write(tmp_path / "c")
    fresh = nn.LazyBatchNorm1d()
    waiting_again(path, fresh)
    fresh(X)
    assert fresh.num_batches_tracked == 4


def test_initializing_lazy_parameters_draws_no_random_numbers_if_they_are_restored(tmp_path):
    net = nn.LazyLinear(4)
    net(X)
    path = milepost.Checkpoint(net=net).write(tmp_path / "c")
    fresh = nn.LazyLinear(4)
    waiting_again(path, fresh)
    before = torch.get_rng_state()
    fresh(X)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_lazy_parameter_of_another_shape_is_an_error_in_the_first_call(tmp_path):
    net = nn.LazyLinear(4)
    net(torch.ones(1, 5))
    path = milepost.Checkpoint(net=net).write(tmp_path / "c")
    fresh = nn.LazyLinear(4)
    waiting_again(path, fresh)
    with pytest.raises(milepost.MismatchError, match="weight"):
        fresh(X)


def test_submodules_that_are_added_after_the_restore_have_their_values(tmp_path):
    path, _ = saved(tmp_path, nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)))
    net = nn.Sequential()
    status = waiting_again(path, net)
    net.append(nn.Linear(3, 4))
    net.add_module("1", nn.Linear(4, 2))
    status.assert_consumed()


def test_modules_that_are_inserted_into_a_list_have_their_values_in_the_next_call(tmp_path):
    class Stack(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(3, 3) for _ in range(depth))

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x

    path, expected = saved(tmp_path, Stack(2))
    net = Stack(0)
    waiting_again(path, net)
    net.blocks.insert(0, nn.Linear(3, 3))
    net.blocks.insert(1, nn.Linear(3, 3))
    assert torch.equal(net(X), expected)
    assert net.blocks not in hooks._installed.containers


def test_modules_that_come_without_a_sign_have_their_values_when_the_status_is_asked(tmp_path):
    path, expected = saved(tmp_path, nn.Sequential(nn.Linear(3, 2)))
    net = nn.Sequential()
    status = waiting_again(path, net)
    net._modules["0"] = nn.Linear(3, 2)
    status.assert_consumed()
    assert torch.equal(net(X), expected)


def test_a_save_refuses_modules_that_came_without_a_sign_until_the_status_is_asked(tmp_path):
    path, expected = saved(tmp_path, nn.Sequential(nn.Linear(3, 2)))
    net = nn.Sequential()
    checkpoint = milepost.Checkpoint(net=net)
    status = checkpoint.read(path)
    net._modules["0"] = nn.Linear(3, 2)
    with pytest.raises(milepost.UntrackableError, match=r"made after the restore.*: net/0;"):
        checkpoint.write(tmp_path / "again")
    status.report()
    checkpoint.write(tmp_path / "again")
    assert torch.equal(net(X), expected)


def test_values_that_wait_for_lazy_modules_are_in_the_next_save(tmp_path):
    path, expected = saved(tmp_path, nn.Sequential(nn.LazyLinear(2)))
    checkpoint = milepost.Checkpoint(net=nn.Sequential(nn.LazyLinear(2)))
    checkpoint.read(path)
    again = checkpoint.write(tmp_path / "again")
    fresh = nn.Sequential(nn.Linear(3, 2))
    milepost.Checkpoint(net=fresh).read(again).assert_consumed()
    assert torch.equal(fresh(X), expected)


def test_a_lazy_module_that_was_never_called_is_saved_without_complaint(tmp_path, recwarn):
    milepost.Checkpoint(net=nn.Sequential(nn.LazyLinear(2))).write(tmp_path / "c")
    assert not [each for each in recwarn if issubclass(each.category, milepost.UntrackedWarning)]


def test_hooks_are_gone_when_nothing_waits_any_more(tmp_path):
    path, _ = saved(tmp_path, Late(as_module))
    module = Late(as_module)
    gc.collect()
    waiting_again(path, module)
    assert hooks._installed.handles
    module(X)
    assert not module._forward_pre_hooks
    assert not module._forward_hooks
    assert not hooks._watched
    assert not hooks._installed.handles


def test_a_module_on_which_something_waits_in_vain_can_be_compiled_whole(tmp_path):
    path, _ = saved(tmp_path, nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)))
    net = nn.Sequential(nn.Linear(3, 3))
    waiting_again(path, net)
    torch.compile(net, backend="eager", fullgraph=True)(X)


def test_slots_of_lazy_parameters_come_with_them(tmp_path):
    def make():
        net = nn.LazyLinear(2)
        return net, torch.optim.Adam(net.parameters(), lr=0.1)

    def step(net, optimizer):
        optimizer.zero_grad()
        net(X).square().mean().backward()
        optimizer.step()

    net, optimizer = make()
    step(net, optimizer)
    path = milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "c")
    step(net, optimizer)
    fresh, its_optimizer = make()
    status = milepost.Checkpoint(net=fresh, optimizer=its_optimizer).read(path)
    step(fresh, its_optimizer)
    status.assert_consumed()
    assert torch.equal(fresh.weight, net.weight)


def test_a_first_call_that_is_interrupted_leaves_nothing_behind(tmp_path):
    def make(module):
        module.late = nn.Parameter(torch.zeros(3))

    def interrupted(module):
        make(module)
        raise KeyboardInterrupt

    saved = Late(make)
    saved(torch.ones(3))
    with torch.no_grad():
        saved.late.fill_(5)
    path = milepost.Checkpoint(net=saved).write(str(tmp_path / "ckpt"))
    net = Late(interrupted)
    status = milepost.Checkpoint(net=net).read(path)
    with pytest.raises(KeyboardInterrupt):
        net(torch.ones(3))
    assert torch._C._len_torch_function_stack() == 0
    status.assert_consumed()
    with torch.no_grad():
        net.late.add_(1)
    assert net.late.tolist() == [6, 6, 6]


def test_a_module_that_values_wait_on_can_be_copied_and_pickled(tmp_path):
    import copy
    import pickle

    path = milepost.Checkpoint(net=nn.ModuleDict({"a": nn.Linear(1, 1)})).write(str(tmp_path / "ckpt"))
    net = nn.Sequential()
    milepost.Checkpoint(net=net).read(path).expect_partial()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other(torch.ones(1)).tolist() == [1]


def with_data(self):
    self.late = nn.Parameter(torch.empty(3, 2))
    self.late.data.uniform_()
    self.late.data[0] = 1


def with_other_data(self):
    self.late = nn.Parameter(torch.empty(3, 2))
    self.late.data = torch.rand(3, 2)


def with_a_view(self):
    self.late = nn.Parameter(torch.empty(3, 2))
    with torch.no_grad():
        self.late.t().normal_()


def with_a_function(self):
    self.late = nn.Parameter(torch.empty(3, 2))
    nn.init.uniform_(self.late)


@pytest.mark.parametrize("make", [with_data, with_other_data, with_a_view, with_a_function])
def test_a_parameter_that_is_initialized_by_other_means_after_it_was_registered_keeps_its_value(tmp_path, make):
    saved = Late(make)
    saved(X)
    path = milepost.Checkpoint(net=saved).write(str(tmp_path / "ckpt"))
    fresh = Late(make)
    status = milepost.Checkpoint(net=fresh).read(path)
    assert torch.equal(fresh(X), saved(X))
    status.assert_consumed()


class Uninitialized(nn.Module):  # type: ignore[name-defined]
    """Lazy in its own way: makes its weight before its first call, or in it."""

    def __init__(self, before):
        super().__init__()
        self.weight = nn.UninitializedParameter()
        self.bias = nn.Parameter(torch.rand(2))
        if before:
            self.register_forward_pre_hook(lambda module, arguments: self.make(*arguments))

    @torch.no_grad()
    def make(self, x):
        if isinstance(self.weight, nn.UninitializedParameter):
            self.weight.materialize((x.shape[-1], 2))
            self.weight.uniform_()
            self.bias.zero_()

    def forward(self, x):
        self.make(x)
        return x @ self.weight + self.bias


def uninitialized(directory, before):
    saved = Uninitialized(before)
    saved(X)
    with torch.no_grad():
        saved.bias.fill_(2)
    fresh = Uninitialized(before)
    return saved, fresh, milepost.Checkpoint(net=fresh).read(milepost.Checkpoint(net=saved).write(directory / "ckpt"))


def test_a_lazy_parameter_of_any_module_is_restored_before_its_first_call(tmp_path):
    saved, fresh, status = uninitialized(tmp_path, before=True)
    random = torch.get_rng_state()
    assert torch.equal(fresh(X), saved(X))
    assert torch.equal(torch.get_rng_state(), random)
    status.assert_consumed()
    assert torch._C._len_torch_function_stack() == 0


def test_a_call_that_makes_a_lazy_parameter_and_uses_it_at_once_ends_with_an_error(tmp_path):
    saved, fresh, status = uninitialized(tmp_path, before=False)
    with pytest.raises(milepost.UnmatchedError) as caught:
        fresh(X)
    assert caught.value.key == "weight"
    assert torch.equal(fresh.weight, saved.weight)
    status.assert_consumed()


class Around(nn.Module):  # type: ignore[name-defined]
    """Makes parameters in modules that are never called themselves."""

    def __init__(self):
        super().__init__()
        self.inner, self.some, self.named = nn.Module(), nn.ParameterList(), nn.ParameterDict()

    def build(self):
        self.inner.weight = nn.Parameter(torch.empty(3, 2))
        self.some.append(nn.Parameter(torch.empty(2)))
        self.named["a"] = nn.Parameter(torch.empty(2))
        for each in self.parameters():
            nn.init.uniform_(each)

    def forward(self, x):
        if not len(self.some):
            self.build()
        return x @ self.inner.weight + self.some[0] * self.named["a"]


def around(directory):
    saved, fresh = Around(), Around()
    saved.build()
    return saved, fresh, milepost.Checkpoint(net=fresh).read(milepost.Checkpoint(net=saved).write(directory / "ckpt"))


def test_parameters_of_modules_that_are_never_called_keep_their_values_when_they_are_initialized_after(tmp_path):
    saved, fresh, status = around(tmp_path)
    fresh.build()
    assert torch.equal(fresh(X), saved(X))
    status.assert_consumed()
    assert not hooks._installed.call_handles


def test_a_call_that_initializes_parameters_of_other_modules_ends_with_an_error(tmp_path):
    saved, fresh, status = around(tmp_path)
    with pytest.raises(milepost.UnmatchedError, match="initialized after they had been restored"):
        fresh(X)
    status.assert_consumed()
    assert torch.equal(fresh(X), saved(X))
