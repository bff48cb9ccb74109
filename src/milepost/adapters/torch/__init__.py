"""PyTorch: tensors, modules, optimizers, schedulers and random generators.

===============================================  ==================================================================
`tensors`, `memory`, `layouts`                   tensors: their states, how arrays share their memory, their strides
`on_gpu`                                         tensors on a GPU: how they are copied, and read part by part
`dtensors`, `local_shards`, `placements`         tensors that are spread over processes: which boxes each of these holds
`hints`, `leaves`                                what is saved besides values; parameters in the state of optimizers
`modules`, `accounts`                            the children of a module, and its ``state_dict``
`reshaping`                                      modules that change the shapes of their tensors when they load state
`optimizers`, `param_groups`, `schedulers`       adapters of optimizers and schedulers
`generators`                                     adapter of random generators
`hooks`, `steps`, `late_groups`                  how deferred values are restored: in calls of modules, before steps, in new groups
`gradients`                                      whether a step has used the gradients
`views`                                          parts of objects that are not objects of their own
`data_parallel`                                  state that modules of data-parallel training hold only temporarily
`unsaved`, `refused`, `shared_parts`             what cannot be saved, or only as a whole
`plain_kinds`, `plain_tensors`, `plain_parts`    values of PyTorch in the plain state of other objects
`coordinator`                                    the processes that run one program
`private`                                        the private names of PyTorch that the other files use
===============================================  ==================================================================
"""

from milepost.adapters.torch import coordinator as coordinator
from milepost.adapters.torch import dtensors as dtensors
from milepost.adapters.torch import generators as generators
from milepost.adapters.torch import modules as modules
from milepost.adapters.torch import optimizers as optimizers
from milepost.adapters.torch import plain_kinds as plain_kinds
from milepost.adapters.torch import plain_parts as plain_parts
from milepost.adapters.torch import plain_tensors as plain_tensors
from milepost.adapters.torch import schedulers as schedulers
from milepost.adapters.torch import tensors as tensors
