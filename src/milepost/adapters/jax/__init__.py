"""JAX.

==================  ==============================================================================
`arrays`, `pieces`  arrays and abstract arrays; how the parts of an array on several devices and processes are read
`host_memory`       copies of arrays on GPUs and TPUs, which JAX makes while the program continues
`keys`              typed keys of random number generators
`pytrees`           classes that are registered with `jax.tree_util`
`refs`              mutable arrays
`plain_kinds`       arrays and keys in the plain state of other objects
`outlines`          copies of trees without their arrays, or with objects of their own
`moved`             names of JAX that older versions have elsewhere
`coordinator`       how the processes of one program exchange messages
`private`           the private names of JAX that the other files use
==================  ==============================================================================
"""

from milepost.adapters.jax import arrays as arrays
from milepost.adapters.jax import coordinator as coordinator
from milepost.adapters.jax import keys as keys
from milepost.adapters.jax import plain_kinds as plain_kinds
from milepost.adapters.jax import pytrees as pytrees
from milepost.adapters.jax import refs as refs
