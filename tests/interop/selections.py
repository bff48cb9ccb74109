"""What each selection of a restore takes, by framework and kind of file: the table in docs/partial.md.

``python -m tests.interop.selections`` writes the table.

A model of two layers, ``encoder`` and ``head``, and its optimizer were saved. Another program with other values restores a part of it.
For each value it is seen whether it is the saved one afterwards, or still its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import milepost

SELECTIONS = (
    'only="model"',
    'only="model/head"',
    'only="optimizer"',
    'ignore="model/head"',
    'ignore="optimizer"',
    'ignore="*bias"',
    'ignore="<rate>"',
    'rename=[("head", "top")]',
)
"""The arguments. ``<rate>`` stands for the name of the learning rate; the last one is for a program that calls the head ``top``."""
LAYERS = ("encoder", "head")
KINDS = ("kernel", "bias")


class Case(NamedTuple):
    """A framework with a kind of file.

    Attributes:
        title: How the table calls it.
        save: Writes the file, given a directory and what to save. Returns its path.
        make: Makes a model and an optimizer, given a number for the values, and whether to take steps.
        values: The values by their names in the table, given what was made. A value that does not exist is None.
        rate: The name of the learning rate, if the file has it.
        of_model: Whether the file is of the model alone, so that names begin below it.
    """

    title: str
    save: Callable[[Path, Any], str]
    make: Callable[..., Any]
    values: Callable[[Any], Mapping[str, Any]]
    rate: str = ""
    of_model: bool = False


def table(cases: list[Case], directory: Path) -> list[list[str]]:
    """The rows of the table: a selection, and what it takes of each case's file."""
    columns = [_column(case, directory / str(number)) for number, case in enumerate(cases)]
    return [[f"`{selection}`", *cells] for selection, *cells in zip(SELECTIONS, *columns, strict=True)]


def _column(case: Case, directory: Path) -> Iterator[str]:
    directory.mkdir()
    saved = case.make(seed=1, stepped=True)
    path, before = case.save(directory, saved), case.values(saved)
    for selection in SELECTIONS:
        yield _cell(case, path, before, selection)


def _cell(case: Case, path: str, saved: Mapping[str, Any], selection: str) -> str:
    if case.of_model:
        if "optimizer" in selection or "<rate>" in selection or selection == 'only="model"':
            return "—"
        selection = selection.replace("model/", "")
    if "<rate>" in selection and not case.rate:
        return "—"
    arguments = _arguments(case, selection)
    top = "rename" in arguments
    live = case.make(seed=2, stepped=False, **({"head": "top"} if top else {}))
    own = case.values(live)
    root = live[0] if case.of_model else milepost.Checkpoint(model=live[0], optimizer=live[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", milepost.UnrestoredWarning)
        status = milepost.Checkpoint(root).read(path, **arguments) if case.of_model else root.read(path, **arguments)
        status.assert_consumed()
        status.assert_existing_objects_matched()
    return _taken(case, live, saved, own, selection)


def cell_of_save(case: Case, directory: Path, selection: str) -> str:
    """What a save with a selection as its options has in its checkpoint, in the words of the table: what a restore of all of it changes."""
    saved, live = case.make(seed=1, stepped=True), case.make(seed=2, stepped=False)
    before, own = case.values(saved), case.values(live)
    options = milepost.CheckpointOptions(**_arguments(case, selection))
    path = milepost.Checkpoint(model=saved[0], optimizer=saved[1]).write(directory / "part", options)
    milepost.Checkpoint(model=live[0], optimizer=live[1]).read(path).expect_partial()
    return _taken(case, live, before, own, selection)


def _arguments(case: Case, selection: str) -> dict[str, Any]:
    arguments: dict[str, Any] = eval(f"dict({selection.replace('<rate>', case.rate)})")
    return arguments


def _taken(case: Case, live: Any, saved: Mapping[str, Any], own: Mapping[str, Any], selection: str) -> str:
    """The values of live objects that are the saved ones, in the words of the table. All others are their own."""
    now = case.values(live)
    taken = []
    for name, value in now.items():
        if _equal(value, saved[name]):
            taken.append(name)
        else:
            assert _equal(value, own[name]), f"{case.title}, {selection}: {name} is neither the saved value nor its own"
    return _in_words(taken, list(now))


def _equal(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(np.asarray(one, np.float64), np.asarray(other, np.float64))


def _in_words(taken: list[str], known: list[str]) -> str:
    """Names in the form of the table: what was taken of both layers, and what of one."""
    if taken == known:
        return "all"
    groups = {
        "weights": ["kernel", "bias"],
        "kernels": ["kernel"],
        "moments": ["kernel moment", "bias moment"],
        "moments of kernels": ["kernel moment"],
    }
    texts, left = [], set(taken)
    for layers in (LAYERS, *((layer,) for layer in LAYERS)):
        for text, whats in groups.items():
            names = {f"{what} of {layer}" for what in whats for layer in layers}
            if names <= left:
                left -= names
                texts.append(text if layers == LAYERS else f"{text} of {layers[0]}")
    return ", ".join([*texts, *sorted(left)]) or "nothing"


def _named(weights: Mapping[tuple[str, str], Any], moments: Mapping[tuple[str, str], Any], rate: Any) -> dict[str, Any]:
    return (
        {f"{kind} of {layer}": value for (layer, kind), value in weights.items()}
        | {f"{kind} moment of {layer}": value for (layer, kind), value in moments.items()}
        | ({} if rate is None else {"rate": rate})
    )


def torch_cases() -> list[Case]:
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    attributes = {"kernel": "weight", "bias": "bias"}

    def make(seed: int, *, stepped: bool, head: str = "head") -> Any:
        torch.manual_seed(seed)
        model = torch.nn.Sequential()
        model.add_module("encoder", torch.nn.Linear(3, 4))
        model.add_module(head, torch.nn.Linear(4, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * seed)
        if stepped:
            model(torch.ones(1, 3)).square().sum().backward()
            optimizer.step()
        return model, optimizer

    def values(made: Any) -> dict[str, Any]:
        model, optimizer = made
        parameters = {
            (layer, kind): getattr(module, attributes[kind])
            for layer, module in zip(LAYERS, model, strict=True)
            for kind in KINDS
        }
        weights = {name: each.detach().clone() for name, each in parameters.items()}
        state = {name: optimizer.state.get(each, {}).get("exp_avg") for name, each in parameters.items()}
        return _named(weights, state, optimizer.param_groups[0]["lr"])

    def own(directory: Path, made: Any) -> str:
        return milepost.Checkpoint(model=made[0], optimizer=made[1]).write(directory / "own")

    def pickled(directory: Path, made: Any) -> str:
        torch.save({"model": made[0].state_dict(), "optimizer": made[1].state_dict()}, directory / "c.pt")
        return str(directory / "c.pt")

    def distributed(directory: Path, made: Any) -> str:
        state = {"model": made[0].state_dict(), "optimizer": get_optimizer_state_dict(*made)}
        dcp.save(state, checkpoint_id=directory / "dcp", no_dist=True)
        return str(directory / "dcp")

    def safetensors(directory: Path, made: Any) -> str:
        save_file(made[0].state_dict(), directory / "c.safetensors")
        return str(directory / "c.safetensors")

    def weights(made: Any) -> dict[str, Any]:
        return {name: each for name, each in values(made).items() if "moment" not in name and name != "rate"}

    rate = "optimizer/param_groups/0/lr"
    return [
        Case("PyTorch, milepost's own", own, make, values, rate),
        Case("PyTorch, `torch.save`", pickled, make, values, rate),
        Case("PyTorch, `torch.distributed.checkpoint`", distributed, make, values, rate),
        Case("PyTorch, safetensors", safetensors, make, weights, of_model=True),
    ]


def flax_cases() -> list[Case]:
    import flax.serialization
    import jax
    import jax.numpy as jnp
    import optax
    import orbax.checkpoint as ocp
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, seed: int, head: str) -> None:
            self.encoder = nnx.Linear(3, 4, rngs=nnx.Rngs(seed))
            setattr(self, head, nnx.Linear(4, 2, rngs=nnx.Rngs(seed + 7)))
            self.encoder.bias[...] = jnp.full(4, 0.1 * seed)
            getattr(self, head).bias[...] = jnp.full(2, 0.1 * seed)
            self.name = head

        def __call__(self, x: Any) -> Any:
            return getattr(self, self.name)(self.encoder(x))

    def make(seed: int, *, stepped: bool, head: str = "head") -> Any:
        model = Net(seed, head)
        optimizer = nnx.Optimizer(model, optax.inject_hyperparams(optax.adam)(learning_rate=0.1 * seed), wrt=nnx.Param)
        if stepped:
            optimizer.update(model, nnx.grad(lambda net: (net(jnp.ones((1, 3))) ** 2).sum())(model))
        return model, optimizer

    def values(made: Any) -> dict[str, Any]:
        model, optimizer = made
        state = optimizer.opt_state
        layers = {"encoder": "encoder", "head": model.name}
        pairs = [(layer, kind) for layer in LAYERS for kind in KINDS]
        weights = {(layer, kind): np.array(getattr(getattr(model, layers[layer]), kind)[...]) for layer, kind in pairs}
        mu = state.inner_state[0].mu
        moments = {(layer, kind): np.array(mu[layers[layer]][kind][...]) for layer, kind in pairs}
        return _named(weights, moments, np.array(state.hyperparams["learning_rate"][...]))

    def own(directory: Path, made: Any) -> str:
        return milepost.Checkpoint(model=made[0], optimizer=made[1]).write(directory / "own")

    def tree(made: Any) -> Any:
        return {
            "model": nnx.to_pure_dict(nnx.state(made[0])),
            "optimizer": nnx.to_pure_dict(nnx.state(made[1])),
        }

    def orbax(directory: Path, made: Any) -> str:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(directory / "orbax", tree(made))
        return str(directory / "orbax")

    def serialized(directory: Path, made: Any) -> str:
        path = directory / "c.msgpack"
        path.write_bytes(flax.serialization.to_bytes(jax.tree.map(np.asarray, tree(made))))
        return str(path)

    rate = "optimizer/opt_state/hyperparams/learning_rate"
    return [
        Case("Flax, milepost's own", own, make, values, rate),
        Case("Flax, Orbax", orbax, make, values, rate),
        Case("Flax, msgpack", serialized, make, values, rate),
    ]


def keras_cases() -> list[Case]:
    import keras

    class Net(keras.Model):  # type: ignore[misc, unused-ignore]
        def __init__(self, head: str) -> None:
            super().__init__()
            self.encoder = keras.layers.Dense(4)
            setattr(self, head, keras.layers.Dense(2))
            self.called = head

        def call(self, x: Any) -> Any:
            return getattr(self, self.called)(self.encoder(x))

    def make(seed: int, *, stepped: bool, head: str = "head") -> Any:
        keras.utils.set_random_seed(seed)
        model = Net(head)
        model.compile(keras.optimizers.Adam(0.1 * seed), "mse")
        model(np.ones((1, 3)))
        model.optimizer.build(model.trainable_variables)
        if stepped:
            model.train_on_batch(np.ones((1, 3)), np.ones((1, 2)))
        return model, model.optimizer

    def array(variable: Any) -> Any:
        return keras.ops.convert_to_numpy(variable).copy()

    def values(made: Any) -> dict[str, Any]:
        model, optimizer = made
        pairs = [(layer, kind) for layer in LAYERS for kind in KINDS]
        variables = [*model.encoder.variables, *getattr(model, model.called).variables]
        return _named(
            dict(zip(pairs, map(array, variables), strict=True)),
            dict(zip(pairs, map(array, optimizer._momentums), strict=True)),
            array(optimizer.learning_rate),
        )

    def own(directory: Path, made: Any) -> str:
        return milepost.Checkpoint(model=made[0], optimizer=made[1]).write(directory / "own")

    def hdf5(directory: Path, made: Any) -> str:
        made[0].save_weights(directory / "c.weights.h5")
        return str(directory / "c.weights.h5")

    return [
        Case("Keras 3, milepost's own", own, make, values, "optimizer/_learning_rate"),
        Case("Keras 3, `.weights.h5`", hdf5, make, values, of_model=True),
    ]


def tensorflow_cases() -> list[Case]:
    import tensorflow as tf
    import tf_keras

    class Net(tf_keras.Model):  # type: ignore[misc, unused-ignore]
        def __init__(self, head: str) -> None:
            super().__init__()
            self.encoder = tf_keras.layers.Dense(4, name="encoder")
            setattr(self, head, tf_keras.layers.Dense(2, name=head))
            self.called = head

        def call(self, x: Any) -> Any:
            return getattr(self, self.called)(self.encoder(x))

    def make(seed: int, *, stepped: bool, head: str = "head") -> Any:
        tf_keras.utils.set_random_seed(seed)
        model, optimizer = Net(head), tf_keras.optimizers.legacy.Adam(0.1 * seed)
        model.build((None, 3))
        if stepped:
            model.compile(optimizer, "mse")
            model.train_on_batch(np.ones((1, 3)), np.ones((1, 2)))
        else:
            optimizer._create_all_weights(model.trainable_variables)
        return model, optimizer

    def values(made: Any) -> dict[str, Any]:
        model, optimizer = made
        pairs = [(layer, kind) for layer in LAYERS for kind in KINDS]
        variables = [*model.encoder.variables, *getattr(model, model.called).variables]
        return _named(
            dict(zip(pairs, [each.numpy() for each in variables], strict=True)),
            dict(zip(pairs, [optimizer.get_slot(each, "m").numpy() for each in variables], strict=True)),
            optimizer.learning_rate.numpy(),
        )

    def own(directory: Path, made: Any) -> str:
        return milepost.Checkpoint(model=made[0], optimizer=made[1]).write(directory / "own")

    def theirs(directory: Path, made: Any) -> str:
        return str(tf.train.Checkpoint(model=made[0], optimizer=made[1]).write(str(directory / "tf")))

    rate = "optimizer/learning_rate"
    return [
        Case("tf_keras with a legacy optimizer, milepost's own", own, make, values, rate),
        Case("tf_keras with a legacy optimizer, `tf.train.Checkpoint`", theirs, make, values, rate),
    ]


def numpy_cases() -> list[Case]:
    import tensorflow as tf

    v1 = tf.compat.v1

    def make(seed: int, *, stepped: bool, head: str = "head") -> Any:
        random = np.random.default_rng(seed)
        model = milepost.Module()
        for layer, width in (("encoder", 4), (head, 2)):
            module = milepost.Module()
            for kind, shape in (("kernel", (3, width)), ("bias", (width,))):
                value = random.normal(size=shape).astype(np.float32)
                setattr(module, kind, milepost.Variable(value, name=f"{layer}/{kind}"))
            setattr(model, layer, module)
        return model, milepost.Module()

    def values(made: Any) -> dict[str, Any]:
        encoder, head = (child for name, child in vars(made[0]).items() if isinstance(child, milepost.Module))
        weights = {
            (layer, kind): np.array(getattr(module, kind))
            for layer, module in zip(LAYERS, (encoder, head), strict=True)
            for kind in KINDS
        }
        return _named(weights, {}, None)

    def of_saver(directory: Path, made: Any) -> str:
        weights = values(made)
        with tf.Graph().as_default(), v1.Session() as session:
            for name, value in weights.items():
                kind, _, layer = name.partition(" of ")
                v1.get_variable(f"{layer}/{kind}", initializer=value, use_resource=False)
            session.run(v1.global_variables_initializer())
            return str(v1.train.Saver().save(session, str(directory / "model.ckpt")))

    return [Case("NumPy, `tf.compat.v1.train.Saver`", of_saver, make, values, of_model=True)]


_BEGIN, _END = "<!-- made by tests/interop/selections.py -->\n", "<!-- end -->\n"
PAGE = Path(__file__).parents[2] / "docs" / "partial.md"


def text(directory: Path) -> str:
    """The table as Markdown, with a row for each kind of file."""
    lines = [f"| file | {' | '.join(f'`{each}`' for each in SELECTIONS)} |", "|---" * (len(SELECTIONS) + 1) + "|"]
    for make in (torch_cases, flax_cases, keras_cases, tensorflow_cases, numpy_cases):
        cases = make()
        (directory / make.__name__).mkdir()
        rows = table(cases, directory / make.__name__)
        for case, cells in zip(cases, zip(*(row[1:] for row in rows), strict=True), strict=True):
            lines.append(f"| {case.title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """The table that the page has."""
    return PAGE.read_text().partition(_BEGIN)[2].partition(_END)[0]


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        made = text(Path(directory))
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    PAGE.write_text(f"{before}{_BEGIN}{made}{_END}{rest.partition(_END)[2]}")
