"""TensorFlow's own objects, and all others that implement its tracking, such as those of Keras 2.

============================  ==================================================================================
`tensors`                     how a tensor becomes an array, and an array a tensor
`variables`, `wrapped`        how the value of a variable is read and assigned, also of one that wraps another
`trackables`, `containers`    the children of an object, of a list, dict or tuple
`serialization`               values of objects that are not variables
`optimizers`                  slot variables and flat lists
`layers`                      the names of Keras 3
`hidden_state`                state of Keras 2's layers that TensorFlow does not save
`hooks`                       how deferred values are restored
`kinds`                       whether a class belongs to Keras 2, Keras 3 or TensorFlow
`session`                     variables of TensorFlow 1's graphs
`tracing`                     saves inside a ``tf.function``
`random_state`                the global random state
`coordinator`                 how the workers of a strategy exchange messages
`private`                     the private names of TensorFlow that the other files use
============================  ==================================================================================
"""

from typing import Final

from milepost.adapters.tensorflow import coordinator as coordinator
from milepost.adapters.tensorflow.containers import ContainerAdapter
from milepost.adapters.tensorflow.hidden_state import (
    LayerGeneratorAdapter,
    RecurrentAdapter,
    TensorFlowDiscretizationAdapter,
    TensorFlowVocabularyAdapter,
)
from milepost.adapters.tensorflow.layers import (
    DepthwiseAdapter,
    TensorFlowLayerAdapter,
    TensorFlowLayeredModelAdapter,
    TensorFlowNormalizationAdapter,
)
from milepost.adapters.tensorflow.optimizers import ListOptimizerAdapter, SlotOptimizerAdapter
from milepost.adapters.tensorflow.trackables import TrackableAdapter
from milepost.adapters.tensorflow.variables import ShardedVariableAdapter, TensorFlowVariableAdapter
from milepost.graph.adapter import register

_GENERAL_FIRST: Final = (
    TrackableAdapter,
    ContainerAdapter,
    TensorFlowLayerAdapter,
    TensorFlowLayeredModelAdapter,
    DepthwiseAdapter,
    TensorFlowNormalizationAdapter,
    RecurrentAdapter,
    TensorFlowVocabularyAdapter,
    TensorFlowDiscretizationAdapter,
    LayerGeneratorAdapter,
    SlotOptimizerAdapter,
    ListOptimizerAdapter,
    TensorFlowVariableAdapter,
    ShardedVariableAdapter,
)
"""In the order of registration. The last is asked first, so adapters of special kinds of objects follow general ones."""

for _adapter in _GENERAL_FIRST:
    register(_adapter())
