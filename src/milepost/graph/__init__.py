"""Objects as nodes, edges and keys, and milepost's own trackable objects. This package knows no files."""

from milepost.graph import native as native  # registers the adapters of what is defined here
from milepost.graph.containers import DictWrapper, ListWrapper, NoDependency, OrderedDictWrapper
from milepost.graph.module import Module, SlotOwner, Tracked
from milepost.graph.plain import adapters as _plain_adapters  # noqa: F401
from milepost.graph.state import PythonState, TensorState
from milepost.graph.trees import adapters as _tree_adapters  # noqa: F401
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
