"""Parameters, and tensors that require a gradient, in the state of an optimizer."""

import pytest

import milepost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")


class Anchored(torch.optim.SGD):  # type: ignore[name-defined, misc, unused-ignore]
    """Keeps a tensor of each parameter in its state."""

    def anchor(self, make):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["anchor"] = make(parameter)
        return self

    @property
    def anchors(self):
        return [state["anchor"] for state in self.state.values()]


def fresh():
    net = nn.Linear(3, 2)
    return net, Anchored(net.parameters(), lr=0.1)


def saved(directory, make):
    net, optimizer = fresh()
    optimizer.anchor(make)
    return milepost.Checkpoint(net=net, optimizer=optimizer).write(directory / "c"), optimizer


def restored(path, optimizer, net):
    milepost.Checkpoint(net=net, optimizer=optimizer).read(path).assert_consumed()
    return optimizer.anchors


@pytest.mark.parametrize("required", [True, False])
def test_a_parameter_comes_back_as_one(tmp_path, required):
    path, optimizer = saved(tmp_path, lambda each: nn.Parameter(each.detach() + 1, requires_grad=required))
    net, new = fresh()
    for one, other in zip(restored(path, new, net), optimizer.anchors, strict=True):
        assert type(one) is nn.Parameter
        assert one.requires_grad is required
        assert torch.equal(one, other)


def test_a_leaf_that_requires_a_gradient_comes_back_as_one(tmp_path):
    path, _ = saved(tmp_path, lambda each: (each.detach() + 1).requires_grad_())
    net, new = fresh()
    assert all(type(each) is torch.Tensor and each.requires_grad for each in restored(path, new, net))


def test_a_plain_tensor_stays_one(tmp_path):
    path, _ = saved(tmp_path, lambda each: each.detach() + 1)
    net, new = fresh()
    assert not any(isinstance(each, nn.Parameter) or each.requires_grad for each in restored(path, new, net))


def test_a_live_parameter_keeps_its_identity(tmp_path):
    path, _ = saved(tmp_path, lambda each: nn.Parameter(each.detach() + 1))
    net, new = fresh()
    before = new.anchor(lambda each: nn.Parameter(torch.zeros_like(each), requires_grad=False)).anchors
    after = restored(path, new, net)
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert all(each.requires_grad for each in after)


def test_a_live_plain_tensor_is_replaced_by_a_parameter(tmp_path):
    """As `load_state_dict` does."""
    path, _ = saved(tmp_path, lambda each: nn.Parameter(each.detach() + 1))
    net, new = fresh()
    new.anchor(torch.zeros_like)
    assert all(type(each) is nn.Parameter for each in restored(path, new, net))


def test_one_that_several_parameters_share_stays_shared(tmp_path):
    shared = nn.Parameter(torch.ones(4))
    path, _ = saved(tmp_path, lambda _: shared)
    net, new = fresh()
    first, second = restored(path, new, net)
    assert first is second
    assert type(first) is nn.Parameter


def test_the_parameter_itself_stays_the_same_object(tmp_path):
    path, _ = saved(tmp_path, lambda each: each)
    net, new = fresh()
    assert all(one is other for one, other in zip(restored(path, new, net), net.parameters(), strict=True))


def test_the_kind_survives_a_second_save(tmp_path):
    path, _ = saved(tmp_path, lambda each: nn.Parameter(each.detach() + 1))
    net, new = fresh()
    restored(path, new, net)
    again = milepost.Checkpoint(net=net, optimizer=new).write(tmp_path / "again")
    net, new = fresh()
    assert all(type(each) is nn.Parameter for each in restored(again, new, net))


def test_a_checkpoint_without_the_field_leaves_a_live_parameter_one(tmp_path):
    """As those of earlier versions are."""
    path, optimizer = saved(tmp_path, lambda each: each.detach() + 1)
    net, new = fresh()
    new.anchor(lambda each: nn.Parameter(torch.zeros_like(each)))
    for one, other in zip(restored(path, new, net), optimizer.anchors, strict=True):
        assert type(one) is nn.Parameter
        assert torch.equal(one, other)


def test_torch_restores_the_same_kinds(tmp_path):
    path, optimizer = saved(tmp_path, lambda each: nn.Parameter(each.detach() + 1, requires_grad=False))
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    net, new = fresh()
    _, expected = fresh()
    expected.load_state_dict(torch.load(tmp_path / "state.pt"))
    for one, other in zip(restored(path, new, net), expected.anchors, strict=True):
        assert (type(one), one.requires_grad) == (type(other), other.requires_grad)
        assert torch.equal(one, other)
