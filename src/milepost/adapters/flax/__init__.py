"""Flax NNX: graph `nodes`, `variables`, and `copies` of trees with these. `moved` has names that older versions have elsewhere.

NNX does not announce new attributes. A value that is deferred for one is restored when the program asks the status of the
restore for a report or an assertion. A save before that fails.
"""

from milepost.adapters import jax as jax  # variables hold arrays and keys
from milepost.adapters.flax import copies as copies  # so that a missing name is seen here
from milepost.adapters.flax.nodes import NnxOptimizerAdapter, NnxPytreeAdapter
from milepost.adapters.flax.variables import NnxVariableAdapter
from milepost.graph.adapter import register

for _adapter in (NnxPytreeAdapter(), NnxOptimizerAdapter(), NnxVariableAdapter()):
    register(_adapter)
