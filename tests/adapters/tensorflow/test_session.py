"""Variables of TensorFlow 1's graphs, which have their values in sessions."""

import numpy as np
import pytest

import milepost

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
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
