"""The parts of the contract between milepost and the objects it saves, one subject a file.

`milepost.graph.adapter.Adapter` inherits them all. Its docstring has the order of calls.

====================  ===================================================================================
`contents`            which objects belong to an adapter, what they hold, and how their values are read and assigned
`values`              one tensor of an object
`matching`            other names by which saved children and values are matched
`slots`               slot variables, which belong to an optimizer and a variable
`deferred_children`   what is called when values are deferred for an object, and when they arrive
`completeness`        what a checkpoint would leave out
`arrays`              arrays that programs compute, which a restore may have to make
====================  ===================================================================================
"""

from milepost.graph.contract.arrays import Arrays
from milepost.graph.contract.completeness import Completeness
from milepost.graph.contract.contents import Contents
from milepost.graph.contract.deferred_children import DeferredChildren
from milepost.graph.contract.matching import Matching
from milepost.graph.contract.slots import Slots

__all__ = ["Arrays", "Completeness", "Contents", "DeferredChildren", "Matching", "Slots"]
