"""TensorFlow's own objects, and whatever implements its tracking, as Keras 2 does.

What is here, by the question it answers: `tensors`, how a tensor becomes an array and back; `variables`, how the value
of a variable is read and given; `trackables` and `containers`, what an object holds; `serialization`, what values it
has beside variables; `optimizers`, slot variables and flat lists; `layers`, other names; `hidden_state`, what TensorFlow passes over; `hooks`, how values arrive late; `kinds`,
whose class is whose; `session`, variables of TensorFlow 1's graphs.
"""

from milepost.adapters.tensorflow import containers as containers
from milepost.adapters.tensorflow import hidden_state as hidden_state
from milepost.adapters.tensorflow import layers as layers
from milepost.adapters.tensorflow import optimizers as optimizers
from milepost.adapters.tensorflow import trackables as trackables
from milepost.adapters.tensorflow import variables as variables
