"""The adapter contract, with the objects of a framework that knows nothing of milepost."""

import importlib
import sys
import textwrap

import numpy as np
import pytest

from milepost import Checkpoint, Module
from milepost.deferred.table import admit
from milepost.errors import UntrackableError, UntrackedWarning
from milepost.graph import adapter as contract
from milepost.graph import frameworks
from milepost.graph.adapter import Adapter, Value, adapter_of, register, unregister
from milepost.graph.frameworks import register_framework
from milepost.graph.keys import VARIABLE_VALUE
from milepost.tensor import DType


class Weight:
    """A framework's variable."""

    def __init__(self, array):
        self.array = np.asarray(array, np.float32)


class Layer:
    """A framework's layer, which can be listened to."""

    def __init__(self, **weights):
        self.weights = weights
        self.listener = None

    def add(self, name, weight):
        self.weights[name] = weight
        if self.listener is not None:
            self.listener(name, weight)


class WeightAdapter(Adapter):
    leaf = True

    def handles(self, kind):
        return kind is Weight

    def values(self, obj):
        return (Value(VARIABLE_VALUE, DType.of(obj.array), obj.array.shape, obj.array, obj.array),)


class LayerAdapter(Adapter):
    def handles(self, kind):
        return kind is Layer

    def children(self, obj):
        return obj.weights.items()

    def aliases(self, obj):
        return {"_kernel": "kernel"}

    def on_deferred(self, obj):
        obj.listener = lambda name, weight: admit(obj, name, weight)


@pytest.fixture(autouse=True)
def adapters(monkeypatch):
    for name, value in vars(contract.registry).items():
        monkeypatch.setattr(contract.registry, name, value)
    monkeypatch.setattr(frameworks, "_frameworks", {})
    monkeypatch.setattr(contract.registry, "by_type", {})
    register(WeightAdapter())
    register(LayerAdapter())


def test_foreign_objects_are_saved_and_restored_in_place(tmp_path):
    path = Checkpoint(layer=Layer(bias=Weight([1, 2]))).write(tmp_path / "ckpt")
    live = Layer(bias=Weight([0, 0]))
    memory = live.weights["bias"].array
    Checkpoint(layer=live).read(path).assert_consumed()
    assert memory.tolist() == [1, 2]


def test_an_edge_is_matched_by_another_name(tmp_path):
    path = Checkpoint(layer={"_kernel": Weight([1])}).write(tmp_path / "ckpt")
    live = Layer(kernel=Weight([0]))
    Checkpoint(layer=live).read(path).assert_consumed()
    assert live.weights["kernel"].array == 1


def test_a_late_child_of_a_watched_object_arrives_under_either_name(tmp_path):
    path = Checkpoint(layer={"_kernel": Weight([1]), "bias": Weight([2])}).write(tmp_path / "ckpt")
    live = Layer()
    status = Checkpoint(layer=live).read(path)
    live.add("kernel", Weight([0]))
    live.add("bias", Weight([0]))
    assert live.weights["kernel"].array == 1
    assert live.weights["bias"].array == 2
    assert status.report().counts()["deferred"] == 0


def test_an_adapter_registered_later_is_asked_first():
    class Finer(WeightAdapter):
        pass

    finer = Finer()
    register(finer)
    assert adapter_of(Weight([1])) is finer


def test_a_frameworks_adapter_is_imported_when_the_user_has_imported_the_framework(tmp_path, monkeypatch):
    (tmp_path / "some_framework.py").write_text("class Thing: pass\n")
    (tmp_path / "some_adapter.py").write_text(
        textwrap.dedent("""
        import some_framework
        from milepost.graph.adapter import Adapter, register

        class ThingAdapter(Adapter):
            def handles(self, kind):
                return issubclass(kind, some_framework.Thing)

        register(ThingAdapter())
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    register_framework("some_framework", "some_adapter")
    assert adapter_of(object()) is None
    assert "some_adapter" not in sys.modules
    thing = importlib.import_module("some_framework").Thing()
    assert adapter_of(thing) is not None
    assert sys.modules.pop("some_adapter")
    del sys.modules["some_framework"]


class Gauge:
    """Of a class that no adapter knows at first."""

    def __init__(self, level):
        self.level = np.array(level, np.float32)


class GaugeAdapter(Adapter):
    leaf = True

    def handles(self, kind):
        return issubclass(kind, Gauge)

    def values(self, obj):
        return (Value("level", DType.of(obj.level), obj.level.shape, obj.level, obj.level),)


class Panel(Module):
    def __init__(self, gauge):
        self.gauge = gauge


def test_an_adapter_is_found_although_its_objects_were_met_before(prefix):
    panel = Panel(Gauge(3.0))
    with pytest.warns(UntrackedWarning, match="an object of type Gauge is not tracked"):
        path = Checkpoint(panel=panel).write(prefix)
    with pytest.raises(UntrackableError):
        Checkpoint(gauge=panel.gauge)
    register(GaugeAdapter())
    assert Checkpoint(panel=panel).read(path).report().counts()["missing"] == 1
    path = Checkpoint(panel=panel, gauge=panel.gauge).write(prefix)
    live = Panel(Gauge(0.0))
    Checkpoint(panel=live, gauge=live.gauge).read(path).assert_consumed()
    assert live.gauge.level == 3


def test_a_value_waits_for_the_registration_of_its_adapter(prefix, monkeypatch):
    adapter = GaugeAdapter()
    register(adapter)
    path = Checkpoint(panel=Panel(Gauge(3.0))).write(prefix)
    unregister(adapter)
    live = Panel(Gauge(0.0))
    status = Checkpoint(panel=live).read(path)
    assert status.report().counts()["deferred"] == 1
    register(adapter)
    status.assert_consumed()
    assert live.gauge.level == 3


def test_an_adapter_that_is_taken_back_is_asked_no_more():
    adapter = GaugeAdapter()
    register(adapter)
    assert adapter_of(Gauge(1.0)) is adapter
    unregister(adapter)
    assert adapter_of(Gauge(1.0)) is None
    with pytest.raises(ValueError, match="not registered"):
        unregister(adapter)


def test_an_adapter_says_which_objects_it_handles():
    class Undecided(Adapter):
        pass

    with pytest.raises(TypeError, match="handles"):
        Undecided()


def test_tracks_is_asked_if_it_is_overridden():
    class Sometimes(GaugeAdapter):
        def tracks(self, obj):
            return bool(obj.level)

    register(Sometimes())
    assert adapter_of(Gauge(1.0)) is not None
    assert adapter_of(Gauge(0.0)) is None
