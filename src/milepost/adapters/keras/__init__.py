"""Keras 3, on every backend. Keras 2 implements TensorFlow's tracking, so its objects are those of that adapter.

What is here, by the question it answers: `backends`, how a variable's value is read and given on each backend;
`variables`, in which states a variable may be; `attributes`, what an object holds; `layers`, `models`, `lookups`,
`torch_modules`, `optimizers`, `collections`, the adapters; `hooks`, how values arrive late;
`own_state`, what users' classes save by methods of their own.
"""

import keras as _keras

if int(_keras.__version__.partition(".")[0]) >= 3:
    from milepost.adapters.keras import collections as collections
    from milepost.adapters.keras import layers as layers
    from milepost.adapters.keras import lookups as lookups
    from milepost.adapters.keras import models as models
    from milepost.adapters.keras import optimizers as optimizers
    from milepost.adapters.keras import variables as variables

    if _keras.backend.backend() == "torch":
        from milepost.adapters.keras import torch_modules as torch_modules
