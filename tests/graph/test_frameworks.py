"""Adapters are imported as a whole or not at all, and one that cannot be imported is never passed over."""

import importlib
import subprocess
import sys
import textwrap
import threading
import types

import numpy as np
import pytest

import milepost
from milepost import AdapterError, Checkpoint, Variable
from milepost.graph import adapter as contract
from milepost.graph import frameworks
from milepost.graph.adapter import adapter_of
from milepost.graph.frameworks import import_adapters, imported, register_framework
from milepost.plain_state.encoding import pack

ADAPTER = """
    import some_framework
    from milepost.graph.adapter import Adapter, register
    from milepost.plain_state.encoding import register_kind

    class ThingAdapter(Adapter):
        leaf = functional = True

        def handles(self, kind):
            return issubclass(kind, some_framework.Thing)

    register(ThingAdapter())
    register_kind("thing", lambda value: isinstance(value, some_framework.Thing), str, str)
    """


@pytest.fixture
def framework(tmp_path, monkeypatch):
    """Makes a framework of version 9 of which the adapter needs a private name that is gone; returns its module."""
    (tmp_path / "some_framework.py").write_text("__version__ = '9.0'\nclass Thing: pass\n")
    for name, value in vars(contract.registry).items():
        monkeypatch.setattr(contract.registry, name, value)
    monkeypatch.setattr(frameworks, "_awaited", {})
    monkeypatch.setattr(frameworks, "_known", dict(frameworks._known))
    monkeypatch.setattr(contract.registry, "by_type", {})
    monkeypatch.syspath_prepend(tmp_path)

    def make(adapter):
        (tmp_path / "some_adapter.py").write_text(textwrap.dedent(adapter))
        register_framework("some_framework", "some_adapter", tried="1.2")
        return importlib.import_module("some_framework")

    yield make
    for name in ("some_framework", "some_adapter"):
        sys.modules.pop(name, None)


GONE = ADAPTER + "\n    from some_framework import _gone\n"


def test_every_attempt_raises_the_same_error(framework, tmp_path):
    thing = framework(GONE).Thing()
    texts = set()
    for _ in range(3):
        with pytest.raises(AdapterError) as caught:
            Checkpoint(thing=thing).write(tmp_path / "ckpt")
        texts.add(str(caught.value))
    assert len(texts) == 1
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value.__cause__, ImportError)


def test_the_error_names_framework_versions_missing_name_and_remedy(framework):
    framework(GONE)
    with pytest.raises(AdapterError) as caught:
        adapter_of(object())
    error = caught.value
    assert (error.framework, error.version, error.tried) == ("some_framework", "9.0", "1.2")
    assert error.key == error.name == "some_framework._gone"
    assert "some_framework 1.2" in str(error.expected)
    assert "some_framework 9.0" in str(error.found)
    assert "install some_framework 1.2" in str(error.remedy)


@pytest.mark.parametrize(
    "failure",
    ["import some_framework.gone", "some_framework.gone", "raise TypeError('another signature')", "1 / 0"],
)
def test_whatever_goes_wrong_in_the_adapter_is_the_same_error(framework, failure):
    framework(ADAPTER + f"\n    {failure}\n")
    for _ in range(2):
        with pytest.raises(AdapterError, match="some_framework"):
            adapter_of(object())


def test_nothing_of_a_failed_adapter_stays_behind(framework):
    thing = framework(GONE).Thing()
    adapters, functional = contract.registry.adapters, contract.registry.functional
    with pytest.raises(AdapterError):
        adapter_of(thing)
    assert contract.registry.adapters == adapters
    assert contract.registry.functional == functional
    assert "some_adapter" not in sys.modules
    with pytest.raises(AdapterError):
        pack(thing)


def test_an_adapter_that_can_be_imported_later_is(framework, tmp_path):
    module = framework(GONE)
    with pytest.raises(AdapterError):
        adapter_of(module.Thing())
    module._gone = None
    assert adapter_of(module.Thing()) is not None


def test_an_adapter_in_a_package_registers_again_what_it_had_registered_before_it_failed(framework, tmp_path):
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "things.py").write_text(textwrap.dedent(ADAPTER))
    (package / "adapters.py").write_text("import some_package.things\nfrom some_framework import _gone\n")
    module = framework("")
    register_framework("some_framework", "some_package.adapters", tried="1.2")
    with pytest.raises(
        AdapterError, match=r"^some_package.adapters cannot use the installed version of some_framework"
    ):
        adapter_of(module.Thing())
    module._gone = None
    assert adapter_of(module.Thing()) is not None


def test_objects_of_known_types_are_not_saved_without_it_either(framework, tmp_path):
    checkpoint = Checkpoint(step=Variable(1))
    path = checkpoint.write(tmp_path / "before")
    framework(GONE)
    with pytest.raises(AdapterError):
        checkpoint.write(tmp_path / "after")
    with pytest.raises(AdapterError):
        checkpoint.read(path)
    assert not (tmp_path / "after.index").exists()


def test_a_framework_that_another_thread_is_importing_is_waited_for_by_nobody(framework, tmp_path):
    (tmp_path / "some_framework.py").write_text(
        "import some_gate\nsome_gate.entered.set()\nsome_gate.leave.wait(60)\n__version__ = '9.0'\nclass Thing: pass\n"
    )
    gate = sys.modules["some_gate"] = types.ModuleType("some_gate")
    gate.entered, gate.leave = threading.Event(), threading.Event()
    importing = threading.Thread(target=framework, args=(ADAPTER,))
    importing.start()
    try:
        assert gate.entered.wait(60)
        Checkpoint(array=np.ones(2)).write(tmp_path / "ckpt")
        assert "some_adapter" not in sys.modules
    finally:
        gate.leave.set()
        importing.join(60)
        del sys.modules["some_gate"]
    assert adapter_of(sys.modules["some_framework"].Thing()) is not None


def test_a_thread_waits_for_the_adapter_that_another_is_importing(framework):
    gate = sys.modules["some_gate"] = types.ModuleType("some_gate")
    gate.entered, gate.leave = threading.Event(), threading.Event()
    module = framework(
        "import some_gate\nsome_gate.entered.set()\nsome_gate.leave.wait(60)\n" + textwrap.dedent(ADAPTER)
    )
    found = []
    first = threading.Thread(target=import_adapters)
    second = threading.Thread(target=lambda: found.append(adapter_of(module.Thing())))
    first.start()
    try:
        assert gate.entered.wait(60)
        second.start()
        second.join(0.2)
        assert second.is_alive()
    finally:
        gate.leave.set()
        first.join(60)
        second.join(60)
        del sys.modules["some_gate"]
    assert found != [None]


@pytest.mark.parametrize("stub", [None, types.ModuleType("torch")], ids=["blocked", "empty"])
def test_what_only_has_the_name_of_a_framework_is_none(stub, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", stub)
    assert imported("torch") is None


def test_a_folder_of_the_name_is_no_framework(tmp_path, monkeypatch):
    (tmp_path / "some_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("some_folder")
    assert imported("some_folder") is None
    del sys.modules["some_folder"]


BREAK = """
import importlib.abc, sys, tempfile

class Break(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise ImportError("cannot import name 'x' from 'y'", name="y")

sys.meta_path.insert(0, Break())
import {framework}
import milepost
for attempt in range(3):
    try:
        {attempt}
        print("passed")
    except milepost.AdapterError as error:
        print(error.framework, error.key)
"""

SAVE = "milepost.Checkpoint(step=milepost.Variable(0)).write(tempfile.mkdtemp() + '/ckpt')"


@pytest.mark.parametrize(
    ("framework", "module", "attempt"),
    [
        ("torch", "milepost.adapters.torch.optimizers.schedulers", SAVE),
        ("jax", "milepost.adapters.jax.refs", SAVE),
        (
            "jax",
            "milepost.adapters.jax.refs",
            "import milepost.jax; milepost.jax.save(tempfile.mkdtemp() + '/t', [1.0])",
        ),
        ("flax.nnx", "milepost.adapters.flax.variables", SAVE),
        ("tensorflow", "milepost.adapters.tensorflow.variables", SAVE),
        ("tensorflow", "milepost.adapters.tensorflow.variables", "milepost.RandomState(mine={})"),
        ("keras", "milepost.adapters.keras.variables", SAVE),
        ("keras", "milepost.callbacks.keras3", "import milepost.keras"),
        ("tf_keras", "milepost.callbacks.keras2", "import milepost.tf_keras"),
    ],
)
def test_each_framework_fails_every_time(framework, module, attempt):
    pytest.importorskip(framework.partition(".")[0])
    program = BREAK.format(framework=framework, module=module, attempt=attempt)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ended.stdout.split("\n")[:3] == [f"{framework.partition('.')[0]} y.x"] * 3, ended.stderr


def test_a_keras_that_is_too_old_for_the_callback_is_refused_by_name():
    pytest.importorskip("keras")
    program = "import keras; keras.__version__ = '3.6.0'; import milepost.keras"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert "AdapterError" in ended.stderr
    assert "keras 3.6.0: ImportError: the callback needs Keras 3.10 or newer" in ended.stderr


@pytest.mark.parametrize("framework", ["torch", "jax", "flax", "tensorflow", "keras"])
def test_the_versions_that_adapters_were_tried_with_are_those_installed(framework):
    version = pytest.importorskip(framework).__version__
    assert version.startswith(tuple(frameworks._known[framework].tried.split(" and ")))


def test_the_error_is_public():
    assert milepost.AdapterError is AdapterError


def test_a_registry_is_put_back_as_it_was(monkeypatch):
    monkeypatch.setattr(frameworks, "_registries", [])
    kinds = frameworks.registry({"a": "first"})
    (snapshot,) = frameworks._registries
    put_back = snapshot()
    kinds |= {"a": "changed", "b": "new"}
    put_back()
    assert kinds == {"a": "first"}
