"""Whether a class belongs to Keras 2 or Keras 3. Classes of Keras 3 implement TensorFlow's tracking too, but have adapters of their own."""

from __future__ import annotations

import sys


def is_of_keras_3(kind: type) -> bool:
    """Whether a class, or a base class of it, belongs to Keras 3."""
    if not any(base.__module__.partition(".")[0] == "keras" for base in kind.__mro__):
        return False
    version = getattr(sys.modules.get("keras"), "__version__", "3")
    return int(version.partition(".")[0]) >= 3


def is_keras_2(kind: type, name: str) -> bool:
    """Whether a class, or a base class of it, has this name and belongs to Keras 2."""
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] in ("keras", "tf_keras") for base in kind.__mro__
    ) and not is_of_keras_3(kind)
