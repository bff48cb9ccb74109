"""A restore that fails, wherever it does, has changed nothing, or says what it has."""

import contextlib
import gc
import weakref

import numpy as np
import pytest

from milepost import (
    Checkpoint,
    CheckpointOptions,
    MilepostError,
    Module,
    PythonState,
    RefusedError,
    UntrackableError,
    Variable,
)
from milepost.deferred import table
from milepost.deferred.identity import last_restore
from milepost.graph import adapter
from milepost.restoring import undo
from milepost.storage import LocalStorage
from tests.bundle import bundles
from tests.objects import module


class Fails:
    """What an adapter of the test raises, and when."""

    settled: BaseException | None = None
    watch: BaseException | None = None
    replace: BaseException | None = None


def fail(where):
    error = getattr(Fails, where)
    if isinstance(error, KeyboardInterrupt):  # which comes once
        setattr(Fails, where, None)
    if error is not None:
        raise error


class Holder(Module):
    """A module of a framework that may fail."""


class Framework(adapter.Adapter):
    def handles(self, kind):
        return kind is Holder

    def _own(self):
        return adapter.adapter_of_type(Module)

    def children(self, obj):
        return self._own().children(obj)

    def replace(self, obj, changes):
        fail("replace")
        return self._own().replace(obj, changes)

    def on_restored(self, obj):
        fail("settled")

    def on_deferred(self, obj):
        fail("watch")


@pytest.fixture(autouse=True)
def framework():
    own = Framework()
    adapter.register(own)
    yield
    adapter.unregister(own)  # and keep the adapters of frameworks that were imported meanwhile
    for name in ("settled", "watch", "replace"):
        setattr(Fails, name, None)


class State(PythonState):
    def __init__(self, text, error=None):
        self.text, self.error = text, error

    def serialize(self):
        return self.text

    def deserialize(self, string_value):
        if self.error is not None and string_value == "new":
            raise self.error
        self.text = string_value


def objects(number, text, error=None):
    frozen = np.full(3, number, np.float32)
    frozen.flags.writeable = False
    holder = Holder()
    holder.a, holder.t = Variable(np.full(3, number, np.float32)), (np.float32(number), {"k": frozen})
    holder.s, holder.x = np.float32(number), np.full(4, number, np.float32)
    return Checkpoint(h=holder, state=State(text, error), late=module() if text == "old" else module(v=Variable(1.0)))


def values(live):
    holder = live.h
    numbers = [*holder.a.numpy(), holder.t[0], *holder.t[1]["k"], holder.s, *holder.x]
    return {float(number) for number in numbers}, live.state.text


@pytest.mark.parametrize("kind", [ValueError, MemoryError, AttributeError, RuntimeError, KeyError, OSError])
@pytest.mark.parametrize("where", ["settled", "watch", "replace"])
def test_what_runs_after_delivery_is_undone_and_comes_out_as_ours(prefix, where, kind):
    objects(1, "new").write(prefix)
    live = objects(0, "old")
    if where == "watch":
        live.h.missing = None
        other = objects(1, "new")
        other.h.missing = Variable(1.0)
        other.write(prefix)
    gc.collect()
    before = len(table._entries)
    setattr(Fails, where, kind("no such thing"))
    with pytest.raises(RefusedError, match=r"no such thing.*nothing was changed") as caught:
        live.read(prefix)
    assert isinstance(caught.value, kind)
    assert caught.value.__cause__ is getattr(Fails, where)
    assert caught.value.file == prefix
    assert values(live) == ({0.0}, "old")
    assert last_restore(live.h.a) == 0
    del caught
    gc.collect()
    assert len(table._entries) == before
    setattr(Fails, where, None)
    live.read(prefix).expect_partial()
    assert values(live) == ({1.0}, "new")


def test_an_error_of_a_value_names_its_key(prefix):
    objects(1, "new").write(prefix)
    live = objects(0, "old", ValueError("no"))
    with pytest.raises(ValueError, match="no") as caught:
        live.read(prefix)
    assert isinstance(caught.value, MilepostError)
    assert caught.value.key.startswith("state/.ATTRIBUTES/")
    assert caught.value.file == prefix
    assert values(live) == ({0.0}, "old")


@pytest.mark.parametrize("error", [MemoryError, UntrackableError, KeyboardInterrupt])
def test_an_error_holds_nothing_after_it_was_caught(prefix, error):
    """Its traceback has the frames of the restore, and so the arrays of the program. They do not wait for a garbage collection."""
    objects(1, "new").write(prefix)
    live = objects(0, "old", error("no"))
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(MilepostError, KeyboardInterrupt):
            live.read(prefix)
        live.state.error = None
        holder = weakref.ref(live.h)
        del live
        assert holder() is None
    finally:
        gc.enable()


def test_an_error_that_is_ours_stays_what_it_is(prefix):
    objects(1, "new").write(prefix)
    Fails.settled = UntrackableError("not now")
    with pytest.raises(UntrackableError, match="not now"):
        objects(0, "old").read(prefix)


@pytest.mark.parametrize("where", ["settled", "watch"])
def test_an_interrupted_restore_puts_back_what_it_changed(prefix, where):
    other = objects(1, "new")
    other.h.missing = Variable(1.0)
    other.write(prefix)
    live = objects(0, "old")
    setattr(Fails, where, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt) as caught:
        live.read(prefix)
    assert values(live) == ({0.0}, "old")
    assert not getattr(caught.value, "__notes__", [])


class Interrupting(LocalStorage):
    """Raises in the ``count``-th reading of a data file."""

    def __init__(self, count, error):
        super().__init__()
        self.count, self.error = count, error

    def open(self, path):
        file = super().open(path)
        if ".data-" in path:
            read_into, storage = file.read_into, self

            def interrupted(offset, buffer):
                storage.count -= 1
                if not storage.count:
                    raise storage.error
                read_into(offset, buffer)

            file.read_into = interrupted
        return file


def large(number):
    # Each is read by itself, and once more when it is delivered.
    return Checkpoint(l=[Variable(np.full(1 << 20, number, np.float32)) for _ in range(3)])


def readings(prefix):
    storage = Interrupting(10**9, None)
    large(0).read(prefix, CheckpointOptions(storage=storage))
    return 10**9 - storage.count


@pytest.mark.parametrize("room", [1 << 30, 0], ids=["put back", "mixture"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("none left")], ids=["Ctrl-C", "memory"])
def test_an_interrupted_delivery_puts_back_old_values_or_says_that_it_has_not(prefix, monkeypatch, room, error):
    large(1).write(prefix)
    monkeypatch.setattr(undo, "ROOM", room)
    live = large(0)
    with pytest.raises((KeyboardInterrupt, MemoryError)) as caught:
        live.read(prefix, CheckpointOptions(storage=Interrupting(readings(prefix), error)))
    present = {float(value) for each in live.l for value in (each.numpy()[0], each.numpy()[-1])}
    notes = "".join(getattr(caught.value, "__notes__", []))
    if room:
        assert present == {0.0}
        assert notes == ""
    else:
        assert 1.0 in present
        assert "restore again" in notes


def test_a_late_object_that_fails_goes_on_waiting(prefix):
    source = Checkpoint(h=Holder())
    source.h.a = Variable(1.0)
    source.write(prefix)
    live = Checkpoint()
    live.read(prefix)
    late = Holder()
    late.a = Variable(0.0)
    Fails.settled = RuntimeError("not ready")
    with pytest.raises(RefusedError, match="not ready"):
        live.h = late
    assert late.a == 0
    Fails.settled = None
    live.h = late
    assert late.a == 1


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_a_name_based_restore_that_fails_after_delivery_is_undone(prefix, kind):
    bundles.write(LocalStorage(), prefix, {"w": np.float32(1), "x": np.float32(1), "y": np.float32(1)})
    live = Checkpoint(w=Variable(np.float32(0), name="w"), h=Holder())
    live.h.x = Variable(np.float32(0), name="x")
    gc.collect()
    before = len(table._entries)
    Fails.watch = kind("no such thing")
    with pytest.raises((RefusedError, KeyboardInterrupt)) as caught:
        live.read(prefix)
    assert caught.type is KeyboardInterrupt or "nothing was changed" in str(caught.value)
    assert [float(live.w), float(live.h.x)] == [0, 0]
    assert last_restore(live.w) == 0
    assert len(table._entries) == before
    live.late = Variable(np.float32(0), name="y")
    assert float(live.late) == 0
    Fails.watch = None
    live.read(prefix)
    assert [float(live.w), float(live.h.x), float(live.late)] == [1, 1, 1]
