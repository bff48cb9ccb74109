"""State of optimizers in files of PyTorch, by positions and by names, goes with parameters that are laid out otherwise."""

import warnings

import pytest

import milepost
from milepost.errors import MismatchError, UnsupportedError
from milepost.layouts import Concatenate, Transpose, inverse

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
models = pytest.importorskip("tests.engine.layouts.torch_models")
APART, FUSED, STEPS = models.ApartBlock, models.FusedBlock, models.STEPS


def by_position(directory, model, optimizer):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, directory / "saved.pt")
    return str(directory / "saved.pt")


def by_name(directory, model, optimizer, *, flat=False):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict

    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    state = {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer, options=options),
    }
    torch.save(state, directory / "saved.pt")
    return str(directory / "saved.pt")


def flat(directory, model, optimizer):
    return by_name(directory, model, optimizer, flat=True)


def distributed(directory, model, optimizer):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

    state = {"model": get_model_state_dict(model), "optimizer": get_optimizer_state_dict(model, optimizer)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=directory / "dcp", no_dist=True)
    return str(directory / "dcp")


@pytest.mark.parametrize("write", [by_position, by_name, flat, distributed])
@pytest.mark.parametrize(("before", "after", "steps"), [(APART, FUSED, STEPS), (FUSED, APART, inverse(STEPS))])
def test_an_optimizer_trains_on_in_another_layout(tmp_path, write, before, after, steps):
    model, optimizer = models.trained(before)
    path = write(tmp_path, model, optimizer)
    other, its_optimizer = models.made(after, seed=1)
    status = milepost.Checkpoint(model=other, optimizer=its_optimizer).read(path, convert=steps)
    status.assert_consumed().assert_existing_objects_matched()
    for number in (7, 8):
        models.train(model, optimizer, number)
        models.train(other, its_optimizer, number)
    torch.testing.assert_close(models.output(other), models.output(model))


@pytest.mark.parametrize("write", [by_position, by_name, flat])
def test_steps_that_differ_are_refused(tmp_path, write):
    model, optimizer = models.trained(APART)
    optimizer.state[model.blocks[0].k.weight]["step"] += 1
    path = write(tmp_path, model, optimizer)
    other, its_optimizer = models.made(FUSED, seed=1)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(MismatchError, match="different numbers"):
        milepost.Checkpoint(model=other, optimizer=its_optimizer).read(path, convert=STEPS)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_groups_of_named_parameters_are_converted(tmp_path):
    """An optimizer that is made with names tells which parameter has which position."""

    def make(named):
        listed = sorted(named, key=lambda pair: "bias" in pair[0])
        kernels = [each for each in listed if "bias" not in each[0]]
        return torch.optim.AdamW([{"params": kernels, "lr": 0.1}, {"params": listed[len(kernels) :]}], lr=0.01)

    (model, _), (other, _) = models.made(APART), models.made(FUSED, seed=1)
    optimizer, its_optimizer = make(model.named_parameters()), make(other.named_parameters())
    models.train(model, optimizer, 0)
    path = by_position(tmp_path, model, optimizer)
    status = milepost.Checkpoint(model=other, optimizer=its_optimizer).read(path, convert=STEPS)
    status.assert_consumed()
    for number in (7, 8):
        models.train(model, optimizer, number)
        models.train(other, its_optimizer, number)
    torch.testing.assert_close(models.output(other), models.output(model))


def test_positions_in_several_groups_are_refused(tmp_path):
    """The order of the groups need not be that of the model, and equal shapes would not show it."""

    def make(model):
        return torch.optim.AdamW([{"params": model.second.parameters()}, {"params": model.first.parameters()}])

    model, other = models.WithBuffer(), models.WithBuffer()
    del model.mean, other.mean
    optimizer, its_optimizer = make(model), make(other)
    (model.first.weight.sum() + model.second.weight.square().sum()).backward()
    optimizer.step()
    path = by_position(tmp_path, model, optimizer)
    checkpoint = milepost.Checkpoint(model=other, optimizer=its_optimizer)
    with pytest.raises(UnsupportedError, match="does not say which parameters"):
        checkpoint.read(path, convert=[Transpose("model/first/weight")])


def test_groups_that_become_one_are_refused_and_can_be_left_out(tmp_path):
    def make(parameters):
        listed = list(parameters)
        groups = [{"params": listed[:1], "lr": 0.1}, {"params": listed[1:]}]
        return torch.optim.AdamW(groups, lr=0.01)

    model, optimizer = models.trained(APART, make)
    path = by_position(tmp_path, model, optimizer)
    other, its_optimizer = models.made(FUSED, seed=1)
    checkpoint = milepost.Checkpoint(model=other, optimizer=its_optimizer)
    with pytest.raises(MismatchError):
        checkpoint.read(path, convert=STEPS)
    checkpoint.read(path, convert=STEPS, only="model").assert_consumed()
    torch.testing.assert_close(models.output(other), models.output(model))


def test_tied_weights_and_statistics_have_no_positions_of_their_own(tmp_path):
    """As in a file of Lightning, whose optimizers are in a list."""
    tokens = torch.arange(20) % 5

    def train(model, optimizer):
        optimizer.zero_grad()
        model(tokens).square().mean().backward()
        optimizer.step()

    torch.manual_seed(0)
    model, other = models.Tied(), models.TiedAndFused()
    optimizer, its_optimizer = models.adamw(model.parameters()), models.adamw(other.parameters())
    train(model, optimizer)
    torch.save({"state_dict": model.state_dict(), "optimizer_states": [optimizer.state_dict()]}, tmp_path / "a.ckpt")
    status = milepost.Checkpoint(model=other, optimizer=its_optimizer).read(
        str(tmp_path / "a.ckpt"),
        convert=[Concatenate(["state_dict.q", "state_dict.k"], "state_dict.qk")],
        rename={"state_dict": "model", "optimizer_states.0": "optimizer"},
    )
    status.assert_consumed().assert_existing_objects_matched()
    for _ in range(2):
        train(model, optimizer)
        train(other, its_optimizer)
    torch.testing.assert_close(other(tokens), model(tokens))


def test_state_by_positions_of_unknown_parameters_is_refused(tmp_path):
    """Otherwise a moment of the same shape would be restored as it is, which is not that of the transposed weight."""
    model = models.WithBuffer()
    optimizer = torch.optim.AdamW(model.parameters())
    (model.first.weight.sum() + model.second.weight.square().sum()).backward()
    optimizer.step()
    path = by_position(tmp_path, model, optimizer)
    other = models.WithBuffer()
    checkpoint = milepost.Checkpoint(model=other, optimizer=torch.optim.AdamW(other.parameters()))
    steps = [Transpose("model/first/weight")]
    with pytest.raises(UnsupportedError, match="does not say which parameters"):
        checkpoint.read(path, convert=steps)
    checkpoint.read(path, convert=steps, ignore="optimizer").assert_consumed()
    assert torch.equal(other.first.weight, model.first.weight.T)


def test_an_optimizer_of_which_no_parameter_changes_stays_as_it_is(tmp_path):
    model, optimizer = models.trained(APART)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    state |= {"q": {"w": torch.zeros(2)}, "k": {"w": torch.zeros(2)}}
    torch.save(state, tmp_path / "saved.pt")
    other, its_optimizer = models.made(APART, seed=1)
    checkpoint = milepost.Checkpoint(model=other, optimizer=its_optimizer)
    checkpoint.read(
        str(tmp_path / "saved.pt"), convert=[Concatenate(["q/w", "k/w"], "qk")], only=["model", "optimizer"]
    )
    assert torch.equal(its_optimizer.state[other.head.weight]["exp_avg"], optimizer.state[model.head.weight]["exp_avg"])


def test_a_parameter_without_state_has_none_in_the_new_layout(tmp_path):
    model, optimizer = models.made(APART)
    path = by_position(tmp_path, model, optimizer)
    other, its_optimizer = models.made(FUSED, seed=1)
    milepost.Checkpoint(model=other, optimizer=its_optimizer).read(path, convert=STEPS).assert_consumed()
    assert not its_optimizer.state


def test_steps_as_numbers_of_python_stay_numbers(tmp_path):
    """So did PyTorch write them before 1.12."""
    model, optimizer = models.trained(APART)
    state = optimizer.state_dict()
    for each in state["state"].values():
        each["step"] = int(each["step"])
    torch.save({"model": model.state_dict(), "optimizer": state}, tmp_path / "saved.pt")
    other, its_optimizer = models.made(FUSED, seed=1)
    milepost.Checkpoint(model=other, optimizer=its_optimizer).read(str(tmp_path / "saved.pt"), convert=STEPS)
    assert its_optimizer.state[other.blocks[0].qkv.weight]["step"].item() == 2
