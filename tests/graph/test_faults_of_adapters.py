"""Adapters with a fault: a save or a restore fails, names the adapter, and loses nothing."""

from contextlib import contextmanager

import numpy as np
import pytest

from milepost import Checkpoint
from milepost.adapters import Adapter, DType, Value, register, unregister
from milepost.errors import MismatchError, RefusedError, UnsupportedError, UntrackableError
from milepost.graph.adapter import adapter_of


class Dial:
    def __init__(self, angle=1.0):
        self.angle = np.full(3, angle)
        self.held = ()


class DialAdapter(Adapter):
    def handles(self, kind):
        return kind is Dial

    def values(self, dial):
        return [Value("angle", DType.of("float64"), (3,), dial.angle)]

    def assign(self, dial, arrays):
        dial.angle = arrays["angle"]
        return dial


class HasNoAssign(Adapter):
    def handles(self, kind):
        return kind is Dial

    def values(self, dial):
        return [Value("angle", DType.of("float64"), (3,), dial.angle)]


class ReturnsNothing(DialAdapter):
    def assign(self, dial, arrays):
        dial.angle = arrays["angle"]


class HoldsAndReturnsNothing(DialAdapter):
    def children(self, dial):
        return [("held", dial.held)]

    def replace(self, dial, changes):
        dial.held = changes["held"]


@contextmanager
def registered(adapter):
    register(adapter)
    try:
        yield adapter
    finally:
        unregister(adapter)


def test_a_value_without_a_way_back_is_refused(tmp_path):
    dial = Dial(2.0)
    with registered(HasNoAssign()):
        path = Checkpoint(dial=Dial(1.0)).write(tmp_path / "ckpt")
        with pytest.raises(UnsupportedError, match="HasNoAssign has no way to restore its value 'angle'") as caught:
            Checkpoint(dial=dial).read(path)
    assert caught.value.key == "dial/.ATTRIBUTES/angle"
    assert caught.value.file == path
    assert "destination=..." in caught.value.remedy
    assert "override assign()" in caught.value.remedy
    assert dial.angle[0] == 2


class IsReadIntoAndNotAssigned(DialAdapter):
    def values(self, dial):
        return [Value("angle", DType.of("float64"), (3,), dial.angle, destination=dial.angle)]

    def assign(self, dial, arrays):
        raise AssertionError("all values were read into memory")


def test_a_value_with_a_destination_is_not_assigned(tmp_path):
    dial = Dial(2.0)
    with registered(IsReadIntoAndNotAssigned()):
        path = Checkpoint(dial=Dial(1.0)).write(tmp_path / "ckpt")
        Checkpoint(dial=dial).read(path)
    assert dial.angle[0] == 1


def test_an_assign_that_returns_nothing_is_refused(tmp_path):
    with registered(ReturnsNothing()):
        path = Checkpoint(dial=Dial(1.0)).write(tmp_path / "ckpt")
        dial = Dial(2.0)
        checkpoint = Checkpoint(dial=dial)
        with pytest.raises(RefusedError, match=r"ReturnsNothing\.assign returned None; it returns the object or its"):
            checkpoint.read(path)
        assert checkpoint.dial is dial
        assert dial.angle[0] == 2


def test_a_replace_that_returns_nothing_is_refused(tmp_path):
    def made(number):
        dial = Dial()
        dial.held = np.float32(number)
        return dial

    with registered(HoldsAndReturnsNothing()):
        path = Checkpoint(dial=made(1)).write(tmp_path / "ckpt")
        checkpoint = Checkpoint(dial=made(2))
        with pytest.raises(RefusedError, match=r"HoldsAndReturnsNothing\.replace returned None"):
            checkpoint.read(path)
        assert checkpoint.dial.held == 2


class HandlesFails(DialAdapter):
    def handles(self, kind):
        return 1 / 0


class ValuesFails(DialAdapter):
    def values(self, dial):
        return 1 / 0


class ChildrenFails(DialAdapter):
    def children(self, dial):
        yield "held", dial.nothing


class ChildrenWithoutNames(DialAdapter):
    def children(self, dial):
        return [3]


class ChildrenOfNumbers(DialAdapter):
    def children(self, dial):
        return 3


class SourceIsNone(DialAdapter):
    def values(self, dial):
        return [Value("angle", DType.of("float64"), (3,), lambda: None)]


class SourceFails(DialAdapter):
    def values(self, dial):
        return [Value("angle", DType.of("float64"), (3,), lambda: 1 / 0)]


@pytest.mark.parametrize(
    ("kind", "method", "cause"),
    [
        (ValuesFails, "values", ZeroDivisionError),
        (ChildrenFails, "children", AttributeError),
        (ChildrenWithoutNames, "children", TypeError),
        (ChildrenOfNumbers, "children", TypeError),
        (SourceIsNone, "values", AttributeError),
        (SourceFails, "values", ZeroDivisionError),
    ],
)
def test_an_adapter_that_fails_is_named_with_its_method(tmp_path, kind, method, cause):
    with registered(kind()), pytest.raises(UntrackableError, match=rf"{kind.__name__}\.{method}\(\) failed") as caught:
        Checkpoint(dial=Dial()).write(tmp_path / "ckpt")
    assert caught.value.key == "dial"
    assert isinstance(caught.value.__cause__, cause)
    assert "complete Dial" not in str(caught.value)


def test_handles_that_fails_is_named():
    class Unknown: ...

    with (
        registered(HandlesFails()),
        pytest.raises(UntrackableError, match=r"HandlesFails\.handles\(\) failed") as caught,
    ):
        adapter_of(Unknown())
    assert "Unknown" in caught.value.key
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


class SaysAnotherShape(DialAdapter):
    def values(self, dial):
        return [Value("angle", DType.of("float64"), (4,), dial.angle)]


def test_a_shape_that_is_not_the_arrays_is_refused(tmp_path):
    with registered(SaysAnotherShape()), pytest.raises(MismatchError, match="'angle'") as caught:
        Checkpoint(dial=Dial()).write(tmp_path / "ckpt")
    assert caught.value.key == "dial"
    assert "(4)" in caught.value.expected
    assert "(3)" in caught.value.found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [object(), DialAdapter, None])
def test_only_adapters_can_be_registered(given):
    with pytest.raises(UnsupportedError, match="only an adapter"):
        register(given)
    assert adapter_of(Dial()) is None
