"""TensorFlow's own objects, and whatever implements its tracking, as Keras 2 does.

What is here, by the question it answers: `tensors`, how a tensor becomes an array and back; `variables`, how the value
of a variable is read and given; `trackables`, what an object holds; `containers`, the same for the lists and dicts that
TensorFlow makes; `serialization`, what values an object has beside variables; `optimizers`, slot variables and flat
lists; `hooks`, how values arrive late; `session`, variables of TensorFlow 1's graphs.
"""

from milepost.adapters.tensorflow import trackables as trackables
from milepost.adapters.tensorflow import variables as variables
