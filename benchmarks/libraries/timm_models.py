"""The smallest model of each module of timm."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from benchmarks.libraries import torchvision_operators
from benchmarks.libraries.models import Model, parameters
from benchmarks.libraries.specimen import Specimen, UntriedError

torchvision_operators.define()
import timm

_SMALL = [
    "test",
    "femto",
    "atto",
    "pico",
    "nano",
    "zepto",
    "xxs",
    "xxt",
    "xs",
    "xt",
    "_t_",
    "tiny",
    "mini",
    "micro",
    "small",
    "_s_",
    "_s0",
    "_b0",
    "_0",
    "lite",
    "050",
    "x0",
    "18",
    "10",
    "12",
    "_s",
]
_MOST = 40_000_000
_SETTINGS: tuple[dict[str, Any], ...] = ({"img_size": 64, "depth": 2}, {"depth": 2}, {"img_size": 64}, {})
"""What makes models small, where they take it."""


def names() -> Iterable[str]:
    """Modules of timm."""
    return list(timm.list_modules())


def make(name: str, seed: int) -> Specimen:
    """A small model of a module."""
    build = _smallest(name)
    return Model(seed, build, *(partial(_image, size) for size in (64, 32, 96, 224, 256)))


def _image(size: int) -> dict[str, Any]:
    return {"x": torch.randn(2, 3, size, size)}


@functools.cache
def _smallest(module: str) -> partial[Any]:
    """Makes that with the fewest parameters of the few models whose names promise it."""
    candidates = sorted(timm.list_models(module=module), key=_rank)[:2]
    found = [pair for pair in map(_measured, candidates) if pair is not None]
    size, build = min(found, key=lambda pair: pair[0], default=(0, None))
    if build is None or size > _MOST:
        raise UntriedError(f"{' and '.join(candidates)} have {size} parameters or cannot be made")
    return build


def _measured(name: str) -> tuple[int, partial[Any]] | None:
    for settings in _SETTINGS:
        build = partial(timm.create_model, name, num_classes=10, **settings)
        try:
            return parameters(build), build
        except TimeoutError:
            raise
        except Exception:  # it does not take these settings
            continue
    return None


def _rank(name: str) -> tuple[int, int, str]:
    found = next((number for number, word in enumerate(_SMALL) if word in f"{name}_"), len(_SMALL))
    digits = [int(each) for each in re.findall(r"\d+", name)]
    return found, max(digits, default=0), name
