"""State that users' classes save by ``save_own_variables`` and ``save_assets``, the methods of Keras' own saving.

Everything that these methods write is one value of the object: a string that holds a NumPy archive (``.npz``, not compressed)::

    names     JSON: [["variable", key, element type] | ["asset", path in its directory, "uint8"] | ["no assets", "", "uint8"], ...]
    0, 1, ... the arrays, in this order

The last form is that of a file of Keras without assets, of which ``load_assets`` is not called. A restore passes all others to ``load_own_variables`` and ``load_assets``. If the object is not built yet, this is deferred until it is.
"""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import keras
import ml_dtypes  # noqa: F401  # names of element types that NumPy does not have
import numpy as np

from milepost.adapters.keras.private import KerasSaveable, Variable
from milepost.adapters.keras.variables import value_of
from milepost.errors import CorruptCheckpointError, UntrackableError
from milepost.facts import Fact
from milepost.graph.adapter import Array, Value
from milepost.graph.variable import as_array
from milepost.tensor.dtype import STRING

OWN_STATE: Final = "own_state"
"""The local name of the value."""
_VARIABLE: Final = "variable"
_ASSET: Final = "asset"
_NO_ASSETS: Final = "no assets"
_deferred: Final[Fact[bytes]] = Fact()
"""The state of objects that are not built yet."""


def overrides(kind: type, method: str) -> bool:
    """Whether a user's class, and not Keras, defines a method."""
    definer = next((base for base in kind.__mro__ if method in vars(base)), KerasSaveable)
    return definer.__module__.partition(".")[0] != "keras"


def saves_itself(kind: type) -> bool:
    """Whether a user's class has code of its own for the variables or assets that Keras saves."""
    return _has_store(kind) or overrides(kind, "save_assets")


def _has_store(kind: type) -> bool:
    return overrides(kind, "save_own_variables") or overrides(kind, "load_own_variables")


def own_state(obj: Any) -> Sequence[Value]:
    """The value that holds what an object's own methods save; none if its class has no such methods."""
    if not saves_itself(type(obj)):
        return ()
    return (Value(OWN_STATE, STRING, (), lambda: as_array(_saved(obj)), skipped_by_tensorflow=True),)


def assign_own_state(obj: Any, arrays: Mapping[str, Array]) -> bool:
    """Restores the state that an object's own methods saved.

    Returns:
        Whether this is deferred until the object is built.
    """
    if OWN_STATE not in arrays:
        return False
    data = arrays[OWN_STATE].item()
    if getattr(obj, "built", True):
        _deferred.pop(obj)
        _load(obj, data)
        return False
    _deferred[obj] = data
    return True


def restore_own_state(obj: Any) -> bool:
    """Restores the deferred state of an object, if it is built now.

    Returns:
        Whether none is deferred any more.
    """
    data = _deferred.get(obj)
    if data is not None and obj.built:
        _load(obj, data)
        _deferred.pop(obj)
        return True
    return data is None


def stored_in(data: bytes) -> tuple[dict[str, Array], list[str]]:
    """What ``save_own_variables`` has put into its store, and the paths of the files that ``save_assets`` has written, from a saved value.

    Raises:
        CorruptCheckpointError: The value is damaged.
    """
    parts = _unpacked(data)
    store = {key: array for part, key, array in parts if part == _VARIABLE}
    return store, [key for part, key, _ in parts if part == _ASSET]


def packed(store: Mapping[str, Array], assets: Mapping[str, bytes] | None) -> bytes:
    """The value that is saved.

    Args:
        store: What ``save_own_variables`` has put into its store.
        assets: The contents of the files that ``save_assets`` has written, by their paths in its directory. None if ``load_assets`` is not to be called.
    """
    variables = [(_VARIABLE, key, array) for key, array in store.items()]
    if assets is None:
        return _packed([*variables, (_NO_ASSETS, "", np.empty(0, np.uint8))])
    return _packed(
        [*variables, *((_ASSET, path, np.frombuffer(content, np.uint8)) for path, content in assets.items())]
    )


def _saved(obj: Any) -> bytes:
    data = _deferred.get(obj)
    return _packed(_parts(obj)) if data is None else data


def _packed(parts: Iterable[tuple[str, str, Array]]) -> bytes:
    names: list[tuple[str, str, str]] = []
    arrays: list[Array] = []
    for part, key, array in parts:
        names.append((part, key, array.dtype.name))
        arrays.append(array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}"))
    archive = io.BytesIO()
    members: dict[str, Any] = {str(number): array for number, array in enumerate(arrays)}
    np.savez(archive, names=np.array(json.dumps(names)), **members)
    return archive.getvalue()


def _parts(obj: Any) -> Iterator[tuple[str, str, Array]]:
    if _has_store(type(obj)):
        store: dict[str, Any] = {}
        obj.save_own_variables(store)
        for key, value in store.items():
            yield _VARIABLE, str(key), _as_array(obj, str(key), value)
    if overrides(type(obj), "save_assets"):
        with tempfile.TemporaryDirectory() as directory:
            obj.save_assets(directory)
            for path in sorted(file for file in Path(directory).rglob("*") if file.is_file()):
                content = np.frombuffer(path.read_bytes(), np.uint8)
                yield _ASSET, path.relative_to(directory).as_posix(), content


def _as_array(obj: Any, key: str, value: Any) -> Array:
    if isinstance(value, Variable):
        return np.asarray(value_of(value))
    array: Array = np.asarray(keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else value)
    if array.dtype == object:
        raise UntrackableError(
            "save_own_variables() puts something into its store that is not an array",
            expected="arrays, numbers and variables",
            found=f"{key!r}: a {type(value).__name__}, from a {type(obj).__name__}",
            remedy="save it in a variable, or as an array",
        )
    return array


def _load(obj: Any, data: bytes) -> None:
    store: dict[str, Array] = {}
    assets: dict[str, bytes] = {}
    has_assets = True
    for part, key, array in _unpacked(data):
        if part == _ASSET:
            assets[key] = array.tobytes()
        elif part == _NO_ASSETS:
            has_assets = False
        else:
            store[key] = array
    if _has_store(type(obj)):
        obj.load_own_variables(store)
    if has_assets and overrides(type(obj), "save_assets"):
        with tempfile.TemporaryDirectory() as directory:
            for name, content in assets.items():
                path = Path(directory, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            obj.load_assets(directory)


def _unpacked(data: bytes) -> list[tuple[str, str, Array]]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("a member is compressed")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            parts = []
            for number, (part, key, dtype) in enumerate(json.loads(arrays["names"].item())):
                if part == _ASSET and (PurePosixPath(key).is_absolute() or ".." in PurePosixPath(key).parts):
                    raise ValueError(f"{key!r} is outside of the directory")
                array = arrays[str(number)]
                parts.append((part, key, array if array.dtype.name == dtype else array.view(np.dtype(dtype))))
            return parts
    except (ValueError, TypeError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise CorruptCheckpointError(
            "this is not the state of a Keras object",
            expected="an archive of arrays",
            found=str(error),
            remedy="restore another checkpoint",
        ) from error
