"""safetensors: its files are written by `milepost.convert` and read by `milepost.load` and `milepost.load_checkpoint`."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

import milepost
import milepost.errors
from milepost.storage import MemoryStorage
from tests.peers.suite import Suite

_KINDS = {"pt": "torch", "torch": "torch", "flax": "jax", "jax": "jax"}
"""The libraries whose arrays `milepost.load` makes, by the names that safetensors has for frameworks. All others get arrays of NumPy."""
_INTERNAL = "It tests private functions of the library, which find tensors that share memory."
_POINTERS = "It passes addresses of memory, which milepost does not take."
_DEVICE = "milepost does not know the device."
_METADATA = (
    '`convert` writes `{"format": "pt"}` into the metadata, which the libraries of Hugging Face ask for; '
    "so the bytes of a file are not those that safetensors writes."
)
_TIED = "A tensor that has two names is written under both, and not under one, with the other in the metadata, as `save_model` does."
_REFUSALS = (
    "safetensors refuses tensors that are not contiguous, or that share memory, and milepost writes their values."
)
_ERRORS = "An error is raised, of another class or with another text."

SUITE = Suite(
    title="safetensors",
    packages=("safetensors", "torch", "jax", "tensorflow"),
    copied={"bindings/python/tests": "tests"},
    files=("tests/test_*.py",),
    replaced=(
        "`save` and `save_file` of each framework are `milepost.save` and `milepost.convert`, `load` and `load_file` are `milepost.load`, "
        "`safe_open` is `milepost.load_checkpoint`, and `save_model` and `load_model` are `write` and `read` of `milepost.Checkpoint(model)`. "
        "`get_slice` is `reader[name]`. Errors of milepost become a `SafetensorError`."
    ),
    excluded={
        "*::test_safetensor_error_module_is_importable": "It tests where the library's class of errors is.",
        "*::test_pt_sf_save_model_overlapping_storage": _INTERNAL,
        "*::test_find_shared_*": _INTERNAL,
        "*::test_is_complete": _INTERNAL,
        "*::test_end_ptr": _INTERNAL,
        "*::test_remove_duplicate_names": _INTERNAL,
        "tests/test_handle.py::*": "It tests `_safe_open_handle`, a private function for open files; milepost takes paths and storages.",
        "*::test_exception": _POINTERS,
        "*::test_serialize_file_releases_gil": _POINTERS,
        "*::test_invalid_backend_string_raises": "milepost has no choice between two ways of reading a file.",
        "tests/test_paddle_comparison.py::*": "milepost has no arrays of Paddle.",
        "tests/test_mlx_comparison.py::*": "milepost has no arrays of MLX.",
        "*::test_npu": _DEVICE,
        "*::test_hpu": _DEVICE,
    },
    failing={
        "*::PreadBackendTests::test_safe_open_round_trip": _METADATA,
        "*::test_deserialization_metadata": _METADATA,
        "*::test_workaround": _TIED,
        "*::test_save": _TIED,
        "*::TorchTestCase::test_serialization": _METADATA,
        "*::test_complex": _METADATA,
        "*::test_in_memory": _METADATA,
        "*::TestCase::test_serialization": _METADATA,
        "*::test_serialization_forces_alignment": _METADATA,
        "*::test_serialization_metadata": _METADATA,
        "*::test_serialization_no_big_endian": _METADATA,
        "*::test_cannot_serialize_*": _REFUSALS,
        "*::test_failure": _REFUSALS,
        "*::test_workaround_non_contiguous": _REFUSALS,
        "*::test_bogus": _ERRORS,
        "*::test_sparse": _ERRORS,
        "*::test_meta_tensor": _ERRORS,
        "*::test_file_not_found": _ERRORS,
        "*::test_difference_*": _ERRORS,
        "*::test_torch_slice": "All its slices are right; a list as an index is refused.",
        "*::test_numpy_slice": "All its slices are right; for those out of range the error is NumPy's, or none, as NumPy has it.",
    },
)


@contextmanager
def _their_errors() -> Iterator[None]:
    import safetensors

    try:
        yield
    except FileNotFoundError:
        raise
    except milepost.MilepostError as error:
        raise safetensors.SafetensorError(str(error)) from error


def _write(
    save: Callable[[str, milepost.CheckpointOptions], str],
    filename: Any,
    metadata: Mapping[str, str] | None = None,
    separator: str = "/",
) -> None:
    """Saves into memory, and converts that."""
    storage = MemoryStorage()
    path = save("state", milepost.CheckpointOptions(storage=storage))
    milepost.convert(
        path,
        filename,
        format="safetensors",
        separator=separator,
        metadata=metadata,
        options=milepost.CheckpointOptions(storage=storage),
        overwrite=True,
    )


_numbers = itertools.count()


def _save_file(tensors: Mapping[str, Any], filename: Any, metadata: Mapping[str, str] | None = None) -> None:
    with _their_errors():
        _write(lambda path, options: milepost.save(path, dict(tensors), options), filename, metadata)


def _save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    file = Path(f"saved-{next(_numbers)}.safetensors")
    _save_file(tensors, file, metadata)
    return file.read_bytes()


def _load_file(framework: str, filename: Any, device: Any = "cpu", *, backend: str = "mmap") -> dict[str, Any]:
    with safe_open(filename, framework, device) as file:
        return file.get_tensors()


def _load(framework: str, data: bytes) -> dict[str, Any]:
    storage = MemoryStorage()
    with storage.create("data.safetensors") as file:
        file.write(0, [data])
    with _their_errors():
        loaded = milepost.load(
            "data.safetensors",
            arrays=_KINDS.get(framework, "numpy"),  # type: ignore[arg-type]
            options=milepost.CheckpointOptions(storage=storage),
        )
    return {name: _of_framework(value, framework) for name, value in loaded.items()}


def _save_model(
    model: Any, filename: Any, metadata: Mapping[str, str] | None = None, force_contiguous: bool = True
) -> None:
    with _their_errors():
        _write(milepost.Checkpoint(model).write, filename, metadata, separator=".")


def _load_model(model: Any, filename: Any, strict: bool = True, device: Any = "cpu", *, backend: str = "mmap") -> Any:
    status = milepost.Checkpoint(model).read(filename)
    if strict:
        try:
            status.assert_consumed()
        except AssertionError as error:
            raise RuntimeError(str(error)) from error
    return status


def _of_framework(array: Any, framework: str, device: Any = "cpu") -> Any:
    if framework == "tf":
        import tensorflow as tf

        return tf.convert_to_tensor(array)
    return array.to(device) if framework in ("pt", "torch") else array


class safe_open:  # noqa: N801 - the name of what it stands for
    """An open file."""

    def __init__(self, filename: Any, framework: str, device: Any = "cpu", *, backend: str = "mmap") -> None:
        self._path, self._framework, self._device = os.fspath(filename), framework, device
        with _their_errors():
            self._reader = milepost.load_checkpoint(filename)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()

    def keys(self) -> list[str]:
        """The names of the tensors."""
        with _their_errors():
            return self._reader.keys()

    def metadata(self) -> Any:
        """The metadata."""
        with _their_errors():
            return self._reader.metadata()

    def get_tensor(self, name: str) -> Any:
        """One tensor."""
        return self._read(only=name)[name]

    def get_tensors(self) -> dict[str, Any]:
        """All tensors."""
        return self._read()

    def get_slice(self, name: str) -> Slice:
        """One tensor, which is read when it is indexed."""
        return Slice(self._reader, name, self._framework)

    def _read(self, **selected: str) -> dict[str, Any]:
        kind: Any = _KINDS.get(self._framework, "numpy")
        with _their_errors():
            loaded = milepost.load(self._path, arrays=kind, **selected)  # type: ignore[arg-type]
        return {name: _of_framework(value, self._framework, self._device) for name, value in loaded.items()}


class Slice:
    """A tensor that is read when it is indexed."""

    def __init__(self, reader: milepost.CheckpointReader, name: str, framework: str) -> None:
        self._reader, self._name, self._framework = reader, name, framework

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return self._reader.get_variable_to_shape_map()[self._name]

    def get_dtype(self) -> str:
        """The element type of the tensor, as safetensors calls it."""
        name = self._reader.get_variable_to_dtype_map()[self._name].name
        return name.replace("float", "F").replace("uint", "U").replace("int", "I")

    def __getitem__(self, index: Any) -> Any:
        with _their_errors():
            part = self._reader[self._name][index]
        if self._framework == "pt":
            import torch

            return torch.from_numpy(np.array(part))
        return part


def pytest_configure() -> None:
    """Puts milepost in the place of the library."""
    import safetensors

    safetensors.safe_open = safe_open
    for framework, module in {"pt": "torch", "np": "numpy", "flax": "flax", "tf": "tensorflow"}.items():
        if importlib.util.find_spec(module) is None:
            continue
        peer: Any = importlib.import_module(f"safetensors.{module}")
        peer.save, peer.save_file, peer.safe_open = _save, _save_file, safe_open
        peer.load, peer.load_file = partial(_load, framework), partial(_load_file, framework)
        if framework == "pt":
            peer.save_model, peer.load_model = _save_model, _load_model
