"""Flax NNX: modules and all other graph nodes, their variables, and states.

NNX gives no sign of a new attribute, so what waits for one is delivered when milepost looks again: before a save, and
whenever the status of a restore is asked.
"""

from milepost.adapters import jax as jax  # variables hold arrays and keys
from milepost.adapters.flax.nodes import NodeAdapter
from milepost.adapters.flax.states import StateAdapter
from milepost.adapters.flax.variables import KeyVariableAdapter, VariableAdapter
from milepost.graph.adapter import register

for _adapter in (NodeAdapter(), StateAdapter(), VariableAdapter(), KeyVariableAdapter()):
    register(_adapter)
