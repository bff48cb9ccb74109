"""JAX: `arrays` and abstract arrays, typed `keys` of random number generators, registered `pytrees`."""

from milepost.adapters.jax import arrays as arrays
from milepost.adapters.jax import keys as keys
from milepost.adapters.jax import pytrees as pytrees
