"""torchdata's loaders and nodes in the same checkpoint as everything else."""

import signal
import textwrap

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchdata")
import torch
from torchdata.nodes import Batcher, IterableWrapper, Loader, SamplerWrapper
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler

from milepost import Checkpoint, MismatchError, RandomState, Variable
from tests import programs

# By loaders of torchdata itself.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


@pytest.fixture
def prefix(tmp_path):
    state = torch.get_rng_state()
    yield str(tmp_path / "ckpt")
    torch.set_rng_state(state)


def loader(workers=0, persistent=False, seed=None, shuffle=True, size=24):
    return StatefulDataLoader(
        list(range(size)),
        batch_size=2,
        shuffle=shuffle,
        num_workers=workers,
        persistent_workers=persistent,
        generator=None if seed is None else torch.Generator().manual_seed(seed),
    )


def checkpoint(loader, step=0):
    return Checkpoint(loader=loader, step=Variable(step), random=RandomState())


def read(iterator, count=None):
    """Batches, each with a number from the generator that dropout would use."""
    batches = []
    for batch in iterator:
        batches.append((batch.tolist(), float(torch.rand(()))))
        if len(batches) == count:
            break
    return batches


LOADERS = {
    "no workers": {},
    "no workers, own generator": {"seed": 3},
    "not shuffled, own generator": {"seed": 3, "shuffle": False},
    "workers": {"workers": 2},
    "persistent workers, own generator": {"workers": 2, "persistent": True, "seed": 3},
}


@pytest.mark.parametrize("settings", LOADERS.values(), ids=LOADERS)
def test_a_run_goes_on_in_the_middle_of_an_epoch_as_if_nothing_had_happened(prefix, settings):
    torch.manual_seed(1)
    saved = loader(**settings)
    iterator = iter(saved)
    read(iterator, 5)
    checkpoint(saved, 5).write(prefix)
    expected = read(iterator), read(saved), float(torch.rand(()))
    torch.manual_seed(2)
    fresh = checkpoint(loader(**{**settings, **({"seed": 9} if "seed" in settings else {})}))
    fresh.read(prefix).assert_consumed()
    assert fresh.step.numpy() == 5
    assert (read(fresh.loader), read(fresh.loader), float(torch.rand(()))) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_was_saved_again_right_after_it_was_restored_goes_on(prefix, tmp_path, workers):
    saved = loader(workers)
    iterator = iter(saved)
    read(iterator, 3)
    checkpoint(saved).write(prefix)
    expected = read(iterator)
    again = checkpoint(loader(workers))
    again.read(prefix)
    again.write(tmp_path / "again")
    fresh = checkpoint(loader(workers))
    fresh.read(tmp_path / "again")
    assert read(fresh.loader) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_was_saved_before_its_first_batch_begins_as_it_would_have(prefix, workers):
    saved = loader(workers, seed=3)
    checkpoint(saved).write(prefix)
    expected = read(saved)
    fresh = checkpoint(loader(workers, seed=9))
    fresh.read(prefix)
    assert read(fresh.loader) == expected


def test_a_run_that_was_saved_between_epochs_begins_the_next(prefix):
    saved = loader(seed=3)
    read(saved)
    checkpoint(saved).write(prefix)
    expected = read(saved)
    fresh = checkpoint(loader(seed=9))
    fresh.read(prefix)
    assert read(fresh.loader) == expected


def test_restoring_and_reporting_starts_no_worker_and_draws_nothing(prefix):
    saved = loader(2)
    read(saved, 1)
    Checkpoint(loader=saved, step=Variable(0)).write(prefix)
    live = Checkpoint(loader=loader(2), step=Variable(0), other=loader(2))
    state = torch.get_rng_state()
    assert live.read(prefix).report().counts()["missing"] == 1
    assert torch.equal(torch.get_rng_state(), state)
    assert live.loader._iterator is None
    assert live.other._iterator is None


def test_another_number_of_workers_is_a_mismatch_that_changes_nothing(prefix):
    saved = loader(2)
    read(saved)
    checkpoint(saved, 5).write(prefix)
    live = checkpoint(loader(0))
    with pytest.raises(MismatchError, match="number of workers") as caught:
        live.read(prefix)
    assert caught.value.remedy == "make the loader with num_workers=2"
    assert live.step.numpy() == 0
    assert len(read(live.loader)) == 12


def test_a_failed_restore_leaves_a_running_loader_where_it_is(prefix):
    first = loader(seed=3)
    read(first, 2)
    Checkpoint(a=first, b=loader(0)).write(prefix)
    live = Checkpoint(a=loader(seed=4), b=loader(2))
    iterator, twin = iter(live.a), iter(loader(seed=4))
    assert read(iterator, 4) is not None
    with pytest.raises(MismatchError):
        live.read(prefix)
    Checkpoint(a=live.a).write(prefix + "-after")
    read(twin, 4)
    assert [batch for batch, _ in read(iterator)] == [batch for batch, _ in read(twin)]


def test_a_loader_that_is_attached_after_the_restore_goes_on(prefix):
    saved = loader(seed=3)
    iterator = iter(saved)
    read(iterator, 3)
    checkpoint(saved).write(prefix)
    expected = read(iterator)
    live = Checkpoint(step=Variable(0), random=RandomState())
    live.read(prefix)
    live.loader = loader(seed=9)
    assert read(live.loader) == expected


def nodes(seed):
    sampler = RandomSampler(range(24), generator=torch.Generator().manual_seed(seed))
    return Batcher(SamplerWrapper(sampler), 3)


def test_a_loader_of_nodes_goes_on(prefix):
    saved = Loader(nodes(3))
    iterator = iter(saved)
    for _ in range(3):
        next(iterator)
    Checkpoint(loader=saved, step=Variable(3)).write(prefix)
    expected = list(iterator)
    live = Checkpoint(loader=Loader(nodes(3)), step=Variable(0))
    live.read(prefix).assert_consumed()
    live.write(prefix + "-again")
    assert list(live.loader) == expected
    again = Checkpoint(loader=Loader(nodes(3)))
    again.read(prefix + "-again")
    assert list(again.loader) == expected


def test_a_node_without_a_loader_goes_on(prefix):
    node = IterableWrapper(range(9))
    for _ in range(4):
        next(node)
    Checkpoint(node=node).write(prefix)
    live = Checkpoint(node=IterableWrapper(range(9)))
    live.read(prefix).assert_consumed()
    assert list(live.node) == [4, 5, 6, 7, 8]


TRAINING = """
    import os, signal, sys, warnings
    warnings.simplefilter("ignore")  # of other libraries; only what is printed counts
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader
    import milepost

    if __name__ == "__main__":
        directory, kill_at = sys.argv[1], int(sys.argv[2])
        torch.manual_seed(0)
        loader = StatefulDataLoader(list(range(40)), batch_size=2, shuffle=True, num_workers=2)
        total = milepost.Variable(0.0)
        checkpoint = milepost.Checkpoint(
            loader=loader, total=total, step=milepost.Variable(0), random=milepost.RandomState()
        )
        manager = milepost.CheckpointManager(checkpoint, directory, max_to_keep=2)
        manager.restore_or_initialize()
        for batch in loader:
            total.assign(total * 1.01 + float((batch * torch.rand(2)).sum()))
            checkpoint.step.assign_add(1)
            manager.save()
            if checkpoint.step.numpy() == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        print(repr(float(total.numpy())), int(checkpoint.step.numpy()))
"""


def test_a_killed_run_with_workers_ends_as_one_that_was_not_killed(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAINING))

    def run(directory, kill_at=-1, hash_seed=1):
        return programs.run(
            [script, tmp_path / directory, str(kill_at)],
            imports=programs.imports("torch", "torchdata.stateful_dataloader"),
            environment=programs.environment(hash_seed=hash_seed),
        )

    whole = run("whole")
    assert whole.stdout.endswith(" 20\n"), whole.stderr
    assert run("killed", 9).returncode == -signal.SIGKILL
    assert run("killed", 13).returncode == -signal.SIGKILL
    assert run("killed", hash_seed=2).stdout == whole.stdout
