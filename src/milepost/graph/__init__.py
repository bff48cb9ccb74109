"""Objects as nodes, edges and keys, and milepost's own trackable objects. Knows no files."""

from milepost.graph import native as native  # registers the adapters of what is defined here
from milepost.graph import place_adapters as place_adapters
from milepost.graph import plain_adapters as plain_adapters
from milepost.graph import plain_enums as plain_enums
from milepost.graph.containers import DictWrapper, ListWrapper, NoDependency, OrderedDictWrapper
from milepost.graph.module import Module, SlotOwner, Tracked
from milepost.graph.state import PythonState, TensorState
from milepost.graph.variable import Variable

__all__ = [
    "DictWrapper",
    "ListWrapper",
    "Module",
    "NoDependency",
    "OrderedDictWrapper",
    "PythonState",
    "SlotOwner",
    "TensorState",
    "Tracked",
    "Variable",
]
