"""JAX.

What is here: `arrays` and abstract arrays, typed `keys` of random number generators, registered `pytrees`, `plain_kinds` in others' state,
`processes` that run one program; `private` names of JAX that all of these use.
"""

from milepost.adapters.jax import arrays as arrays
from milepost.adapters.jax import keys as keys
from milepost.adapters.jax import plain_kinds as plain_kinds
from milepost.adapters.jax import processes as processes
from milepost.adapters.jax import pytrees as pytrees
from milepost.adapters.jax import refs as refs
