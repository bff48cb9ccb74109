"""The kit for adapters: it passes for those of several frameworks, and each of its tests fails for the fault that it is about."""

import copy
import importlib.util
from contextlib import contextmanager

import numpy as np
import pytest

import milepost
from milepost.adapters import Adapter, Omission, register, unregister
from milepost.testing import Specimen
from milepost.testing.adapter_suite import AdapterSuite
from tests.testing import extending as TINY  # noqa: N812 - a module of classes that are written on a page

TESTS = [name for name in dir(AdapterSuite) if name.startswith("test_")]


@contextmanager
def registered(*adapters):
    """Adapters that are known in a block only."""
    for each in adapters:
        register(each)
    try:
        yield
    finally:
        for each in adapters:
            unregister(each)


def tiny_specimen(**changes):
    given = {
        "make": TINY.make,
        "read": TINY.read,
        "train": TINY.train,
        "unbuilt": TINY.unbuilt,
        "build": TINY.build,
        "slots": {"velocity of kernel", "velocity of bias"},
        "misfit": TINY.misfit,
        "unsaveable": lambda: {"layer": TINY.Dense(2), "other": Odd()},
    }
    return Specimen(**(given | changes))


class Odd:
    """What cannot be saved."""


class OddAdapter(Adapter):
    def handles(self, kind):
        return kind is Odd

    def unfinished(self, obj):
        return Omission("an odd thing is in the middle of something")


class TestTiny(AdapterSuite):
    """The worked example of the documentation."""

    @pytest.fixture
    def specimen(self):
        with registered(TINY.ParamAdapter(), TINY.DenseAdapter(), TINY.MomentumAdapter(), OddAdapter()):
            yield tiny_specimen()

    def test_the_page_says_the_same(self):
        """The class on the page is such a suite, too, with a specimen of the same parts."""
        assert issubclass(TINY.TestTiny, AdapterSuite)


TestUploading = TINY.TestUploading
TestDictStorage = TINY.TestDictStorage


class TestArrays(AdapterSuite):
    """NumPy's arrays, in lists and dicts."""

    @pytest.fixture
    def specimen(self):
        def make(seed):
            return {
                "weights": np.arange(3.0) + seed,
                "layers": [np.full((2, 2), seed, np.int32), {"text": np.array([b"a" * seed], object)}],
            }

        def read(objects):
            first, second = objects["layers"]
            return {"weights": objects["weights"].copy(), "first": first.copy(), "second": second["text"].copy()}

        def train(objects):
            objects["weights"] += 1
            objects["layers"][0][...] += 1
            objects["layers"][1]["text"][0] += b"!"

        def misfit():
            return {"weights": np.zeros(4), "layers": make(1)["layers"]}

        def unsaveable():
            return {"weights": np.ma.masked_array([1.0], [True])}

        return Specimen(make, read, train, misfit=misfit, unsaveable=lambda: {"net": Holder(unsaveable()["weights"])})


class Holder(milepost.Module):
    def __init__(self, held):
        self.held = held


class TestOwnObjects(AdapterSuite):
    """milepost's own modules, variables and optimizers."""

    @pytest.fixture
    def specimen(self):
        def unbuilt(seed):
            net = milepost.Module()
            net.bias = milepost.Variable([float(seed)])
            return {"net": net, "optimizer": milepost.SlotOwner()}

        def build(objects):
            net, optimizer = objects["net"], objects["optimizer"]
            if not hasattr(net, "kernel"):
                net.kernel = milepost.Variable([[0.5]])
            for variable in (net.kernel, net.bias):
                optimizer.add_slot(variable, "m")

        def make(seed):
            objects = unbuilt(seed)
            build(objects)
            train(objects, seed)
            return objects

        def train(objects, by=1.0):
            net, optimizer = objects["net"], objects["optimizer"]
            for variable in (net.kernel, net.bias):
                optimizer.get_slot(variable, "m").assign_add(np.full(variable.shape, by, np.float32))
                variable.assign_add(np.full(variable.shape, by, np.float32))

        def read(objects):
            net, optimizer = objects["net"], objects["optimizer"]
            found = {name: getattr(net, name) for name in ("kernel", "bias") if hasattr(net, name)}
            found |= {f"m of {name}": optimizer.get_slot(variable, "m") for name, variable in found.items()}
            return {name: variable.numpy().copy() for name, variable in found.items() if variable is not None}

        def misfit():
            objects = make(1)
            objects["net"].bias = milepost.Variable([1.0, 2.0])
            return objects

        return Specimen(
            make, read, train, unbuilt=unbuilt, build=build, slots={"m of kernel", "m of bias"}, misfit=misfit
        )


class TestTorch(AdapterSuite):
    """PyTorch's modules and optimizers; a lazy module makes its parameters in its first call."""

    @pytest.fixture
    def specimen(self):
        torch = pytest.importorskip("torch")

        def unbuilt(seed):
            torch.manual_seed(seed)
            net = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.BatchNorm1d(3))
            with torch.no_grad():
                for parameter in net[1].parameters():
                    parameter.uniform_()
            return {"net": net}

        def build(objects):
            torch.manual_seed(9)
            objects["net"].eval()(torch.ones(2, 4))

        def make(seed):
            objects = dict(unbuilt(seed))
            build(objects)
            torch.manual_seed(seed)
            with torch.no_grad():
                for parameter in objects["net"].parameters():
                    parameter.uniform_()
            objects["optimizer"] = torch.optim.Adam(objects["net"].parameters(), lr=0.01)
            train(objects, seed)
            return objects

        def train(objects, seed=5):
            torch.manual_seed(seed)
            net = objects["net"].train()
            for _ in range(seed):
                net(torch.rand(8, 4)).pow(3).sum().backward()
                objects["optimizer"].step()
                objects["optimizer"].zero_grad()

        def read(objects):
            uninitialized = torch.nn.parameter.UninitializedTensorMixin
            state = objects["net"].state_dict()
            found = {name: value for name, value in state.items() if not isinstance(value, uninitialized)}
            if "optimizer" in objects:
                names = {parameter: name for name, parameter in objects["net"].named_parameters()}
                for parameter, slots in objects["optimizer"].state.items():
                    found |= {f"{name} of {names[parameter]}": value for name, value in slots.items()}
            return {name: value.detach().clone().numpy() for name, value in found.items()}

        def misfit():
            objects = make(1)
            objects["net"][1].register_buffer("running_mean", torch.zeros(7))
            return objects

        slots = [name for name in read(make(1)) if " of " in name]
        return Specimen(make, read, train, slots=slots, misfit=misfit)

    @pytest.fixture
    def lazy(self):
        torch = pytest.importorskip("torch")

        def unbuilt(seed):
            return {"net": torch.nn.LazyLinear(3)}

        def build(objects):
            torch.manual_seed(9)
            objects["net"](torch.ones(2, 4))

        def make(seed):
            objects = unbuilt(seed)
            build(objects)
            train(objects, seed)
            return objects

        def train(objects, by=1):
            with torch.no_grad():
                for parameter in objects["net"].parameters():
                    parameter += by

        def read(objects):
            state = objects["net"].state_dict()
            built = type(objects["net"]) is torch.nn.Linear
            return {name: value.clone().numpy() for name, value in state.items()} if built else {}

        return Specimen(make, read, train, unbuilt=unbuilt, build=build)

    @pytest.mark.parametrize("test", TESTS)
    def test_lazy_modules(self, lazy, test):
        getattr(AdapterSuite(), test)(lazy)


class TestJax(AdapterSuite):
    """Trees of JAX arrays, which never change."""

    @pytest.fixture
    def specimen(self):
        jax = pytest.importorskip("jax")
        jnp = jax.numpy

        def make(seed):
            return {
                "params": {"dense": {"kernel": jnp.full((2, 3), float(seed)), "bias": jnp.arange(3) + seed}},
                "step": jnp.int32(seed),
            }

        def read(objects):
            dense = objects["params"]["dense"]
            return {
                "kernel": np.array(dense["kernel"]),
                "bias": np.array(dense["bias"]),
                "step": np.array(objects["step"]),
            }

        def train(objects):
            return jax.tree_util.tree_map(
                lambda each: each + 1, {"params": copy.copy(dict(objects["params"])), "step": objects["step"]}
            )

        def misfit():
            return {**make(1), "step": jnp.zeros(2, "int32")}

        return Specimen(make, read, train, misfit=misfit, functional=True)


class TestKeras(AdapterSuite):
    """A model of Keras 3 that makes its variables in its first call, and its optimizer."""

    @pytest.fixture
    def specimen(self):
        if importlib.util.find_spec("keras") is None:
            pytest.skip("keras is not installed")
        keras = pytest.importorskip("keras")

        def unbuilt(seed):
            keras.utils.set_random_seed(seed)
            return {
                "net": keras.Sequential([keras.layers.Dense(3), keras.layers.BatchNormalization()]),
                "optimizer": keras.optimizers.SGD(0.1, momentum=0.9),
            }

        def build(objects):
            keras.utils.set_random_seed(9)
            objects["net"](np.ones((2, 4), np.float32))
            objects["optimizer"].build(objects["net"].trainable_variables)

        def make(seed):
            objects = unbuilt(seed)
            build(objects)
            train(objects, seed)
            return objects

        def train(objects, by=1):
            for variable in [*objects["net"].variables, *objects["optimizer"].variables]:
                variable.assign(keras.ops.cast(variable + by, variable.dtype))

        def read(objects):
            named = [(f"net {n}", v) for n, v in enumerate(objects["net"].variables)]
            named += [(f"optimizer {n}", v) for n, v in enumerate(objects["optimizer"].variables)]
            return {name: np.array(keras.ops.convert_to_numpy(variable)) for name, variable in named}

        return Specimen(make, read, train)
