"""Names of JAX that older versions have elsewhere."""

from __future__ import annotations

from typing import Any, Final

import jax
from jax import experimental

enable_x64: Final[Any] = jax.enable_x64 if hasattr(jax, "enable_x64") else experimental.enable_x64
"""The context in which arrays may have elements of 64 bits. It moved in JAX 0.8."""
Ref: Final[Any] = jax.Ref if hasattr(jax, "Ref") else experimental.MutableArray
"""The class of mutable arrays. It had its second name before JAX 0.7."""
new_ref: Final[Any] = jax.new_ref if hasattr(jax, "new_ref") else experimental.mutable_array
"""Makes a mutable array."""
