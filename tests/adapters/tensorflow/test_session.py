"""Variables of TensorFlow 1's graphs, which have their values in sessions."""

from typing import Any

import numpy as np
import pytest

import milepost

tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def made(value, *, resource):
    first = v1.get_variable("a", initializer=np.float32([value, value]), use_resource=resource)
    second = v1.get_variable("b", initializer=np.int64(value), use_resource=resource)
    return first, second, milepost.Checkpoint(first=first, more=[second])


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
class TestSessions:
    def test_values_go_from_one_session_to_another(self, tmp_path, resource):
        first, second, checkpoint = made(1, resource=resource)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(first.assign([3.0, 4.0]))
            path = checkpoint.save(session, tmp_path / "c", global_step=7)
        assert path == str(tmp_path / "c-7")
        with v1.Session() as session:
            checkpoint.restore(session, path)
            assert session.run(first).tolist() == [3.0, 4.0]
            assert session.run(second) == 1

    def test_a_frozen_graph_is_saved_and_restored(self, tmp_path, graph, resource):
        first, _, checkpoint = made(1, resource=resource)
        double = first.assign(first * 2)
        initialize = v1.global_variables_initializer()
        graph.finalize()
        with v1.Session() as session:
            session.run(initialize)
            session.run(double)
            path = checkpoint.save(session, tmp_path / "c", write_meta_graph=False)
            session.run(double)
            checkpoint.restore(session, path)
            assert session.run(first).tolist() == [2.0, 2.0]

    def test_the_default_session_is_used_where_none_is_given(self, tmp_path, resource):
        first, _, checkpoint = made(1, resource=resource)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            path = checkpoint.write(tmp_path / "c")
            session.run(first.assign([0.0, 0.0]))
            checkpoint.read(path).assert_consumed()
            assert session.run(first).tolist() == [1.0, 1.0]

    def test_without_a_session_the_error_says_what_to_do(self, tmp_path, resource):
        _, _, checkpoint = made(1, resource=resource)
        with pytest.raises(milepost.UnsupportedError, match="session"):
            checkpoint.write(tmp_path / "c")

    def test_a_variable_without_a_value_is_named(self, tmp_path, resource):
        _, _, checkpoint = made(1, resource=resource)
        with v1.Session(), pytest.raises(milepost.UnsupportedError, match="initializer"):
            checkpoint.write(tmp_path / "c")

    def test_a_restore_without_a_session_waits_for_its_restore_ops(self, tmp_path, resource):
        first, second, checkpoint = made(1, resource=resource)
        status = checkpoint.restore(values_outside(tmp_path, [5, 6], 7)).assert_consumed()
        for _ in range(2):
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                status.run_restore_ops(session)
                assert session.run(first).tolist() == [5.0, 6.0]
                assert session.run(second) == 7

    def test_restore_ops_run_in_the_default_session_too(self, tmp_path, resource):
        first, _, checkpoint = made(1, resource=resource)
        status = checkpoint.restore(values_outside(tmp_path, [5, 6], 7))
        with v1.Session() as session:
            status.run_restore_ops()
            assert session.run(first).tolist() == [5.0, 6.0]

    def test_restore_ops_undo_initializers_that_ran_after_the_restore(self, tmp_path, resource):
        first, _, checkpoint = made(1, resource=resource)
        with v1.Session() as session:
            status = checkpoint.restore(values_outside(tmp_path, [5, 6], 7))
            session.run(v1.global_variables_initializer())
            status.run_restore_ops()
            assert session.run(first).tolist() == [5.0, 6.0]

    def test_restore_ops_without_a_session_say_what_to_do(self, tmp_path, resource):
        _, _, checkpoint = made(1, resource=resource)
        status = checkpoint.restore(values_outside(tmp_path, [5, 6], 7))
        with pytest.raises(milepost.UnsupportedError, match="session"):
            status.run_restore_ops()

    def test_variables_that_come_after_the_restore_have_their_values_too(self, tmp_path, resource):
        checkpoint = milepost.Checkpoint()
        status = checkpoint.restore(values_outside(tmp_path, [5, 6], 7))
        checkpoint.first, *_ = made(1, resource=resource)
        with v1.Session() as session:
            status.run_restore_ops(session)
            assert session.run(checkpoint.first).tolist() == [5.0, 6.0]

    def test_what_is_not_restored_is_initialised(self, tmp_path, resource):
        first, second, checkpoint = made(1, resource=resource)
        only_first = milepost.Checkpoint(first=milepost.Variable(np.float32([5, 6]))).write(tmp_path / "c")
        status = checkpoint.restore(only_first)
        with v1.Session() as session:
            status.initialize_or_restore(session)
            assert session.run(first).tolist() == [5.0, 6.0]
            assert session.run(second) == 1

    def test_everything_is_initialised_where_there_is_no_checkpoint(self, resource):
        first, second, checkpoint = made(1, resource=resource)
        with v1.Session() as session:
            checkpoint.restore(None).initialize_or_restore(session)
            assert session.run(first).tolist() == [1.0, 1.0]
            assert session.run(second) == 1

    def test_variables_that_begin_with_the_same_tensor_get_each_its_own_value(self, tmp_path, resource):
        initial = tf.constant(0.0)
        live = [v1.Variable(initial, use_resource=resource) for _ in range(3)]
        path = milepost.Checkpoint(v=[milepost.Variable(np.float32(n)) for n in range(3)]).write(tmp_path / "c")
        with v1.Session() as session:
            milepost.Checkpoint(v=live).restore(session, path)
            assert session.run(live) == [0.0, 1.0, 2.0]

    def test_it_is_one_run_of_the_session_each(self, tmp_path, resource):
        _, _, checkpoint = made(1, resource=resource)
        runs = []

        class Counting(v1.Session):
            def run(self, *args, **kwargs):
                runs.append(args)
                return super().run(*args, **kwargs)

        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            with Counting() as counting:
                counting.run(v1.global_variables_initializer())
                del runs[:]
                path = checkpoint.save(counting, tmp_path / "c")
                assert len(runs) == 1
                checkpoint.restore(counting, path)
                assert len(runs) == 2


def values_outside(directory, first, second):
    """A checkpoint as `made` has it, of variables that need no session."""
    checkpoint = milepost.Checkpoint(
        first=milepost.Variable(np.float32(first)), more=[milepost.Variable(np.int64(second))]
    )
    return checkpoint.save(directory / "outside")


@pytest.mark.parametrize("name", ["run_restore_ops", "initialize_or_restore"])
def test_a_value_outside_of_sessions_stays_as_training_left_it(tmp_path, name):
    live = milepost.Checkpoint(first=milepost.Variable(np.zeros(2, np.float32)))
    status = live.restore(values_outside(tmp_path, [5, 6], 7))
    live.first.assign([8, 9])
    getattr(status, name)()
    assert live.first.numpy().tolist() == [8, 9]


@pytest.mark.parametrize("kind", [milepost.Checkpoint, tf.train.Checkpoint])
def test_tensorflows_checkpoint_restores_it_and_is_restored(tmp_path, kind):
    other = milepost.Checkpoint if kind is tf.train.Checkpoint else tf.train.Checkpoint
    variable = v1.get_variable("a", initializer=np.float32([1, 2]))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        path = kind(v=variable).write(str(tmp_path / "c"))
        session.run(variable.assign([0.0, 0.0]))
        other(v=variable).read(path).assert_consumed().run_restore_ops()
        assert session.run(variable).tolist() == [1.0, 2.0]


def test_slot_variables_of_optimizers_are_saved_and_restored(tmp_path):
    variable = v1.get_variable("a", initializer=np.float32([1, 2]))
    optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
    update = optimizer.minimize(lambda: tf.reduce_sum(variable**2))
    checkpoint = milepost.Checkpoint(v=variable, optimizer=optimizer)
    slot = optimizer.get_slot(variable, "momentum")
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(update)
        path = checkpoint.save(session, tmp_path / "c")
        expected = session.run(slot)
    with v1.Session() as session:
        checkpoint.restore(session, path)
        np.testing.assert_array_equal(session.run(slot), expected)
        assert expected.all()


def test_a_strategys_variables_are_saved_and_restored(tmp_path):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0])
    checkpoint = milepost.Checkpoint(v=variable)
    path = milepost.Checkpoint(v=milepost.Variable(np.float32([5, 6]))).write(tmp_path / "c")
    with v1.Session() as session:
        checkpoint.restore(session, path)
        again = checkpoint.save(session, tmp_path / "d")
    assert milepost.load_variable(again, "v/.ATTRIBUTES/VARIABLE_VALUE").tolist() == [5.0, 6.0]


def test_what_the_checkpoint_lacks_is_an_error(tmp_path):
    first, _, checkpoint = made(1, resource=True)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        path = milepost.Checkpoint(first=first).save(session, tmp_path / "c")
        with pytest.raises(milepost.UnmatchedError, match="more/0"):
            checkpoint.restore(session, path)


def test_what_does_not_fit_changes_nothing(tmp_path):
    first, _, checkpoint = made(1, resource=True)
    path = milepost.Checkpoint(
        first=milepost.Variable(np.ones(2, np.float32)), more=[milepost.Variable(np.float32(2))]
    ).write(tmp_path / "c")
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(first.assign([5.0, 5.0]))
        with pytest.raises(milepost.MismatchError, match="more/0"):
            checkpoint.restore(session, path)
        assert session.run(first).tolist() == [5.0, 5.0]


def test_the_newest_five_are_kept(tmp_path):
    _, _, checkpoint = made(1, resource=True)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for step in range(7):
            checkpoint.save(session, tmp_path / "c", global_step=step, write_meta_graph=False)
    assert sorted(each.name for each in tmp_path.glob("*.index")) == [f"c-{step}.index" for step in range(2, 7)]
    assert milepost.latest_checkpoint(tmp_path) == str(tmp_path / "c-6")


def test_arguments_of_sessions_are_refused_without_one(tmp_path):
    with pytest.raises(TypeError, match="global_step"):
        milepost.Checkpoint(v=milepost.Variable(1.0)).save(tmp_path / "c", global_step=3)


def test_tensorflow_1_saver_reads_what_was_saved_by_name(tmp_path):
    first, second, checkpoint = made(4, resource=True)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        path = checkpoint.save(session, tmp_path / "c", global_step=1)
    with v1.Session() as session:
        v1.train.Saver([first, second]).restore(session, path)
        assert session.run(first).tolist() == [4.0, 4.0]


class Held(tf.Module):
    """Holds two variables of the graph that nothing tracks."""

    def __init__(self, first, second):
        super().__init__()
        self._held = (
            v1.get_variable("first", initializer=np.float32(first)),
            v1.get_variable("second", initializer=np.int64(second)),
        )

    def _trackable_children(self, save_type="checkpoint", **kwargs):
        return {}


class Pair(Held):
    """Says with two tensors of the graph what it holds."""

    def _serialize_to_tensors(self):
        return {"first": self._held[0], "second": self._held[1].read_value()}

    def _restore_from_tensors(self, restored_tensors):
        return tf.group(
            self._held[0].assign(restored_tensors["first"]), self._held[1].assign(restored_tensors["second"])
        )


class Mirrored(Held):
    """Says it by the older protocol: one value, given to both variables."""

    def _gather_saveables_for_checkpoint(self):
        from tensorflow.python.training.saving import saveable_object

        first, second = self._held

        class Saveable(saveable_object.SaveableObject):
            def __init__(self, name):
                specs = [saveable_object.SaveSpec(first.read_value(), "", f"{name}-part")]
                super().__init__(None, specs, name)

            def restore(self, restored_tensors, restored_shapes):
                return tf.group(
                    first.assign(restored_tensors[0]), second.assign(tf.cast(restored_tensors[0], tf.int64))
                )

        return {"both": lambda name="": Saveable(name)}


@pytest.mark.parametrize(("kind", "expected"), [(Pair, [5.0, 7]), (Mirrored, [5.0, 5])])
class TestObjectsThatHoldTensorsOfTheGraph:
    def test_the_default_session_saves_and_restores_them(self, tmp_path, kind, expected):
        live = kind(5, 7)
        checkpoint = milepost.Checkpoint(live=live)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            path = checkpoint.write(tmp_path / "c")
            session.run([each.assign(0) for each in live._held])
            checkpoint.read(path).assert_consumed()
            assert session.run(list(live._held)) == expected

    def test_a_restore_without_a_session_waits_for_its_restore_ops(self, tmp_path, kind, expected):
        live = kind(5, 7)
        checkpoint = milepost.Checkpoint(live=live)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            path = checkpoint.write(tmp_path / "c")
        status = checkpoint.read(path)
        for _ in range(2):
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                session.run([each.assign(0) for each in live._held])
                status.run_restore_ops(session)
                assert session.run(list(live._held)) == expected

    def test_a_given_session_saves_and_restores_them(self, tmp_path, kind, expected):
        live = kind(5, 7)
        checkpoint = milepost.Checkpoint(live=live)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            path = checkpoint.save(session, tmp_path / "c")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run([each.assign(0) for each in live._held])
            checkpoint.restore(session, path)
            assert session.run(list(live._held)) == expected

    def test_without_a_session_the_error_says_what_to_do(self, tmp_path, kind, expected):
        with pytest.raises(milepost.UnsupportedError, match="session") as caught:
            milepost.Checkpoint(live=kind(5, 7)).write(tmp_path / "c")
        assert caught.value.key == "live"


def test_an_iterator_of_a_graph_is_refused_with_its_path(tmp_path):
    iterator = v1.data.make_one_shot_iterator(tf.data.Dataset.range(3))
    with v1.Session(), pytest.raises(milepost.MilepostError, match="session") as caught:
        milepost.Checkpoint(data=iterator).write(tmp_path / "c")
    assert "data" in str(caught.value)


class TestStepsThatASessionKnows:
    def test_a_manager_numbers_checkpoints_by_a_variable(self, tmp_path):
        step = v1.get_variable("step", initializer=np.int64(4))
        manager = milepost.CheckpointManager(milepost.Checkpoint(step=step), tmp_path, 2)
        with v1.Session() as session:
            session.run(step.initializer)
            assert manager.save(checkpoint_number=step) == str(tmp_path / "ckpt-4")
            session.run(step.assign_add(2))
            assert manager.save(checkpoint_number=step + 1) == str(tmp_path / "ckpt-7")

    def test_a_manager_saves_at_its_interval(self, tmp_path):
        step = v1.get_variable("step", initializer=np.int64(0))
        manager = milepost.CheckpointManager(
            milepost.Checkpoint(step=step), tmp_path, None, step_counter=step, checkpoint_interval=2
        )
        saved = []
        with v1.Session() as session:
            session.run(step.initializer)
            for _ in range(4):
                saved.append(manager.save() is not None)
                session.run(step.assign_add(1))
        assert saved == [True, False, True, False]

    def test_without_a_session_the_error_says_what_to_do(self, tmp_path):
        step = v1.get_variable("step", initializer=np.int64(0))
        manager = milepost.CheckpointManager(milepost.Checkpoint(), tmp_path, 2)
        with pytest.raises(milepost.UnsupportedError, match="session"):
            manager.save(checkpoint_number=step)
        assert int(manager.checkpoint.save_counter) == 0
