"""Adapters are imported as a whole or not at all, and no object of a framework that milepost cannot use is passed over."""

import importlib
import subprocess
import sys
import textwrap
import threading
import types
from dataclasses import replace

import numpy as np
import pytest

import milepost
from milepost import AdapterError, Checkpoint, Module, Variable
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
    others = {name: replace(each, is_awaited=False, error=None) for name, each in frameworks._frameworks.items()}
    monkeypatch.setattr(frameworks, "_frameworks", others)
    monkeypatch.setattr(contract.registry, "by_type", {})
    monkeypatch.syspath_prepend(tmp_path)

    def make(adapter, **facts):
        (tmp_path / "some_adapter.py").write_text(textwrap.dedent(adapter))
        register_framework("some_framework", "some_adapter", tried="1.2", **facts)
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
    thing = framework(GONE).Thing()
    with pytest.raises(AdapterError) as caught:
        adapter_of(thing)
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
    thing = framework(ADAPTER + f"\n    {failure}\n").Thing()
    for _ in range(2):
        with pytest.raises(AdapterError, match="some_framework"):
            adapter_of(thing)


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
    register_framework("some_framework", "some_package.adapters", tried="1.2")
    assert adapter_of(module.Thing()) is not None


def test_other_objects_are_saved_and_restored_beside_it(framework, tmp_path):
    framework(GONE)
    step = Variable(1)
    path = Checkpoint(step=step).write(tmp_path / "ckpt")
    step.assign(2)
    Checkpoint(step=step).read(path).assert_consumed()
    assert int(step) == 1


class Holder:
    """An object of the program that milepost does not save."""

    def __init__(self, thing):
        self.thing = thing


class State:
    """An object whose state is plain data."""

    def __init__(self, thing):
        self.thing = thing

    def state_dict(self):
        return {"thing": self.thing}

    def load_state_dict(self, state):
        self.thing = state["thing"]


class Net(Module):
    """Saves its attributes."""

    def __init__(self, **attributes):
        super().__init__()
        vars(self).update(attributes)


@pytest.mark.parametrize(
    "hold",
    [
        lambda thing: {"thing": thing},
        lambda thing: [(1, [thing])],
        lambda thing: Net(weight=np.ones(2), held=Holder(thing)),
        State,
        lambda thing: type("Derived", (type(thing),), {})(),
        lambda thing: type("Both", (Net, type(thing)), {})(weight=np.ones(2)),
    ],
    ids=["dict", "nested", "in an object that is not saved", "in plain state", "derived", "also of milepost"],
)
def test_an_object_of_it_is_refused_wherever_it_is(framework, tmp_path, hold):
    thing = framework(GONE).Thing()
    with pytest.raises(AdapterError, match="some_framework"):
        Checkpoint(value=hold(thing)).write(tmp_path / "ckpt")
    assert not (tmp_path / "ckpt.index").exists()


def test_no_restore_passes_over_an_object_of_it(framework, tmp_path):
    path = Checkpoint(step=Variable(1)).write(tmp_path / "ckpt")
    step, root = Variable(2), Net()
    thing = framework(GONE).Thing()
    vars(root).update(step=step, thing=thing)
    with pytest.raises(AdapterError, match="some_framework"):
        Checkpoint(root=root).read(path)
    assert int(step) == 2


@pytest.mark.parametrize("version", ["8.9", "1.0", "8.9.9rc1", "9.1.7+cpu"])
def test_a_version_that_is_too_old_is_refused_by_name(framework, version):
    module = framework(ADAPTER, oldest="7.4 or 9.2")
    module.__version__ = version
    with pytest.raises(AdapterError) as caught:
        adapter_of(module.Thing())
    assert caught.value.expected == "some_framework 9.2 or newer"
    assert caught.value.found == f"some_framework {version}"
    assert caught.value.remedy.startswith("install some_framework 9.2 or newer")


@pytest.mark.parametrize("version", ["7.4", "7.10.1", "9.2.0", "9.2.dev3", "10.0", "unknown"])
def test_a_version_that_is_not_too_old_is_used(framework, version):
    module = framework(ADAPTER, oldest="7.4 or 9.2")
    module.__version__ = version
    assert adapter_of(module.Thing()) is not None


def test_nothing_of_an_adapter_is_imported_for_a_version_that_is_too_old(framework):
    thing = framework(ADAPTER, oldest="10").Thing()
    with pytest.raises(AdapterError):
        adapter_of(thing)
    assert "some_adapter" not in sys.modules


def test_an_adapter_that_uses_that_of_a_refused_framework_is_refused_too(framework, tmp_path, monkeypatch):
    (tmp_path / "other_framework.py").write_text("class Other: pass\n")
    (tmp_path / "other_adapter.py").write_text("import some_adapter\n")
    framework(ADAPTER, oldest="10")
    register_framework("other_framework", "other_adapter")
    other = importlib.import_module("other_framework").Other()
    with pytest.raises(AdapterError, match="some_framework 10 or newer"):
        adapter_of(other)
    assert not {"some_adapter", "other_adapter"} & set(sys.modules)
    del sys.modules["other_framework"]


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

SAVE = "milepost.Checkpoint(value={value}).write(tempfile.mkdtemp() + '/ckpt')"
VALUES = {
    "torch": "torch.nn.Linear(1, 1)",
    "jax": "jax.numpy.ones(2)",
    "flax.nnx": "flax.nnx.Linear(1, 1, rngs=flax.nnx.Rngs(0))",
    "tensorflow": "tensorflow.Variable(1.0)",
    "keras": "keras.layers.Dense(1)",
}


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
        ("keras", "milepost.adapters.keras.variables", SAVE),
        ("keras", "milepost.callbacks.keras3", "import milepost.keras"),
        ("tf_keras", "milepost.callbacks.keras2", "import milepost.tf_keras"),
    ],
)
def test_each_framework_fails_every_time(framework, module, attempt):
    pytest.importorskip(framework.partition(".")[0])
    attempt = attempt.format(value=VALUES.get(framework))
    program = BREAK.format(framework=framework, module=module, attempt=attempt)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ended.stdout.split("\n")[:3] == [f"{framework.partition('.')[0]} y.x"] * 3, ended.stderr


TOO_OLD = {"keras": "3.6.0"}
OLD = """
import {framework}, sys, tempfile
{package}.__version__ = "{version}"
import milepost, numpy
path = milepost.Checkpoint(value=numpy.ones(2), random=milepost.RandomState()).write(tempfile.mkdtemp() + "/ckpt")
milepost.Checkpoint(value=numpy.ones(2), random=milepost.RandomState()).read(path).assert_consumed()
print("others are saved")
try:
    {attempt}
except milepost.AdapterError as error:
    print(error.found)
"""


@pytest.mark.parametrize(
    ("framework", "attempt"),
    [
        *((framework, SAVE.format(value=value)) for framework, value in VALUES.items()),
        ("jax", "import milepost.jax; milepost.jax.save(tempfile.mkdtemp() + '/t', [1.0])"),
        ("jax", "import milepost.jax; milepost.jax.TreeManager(tempfile.mkdtemp()).save([1.0], 1)"),
        ("keras", "import milepost.keras"),
        ("tf_keras", "import milepost.tf_keras"),
        ("lightning", "import milepost.lightning"),
        ("pytorch_lightning", "import milepost.lightning"),
        ("transformers", "import milepost.transformers"),
        ("ignite", "import milepost.ignite"),
        ("accelerate", "import milepost.accelerate; milepost.accelerate.checkpoint(accelerate.Accelerator(cpu=True))"),
    ],
)
def test_a_framework_that_is_too_old_is_refused_and_other_objects_are_saved(framework, attempt):
    package = framework.partition(".")[0]
    pytest.importorskip(package)
    version = TOO_OLD.get(package, "0.1")
    program = OLD.format(framework=framework, package=package, version=version, attempt=attempt)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ended.stdout.splitlines() == ["others are saved", f"{package} {version}"], ended.stderr


def test_the_random_state_warns_of_a_library_whose_state_it_cannot_save():
    pytest.importorskip("keras")
    program = OLD.format(framework="keras", package="keras", version=TOO_OLD["keras"], attempt="pass")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert "UntrackedWarning: milepost cannot use the installed version of Keras" in ended.stderr


def test_a_model_of_tf_keras_is_saved_beside_a_keras_that_is_too_old(tmp_path):
    pytest.importorskip("tf_keras")
    program = OLD.format(
        framework="keras",
        package="keras",
        version=TOO_OLD["keras"],
        attempt="import tf_keras, milepost.tf_keras; net = tf_keras.Sequential([tf_keras.layers.Dense(1)]); net.build((1, 1)); "
        + SAVE.format(value="net")
        + "; print('saved')",
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ended.stdout.splitlines() == ["others are saved", "saved"], ended.stderr


CONNECTED = """
import os, tempfile, torch
torch.__version__ = "0.1"
os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
import milepost
torch.distributed.init_process_group("gloo")
milepost.Checkpoint(step=milepost.Variable(0)).write(tempfile.mkdtemp() + "/ckpt")
"""


def test_processes_that_a_refused_library_has_connected_do_not_save_each_by_itself():
    pytest.importorskip("torch")
    ended = subprocess.run([sys.executable, "-c", CONNECTED], capture_output=True, text=True, timeout=300)
    assert "AdapterError: milepost cannot use the installed version of torch" in ended.stderr


@pytest.mark.parametrize("framework", ["torch", "jax", "flax.nnx", "tensorflow", "keras"])
def test_the_versions_that_adapters_were_tried_with_are_those_installed(framework):
    version = pytest.importorskip(framework.partition(".")[0]).__version__
    assert version.startswith(tuple(frameworks._frameworks[framework].tried.split(" and ")))


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


def test_a_class_of_the_program_that_is_registered_with_a_refused_framework_is_refused(framework, tmp_path):
    class Own:
        pass

    class Other:
        pass

    framework(ADAPTER, oldest="10", registered=lambda: {Own, np.ndarray})
    with pytest.raises(AdapterError, match="some_framework 10 or newer"):
        Checkpoint(own=Own())
    assert adapter_of(Other()) is None
    assert adapter_of(np.zeros(3)) is not None  # the adapter of another library handles it
