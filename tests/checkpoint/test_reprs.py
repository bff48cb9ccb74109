"""What objects look like in a debugger: short, true, and harmless whatever they hold."""

import re

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Module, Variable
from milepost.restoring.status import CheckpointLoadStatus, InitializationOnlyStatus, NameBasedStatus
from milepost.storage import LocalStorage
from tests.bundle.bundles import write

HALF_BUILT = [
    Checkpoint,
    CheckpointLoadStatus,
    CheckpointManager,
    CheckpointOptions,
    milepost.CheckpointReader,
    milepost.CheckpointView,
    InitializationOnlyStatus,
    Module,
    NameBasedStatus,
    milepost.SlotOwner,
    milepost.TrackableView,
    Variable,
]


class Net(Module):
    def __init__(self):
        self.kernel = Variable(np.zeros((2, 3)))


@pytest.fixture
def run(tmp_path):
    """A run that has saved twice, and the directory."""
    checkpoint = Checkpoint(net=Net(), step=Variable(0), epoch=3)
    manager = CheckpointManager(checkpoint, tmp_path, max_to_keep=2)
    for _ in range(2):
        manager.save()
    return manager, tmp_path


def test_a_checkpoint_names_what_it_holds(run):
    manager, _ = run
    expected = "<milepost.Checkpoint: epoch=3, net=Net, step=Variable(0), save_counter=Variable(2)>"
    assert repr(manager.checkpoint) == expected
    assert repr(manager.checkpoint.net) == "<Net: kernel=Variable float64[2,3]>"


def test_a_checkpoint_of_many_objects_names_some():
    held = repr(Checkpoint(**{f"v{number}": Variable(0) for number in range(10)}))
    assert "v5=Variable(0), and 4 more>" in held
    assert "v6" not in held


def test_untracked_attributes_are_left_out():
    module = Module()
    module.cache = milepost.NoDependency({})
    assert repr(module) == "<milepost.Module, empty>"


def test_a_manager_names_its_directory_and_its_last_checkpoint(run):
    manager, directory = run
    assert (
        repr(manager) == f"<milepost.CheckpointManager '{shown(directory)}': 2 checkpoints, the last ckpt-2, keeps 2>"
    )
    assert repr(CheckpointManager(Checkpoint(), directory / "x", None)).endswith(": 0 checkpoints, keeps all>")


def test_readers_views_and_statuses_name_their_file(run):
    manager, _ = run
    path = manager.latest_checkpoint
    assert repr(milepost.load_checkpoint(path)) == f"<milepost.CheckpointReader '{shown(path)}': 5 keys>"
    assert repr(milepost.CheckpointView(path)) == f"<milepost.CheckpointView '{shown(path)}': 6 objects>"
    assert repr(milepost.TrackableView(manager.checkpoint)) == "<milepost.TrackableView of milepost.Checkpoint>"
    status = manager.checkpoint.restore(path)
    assert repr(status) == f"<milepost.CheckpointLoadStatus '{shown(path)}': 4 values matched, report() lists them>"
    assert repr(status.report()) == f"<milepost.Report '{shown(path)}': values: 4 matched>"
    assert repr(manager.checkpoint.restore(None)) == "<milepost.InitializationOnlyStatus: nothing was restored>"


def test_looking_at_a_status_does_not_count_as_asking(run):
    """The warning of live values that were not saved comes all the same."""
    manager, _ = run
    live = Checkpoint(step=Variable(0), other=Variable(0.0))
    statuses = [live.restore(manager.latest_checkpoint)]
    assert "report()" in repr(statuses[0])
    with pytest.warns(milepost.UnrestoredWarning, match="other"):
        statuses.clear()


def test_a_status_counts_what_its_report_counts(run):
    manager, _ = run
    manager.checkpoint.net.bias = Variable(0.0)
    path = manager.save()
    live = Checkpoint(net=Net())
    status = live.restore(path, ignore="epoch").expect_partial()
    for changed in (False, True):
        counts = status.report().counts()
        told = f"{counts['matched']} values matched, {counts['deferred']} deferred, {counts['ignored']} ignored"
        assert told in repr(status)
        assert counts["deferred"] == 2 - changed, "step and net/bias"
        live.net.bias = Variable(1.0)


def test_a_status_of_a_name_based_checkpoint_counts_values(tmp_path):
    path = str(tmp_path / "model")
    write(LocalStorage(), path, {"v": np.float32(1), "w": np.float32(2)})
    status = Checkpoint(v=Variable(np.float32(0), name="v")).read(path)
    assert "1 value matched" in repr(status)


def test_a_status_whose_file_is_gone_has_a_repr(run):
    manager, directory = run
    path = manager.latest_checkpoint
    status = Checkpoint(step=Variable(0)).restore(path).expect_partial()
    for each in directory.iterdir():
        each.unlink()
    assert shown(path) in repr(status)


class Unshowable:
    def __repr__(self):
        raise RuntimeError("not now")

    def __call__(self, progress):
        pass


def test_a_value_without_a_repr_has_its_class_in_options():
    assert repr(CheckpointOptions(progress=Unshowable())) == "CheckpointOptions(progress=<Unshowable>)"


def test_a_reader_of_a_damaged_index_has_a_repr(run):
    manager, _ = run
    reader = milepost.load_checkpoint(manager.latest_checkpoint)
    reader._bundle.close()
    assert repr(reader).startswith("<milepost.CheckpointReader '")


def test_options_show_what_is_not_the_default():
    assert repr(CheckpointOptions()) == "CheckpointOptions()"
    assert (
        repr(CheckpointOptions(enable_async=True, strict=True)) == "CheckpointOptions(enable_async=True, strict=True)"
    )


def test_large_variables_are_shown_in_part():
    assert len(repr(Variable(np.zeros((300, 300))))) < 600
    assert len(repr(Variable(np.zeros((3, 3, 3, 3, 3, 3, 3))))) < 1000
    assert len(repr(Variable(b"x" * 100_000))) < 1000


@pytest.mark.parametrize("kind", HALF_BUILT, ids=lambda kind: kind.__name__)
def test_what_was_never_initialized_has_a_repr(kind):
    assert kind.__name__ in repr(kind.__new__(kind))


def test_names_cannot_send_commands_to_a_terminal(tmp_path):
    evil = "a\x1b[2J\n\u202eb"
    checkpoint = Checkpoint(**{evil: Variable(0)})
    manager = CheckpointManager(checkpoint, tmp_path, 1, checkpoint_name=evil)
    path = manager.save()
    status = checkpoint.restore(path)
    kind = type(evil, (Module,), {})()
    shown = [checkpoint, manager, status, status.report(), milepost.load_checkpoint(path), Variable(0, name=evil), kind]
    for each in [*map(repr, shown), repr(milepost.CheckpointView(path))]:
        assert each.isprintable(), each


WITH_TABLES = [CheckpointManager, CheckpointLoadStatus, milepost.CheckpointReader, milepost.CheckpointView]


@pytest.mark.parametrize("kind", WITH_TABLES, ids=lambda kind: kind.__name__)
def test_what_was_never_initialized_has_a_table(kind):
    assert kind.__name__ in kind.__new__(kind)._repr_html_()


def cells(shown):
    """The cells of the table that a notebook shows, with lines between them."""
    return re.sub("(<[^>]*>)+", "|", shown._repr_html_())


def test_a_notebook_shows_tables(run):
    manager, _ = run
    path = manager.latest_checkpoint
    reader = cells(milepost.load_checkpoint(path))
    assert "|net/kernel|float64[2,3]|" in reader
    view = cells(milepost.CheckpointView(path))
    assert "|net/kernel|" in view
    status = Checkpoint(net=Net(), other=Variable(1)).restore(path)
    report = cells(status.report())
    assert "|missing|other|" in report
    assert report.index("|missing") < report.index("|matched"), "what is to be looked at comes first"


def test_a_notebook_shows_the_checkpoints_of_a_manager(run):
    manager, _ = run
    table = cells(manager)
    assert "keeps 2" in table
    assert table.index("|ckpt-2|") < table.index("|ckpt-1|")


def test_a_notebook_shows_the_metrics_of_each_checkpoint(tmp_path):
    manager = CheckpointManager(Checkpoint(v=Variable(0)), tmp_path, None)
    manager.save(1, metrics={"loss": 0.9999995, "eval": {"accuracy": 0.5}})
    damaged = manager.save(2, metrics={"loss": 0.5})
    manager.save(3)
    table = cells(CheckpointManager(Checkpoint(v=Variable(0)), tmp_path, None))
    assert "|metrics|" in table
    assert "|loss=0.9999995 eval/accuracy=0.5|" in table
    with open(damaged + ".index", "wb") as file:
        file.write(b"damaged")
    manager.reload()
    assert "|loss=0.5|" not in cells(manager)


def test_a_notebook_shows_what_would_be_deleted_and_why(run):
    manager, _ = run
    table = cells(manager.dry_run(next_step=3))
    assert "1 to delete" in table
    assert "|ckpt-1|delete|not pinned, not among the newest 2|ckpt-2|keep|" in table


def test_a_notebook_counts_what_a_restore_did_and_its_warning_stays(run):
    manager, _ = run
    checkpoint = Checkpoint(step=Variable(0))
    status = checkpoint.restore(manager.latest_checkpoint)
    table = cells(status)
    assert "|matched|3|" in table
    assert "|deferred|1|" in table
    with pytest.warns(milepost.UnrestoredWarning, match="never restored"):
        del status, checkpoint


def test_a_table_in_a_notebook_has_a_few_rows(tmp_path):
    path = Checkpoint(**{f"v{number}": Variable(0) for number in range(100)}).write(tmp_path / "ckpt")
    table = milepost.load_checkpoint(path)._repr_html_()
    assert table.count("<tr>") == 31
    assert "and 71 more" in table, "100 values and the object graph"


def test_a_table_in_a_notebook_has_no_empty_column(run):
    manager, _ = run
    report = Checkpoint(net=Net()).restore(manager.latest_checkpoint).expect_partial().report()
    assert "|outcome|name|saved|live|" in cells(report)
    assert "|note|" not in cells(report)


def test_a_table_in_a_notebook_without_rows_is_a_heading(tmp_path):
    manager = CheckpointManager(Checkpoint(), tmp_path, 3)
    assert "0 checkpoints" in cells(manager)
    assert "<table>" not in manager._repr_html_()


def test_only_long_names_are_divided_in_a_notebook(tmp_path):
    path = Checkpoint(v=Variable(0), **{"w" * 101: Variable(0)}).write(tmp_path / "ckpt")
    divided = re.findall(r'overflow-wrap:anywhere">(\w+)', milepost.load_checkpoint(path)._repr_html_())
    assert divided == ["w" * 101]


def test_names_are_no_formulas_in_a_notebook(tmp_path):
    """A notebook looks for formulas between dollar signs, unless these classes tell its MathJax not to."""
    path = Checkpoint(**{"$x$": Variable(0)}).write(tmp_path / "ckpt")
    assert milepost.load_checkpoint(path)._repr_html_().startswith('<div class="tex2jax_ignore mathjax_ignore">')


def test_names_are_no_markup_in_a_notebook(tmp_path):
    evil = "</td><script>alert(1)</script>\x1b\u202e"
    path = Checkpoint(**{evil: Variable(0)}).write(tmp_path / "ckpt")
    status = Checkpoint().restore(path).expect_partial()
    manager = CheckpointManager(Checkpoint(), tmp_path / "<script>", 1, checkpoint_name="<script>")
    manager.save()
    for each in (milepost.load_checkpoint(path), milepost.CheckpointView(path), status.report(), manager):
        table = each._repr_html_()
        assert "<script" not in table
        assert "&lt;script&gt;" in table
        assert table.isprintable()


def shown(path):
    """A path as reprs have it: those of tests may be longer than they show."""
    text = str(path)
    return text if len(text) <= 60 else f"{text[:28]}...{text[-29:]}"
