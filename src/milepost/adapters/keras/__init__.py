"""Keras 3, on every backend. Keras 2 implements TensorFlow's tracking, so TensorFlow's adapters handle its objects.

===============================  ==============================================================================
`backends`                       how a variable's value is read and assigned on each backend
`variables`                      in which states a variable can be
`attributes`                     which attributes of an object are its children
`layers`, `models`, `lookups`    adapters of layers and models
`torch_modules`                  adapter of PyTorch modules in Keras layers
`optimizers`, `collections`      adapters of optimizers, and of lists and dicts
`hooks`                          how deferred values are restored
`own_state`                      what users' classes save by methods of their own
`own_files`                      under which names Keras' own files hold the variables of live objects
`random_state`                   the global seed generator
`private`                        the private names of Keras that the other files use
===============================  ==============================================================================
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
