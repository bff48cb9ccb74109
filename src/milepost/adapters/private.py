"""Private names of frameworks that are looked up without an import, because the adapter of the installed version cannot be imported."""

from __future__ import annotations

import sys
from collections.abc import Container


def pytree_types() -> Container[type]:
    """The classes that are registered with JAX. Later versions have no such table, and are not refused."""
    return getattr(sys.modules.get("jax._src.tree_util"), "_registry", ())
