"""State of optimizers in files of torch.save that is more than plain tensors, numbers and text."""

import collections
import enum

import pytest

import milepost
from milepost import UnsupportedError

torch = pytest.importorskip("torch")
nn = pytest.importorskip("torch.nn")


class Norm(enum.IntEnum):
    ROWS = 0
    COLUMNS = 1


class Projector:
    def __init__(self):
        self.basis = torch.ones(2)


class InParts(torch.Tensor):  # type: ignore[name-defined]
    """Numbers as eight bits and a scale."""

    @staticmethod
    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape)

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, parts, context, size, stride):
        return cls(parts["codes"], parts["scale"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].codes, args[0].scale)
        return func(*[each.codes * each.scale if isinstance(each, cls) else each for each in args], **(kwargs or {}))


class Compressing(torch.optim.SGD):  # type: ignore[name-defined]
    """Keeps the sum of its gradients in eight bits."""

    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            before = self.state[parameter].get("sum")
            total = parameter.grad if before is None else before.codes * before.scale + parameter.grad
            scale = total.abs().max().reshape(1) / 100
            self.state[parameter]["sum"] = InParts((total / scale).nan_to_num().to(torch.int8), scale)
        super().step(closure)


class Keeping(torch.optim.SGD):  # type: ignore[name-defined]
    """Has some state for each parameter, and some hyperparameters, that the test names."""

    def __init__(self, params, state=None, **settings):
        super().__init__(params, lr=0.1)
        self.param_groups[0].update(settings)
        for parameter in self.param_groups[0]["params"] if state is not None else ():
            self.state[parameter]["kept"] = state


def restored(directory, live=(), **saved):
    """A new optimizer with what a file has of another one, whose parameter is of shape (3, 2)."""
    first, second = (torch.nn.Linear(2, 3, bias=False) for _ in range(2))
    optimizer, other = Keeping(first.parameters(), **saved), Keeping(second.parameters(), **dict(live))
    torch.save({"net": first.state_dict(), "optimizer": optimizer.state_dict()}, directory / "it.pt")
    milepost.Checkpoint(net=second, optimizer=other).read(str(directory / "it.pt")).assert_consumed()
    return other.param_groups[0], other.state[second.weight].get("kept")


@pytest.mark.parametrize("value", [torch.bfloat16, torch.device("cpu"), [torch.int8, {"on": torch.device("meta")}]])
def test_element_types_and_devices_are_hyperparameters(tmp_path, value):
    group, _ = restored(tmp_path, kind=value)
    assert group["kind"] == value


def test_a_member_of_an_enumeration_of_the_program_is_found(tmp_path):
    group, kept = restored(tmp_path, {"norm": Norm.ROWS}, norm=Norm.COLUMNS, state=[Norm.ROWS])
    assert group["norm"] is Norm.COLUMNS
    assert kept == [Norm.ROWS]


def test_an_enumeration_that_the_program_lacks_is_refused(tmp_path, monkeypatch):
    net = torch.nn.Linear(2, 3)
    optimizer = Keeping(net.parameters(), norm=Norm.COLUMNS)
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "it.pt")
    monkeypatch.delitem(globals(), "Norm")
    with pytest.raises(UnsupportedError, match="Norm"):
        milepost.Checkpoint(net=net, optimizer=optimizer).read(str(tmp_path / "it.pt"))


@pytest.mark.parametrize("most", [None, 2])
def test_a_deque_stays_one(tmp_path, most):
    _, kept = restored(tmp_path, state=collections.deque([torch.ones(2), torch.zeros(3), 5], most))
    assert isinstance(kept, collections.deque)
    assert kept.maxlen == most
    assert str(list(kept)) == str([torch.ones(2), torch.zeros(3), 5][-(most or 3) :])


def test_a_deque_that_holds_itself_is_refused(tmp_path):
    endless = collections.deque([torch.ones(2)])
    endless.append(endless)
    with pytest.raises(UnsupportedError):
        restored(tmp_path, state=endless)


def doubled(levels):
    inner = collections.deque([1])
    for _ in range(levels):
        inner = collections.deque([inner, inner])
    return inner


def test_one_deque_in_several_places_is_one_again(tmp_path):
    _, kept = restored(tmp_path, state=doubled(3))
    assert kept[0] is kept[1]


def test_deques_that_double_with_each_level_are_refused_at_once(tmp_path):
    with pytest.raises(UnsupportedError, match="many references"):
        restored(tmp_path, state=doubled(40))


def test_an_object_that_holds_tensors_is_refused_and_nothing_changes(tmp_path):
    with pytest.raises(UnsupportedError, match="Projector"):
        restored(tmp_path, state=Projector())


def test_a_dict_whose_keys_are_tensors_has_them(tmp_path):
    group, _ = restored(tmp_path, per_tensor={torch.arange(3): 4})
    assert [(key.tolist(), value) for key, value in group["per_tensor"].items()] == [([0, 1, 2], 4)]


@pytest.mark.parametrize("shape", [(3, 2), (4, 3), (1, 3)])
@pytest.mark.parametrize("place", ["tensor", "list"])
def test_tensors_have_the_strides_that_they_had(tmp_path, place, shape):
    tensor = torch.arange(float(shape[0] * shape[1])).reshape(*shape[::-1]).T
    assert tensor.stride() != torch.empty(shape).stride()
    _, kept = restored(tmp_path, state=tensor if place == "tensor" else [tensor])
    kept = kept if place == "tensor" else kept[0]
    assert kept.stride() == tensor.stride()
    assert torch.equal(kept, tensor)


def test_moments_of_a_parameter_of_other_strides_have_their_own(tmp_path):
    first, second = (torch.nn.Parameter(torch.ones(3, 2).T) for _ in range(2))
    optimizer, other = Keeping([first], state=torch.ones(2, 3)), Keeping([second])
    torch.save({"weight": first.detach(), "optimizer": optimizer.state_dict()}, tmp_path / "it.pt")
    milepost.Checkpoint(weight=second, optimizer=other).read(str(tmp_path / "it.pt")).assert_consumed()
    assert other.state[second]["kept"].stride() == (3, 1)
    assert second.stride() == (1, 2)


@pytest.mark.parametrize("steps", [0, 2])
def test_tensors_that_consist_of_others_are_restored(tmp_path, steps):
    def made(count):
        net = torch.nn.Linear(2, 3, bias=False)
        optimizer = Compressing(net.parameters(), lr=0.1)
        for _ in range(count):
            net(torch.ones(1, 2)).square().sum().backward()
            optimizer.step()
        return net, optimizer

    (net, optimizer), (other, fresh) = made(3), made(steps)
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "it.pt")
    milepost.Checkpoint(net=other, optimizer=fresh).read(str(tmp_path / "it.pt")).assert_consumed()
    expected, found = optimizer.state[net.weight]["sum"], fresh.state[other.weight]["sum"]
    assert type(found) is InParts
    assert torch.equal(found.codes, expected.codes)
    assert torch.equal(found.scale, expected.scale)


def test_a_tensor_that_consists_of_others_is_refused_where_the_optimizer_has_none(tmp_path):
    with pytest.raises(milepost.MismatchError, match="special class"):
        restored(tmp_path, state=InParts(torch.ones(3, 2, dtype=torch.int8), torch.ones(1)))


class TestOtherOrders:
    """A file has the state of an optimizer by the positions of its parameters."""

    @staticmethod
    def state(seed):
        torch.manual_seed(seed)
        model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2), "c": nn.Linear(2, 1)})
        optimizer = torch.optim.Adam(model.parameters())
        model["c"](model["b"](model["a"](torch.rand(3, 2)))).sum().backward()
        optimizer.step()
        return model, optimizer

    def saved(self, tmp_path):
        model, optimizer = self.state(0)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
        return model, optimizer

    def test_names_that_exchange_parameters_are_refused(self, tmp_path):
        self.saved(tmp_path)
        model, optimizer = self.state(1)
        before = {name: each.clone() for name, each in model.state_dict().items()}
        rename = {"model.a": "model.b", "model.b": "model.a"}
        with pytest.raises(milepost.MismatchError, match="another order"):
            milepost.Checkpoint(model=model, optimizer=optimizer).read(tmp_path / "a.pt", rename=rename)
        assert all(each.equal(before[name]) for name, each in model.state_dict().items())

    def test_the_model_alone_is_restored(self, tmp_path):
        saved, _ = self.saved(tmp_path)
        model, optimizer = self.state(1)
        rename = {"model.a": "model.b", "model.b": "model.a"}
        milepost.Checkpoint(model=model, optimizer=optimizer).read(
            tmp_path / "a.pt", rename=rename, ignore="optimizer"
        ).assert_consumed()
        assert model["a"].weight.equal(saved["b"].weight)

    @pytest.mark.parametrize("rename", [{"model": "net"}, {"model.a": "net.a", "model.b": "net.b", "model.c": "net.c"}])
    def test_names_that_keep_the_order(self, tmp_path, rename):
        saved, saved_optimizer = self.saved(tmp_path)
        model, optimizer = self.state(1)
        milepost.Checkpoint(optimizer=optimizer, net=model).read(tmp_path / "a.pt", rename=rename).assert_consumed()
        for live, kept in zip(model.parameters(), saved.parameters(), strict=True):
            assert live.equal(kept)
            assert optimizer.state[live]["exp_avg"].equal(saved_optimizer.state[kept]["exp_avg"])
