"""A part of a training state is restored: what is selected of slot variables, and of objects with several names."""

import warnings

import pytest

import milepost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")


def made(classes=4):
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, classes))
    return net, torch.optim.Adam(net.parameters(), lr=0.05)


@pytest.fixture(params=["own", "torch.save"])
def saved(request, tmp_path):
    """A training state after one step."""
    net, optimizer = made()
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    if request.param == "own":
        return milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "c")
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    return str(tmp_path / "c.pt")


def names_of_state(net, optimizer):
    names = {parameter: name for name, parameter in net.named_parameters()}
    return {names[parameter]: sorted(state) for parameter, state in optimizer.state.items()}


@pytest.mark.parametrize(
    "ignore", ["optimizer/param_groups", "optimizer/param_groups/*", "*/lr", "optimizer/param_groups/0"]
)
def test_to_leave_out_hyperparameters_leaves_out_no_slot_variable(saved, ignore):
    net, optimizer = made()
    optimizer.param_groups[0]["lr"] = 0.5
    milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, ignore=ignore).assert_consumed()
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert names_of_state(net, optimizer).keys() == dict(net.named_parameters()).keys()


@pytest.mark.parametrize("ignore", ["optimizer/state", "optimizer/*", "optimizer", "*exp_avg*"])
def test_to_leave_out_the_state_leaves_out_slot_variables(saved, ignore):
    net, optimizer = made()
    milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, ignore=ignore).assert_consumed()
    left = {} if ignore != "*exp_avg*" else {key: ["step"] for key, _ in net.named_parameters()}
    assert names_of_state(net, optimizer) == left


def test_one_slot_variable_of_each_parameter_is_left_out(saved):
    net, optimizer = made()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, ignore="*exp_avg_sq").assert_consumed()
    assert set(map(tuple, names_of_state(net, optimizer).values())) == {("exp_avg", "step")}


def test_a_name_of_a_slot_variable_with_a_typing_error_is_told(saved):
    net, optimizer = made()
    with pytest.warns(milepost.UnrestoredWarning, match=r"ignore names '\*exp_agv_sq'"):
        milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, ignore="*exp_agv_sq")


@pytest.mark.parametrize("classes", [4, 7])
def test_slot_variables_are_left_out_with_their_variable(saved, classes):
    net, optimizer = made(classes)
    milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, ignore="net/1").assert_consumed()
    assert names_of_state(net, optimizer).keys() == {"0.weight", "0.bias"}
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()


def test_the_state_of_an_optimizer_alone_is_restored(saved):
    net, optimizer = made()
    before = net[0].weight.detach().clone()
    status = milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, only="optimizer")
    status.assert_consumed().assert_existing_objects_matched()
    assert names_of_state(net, optimizer).keys() == dict(net.named_parameters()).keys()
    assert torch.equal(net[0].weight, before)


def test_state_of_a_parameter_of_another_shape_is_refused(saved):
    net, optimizer = made(7)
    optimizer.param_groups[0]["lr"] = 0.5
    with pytest.raises(milepost.MismatchError, match=r"nothing was changed(.|\n)*ignore"):
        milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, only="optimizer")
    assert not optimizer.state
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_state_in_a_file_without_the_model_is_refused_if_its_shape_does_not_fit(tmp_path):
    net, optimizer = made()
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    net, optimizer = made(7)
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    with pytest.raises(milepost.MismatchError, match=r"shape \(4, 2\) of 'exp_avg'"):
        checkpoint.read(str(tmp_path / "optimizer.pt"), rename={"": "optimizer"})
    assert not optimizer.state


class Shared(nn.Module):  # type: ignore[name-defined]
    """One embedding under three names, as some transformers have it."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(5, 3)
        for name in ("encoder", "decoder"):
            part = nn.Module()
            part.embedding, part.linear = self.shared, nn.Linear(3, 3)
            setattr(self, name, part)


@pytest.mark.parametrize(
    ("selection", "taken"),
    [
        ({"only": "net/encoder"}, {"shared", "encoder"}),
        ({"only": "net/shared"}, {"shared"}),
        ({"ignore": "net/decoder"}, {"shared", "encoder"}),
        ({"ignore": "net/shared"}, {"encoder", "decoder"}),
    ],
)
def test_a_shared_module_is_selected_by_its_names(tmp_path, selection, taken):
    saved, live = Shared(), Shared()
    path = milepost.Checkpoint(net=saved).write(tmp_path / "c")
    milepost.Checkpoint(net=live).read(path, **selection).assert_consumed()
    weights = {
        "shared": (live.shared.weight, saved.shared.weight),
        "encoder": (live.encoder.linear.weight, saved.encoder.linear.weight),
        "decoder": (live.decoder.linear.weight, saved.decoder.linear.weight),
    }
    assert {name for name, pair in weights.items() if torch.equal(*pair)} == taken


@pytest.mark.parametrize(
    ("selection", "parts"),
    [
        ({"only": "optimizer"}, {"rate", "moments of 0", "moments of 1"}),
        ({"only": "net"}, {"0", "1"}),
        ({"ignore": "net/1"}, {"0", "rate", "moments of 0"}),
        ({"ignore": "optimizer/param_groups"}, {"0", "1", "moments of 0", "moments of 1"}),
        ({"ignore": "optimizer"}, {"0", "1"}),
        ({"ignore": "optimizer/state"}, {"0", "1", "rate"}),
        ({"only": "*exp_avg"}, {"moments of 0", "moments of 1"}),
    ],
)
@pytest.mark.parametrize("by", ["load", "convert"])
def test_a_tree_and_a_converted_file_have_what_a_restore_takes(tmp_path, selection, parts, by):
    net, optimizer = made()
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    path = milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "c")
    if by == "load":
        names = set(milepost.to_state_dict(path, separator="/", **selection))
        slot = "optimizer/.OPTIMIZER_SLOT/exp_avg/net/{}/weight"
    else:
        milepost.convert(path, tmp_path / "c.npz", **selection)
        names = {
            name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")
            for name, _ in milepost.list_variables(str(tmp_path / "c.npz"))
        }
        slot = "net/{}/weight/.OPTIMIZER_SLOT/optimizer/exp_avg"
    wanted = {"0": "net/0/weight", "1": "net/1/weight", "rate": "optimizer/param_groups/0/lr"}
    wanted |= {f"moments of {number}": slot.format(number) for number in "01"}
    assert {part for part, name in wanted.items() if name in names} == parts


def test_a_tree_of_slot_variables_alone_has_no_empty_model(tmp_path):
    net, optimizer = made()
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    path = milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "c")
    assert milepost.load(path, only="optimizer").keys() == {"optimizer"}
