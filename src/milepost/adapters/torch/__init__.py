"""PyTorch.

What is here, by the question it answers: `memory`, how tensors and arrays share memory; `tensors`, in which states a
tensor may be; `modules`, what a module holds; `hooks`, how values arrive late; `optimizers`, `param_groups`,
`schedulers`, `generators`, the adapters of these; `gradients`, whether a step has used them; `views`, parts of objects that are no objects of their own;
`plain_kinds`, `plain_tensors` and `plain_parts`, what may be in the state of others; `processes`, who else runs the same program; `private`, the names of
PyTorch that are not public and are used by all of these.
"""

from milepost.adapters.torch import generators as generators
from milepost.adapters.torch import modules as modules
from milepost.adapters.torch import optimizers as optimizers
from milepost.adapters.torch import plain_kinds as plain_kinds
from milepost.adapters.torch import plain_parts as plain_parts
from milepost.adapters.torch import plain_tensors as plain_tensors
from milepost.adapters.torch import processes as processes
from milepost.adapters.torch import schedulers as schedulers
from milepost.adapters.torch import tensors as tensors
