"""Finds the model in a directory that a library of Hugging Face has written, and the files that belong to it.

::

    file    := stem ("." variant)? ("-" number "-of-" count)? ending              model.safetensors, adapter_model.bin, model.fp16.safetensors
    index   := stem ending ".index" ("." variant)? ".json"                        model.safetensors.index.fp16.json
             | stem ("." variant)? ending ".index.json"
    ending  := ".safetensors" | ".bin"

`foreign/shards.py` reads the index. Files of one stem and variant are one model, and safetensors is preferred. A file that ends in ``.bin`` is one of a model if
its name says so: a trainer writes others too, such as ``optimizer.bin``. Source: transformers 5, diffusers 0.36 and peft 0.18, observed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

from milepost.bundle.format.names import INDEX_SUFFIX
from milepost.storage import Storage

_USUAL: Final = ("model", "pytorch_model", "diffusion_pytorch_model", "adapter_model")
"""The stems of models without a variant. The first that is there is the model of a directory."""
_ENDINGS: Final = (".safetensors", ".bin")
_INDEX: Final = re.compile(r"(?P<stem>.*?)(?P<ending>\.[^.]+)?\.index(?P<variant>\.[\w-]+)?\.json")
_PART: Final = re.compile(r"-\d{5}-of-\d{5}$")
_OF_A_MODEL: Final = re.compile(r"model|weights")


def is_index(path: str) -> bool:
    """Whether the name of a file is that of the index of a model in several files.

    Example:
        >>> is_index("model.safetensors.index.json"), is_index("model.safetensors.index.fp16.json"), is_index("config.json")
        (True, True, False)
    """
    return _INDEX.fullmatch(os.path.basename(path)) is not None


def is_part_of_model(name: str, indexes: Iterable[str]) -> bool:
    """Whether the name of a file is that of one of several files of a model, whose index is one of these.

    Example:
        >>> is_part_of_model("model-00001-of-00002.safetensors", ["model.safetensors.index.json"])
        True
        >>> is_part_of_model("model.fp16-00001-of-00002.safetensors", ["model.safetensors.index.fp16.json"])
        True
    """
    matches = [match for each in indexes if (match := _INDEX.fullmatch(each)) is not None]
    return any(name.startswith(f"{match['stem']}{match['variant'] or ''}-") for match in matches)


def files_of_model(storage: Storage, path: str) -> list[str]:
    """The files of a model of Hugging Face that are there, its index among them. Empty if a path is not one.

    Args:
        storage: Where it is.
        path: The index, or the directory that holds it or the only file.
    """
    model = path if is_index(path) else model_in(storage, path)
    if model is None:
        alone = models_alone_in(storage, path)
        model = alone[0] if len(alone) == 1 else None
    if model is None or not is_index(model):
        return [] if model is None else [model]
    directory, name = os.path.split(model)
    listed = [os.path.join(directory, each) for each in storage.list(directory) if is_part_of_model(each, [name])]
    return [model, *listed]


def model_in(storage: Storage, path: str) -> str | None:
    """The file, or the index, of the model in a directory of a usual name; None if there is none, or if this is no directory."""
    if not storage.is_directory(path):
        return None
    for stem in _USUAL:
        for ending in _ENDINGS:
            for name in (f"{stem}{ending}.index.json", f"{stem}{ending}"):
                if storage.is_file(os.path.join(path, name)):
                    return os.path.join(path, name)
    return None


def models_alone_in(storage: Storage, path: str) -> list[str]:
    """The files, or the indexes, of the models in a directory, whatever their names are, one for each model. Empty if there are checkpoints in the
    directory, or if this is no directory."""
    names = sorted(storage.list(path)) if storage.is_directory(path) else []
    if any(name.endswith(INDEX_SUFFIX) for name in names):
        return []
    models: dict[tuple[str, str], tuple[int, str]] = {}
    for name in names:
        ranked = _model_of(name)
        if ranked is not None:
            model, rank = ranked
            models[model] = min(models.get(model, (rank, name)), (rank, name))
    return [os.path.join(path, name) for _, name in models.values()]


def _model_of(name: str) -> tuple[tuple[str, str], int] | None:
    """The stem and variant of the model that a file has, and a number that is less for a file that is preferred. None for other files and parts."""
    index = _INDEX.fullmatch(name)
    stem, ending = (index["stem"], index["ending"] or "") if index is not None else os.path.splitext(name)
    if ending not in _ENDINGS or _PART.search(stem) or (ending == ".bin" and not _OF_A_MODEL.search(stem)):
        return None
    stem, dot, variant = stem.partition(".")
    if index is not None and index["variant"]:
        dot, variant = ".", index["variant"][1:]
    return (stem, dot + variant), 2 * _ENDINGS.index(ending) + (index is None)
