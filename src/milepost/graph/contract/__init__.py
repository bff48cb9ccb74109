"""The parts of the contract between milepost and the objects it saves, one subject a file.

`milepost.graph.adapter.Adapter` inherits them all, has the registry of adapters, and tells in which order they are called.

====================  ===================================================================================
`contents`            which objects are whose, what they hold, and how their values are read and given back
`values`              one tensor of an object
`matching`            by which other names saved children and values are matched
`slots`               slot variables, which belong to an optimizer and a variable
`deferred_children`   what an object is told when values are deferred for it, and when it got some
`completeness`        what a checkpoint would leave out
`arrays`              arrays as programs compute them, which a restore may have to make anew
====================  ===================================================================================
"""

from milepost.graph.contract.arrays import Arrays
from milepost.graph.contract.completeness import Completeness
from milepost.graph.contract.contents import Contents
from milepost.graph.contract.deferred_children import DeferredChildren
from milepost.graph.contract.matching import Matching
from milepost.graph.contract.slots import Slots

__all__ = ["Arrays", "Completeness", "Contents", "DeferredChildren", "Matching", "Slots"]
