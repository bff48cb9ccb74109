"""The names of values in ``.weights.h5`` files of Keras, as Keras makes them for a live model.

Keras names a variable by attributes, by classes of layers, which it counts, and by what a layer gives it in ``save_own_variables``. A
checkpoint has none of this. So a restore matches the saved values with the variables of a live model, and Keras says what it calls these.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from milepost.bundle import BundleReader
from milepost.bundle.memory import Array
from milepost.checkpoint.checkpoint import Checkpoint, view_of
from milepost.engine.options import CheckpointOptions
from milepost.engine.translation import Translation
from milepost.errors import MismatchError, UnsupportedError, importing
from milepost.graph.adapter import adapter_during
from milepost.graph.contract.operation import Operation
from milepost.graph.keys import ATTRIBUTES
from milepost.graph.traversal import live_children
from milepost.restoring.load import matched_values
from milepost.storage import Storage

_OPTIMIZER: Final = "optimizer/"
"""What the names of an optimizer's variables begin with."""
_VARIABLES: Final = "vars"
_MOST_LISTED: Final = 5


class Computed(NamedTuple):
    """An object that saves arrays which Keras computes from its variables.

    Attributes:
        path: The path of its variables in the file.
        obj: The object.
        variables: Its variables, by the keys of their values.
    """

    path: str
    obj: Any
    variables: dict[str, Any]


class KerasNames(NamedTuple):
    """The names that Keras has for saved values.

    Attributes:
        values: The names of values, by keys. A variable has one in each object that saves it.
        computed: What Keras computes from variables when it saves them, such as a kernel with which LoRA is merged.
        stores: By keys of what a user's class has saved by ``save_own_variables`` and ``save_assets``, the path of its variables in the file.
        assets: The keys of what Keras has in assets, or in the configuration of a layer, such as a vocabulary.
    """

    values: dict[str, list[str]]
    computed: list[Computed]
    stores: dict[str, str]
    assets: list[str]

    def members(self, reader: BundleReader) -> tuple[dict[str, list[tuple[str, Array]]], list[str]]:
        """What is computed, and what is in these stores beside variables: by keys, the arrays with their names in the file; and the keys of the
        values that are assets, or have some too, for which a file of weights has no place.

        Args:
            reader: The open checkpoint.

        Raises:
            CorruptCheckpointError: A store is damaged.
        """
        with importing():
            from milepost.adapters.keras.own_files import computed
            from milepost.adapters.keras.own_state import stored_in

        known = {name for names in self.values.values() for name in names}
        arrays_by_key: dict[str, list[tuple[str, Array]]] = {}
        for path, obj, variables in self.computed:
            arrays = computed(obj, [(each, reader.read(key)) for key, each in variables.items()])
            merged = [key for key in variables if key not in self.values] or [path]
            arrays_by_key |= {key: [] for key in merged}
            arrays_by_key[merged[0]] = [(f"{path}/{local}", array) for local, array in arrays.items()]
        with_assets = list(self.assets)
        for key, path in self.stores.items():
            stored, assets = stored_in(reader.read(key).item())
            named = [(f"{path}/{local}", array) for local, array in stored.items()]
            arrays_by_key[key] = [(name, array) for name, array in named if name not in known]
            if assets:
                with_assets.append(key)
        return arrays_by_key, with_assets


def keras_names(
    path: str, checkpoint: Checkpoint, translation: Translation, storage: Storage | None = None
) -> KerasNames:
    """The names that Keras has for saved values.

    No live object changes, but that the optimizer of the model is built. Variables of the optimizer have names if all of them were saved.

    Args:
        path: The path of a checkpoint.
        checkpoint: The live objects: one built model of Keras 3, by itself or with others.
        translation: How saved names differ from live ones, and which values are wanted, as for a restore.
        storage: Where the checkpoint is; by default on this machine.

    Raises:
        MismatchError: A variable of the model was not saved, or a saved value does not fit its variable.
        UnsupportedError: There is no model of Keras 3 or more than one, it is not built, or the file has no object graph.
    """
    model = _model_of(checkpoint)
    with importing():
        from milepost.adapters.keras.own_files import (
            computing_by_path,
            own_objects_by_path,
            saveables,
            unbuilt_layer,
            variables_by_path,
        )
        from milepost.adapters.keras.own_state import OWN_STATE

    if all(name.startswith(_OPTIMIZER) for name in variables_by_path(model)) and unbuilt_layer(model) is not None:
        raise UnsupportedError(
            "the model has no variables yet, so Keras has no names for them",
            key=type(model).__name__,
            file=path,
            remedy="build the model before it is returned, for example by calling it on one batch",
        )
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)  # otherwise it has only two of its variables before the first step
    matches = matched_values(path, partial(view_of, checkpoint), CheckpointOptions(storage=storage), translation)
    if matches is None:
        raise UnsupportedError(
            "the values of this file are not matched with live objects, since it has no object graph",
            file=path,
            expected="a checkpoint of milepost or TensorFlow 2",
            remedy="restore it into the model, and call model.save_weights() of Keras",
        )
    keys: dict[int, dict[str, str]] = {}
    for key, live in matches:
        keys.setdefault(id(live), {}).setdefault(key.partition(ATTRIBUTES)[2], key)
    live_variables = variables_by_path(model)
    wanted = {name: each for name, each in live_variables.items() if not name.startswith(_OPTIMIZER)}
    of_optimizer = {name: each for name, each in live_variables.items() if name.startswith(_OPTIMIZER)}
    values: dict[str, list[str]] = {}
    computed: list[Computed] = []
    parts: dict[str, Any] = {}
    for path_in_file, (obj, names) in computing_by_path(model).items():
        saved = keys.get(id(obj), {})
        if all(name in saved for name in names):  # as values of the object
            values |= {saved[name]: [_joined(path_in_file, name)] for name in names}
        elif obj.variables:
            parts |= {f"{path_in_file}/{each.name}": each for each in obj.variables}
            if all(id(each) in keys for each in obj.variables):
                of_obj = {_first(keys[id(each)]): each for each in obj.variables}
                computed.append(Computed(_joined(path_in_file), obj, of_obj))
    _require(wanted | parts, keys, translation, path)
    if all(id(each) in keys for each in of_optimizer.values()):
        wanted |= of_optimizer
    for name, each in wanted.items():
        if id(each) in keys:
            values.setdefault(_first(keys[id(each)]), []).append(name)
    stores = {
        keys[id(obj)][OWN_STATE]: _joined(path_in_file)
        for path_in_file, obj in own_objects_by_path(model).items()
        if OWN_STATE in keys.get(id(obj), ())
    }
    of_layers = [key for _, obj in saveables(model) for key in keys.get(id(obj), {}).values()]
    return KerasNames(values, computed, stores, [key for key in of_layers if key not in stores and key not in values])


def _joined(*names: str) -> str:
    """The path of a name below the variables of the object at a path in the file, or of these."""
    at, *name = names
    return "/".join([*filter(None, [at]), _VARIABLES, *name])


def _first(values: Mapping[str, str]) -> str:
    """The key of the first value of an object. A variable has one."""
    return next(iter(values.values()))


def _require(wanted: Mapping[str, Any], keys: Collection[int], translation: Translation, path: str) -> None:
    """Checks that every variable of the model was saved, unless the user leaves some out."""
    lacking = [f"{name} ({each.path})" for name, each in wanted.items() if id(each) not in keys]
    is_part = translation.only is not None or translation.ignore
    if lacking and (not is_part or len(lacking) == len(wanted)):
        more = len(lacking) - _MOST_LISTED
        raise MismatchError(
            "the source has no values for some variables of the model",
            key=lacking[0],
            file=path,
            expected=f"values of all {len(wanted)} variables of the model",
            found=f"none of {', '.join(lacking[:_MOST_LISTED])}" + (f" and {more} more" if more > 0 else ""),
            remedy="'milepost match' says which values fit: rename the others with rename, leave them out with ignore, or pass the objects as they were "
            "saved, such as dict(model=model)",
        )


def _model_of(checkpoint: Checkpoint) -> Any:
    """The one model of Keras 3 among the objects of a checkpoint."""
    operation = view_of(checkpoint)
    root = operation.root
    models: list[Any] = []
    for each in (root, *_children(operation), *(child for _, child in operation.attached)):
        if _is_model(each) and not any(each is known for known in models):
            models.append(each)
    if _is_model(root):
        models = [root]
    if len(models) != 1:
        raise UnsupportedError(
            "the names in a file of Keras are those of one model",
            expected="one model of Keras 3, by itself or with other objects",
            found=f"{len(models)} models of Keras 3",
            remedy="name the model, or a function that returns a dict with this model and the other objects of the checkpoint",
        )
    return models[0]


def _children(operation: Operation) -> Sequence[Any]:
    adapter = adapter_during(operation, operation.root)
    return [] if adapter is None else [child for _, child in live_children(operation, adapter, operation.root)]


def _is_model(obj: Any) -> bool:
    keras: Any = sys.modules.get("keras")
    if keras is None or not str(getattr(keras, "__version__", "0")).startswith("3."):
        return False
    return isinstance(obj, keras.Model)
