"""Private names of frameworks are in one module a framework; these tests say which of them a new version has no longer."""

import ast
import functools
import importlib
from pathlib import Path

import numpy as np
import pytest

import milepost

SOURCE = Path(milepost.__file__).parent
FRAMEWORKS = ("torch", "jax", "jaxlib", "flax", "tensorflow", "keras", "tf_keras")
ALIASES = {"tf": "tensorflow", "jnp": "jax", "nnx": "flax", "_jax": "jax", "_keras": "keras"}
PRIVATE = {each: SOURCE / "adapters" / each / "private.py" for each in ("torch", "jax", "flax", "tensorflow", "keras")}
PRIVATE_MODULE = "private.py"
OTHERS = {("forks.py", "_is_owned"), ("ending.py", "_register_atexit"), ("tensorflow_errors.py", "_plain")}
"""Private names of the standard library, in the module that gives each a public name, and one that milepost gives to classes."""
OF_DICTS = ("get", "pop", "setdefault")
SEARCHED = [*(SOURCE / "adapters").rglob("*.py"), *(SOURCE / "callbacks").rglob("*.py"), *SOURCE.glob("*.py")]


def is_private(dotted):
    """Whether a framework makes no promise about a name."""
    first, *rest = dotted.split(".")
    return ALIASES.get(first, first) in FRAMEWORKS and any(
        part in ("src", "python") or (part.startswith("_") and (part == "__internal__" or not part.endswith("__")))
        for part in rest
    )


def dotted(node):
    """The text of a chain of attributes, or an empty one."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def imported(tree):
    """Every name that is imported, with its module, and every chain of attributes of a framework."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield dotted(node.value), node.attr


def own_names(tree):
    """Names that a module of milepost defines: what follows them is its own."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Attribute) and dotted(node.value) in ("self", "cls"):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def attributes(tree):
    """Private attributes of any objects that are read, set or asked for, also by their dicts."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Attribute) and dotted(node.value) != "sys":
            yield from filter(is_hidden, [node.attr])
        elif isinstance(node, ast.Call) and dotted(node.func) in ("getattr", "hasattr", "setattr", "delattr"):
            names = node.args[1:2]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in OF_DICTS:
            names = node.args[:1]
        elif isinstance(node, ast.Subscript):
            names = [node.slice]
        elif isinstance(node, ast.Compare):
            names = [node.left]
        yield from filter(is_hidden, (getattr(each, "value", "") for each in names))


def is_hidden(name):
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__")


def test_private_names_are_imported_in_one_module_a_framework():
    found = [
        f"{path.relative_to(SOURCE)}: {module}.{name}"
        for path in SEARCHED
        if path.name != PRIVATE_MODULE
        for module, name in imported(ast.parse(path.read_text()))
        if is_private(f"{module}.{name}")
    ]
    assert not found


def test_the_search_finds_private_names():
    for text in ("from keras.src.x import y", "import torch._C", "tf.__internal__.tracking", "from jax import _src"):
        assert [module for module, name in imported(ast.parse(text)) if is_private(f"{module}.{name}")], text


def test_private_attributes_are_listed_in_one_module_a_framework():
    listed = {
        node.value
        for path in [*PRIVATE.values(), SOURCE / "adapters" / "lightning" / "private.py"]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    found = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path in SEARCHED
        if path.name != PRIVATE_MODULE
        for tree in [ast.parse(path.read_text())]
        for name in sorted({*attributes(tree)} - listed - {*own_names(tree)})
        if (path.name, name) not in OTHERS
    ]
    assert not found


def test_the_search_finds_private_attributes():
    for text in ("a._x", "getattr(a, '_x')", "vars(a)['_x']", "vars(a).get('_x')", "'_x' in vars(a)", "del a._x"):
        assert [*attributes(ast.parse(text))] == ["_x"], text


def imports():
    for framework, path in PRIVATE.items():
        for module, name in imported(ast.parse(path.read_text())):
            if is_private(f"{module}.{name}"):
                yield framework, module, name


def installed(framework):
    """The framework; Keras 2 is TensorFlow's, and has no adapter of its own."""
    library = pytest.importorskip(framework)
    if framework == "keras" and library.__version__.startswith("2."):
        pytest.skip("this is Keras 2")
    return library


@pytest.mark.parametrize(("framework", "module", "name"), sorted(set(imports())), ids=lambda part: part)
def test_the_installed_version_has_the_name(framework, module, name):
    installed(framework)
    if module.startswith("keras.src.backend.torch") or module == "keras.src.utils.torch_utils":
        pytest.importorskip("torch")
    first, *rest = module.split(".")
    module = ".".join([ALIASES.get(first, first), *rest])
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:  # a chain of attributes
        found = functools.reduce(getattr, rest, importlib.import_module(framework))
    if not hasattr(found, name):
        importlib.import_module(f"{module}.{name}")


def torch_objects(torch):
    yield "torch.nn.Module", torch.nn.Linear(1, 1)
    yield "torch.Tensor", torch.ones(1)
    yield "torch.optim.Optimizer", torch.optim.SGD([torch.ones(1)])
    yield "torch.distributed.tensor.DTensor", dtensor(torch)


def dtensor(torch):
    """A DTensor of one process."""
    tensor = importlib.import_module("torch.distributed.tensor")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = importlib.import_module("torch.distributed.device_mesh").init_device_mesh("cpu", (1,))
        return tensor.distribute_tensor(torch.ones(2), mesh, [tensor.Shard(0)])
    finally:
        torch.distributed.destroy_process_group()


def failed_call(keras):
    """What Keras makes of an exception in a layer."""

    class Failing(keras.layers.Layer):
        def call(self, inputs):
            raise ValueError("this layer fails")

    with pytest.raises(ValueError, match="this layer fails") as failure:
        Failing()(np.zeros((1, 1), "float32"))
    return failure.value


def keras_objects(keras):
    optimizer = keras.optimizers.Adam()
    optimizer.build([keras.Variable([1.0])])
    yield "keras.Variable", keras.Variable([1.0])
    yield "keras.optimizers.Optimizer", optimizer
    yield "keras.layers.StringLookup", keras.layers.StringLookup(vocabulary=["a"])
    yield "keras.layers.TextVectorization", keras.layers.TextVectorization(vocabulary=["a"])
    yield "keras.utils.FeatureSpace", keras.utils.FeatureSpace({"a": "float"})
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse")
    yield "keras.Model", model
    yield "keras.callbacks.SwapEMAWeights", keras.callbacks.SwapEMAWeights()
    yield "keras.layers.Layer", keras.layers.Dense(1)
    yield "keras.metrics.Metric", keras.metrics.Accuracy()
    yield "exception of a layer", failed_call(keras)
    pytest.importorskip("jax")
    trainer = importlib.import_module("keras.src.backend.jax.trainer").JAXTrainer()
    if "_jax_state" in trainer.jax_state_sync.__code__.co_names:  # it is set by fit() only
        trainer._jax_state = None
    yield "trainer with JAX", trainer


def tensorflow_objects(tf):
    module = tf.Module()
    module.variables_held = [tf.Variable(1.0)]
    yield "tf.Module", module
    yield "list of a tf.Module", module.variables_held
    yield "DelegatingTrackableMixin", tf.__internal__.tracking.DelegatingTrackableMixin(module)
    yield "tf.Variable", tf.Variable(1.0)
    yield "part of a ShardedVariable", tf.__internal__.distribute.ShardedVariable([tf.Variable([1.0])]).variables[0]
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        yield "variable of a tf.distribute.MirroredStrategy", tf.Variable(1.0)
    aggregating = importlib.import_module("tensorflow.python.distribute.ps_values").AggregatingVariable
    parts = tf.distribute.get_strategy(), tf.Variable(1.0), tf.VariableAggregation.SUM
    yield "variable of a parameter server", aggregating(*parts)
    yield "tf.Graph", tf.Graph()
    with_seed = importlib.import_module("tensorflow.python.eager.context").Context()
    with_seed._set_global_seed(1)  # which makes _rng
    yield "eager context", with_seed
    yield "tf.compat.v1.train.AdamOptimizer", tf.compat.v1.train.AdamOptimizer()
    yield "tf.lookup.experimental.MutableHashTable", tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    yield "tf.data.Dataset", tf.data.Dataset.range(3).shuffle(2)
    yield "iterator over a tf.data.Dataset", iter(tf.data.Dataset.range(3))


def keras_2_objects(keras):
    model = keras.Sequential([keras.layers.Dense(1), keras.layers.Dropout(0.5)])
    model.compile(keras.optimizers.Adam(), "mse")
    model.fit(np.zeros((1, 1)), np.zeros((1, 1)), verbose=0)  # which makes _training_state
    yield "Model", model
    yield "optimizers.Adam", model.optimizer
    nadam = keras.optimizers.Nadam()
    nadam.build(model.trainable_variables)  # which makes _u_product_counter
    yield "optimizers.Nadam", nadam
    yield "optimizers.legacy.Adam", keras.optimizers.legacy.Adam()
    yield "layers.Dropout", model.layers[1]
    yield "generator of a layer", model.layers[1]._random_generator
    yield "layers.LSTM", keras.layers.LSTM(1, stateful=True)
    yield "layers.StringLookup", keras.layers.StringLookup(vocabulary=["a"])
    mixed = keras.layers.Dense(1, dtype=keras.mixed_precision.Policy("mixed_bfloat16"))
    mixed.build((1, 1))
    yield "variable of a mixed policy", mixed.kernel
    yield "exception of a layer", failed_call(keras)


def flax_objects(flax):
    from flax import nnx

    yield "flax.nnx.Variable", nnx.Param(1.0)
    yield "flax.nnx.Pytree", nnx.Dict(a=1)


@pytest.mark.parametrize(
    ("framework", "objects"),
    [
        ("torch", torch_objects),
        ("keras", keras_objects),
        ("tensorflow", tensorflow_objects),
        ("flax", flax_objects),
    ],
)
def test_objects_of_the_installed_version_have_the_attributes(framework, objects):
    library = installed(framework)
    listed = importlib.import_module(f"milepost.adapters.{framework}.private").ATTRIBUTES
    assert not gone(dict(objects(library)), listed)


def test_objects_of_keras_2_have_the_attributes():
    tf = pytest.importorskip("tensorflow")
    keras = tf.keras if tf.__version__ < "2.16" else pytest.importorskip("tf_keras")
    listed = importlib.import_module("milepost.adapters.tensorflow.private").KERAS_2_ATTRIBUTES
    assert not gone(dict(keras_2_objects(keras)), listed)


def gone(found, listed):
    """The attributes that objects have no longer."""
    assert set(found) == set(listed)
    return [f"{kind}.{name}" for kind, obj in found.items() for name in listed[kind] if not hasattr(obj, name)]
