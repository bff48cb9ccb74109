"""JAX.

==================  ==============================================================================
`arrays`, `pieces`  arrays and abstract arrays; how the parts of an array on several devices are read
`keys`              typed keys of random number generators
`pytrees`           classes that are registered with `jax.tree_util`
`refs`              mutable arrays
`plain_kinds`       arrays and keys in the plain state of other objects
`processes`         the processes that run one program
`private`           the private names of JAX that the other files use
==================  ==============================================================================
"""

from milepost.adapters.jax import arrays as arrays
from milepost.adapters.jax import keys as keys
from milepost.adapters.jax import plain_kinds as plain_kinds
from milepost.adapters.jax import processes as processes
from milepost.adapters.jax import pytrees as pytrees
from milepost.adapters.jax import refs as refs
