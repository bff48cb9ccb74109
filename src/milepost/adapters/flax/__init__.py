"""Flax NNX: graph `nodes`, and `variables`.

NNX gives no sign of a new attribute, so what waits for one is delivered when milepost looks again: before a save, and
whenever the status of a restore is asked.
"""

from milepost.adapters import jax as jax  # variables hold arrays and keys
from milepost.adapters.flax.nodes import NodeAdapter
from milepost.adapters.flax.variables import VariableAdapter
from milepost.graph.adapter import register

for _adapter in (NodeAdapter(), VariableAdapter()):
    register(_adapter)
