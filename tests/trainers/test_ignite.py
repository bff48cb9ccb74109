"""`milepost.ignite`: engines that go on at any iteration, and a place for the files of ignite's Checkpoint."""

from __future__ import annotations

import functools
import os
import signal

import pytest

pytest.importorskip("ignite")

import torch
from ignite.engine import Engine, Events
from ignite.engine.deterministic import DeterministicEngine
from ignite.handlers import Checkpoint, EarlyStopping, global_step_from_engine
from ignite.metrics import Average

import milepost.ignite
from milepost.retention import Best
from tests.manager.disks import Disk
from tests.trainers.small import BATCHES, KilledError, loader, network, same, seed_all


def run(
    directory,
    at=None,
    function=None,
    seed=0,
    epochs=3,
    epoch_length=None,
    workers=0,
    handler=None,
    objects=None,
    max_iters=None,
    prepare=None,
    data=None,
    **options,
):
    """Trains; returns the model, the batches, and what was logged after each epoch."""
    seed_all(seed)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    seen, logged = [], []

    def step(engine, batch):
        if engine.state.iteration == at:
            function()
        seen.append(batch.sum().item())
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    engine = Engine(step)
    engine.net = model
    if prepare:
        prepare(engine)
    engine.add_event_handler(Events.EPOCH_COMPLETED, lambda: logged.append(torch.rand(()).item()))
    for each in [handler] if isinstance(handler, tuple) else handler or ():
        engine.add_event_handler(*each)
    if directory:
        objects = {"model": model, "optimizer": optimizer, **(objects or {})}
        options = {"every_iterations": 1, "metrics": lambda: {"loss": logged[-1]}, **options}
        milepost.ignite.attach(engine, objects, directory, **options)
    try:
        engine.run(
            data() if data else loader(workers), max_epochs=epochs, max_iters=max_iters, epoch_length=epoch_length
        )
    except KilledError:
        pass
    return model, seen, logged


def kill():
    raise KilledError


@functools.cache
def undisturbed(**settings):
    return run(None, **settings)


class TestResume:
    @pytest.mark.parametrize("settings", [{}, {"workers": 1}, {"epoch_length": 4}], ids=str)
    @pytest.mark.parametrize("iteration", [2, 6, 7, 11])
    def test_a_killed_run_ends_as_an_undisturbed_one(self, tmp_path, settings, iteration):
        whole, seen, logged = undisturbed(**settings)
        _, first, before = run(tmp_path, iteration, kill, **settings)
        model, second, after = run(tmp_path, seed=5, **settings)
        assert same(model, whole)
        assert first + second == seen
        assert before + after == logged

    def test_a_run_that_has_ended_trains_no_more_and_can_be_prolonged(self, tmp_path):
        run(tmp_path, epochs=2)
        assert run(tmp_path, epochs=2)[1] == []
        assert same(run(tmp_path)[0], undisturbed()[0])

    def test_saving_changes_nothing(self, tmp_path):
        assert same(run(tmp_path)[0], undisturbed()[0])


@pytest.mark.parametrize("iteration", [3, BATCHES + 1, BATCHES + 4])
def test_metrics_of_an_epoch_continue(tmp_path, iteration):
    """They begin anew when an epoch starts, which a resumed run does within an epoch, too."""
    averages = []

    def train(directory, at=None):
        metric = Average(lambda output: output)

        def attach(engine):
            metric.attach(engine, "average")

        def note(engine):
            averages.append(metric.compute())

        return run(
            directory, at, kill, handler=(Events.EPOCH_COMPLETED, note), prepare=attach, objects={"average": metric}
        )

    train(None)
    whole, averages[:] = list(averages), []
    train(tmp_path, iteration)
    train(tmp_path)
    assert averages == whole


@pytest.mark.parametrize("iteration", [3, 4, 6, 9])
def test_epochs_of_data_without_length(tmp_path, iteration):
    """The engine finds out how long they are when the first one ends."""

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(torch.rand(14, 4))

    def train(directory, at=None):
        def data():
            return torch.utils.data.DataLoader(Stream(), 4)

        return run(directory, at, kill, data=data)

    _, seen, logged = train(None)
    _, first, before = train(tmp_path, iteration)
    _, second, after = train(tmp_path)
    assert first + second == seen
    assert before + after == logged


def terminating(iteration, skip_completed=False):
    """A handler that ends a run after an iteration."""

    def check(engine):
        if engine.state.iteration == iteration:
            engine.terminate(skip_completed=skip_completed)

    return check


class TestEnded:
    @pytest.mark.parametrize("skip_completed", [False, True])
    @pytest.mark.parametrize("event", [Events.ITERATION_COMPLETED, Events.EPOCH_COMPLETED])
    def test_a_run_that_a_handler_has_ended_stays_so(self, tmp_path, event, skip_completed):
        iteration = BATCHES + (2 if event is Events.ITERATION_COMPLETED else 0)
        handler = (event, terminating(iteration, skip_completed))
        whole, seen, _ = run(None, handler=handler)
        assert len(seen) == iteration
        model, trained, _ = run(tmp_path, handler=handler, every_iterations=4)
        assert trained == seen
        assert same(model, whole)
        with pytest.warns(milepost.MilepostWarning, match="continue_ended=True"):
            again, trained, _ = run(tmp_path, handler=handler)
        assert trained == []
        assert same(again, whole)

    def test_early_stopping_stays_in_force_over_a_kill(self, tmp_path):
        def stopping():
            return EarlyStopping(1, lambda engine: -engine.state.iteration, Engine(lambda engine, batch: None))

        def early(handler):
            def check(engine):
                handler.trainer = engine  # which `run` makes
                handler(engine)

            return Events.EPOCH_COMPLETED, check

        handler = stopping()
        whole, seen, _ = run(None, handler=early(handler), epochs=5)
        assert len(seen) == 2 * BATCHES
        first = stopping()
        _, before, _ = run(tmp_path, BATCHES + 3, kill, handler=early(first), objects={"stop": first}, epochs=5)
        second = stopping()
        model, after, _ = run(tmp_path, handler=early(second), objects={"stop": second}, epochs=5)
        assert before + after == seen
        assert same(model, whole)

    def test_one_that_ended_a_session_continues_if_the_program_says_so(self, tmp_path):
        options = {"continue_ended": True}
        _, first, _ = run(tmp_path, handler=(Events.ITERATION_COMPLETED, terminating(8)), **options)
        model, second, _ = run(tmp_path, **options)
        assert first + second == undisturbed()[1]
        assert same(model, undisturbed()[0])

    def test_iterations_that_were_asked_for_are_no_early_end(self, tmp_path):
        _, seen, _ = run(tmp_path, epochs=None, max_iters=8)
        assert len(seen) == 8
        assert run(tmp_path, epochs=None, max_iters=8)[1] == []
        _, more, _ = run(tmp_path, epochs=None, max_iters=11)
        assert seen + more == undisturbed()[1][:11]


class TestSigterm:
    @pytest.mark.parametrize(
        ("iteration", "number"), [(3, signal.SIGTERM), (3, signal.SIGUSR1), (BATCHES, signal.SIGTERM)], ids=str
    )
    def test_it_saves_and_ends(self, tmp_path, iteration, number):
        options = {"on_sigterm": True, "on_signal": signal.SIGUSR1, "every_iterations": None}
        _, seen, _ = run(tmp_path, iteration, lambda: os.kill(os.getpid(), number), **options)
        assert len(seen) == iteration
        assert same(run(tmp_path, **options)[0], undisturbed()[0])


class TestRetention:
    def test_the_best_are_kept(self, tmp_path):
        seed_all()
        _, _, logged = run(tmp_path, keep=Best(1, by="loss", mode="min"), max_to_keep=1)
        manager = milepost.CheckpointManager(milepost.Checkpoint(), tmp_path, max_to_keep=1)
        best = BATCHES * (1 + logged.index(min(logged)))
        assert manager.best_step(by="loss", mode="min") == best


def test_files_are_saved_with_each_checkpoint(tmp_path):
    run(tmp_path, files={"labels": b"a b"})
    manager = milepost.CheckpointManager(milepost.Checkpoint(), tmp_path, max_to_keep=3)
    assert [manager.files(step) for step in manager.steps] == [{"labels": b"a b"}] * len(manager.steps)


class TestMilepostSaver:
    def test_ignites_checkpoint_saves_with_it(self, tmp_path):
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), 0.1)

        def step(engine, batch):
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()

        engine = Engine(step)
        objects = {"model": model, "optimizer": optimizer, "engine": engine}
        saver = milepost.ignite.MilepostSaver(tmp_path)
        handler = Checkpoint(objects, saver, n_saved=2, global_step_transform=global_step_from_engine(engine))
        engine.add_event_handler(Events.EPOCH_COMPLETED, handler)
        engine.run(loader(), max_epochs=3)
        assert len(os.listdir(tmp_path)) == 2
        other = network()
        Checkpoint.load_objects({"model": other}, checkpoint={"model": saver.load(handler.last_checkpoint)["model"]})
        assert same(other, model)

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            milepost.ignite.MilepostSaver(tmp_path).load("none.pt")


def test_a_deterministic_engine_is_refused(tmp_path):
    with pytest.raises(milepost.UnsupportedError, match="DeterministicEngine"):
        milepost.ignite.attach(DeterministicEngine(lambda engine, batch: None), {}, tmp_path)


@pytest.mark.parametrize("interval", ["every_epochs", "every_iterations", "every_seconds"])
def test_an_interval_of_nothing_has_a_remedy(tmp_path, interval):
    with pytest.raises(milepost.ArgumentError, match=f"remedy: .* None to save without regard to {interval[6:]}"):
        milepost.ignite.attach(Engine(lambda engine, batch: None), {}, tmp_path, **{interval: 0})


def poison(engine):
    with torch.no_grad():
        engine.net[0].weight[0] = float("nan")


@pytest.mark.filterwarnings("ignore:.*(the run goes on|not finite|passed over)")
class TestFailures:
    """What is passed to the manager: failed saves, states that are not finite, and a function that is told of each checkpoint."""

    def test_the_run_goes_on_through_failed_saves_and_saves_its_end(self, tmp_path):
        disk = Disk()
        options = {"options": milepost.CheckpointOptions(storage=disk), "on_failure": milepost.Tolerate(saves=9)}
        changes = (Events.ITERATION_STARTED(once=2), disk.fill), (Events.ITERATION_STARTED(once=5), disk.recover)
        whole, _, _ = run(tmp_path, handler=list(changes), max_to_keep=1, **options)
        assert same(whole, undisturbed()[0])
        assert run(tmp_path)[1] == []

    def test_a_run_whose_last_save_has_failed_ends_in_an_error(self, tmp_path):
        disk = Disk()
        options = {"options": milepost.CheckpointOptions(storage=disk), "on_failure": milepost.Tolerate(saves=99)}
        with pytest.raises(milepost.StorageError, match="the last save has failed"):
            run(tmp_path, handler=(Events.ITERATION_STARTED(once=2), disk.fill), **options)

    def test_a_run_that_became_nan_continues_from_its_last_finite_checkpoint(self, tmp_path):
        told = []
        options = {"nonfinite": milepost.KeepLastFinite(restore=True), "max_to_keep": 1, "on_committed": told.append}
        run(tmp_path, 6, kill, handler=(Events.ITERATION_STARTED(once=4), poison), **options)
        assert [each.step for each in told if not each.nonfinite][-1] == 3
        assert same(run(tmp_path, **options)[0], undisturbed()[0])

    def test_arguments_are_checked_at_once(self, tmp_path):
        for name in ("on_failure", "nonfinite", "on_committed"):
            with pytest.raises(milepost.UnsupportedError, match=name):
                run(tmp_path, **{name: 3})
