"""Keras 3, on every backend. Keras 2 implements TensorFlow's tracking, so TensorFlow's adapters handle its objects.

===============================  ==============================================================================
`backends`                       how a variable's value is read and assigned on each backend
`variables`                      adapter of variables, and their states
`attributes`                     which attributes of an object are its children
`layers`, `models`, `lookups`    adapters of layers and models
`torch_modules`                  adapter of PyTorch modules in Keras layers
`optimizers`, `collections`      adapters of optimizers, and of lists and dicts
`hooks`                          how deferred values are restored
`own_state`                      state that users' classes save by ``save_own_variables``
`own_files`                      the names of variables in Keras' own files
`random_state`                   the global seed generator
`private`                        the private names of Keras that the other files use
===============================  ==============================================================================
"""

import keras as _keras

from milepost.graph.frameworks import require as _require

if int(_keras.__version__.partition(".")[0]) >= 3:
    _require(_keras.backend.backend())  # the values are its tensors
    from milepost.adapters.keras import collections as collections
    from milepost.adapters.keras import layers as layers
    from milepost.adapters.keras import lookups as lookups
    from milepost.adapters.keras import models as models
    from milepost.adapters.keras import optimizers as optimizers
    from milepost.adapters.keras import variables as variables

    if _keras.backend.backend() == "torch":
        from milepost.adapters.keras import torch_modules as torch_modules
