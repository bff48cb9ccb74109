"""Finds the live variables of Keras that take the tensors of one of its files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.bundle.memory import Array
from milepost.errors import MismatchError, UnsupportedError, importing
from milepost.foreign.items import Item
from milepost.foreign.keras.files import ASSETS, VARIABLES, KerasFile
from milepost.foreign.stored import Stored
from milepost.tensor import DType

_FORMER: Final = "_layer_checkpoint_dependencies"
IDF_WEIGHTS: Final = "vars/idf_weights"
"""The path below a lookup layer of the weights of its tokens, which are no variable."""
_OPTIMIZER: Final = "optimizer/"
_LAYERS: Final = "layers"
"""The name of the layers of a model. Keras 2.13 wrote the former one."""


def variables_of(file: KerasFile, item: Item, obj: Any, *, may_lack: bool = False) -> dict[str, Any] | None:
    """The live variables that take the tensors below an item.

    Args:
        file: The open file.
        item: The part of the file that belongs to the object.
        obj: A live object.
        may_lack: Whether the live object may lack variables that the file has.

    Returns:
        The variables by key, or None if Keras does not save the object in files of its own.

    Raises:
        MismatchError: The object has no variable that the file has, or a layer that the file has variables for is not built.
        UnsupportedError: The object is of Keras 2.
    """
    keras = sys.modules.get("keras")
    is_3 = keras is not None and int(str(getattr(keras, "__version__", "0")).partition(".")[0]) >= 3
    roots = {each.__module__.partition(".")[0] for each in type(obj).__mro__}
    if "tf_keras" in roots or ("keras" in roots and not is_3):
        raise UnsupportedError(
            "a file of Keras is restored into models of Keras 3 only",
            file=file.path,
            found=f"a {type(obj).__name__} of Keras 2",
            remedy="call model.load_weights(path) of Keras, and save the model with milepost",
        )
    if not is_3:
        return None
    with importing():
        from milepost.adapters.keras import own_files

    if not own_files.is_saveable(obj):
        return None
    of_lookups = {f"{path}/{IDF_WEIGHTS}" for path in lookups_of(file, item, obj)}
    leaves = {path: leaf.key for path, leaf in _leaves(item) if path not in of_lookups}
    if not leaves:
        return {}
    if file.layers is None:
        keys = {
            _LAYERS + path[len(_FORMER) :] if path.startswith(_FORMER) else path: key for path, key in leaves.items()
        }
        live, lacking = own_files.variables_called(obj, keys)
        prefixes = tuple(
            f"{path}/{VARIABLES}/" if path else f"{VARIABLES}/" for path in own_files.own_objects_by_path(obj)
        )
        is_taken = any(path.startswith(prefixes) for path in keys) or all(path.startswith(_OPTIMIZER) for path in keys)
        lacking = {path: layer for path, layer in lacking.items() if not path.startswith((*prefixes, _OPTIMIZER))}
        variables = {keys[path]: variable for path, variable in live.items()}
        unbuilt = {keys[path]: layer for path, layer in lacking.items()}
    else:
        is_taken = False
        variables = _in_order(file, own_files.layers_in_order(obj), own_files.optimizer_variables(obj))
        layer = own_files.unbuilt_layer(obj)
        of_layers = (key for _, each in file.layers for key in each if key in leaves.values())
        unbuilt = {} if layer is None else {key: layer for key in of_layers if key not in variables}
    if unbuilt and not may_lack:
        key, layer = next(iter(unbuilt.items()))
        raise MismatchError(
            "a layer that this file of Keras has variables for is not built, so it has none; nothing was changed",
            key=key,
            file=file.path,
            expected="a built object, since Keras names its variables only then",
            found=f"the {type(layer).__name__} {layer.name!r}, which is not built",
            remedy="build the model, as by a call, before the restore; to leave the layer as it is, pass ignore with its name in the file",
        )
    if not (variables.keys() & leaves.values() or is_taken or may_lack):
        raise MismatchError(
            "the live object has none of the variables that this file of Keras holds",
            key=next(iter(leaves.values())),
            file=file.path,
            expected=f"a built object with the structure of the one that was saved, of {len(leaves)} variables",
            found=f"{type(obj).__name__}, without any of them",
            remedy="build the model, as by a call, and restore the file into the object that was saved in it: "
            "milepost.Checkpoint(model).read(path), or restore with rename={'': 'model'} if the model is the attribute model",
        )
    return variables


def merged_of(obj: Any, variables: Mapping[str, Any]) -> Iterator[tuple[str, Any, Array]]:
    """The variables of which a file of Keras has the values merged with others, each with a name in the file and the value that Keras gives it.

    Args:
        obj: An object of Keras 3.
        variables: The live variables that take the tensors below the item of the object.
    """
    with importing():
        from milepost.adapters.keras import own_files

    taken = {id(each) for each in variables.values()}
    for path, (computing, _) in own_files.computing_by_path(obj).items():
        takers, others = own_files.loaded(computing)
        if any(id(variable) in taken for variable in takers.values()):
            for variable, value in others:
                yield "/".join(filter(None, (path, VARIABLES, variable.name))), variable, value


class SavedByClass(NamedTuple):
    """What the class of a live object has saved by code of its own.

    Attributes:
        obj: The object.
        key: The path of the object in the file.
        variables: What ``save_own_variables`` has put into its store.
        assets: The names of its assets in the file, by their paths in the directory that ``save_assets`` had.
    """

    obj: Any
    key: str
    variables: Mapping[str, Item]
    assets: Mapping[str, str]


def own_value(store: Mapping[str, Array], assets: Mapping[str, bytes] | None) -> tuple[str, Array]:
    """The value of an object that is loaded by code of its own: its local name, and the text. Keras is imported.

    Args:
        store: What ``save_own_variables`` has put into its store.
        assets: The contents of its assets, by their paths. None if the file can have none.
    """
    with importing():
        from milepost.adapters.keras.own_state import OWN_STATE, packed

    array = np.empty((), object)
    array[()] = packed(store, assets)
    return OWN_STATE, array


def own_states_of(file: KerasFile, item: Item, obj: Any) -> Iterator[SavedByClass]:
    """What is below an item for objects that load it by code of their own. The object is one of Keras 3."""
    if file.layers is not None:
        return
    with importing():
        from milepost.adapters.keras import own_files

    for path, own_object in own_files.own_objects_by_path(obj).items():
        at: Item | None = item
        for step in [*filter(None, path.split("/")), VARIABLES]:
            at = None if at is None else at.children.get(step)
        key = "/".join(filter(None, (item.key, path)))
        above = f"{ASSETS}{key}/" if key else ASSETS
        assets = {name.removeprefix(above): name for name in file.assets if name.startswith(above)}
        children = {} if at is None else at.children
        variables = {name: child for name, child in children.items() if isinstance(child.value, Stored)}
        if variables or assets:
            yield SavedByClass(own_object, key, variables, assets)


def lookups_of(file: KerasFile, item: Item, obj: Any) -> dict[str, Any]:
    """The live layers that take the vocabularies below an item, by their paths from there. The object is one of Keras 3."""
    if not file.vocabularies:
        return {}
    with importing():
        from milepost.adapters.keras import own_files

    above = f"{item.key}/" if item.key else ""
    return own_files.lookups_called(
        obj, [path.removeprefix(above) for path in file.vocabularies if path.startswith(above)]
    )


def tokens_as(dtype: DType, tokens: Array) -> Array:
    """The tokens of a vocabulary in the element type of the live layer.

    Args:
        dtype: Integers, or text.
        tokens: The tokens as the file has them.

    Raises:
        MismatchError: They are no integers.
    """
    if dtype.is_bytes:
        return tokens
    try:
        return np.array([int(each) for each in tokens.tolist()], dtype.numpy)
    except ValueError:
        raise MismatchError(
            "the vocabulary in the file is not one of integers; nothing was changed",
            expected="integers, as the live layer has them",
            found=repr(tokens.tolist()[:3]),
            remedy="restore the file into a layer for text",
        ) from None


def _in_order(file: KerasFile, live: Any, optimizer: Any) -> dict[str, Any]:
    """Pairs layers by their order or, if the numbers of layers differ, by their names, as Keras does with ``by_name``."""
    assert file.layers is not None, "the file has an order"
    if len(live) == len(file.layers):
        pairs = [(keys, weights) for (_, keys), (_, weights) in zip(file.layers, live, strict=True)]
    else:
        saved = dict(file.layers)
        pairs = [(saved[name], weights) for name, weights in live if name in saved]
    if len(file.optimizer) == len(optimizer):
        pairs.append((file.optimizer, optimizer))
    return {
        key: weight
        for keys, weights in pairs
        if len(keys) == len(weights)
        for key, weight in zip(keys, weights, strict=True)
    }


def _leaves(item: Item) -> Iterator[tuple[str, Item]]:
    """The tensors below an item, each with its path from there."""
    pending = [("", item)]
    while pending:
        path, below = pending.pop()
        if isinstance(below.value, Stored):
            yield path, below
        pending += [(f"{path}/{name}" if path else name, child) for name, child in below.children.items()]
