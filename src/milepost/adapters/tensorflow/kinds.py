"""Telling TensorFlow's objects from those of Keras 3, which implement its tracking too but have an adapter of their own."""

from __future__ import annotations

import sys


def is_of_keras_3(kind: type) -> bool:
    """Whether a class is Keras 3's, or derived from one that is."""
    if not any(base.__module__.partition(".")[0] == "keras" for base in kind.__mro__):
        return False
    version = getattr(sys.modules.get("keras"), "__version__", "3")
    return int(version.partition(".")[0]) >= 3


def is_keras_2(kind: type, name: str) -> bool:
    """Whether a class is Keras 2's of this name, or derived from one that is."""
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] in ("keras", "tf_keras") for base in kind.__mro__
    ) and not is_of_keras_3(kind)
