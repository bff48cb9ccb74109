"""Converts the models of whole libraries, and loads the files with the loaders of PyTorch and safetensors: ``python -m benchmarks.libraries.exports``.

Each model is saved by `milepost.Checkpoint` and converted to a ``.pt``, to a ``.safetensors``, and to each of these in several files with an
index. A second model, with other values, loads each by ``load_state_dict(strict=True)``. Then both have the same state, bit for bit, or the
page of whole libraries says what differs. Where `milepost.convert` refuses a model, the page says so too.
"""

from __future__ import annotations

import copy
import datetime
import importlib.metadata
import json
import sys
import tempfile
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file

import milepost
from benchmarks.libraries import catalogue, models, table
from benchmarks.libraries.compare import difference, plain
from benchmarks.libraries.specimen import UntriedError

LIBRARIES: Final = ("timm", "torchvision", "transformers", "peft", "diffusers")
"""Those that are models."""
_MOST: Final = 60_000_000
"""The most numbers of a model: larger ones have the same modules more often."""


def _pickled(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(path, weights_only=True)
    return found


def _indexed(read: Callable[[Path], dict[str, Any]]) -> Callable[[Path], dict[str, Any]]:
    """Loads the files that an index names, as the libraries of Hugging Face do, with the versions of modules that each has."""

    def load(path: Path) -> dict[str, Any]:
        names = json.loads(path.read_text())["weight_map"].values()
        parts = [read(path.parent / each) for each in sorted({*names})]
        whole = OrderedDict(chain.from_iterable(part.items() for part in parts))
        if noted := [vars(part)["_metadata"] for part in parts if isinstance(part, OrderedDict)]:
            vars(whole)["_metadata"] = OrderedDict(chain.from_iterable(each.items() for each in noted))
        return whole

    return load


FORMATS: Final[dict[str, tuple[str, Callable[[Path], dict[str, Any]]]]] = {
    ".pt": ("m.pt", _pickled),
    ".safetensors": ("m.safetensors", load_file),
    ".pt in several files": ("pytorch_model.bin.index.json", _indexed(_pickled)),
    ".safetensors in several files": ("model.safetensors.index.json", _indexed(load_file)),
}
"""The kinds of files: which of them is loaded, and how."""


def tried(make: Callable[[str, int], Any], name: str) -> dict[str, str]:
    """What became of one model in each kind of file: an empty text if all is equal.

    Raises:
        UntriedError: The model cannot be made here, or is too large.
    """
    try:
        model, other = (make(name, seed).parts["model"] for seed in (1, 2))
    except Exception as error:
        raise UntriedError(f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]) from error
    size = sum(each.numel() for each in model.state_dict().values() if isinstance(each, torch.Tensor))
    if size > _MOST:
        raise UntriedError(f"it has {size:,} numbers")
    first, expected, found = copy.deepcopy(other.state_dict()), plain(model.state_dict()), {}
    if size and plain(first) == expected:
        raise UntriedError("its values do not depend on the seed")
    with tempfile.TemporaryDirectory() as directory:
        path = milepost.Checkpoint(model=model).write(Path(directory, "c"))
        for form, (file, load) in FORMATS.items():
            try:
                folder = Path(directory, form)
                folder.mkdir()
                most = max(size * 4 // 3, 1 << 10) if "several" in form else None
                target = folder / file.removesuffix(".index.json")
                milepost.convert(path, target, only="model", rename={"model": ""}, separator=".", max_shard_size=most)
                other.load_state_dict(first)
                other.load_state_dict(load(folder / file), strict=True)
                found[form] = difference(plain(other.state_dict()), expected)
            except Exception as error:
                found[form] = f"{type(error).__name__}: {' '.join(str(error).split())}".replace(f"{directory}/", "")[
                    :300
                ]
    return found


def main(libraries: Sequence[str]) -> None:
    """Tries the models of some libraries, and writes the page."""
    models.Model.used = False
    results = table.exports()
    for library in libraries:
        module, objects = catalogue.load(library), {}
        for number, name in enumerate(names := [*module.names()]):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    objects[name] = tried(module.make, name)
                except UntriedError as error:
                    objects[name] = {"untried": str(error)}
            said = next(filter(None, objects[name].values()), "equal")
            print(f"{library} {number + 1}/{len(names)} {name}: {said}", file=sys.stderr, flush=True)
        packages = ("torch", "safetensors", *catalogue.LIBRARIES[library].packages[:-1])
        versions = {each: importlib.metadata.version(each) for each in packages}
        date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        results[library] = {"date": date, "versions": versions, "objects": objects}
        table.EXPORTS.write_text(json.dumps(results, indent=1) + "\n")
    table.write()


if __name__ == "__main__":
    main(sys.argv[1:] or LIBRARIES)
