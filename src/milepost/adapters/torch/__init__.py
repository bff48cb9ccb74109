"""PyTorch: tensors, modules, optimizers, schedulers and random generators.

===============================================  ==================================================================
`tensors`, `memory`, `layouts`                   tensors: their states, how arrays share their memory, their strides
`on_gpu`                                         tensors on a GPU: how they are copied, and read part by part
`hints`                                          what is saved besides values
`modules`, `accounts`                            the children of a module, and its ``state_dict``
`reshaping`, `older_states`                      modules that change the shapes of their tensors, or convert states, when they load
`generators`                                     adapter of random generators
`hooks`                                          how deferred values are restored in calls of modules
`optimizers`                                     adapters of optimizers and schedulers, with all that concerns their state
`distributed`                                    tensors and modules that processes hold together, and how the processes meet
`views`                                          parts of objects that are not objects of their own
`unsaved`, `refused`                             what cannot be saved, or only as a whole
`plain_kinds`, `plain_tensors`, `plain_parts`    values of PyTorch in the plain state of other objects
`private`                                        the private names of PyTorch that the other files use
===============================================  ==================================================================
"""

from milepost.adapters.torch import generators as generators
from milepost.adapters.torch import modules as modules
from milepost.adapters.torch import plain_kinds as plain_kinds
from milepost.adapters.torch import plain_tensors as plain_tensors
from milepost.adapters.torch import tensors as tensors
from milepost.adapters.torch.distributed import coordinator as coordinator
from milepost.adapters.torch.distributed import dtensors as dtensors
from milepost.adapters.torch.optimizers import adapter as adapter
from milepost.adapters.torch.optimizers import schedulers as schedulers
