"""Tensors of every kind in the state of others: they come back as what they were, or the save refuses them."""

import pytest

import milepost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")
encoding = pytest.importorskip("milepost.plain_state.encoding")
decoding = pytest.importorskip("milepost.plain_state.decoding")


class Holder(nn.Module):  # type: ignore[name-defined]
    """Keeps something that is no tensor of its own in its extra state."""

    def __init__(self, held=None):
        super().__init__()
        self.held = held

    def get_extra_state(self):
        return {"held": self.held}

    def set_extra_state(self, state):
        self.held = state["held"]


class InParts(torch.Tensor):  # type: ignore[name-defined]
    """Numbers as eight bits and a scale."""

    @staticmethod
    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, parts, context, size, stride):
        return cls(parts["codes"], parts["scale"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = [each.codes.float() * each.scale if isinstance(each, cls) else each for each in args]
        return func(*plain, **(kwargs or {}))


class Subclass(torch.Tensor):  # type: ignore[name-defined]
    """A plain tensor of another class."""


class Opaque(torch.Tensor):  # type: ignore[name-defined]
    """Does not say what it is made of."""

    @staticmethod
    def __new__(cls, inside):
        return torch.Tensor._make_wrapper_subclass(cls, inside.shape)

    def __init__(self, inside):
        self.inside = inside

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


def quantized():
    return torch.quantize_per_tensor(torch.linspace(-1, 1, 6).reshape(2, 3), 0.125, 3, torch.qint8)


def quantized_by_channel():
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 5])
    return torch.quantize_per_channel(torch.linspace(-1, 1, 6).reshape(2, 3), scales, zeros, 0, torch.quint8)


def uncoalesced():
    return torch.sparse_coo_tensor([[0, 0, 1]], [1.0, 2.0, 3.0], (3,))


def resumed(directory, held):
    path = milepost.Checkpoint(Holder(held)).write(directory / "c")
    fresh = Holder()
    milepost.Checkpoint(fresh).read(path).assert_consumed()
    return fresh.held


def with_optimizer(state=None):
    net = nn.Linear(3, 2, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if state is not None:
        optimizer.state[net.weight]["held"] = state
    return milepost.Checkpoint(net=net, optimizer=optimizer)


@pytest.mark.filterwarnings("ignore:.*quantize.*:UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("make", [quantized, quantized_by_channel])
def test_quantized_tensors_keep_their_scales(tmp_path, make):
    held = make()
    back = resumed(tmp_path, held)
    assert back.is_quantized
    assert (back.dtype, back.qscheme()) == (held.dtype, held.qscheme())
    assert torch.equal(back.int_repr(), held.int_repr())
    assert torch.equal(back.dequantize(), held.dequantize())


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_a_quantized_model_computes_the_same_after_a_restore(tmp_path):
    def model(seed):
        torch.manual_seed(seed)
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 2)), {nn.Linear}, dtype=torch.qint8)

    first, second = model(0), model(1)
    milepost.Checkpoint(second).read(milepost.Checkpoint(first).write(tmp_path / "c")).assert_consumed()
    x = torch.linspace(-1, 1, 3).reshape(1, 3)
    assert torch.equal(second(x), first(x))


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        uncoalesced,
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.eye(3).to_sparse_csc(),
        lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    ],
    ids=["coo", "uncoalesced", "csr", "csc", "bsr"],
)
def test_sparse_tensors_come_back_in_their_layout(tmp_path, make):
    held = make()
    back = resumed(tmp_path, held)
    assert back.layout is held.layout
    assert torch.equal(back.to_dense(), held.to_dense())
    if held.layout is torch.sparse_coo:
        assert back.is_coalesced() == held.is_coalesced()


@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
@pytest.mark.parametrize("name", ["float8_e8m0fnu", "complex32"])
def test_types_that_files_have_no_number_for_come_back_as_themselves(tmp_path, name):
    held = torch.tensor([1.0, 2.0]).to(getattr(torch, name))
    back = resumed(tmp_path, held)
    assert back.dtype is held.dtype
    assert torch.equal(back.view(torch.uint8), held.view(torch.uint8))


@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
@pytest.mark.parametrize("name", ["float8_e8m0fnu", "complex32"])
def test_the_state_of_an_optimizer_has_them_before_its_first_step(tmp_path, name):
    held = torch.tensor([1.0, 2.0]).to(getattr(torch, name))
    path = with_optimizer(held).write(tmp_path / "c")
    fresh = with_optimizer()
    fresh.read(path).assert_consumed()
    back = fresh.optimizer.state[fresh.net.weight]["held"]
    assert back.dtype is held.dtype
    assert torch.equal(back.view(torch.uint8), held.view(torch.uint8))


@pytest.mark.parametrize("required", [True, False])
def test_parameters_come_back_as_parameters(tmp_path, required):
    state = {"held": [nn.Parameter(torch.ones(2), requires_grad=required)]}
    (back,) = decoding.unpack(encoding.pack(state))["held"]
    assert type(back) is nn.Parameter
    assert back.requires_grad == required


def test_leaves_that_require_a_gradient_come_back_as_such(tmp_path):
    back = resumed(tmp_path, torch.ones(2, requires_grad=True))
    assert back.requires_grad
    assert not resumed(tmp_path, torch.ones(2, requires_grad=True) * 2).requires_grad


def test_a_parameter_and_a_view_of_it_stay_one_memory():
    parameter = nn.Parameter(torch.arange(4.0))
    back, view = decoding.unpack(encoding.pack([parameter, parameter.detach()[1:3]]))
    assert type(back) is nn.Parameter
    assert view.data_ptr() == back[1:].data_ptr()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Subclass(torch.ones(2)), "Subclass"),
        (lambda: InParts(torch.ones(2, dtype=torch.int8), torch.tensor(0.5)), "InParts"),
        (lambda: Opaque(torch.ones(2)), "without __tensor_flatten__"),
        (lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "nested"),
        (lambda: torch.ones(2, 2).to_mkldnn(), "mkldnn"),
        (lambda: torch.ones(2, device="meta"), "meta"),
    ],
    ids=["subclass", "in parts", "opaque", "nested", "mkldnn", "meta"],
)
@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
def test_tensors_that_cannot_be_made_again_are_refused(tmp_path, make, reason):
    with pytest.raises(milepost.UnsupportedError) as caught:
        milepost.Checkpoint(Holder(make())).write(tmp_path / "c")
    assert caught.value.key == "_extra_state"
    assert reason in caught.value.found
    assert "hold" in caught.value.remedy


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
@pytest.mark.parametrize(
    "make",
    [lambda: Opaque(torch.ones(2)), lambda: torch.nested.nested_tensor([torch.ones(1)])],
    ids=["opaque", "nested"],
)
def test_buffers_that_cannot_be_made_again_are_refused(tmp_path, make):
    net = nn.Module()
    net.register_buffer("held", make())
    with pytest.raises(milepost.UntrackableError) as caught:
        milepost.Checkpoint(net).write(tmp_path / "c")
    assert caught.value.key == "held"
    assert "hold" in caught.value.remedy


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_the_state_of_an_optimizer_may_be_sparse(tmp_path):
    path = with_optimizer(torch.eye(3).to_sparse()).write(tmp_path / "c")
    fresh = with_optimizer()
    fresh.read(path).assert_consumed()
    assert torch.equal(fresh.optimizer.state[fresh.net.weight]["held"].to_dense(), torch.eye(3))


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_a_hyperparameter_may_be_sparse(tmp_path):
    saved, fresh = with_optimizer(), with_optimizer()
    saved.optimizer.param_groups[0]["mask"] = torch.eye(3).to_sparse_csr()
    fresh.read(saved.write(tmp_path / "c")).assert_consumed()
    assert torch.equal(fresh.optimizer.param_groups[0]["mask"].to_dense(), torch.eye(3))


def test_state_of_a_class_of_its_own_is_restored_where_the_optimizer_has_it_and_refused_elsewhere(tmp_path):
    def in_parts(value):
        return InParts(torch.full((2,), value, dtype=torch.int8), torch.tensor(0.5))

    path = with_optimizer(in_parts(3)).write(tmp_path / "c")
    stepped = with_optimizer(in_parts(1))
    stepped.read(path).assert_consumed()
    assert stepped.optimizer.state[stepped.net.weight]["held"].codes.tolist() == [3, 3]
    with pytest.raises(milepost.MismatchError) as caught:
        with_optimizer().read(path)
    assert caught.value.key.startswith("net/weight/.OPTIMIZER_SLOT/optimizer/held/")
    assert caught.value.remedy == "let the optimizer take one step before the restore"


class LowBit(torch.optim.SGD):  # type: ignore[name-defined]
    """Has state of a class of its own from its first step on, in which it draws random numbers."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                for name in ("first", "second"):
                    if name not in self.state[parameter]:
                        codes = torch.zeros(parameter.shape, dtype=torch.int8)
                        self.state[parameter][name] = InParts(codes, torch.tensor(0.5))
                    self.state[parameter][name].codes.add_(torch.randint(1, 9, parameter.shape).to(torch.int8))
                parameter.sub_(self.state[parameter]["first"].codes * group["lr"])


def low_bit(scheduler=False):
    net = torch.nn.Linear(3, 2)
    optimizer = LowBit(net.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer) if scheduler else None
    return milepost.Checkpoint(net=net, optimizer=optimizer, **({"schedule": schedule} if scheduler else {}))


@pytest.mark.parametrize("scheduler", [False, True])
def test_an_optimizer_makes_state_of_a_class_of_its_own_before_its_first_step(tmp_path, scheduler):
    saved, fresh = low_bit(scheduler), low_bit(scheduler)
    saved.optimizer.step()
    path = saved.write(tmp_path / "c")
    called = []
    fresh.optimizer.register_step_pre_hook(lambda *_: called.append(1))
    random, weight = torch.get_rng_state(), saved.net.weight.detach().clone()
    fresh.read(path).assert_consumed().assert_existing_objects_matched()
    assert not called
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(fresh.net.weight, weight)
    for parameter, same in zip(saved.net.parameters(), fresh.net.parameters(), strict=True):
        for name, held in saved.optimizer.state[parameter].items():
            made = fresh.optimizer.state[same][name]
            assert type(made) is InParts
            assert torch.equal(made.codes, held.codes)


def test_a_restore_that_fails_leaves_an_optimizer_without_state_that_it_made(tmp_path):
    saved, fresh = low_bit(), low_bit()
    saved.optimizer.step()
    saved.more = milepost.Variable([1.0, 2.0])
    fresh.more = milepost.Variable([1.0])
    with pytest.raises(milepost.MismatchError):
        fresh.read(saved.write(tmp_path / "c"))
    assert not fresh.optimizer.state
    fresh.more = milepost.Variable([0.0, 0.0])
    fresh.read(str(tmp_path / "c")).assert_consumed()


def test_an_optimizer_that_holds_another_one_makes_no_step_for_its_state(tmp_path):
    saved, fresh = low_bit(), low_bit()
    saved.optimizer.step()
    inner = low_bit()
    fresh.optimizer.inner = [inner.optimizer]
    with pytest.raises(milepost.MismatchError, match="special class"):
        fresh.read(saved.write(tmp_path / "c"))
    assert not inner.optimizer.state


def test_what_a_hook_renames_is_given_back_as_state_dict_has_it(tmp_path):
    class Renaming(nn.Linear):
        def __init__(self):
            super().__init__(2, 1, bias=False)
            self._register_load_state_dict_pre_hook(self.take)
            self.register_state_dict_post_hook(lambda own, state, prefix, _: state.update(kernel=state.pop("weight")))
            self.taken = None

        def take(self, state, prefix, *_):
            self.taken = type(state["kernel"])
            state["weight"] = state.pop("kernel")

    saved, fresh = Renaming(), Renaming()
    milepost.Checkpoint(fresh).read(milepost.Checkpoint(saved).write(tmp_path / "c")).assert_consumed()
    assert torch.equal(fresh.weight, saved.weight)
    assert fresh.taken is torch.Tensor
