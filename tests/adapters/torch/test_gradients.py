"""Gradients that no step has used are named by a save, for a run that is resumed there goes on without them."""

import warnings

import pytest

from milepost import Checkpoint, CheckpointOptions, UntrackedWarning
from milepost.adapters import adapter_of
from milepost.errors import UntrackableError

torch = pytest.importorskip("torch")
gradients = pytest.importorskip("milepost.adapters.torch.optimizers.gradients")
OPTIMIZERS = [torch.optim.SGD, torch.optim.Adam]


def program(optimizer):
    net = torch.nn.Linear(3, 1)
    return Checkpoint(net=net, optimizer=optimizer(net.parameters(), 0.1))


def half(checkpoint):
    checkpoint.net(torch.ones(2, 3)).sum().backward()


@pytest.fixture
def prefix(tmp_path):
    return str(tmp_path / "ckpt")


@pytest.fixture(params=OPTIMIZERS, ids=lambda kind: kind.__name__)
def checkpoint(request):
    return program(request.param)


def named(checkpoint, prefix):
    """Whether a save names gradients."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checkpoint.write(prefix)
    return any("gradients of 2 parameters" in str(each.message) for each in caught)


def test_in_the_middle_of_an_accumulation_they_are_named(checkpoint, prefix):
    half(checkpoint)
    with pytest.warns(UntrackedWarning, match="optimizer: not saved: the gradients of 2 parameters"):
        checkpoint.write(prefix)


def test_those_that_the_checkpoint_holds_are_saved_and_not_named(checkpoint, prefix):
    half(checkpoint)
    checkpoint.gradients = {name: each.grad for name, each in checkpoint.net.named_parameters()}
    assert not named(checkpoint, prefix)
    checkpoint.write(prefix, CheckpointOptions(strict=True))
    fresh = program(type(checkpoint.optimizer))
    half(fresh)
    fresh.gradients = {name: each.grad.zero_() for name, each in fresh.net.named_parameters()}
    fresh.read(prefix).assert_consumed()
    assert torch.equal(fresh.net.weight.grad, checkpoint.net.weight.grad)


def test_they_are_named_if_the_checkpoint_holds_some_of_them(checkpoint, prefix):
    half(checkpoint)
    checkpoint.gradients = [checkpoint.net.weight.grad]
    assert named(checkpoint, prefix)


def test_they_are_an_error_in_strict_mode(checkpoint, prefix):
    half(checkpoint)
    with pytest.raises(UntrackableError, match="zero_grad"):
        checkpoint.write(prefix, CheckpointOptions(strict=True))


def test_after_a_step_they_are_not_named(checkpoint, prefix):
    half(checkpoint)
    checkpoint.optimizer.step()
    assert not named(checkpoint, prefix)


def test_they_are_named_after_a_step_and_another_half(checkpoint, prefix):
    half(checkpoint)
    checkpoint.optimizer.step()
    half(checkpoint)
    assert named(checkpoint, prefix)


@pytest.mark.parametrize("to_none", [True, False])
def test_what_was_dropped_is_not_named(checkpoint, prefix, to_none):
    half(checkpoint)
    checkpoint.optimizer.zero_grad(set_to_none=to_none)
    assert not named(checkpoint, prefix)


def test_they_are_named_in_a_resumed_run(checkpoint, prefix):
    half(checkpoint)
    checkpoint.optimizer.step()
    checkpoint.write(prefix)
    fresh = program(type(checkpoint.optimizer))
    fresh.read(prefix).assert_consumed()
    assert not named(fresh, prefix)
    half(fresh)
    assert named(fresh, prefix)


def test_a_checkpoint_that_is_made_after_the_step_does_not_name_them(prefix):
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    assert not named(Checkpoint(net=net, optimizer=optimizer), prefix)


def test_assertions_of_a_restore_do_not_ask_for_them(checkpoint, prefix):
    checkpoint.write(prefix)
    status = checkpoint.read(prefix)
    half(checkpoint)
    status.assert_consumed()


def test_those_of_an_optimizer_in_a_list_are_named_after_the_first_save(prefix):
    net = torch.nn.Linear(3, 1)
    checkpoint = Checkpoint(net=net, optimizers=[torch.optim.SGD(net.parameters(), 0.1)])
    half(checkpoint)
    assert not named(checkpoint, prefix), "whether a step has used them is not known yet"
    half(checkpoint)
    assert named(checkpoint, prefix)


def test_asking_for_them_begins_to_watch_no_optimizer():
    optimizer = torch.optim.SGD(torch.nn.Linear(3, 1).parameters(), 0.1)
    assert adapter_of(optimizer).unfinished(optimizer) is None
    assert not gradients.is_watched(optimizer)
