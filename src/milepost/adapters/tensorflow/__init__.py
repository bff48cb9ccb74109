"""TensorFlow's own objects, and whatever implements its tracking, as Keras 2 does.

What is here, by the question it answers: `tensors`, how a tensor becomes an array and back; `variables`, how the value
of a variable is read and given; `trackables` and `containers`, what an object holds; `serialization`, what values it
has beside variables; `optimizers`, slot variables and flat lists; `layers`, other names; `hidden_state`, what TensorFlow
passes over; `hooks`, how values arrive late; `kinds`, whose class is whose; `session`, variables of TensorFlow 1's graphs.
"""

from typing import Final

from milepost.adapters.tensorflow.containers import ContainerAdapter
from milepost.adapters.tensorflow.hidden_state import (
    DiscretizationAdapter,
    GeneratorAdapter,
    RecurrentAdapter,
    VocabularyAdapter,
)
from milepost.adapters.tensorflow.layers import (
    DepthwiseAdapter,
    LayerAdapter,
    LayeredModelAdapter,
    NormalizationAdapter,
)
from milepost.adapters.tensorflow.optimizers import ListOptimizerAdapter, SlotOptimizerAdapter
from milepost.adapters.tensorflow.trackables import TrackableAdapter
from milepost.adapters.tensorflow.variables import ShardedVariableAdapter, VariableAdapter
from milepost.graph.adapter import register

_GENERAL_FIRST: Final = (
    TrackableAdapter,
    ContainerAdapter,
    LayerAdapter,
    LayeredModelAdapter,
    DepthwiseAdapter,
    NormalizationAdapter,
    RecurrentAdapter,
    VocabularyAdapter,
    DiscretizationAdapter,
    GeneratorAdapter,
    SlotOptimizerAdapter,
    ListOptimizerAdapter,
    VariableAdapter,
    ShardedVariableAdapter,
)
"""Those registered later are asked first, and know kinds of objects that earlier ones know in general."""

for _adapter in _GENERAL_FIRST:
    register(_adapter())
