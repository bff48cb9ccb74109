"""The children of a Keras object: its attributes that are state, or that may hold state later.

Keras' own lists of what it tracks are children only if they hold an object that no attribute leads to.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from milepost.adapters.keras.private import InputLayer, KerasSaveable, SeedGenerator, Variable
from milepost.graph.adapter import adapter_of_type
from milepost.graph.completeness import SETTINGS

OWN: Final = ("_trainable_variables", "_non_trainable_variables", "_layers", "_metrics", "_seed_generators")
"""The lists in which an object keeps everything that it tracks."""
_BOOKKEEPING: Final = frozenset(
    {
        *OWN,
        "_variables",
        "_nnx_op_mapping",
        "_trainable_variables_indices",
        "_tracker",
        "_tracked",
        "_torch_params",
        "_parameters",
        "_buffers",
        "_modules",
        "_inbound_nodes",
        "_outbound_nodes",
        "_nodes",
        "_nodes_by_depth",
        "_operations_by_depth",
        "_inputs",
        "_outputs",
        "_inputs_struct",
        "_outputs_struct",
        "_losses",
        "_loss_ids",
        "_losses_override",
        "_call_context_args",
        "_call_has_context_arg",
        "_call_signature",
        "call_signature_parameters",
        "_build_shapes_dict",
        "_compiled_trainable_state",
        "_compile_config",
        "_auto_config",
        "_jax_state",
        "_distribute_strategy",
        "_distribution_strategy",
        "_eval_epoch_iterator",
        "train_function",
        "test_function",
        "predict_function",
        "history",
        "output_names",
        "_output_names",
    }
)
_ARRAYS: Final = frozenset({("torch", "Tensor"), ("jaxlib", "ArrayImpl"), ("jax", "Array")})
_DEEPEST: Final = 8


def attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of a Keras object that are children, or may become children.

    Containers without state are left out. State that ``build`` adds to them is restored then.
    """
    values_by_name = vars(obj)
    covered: set[int] = set()
    # PyTorch keeps attributes that are modules in a dict of their own.
    for name, value in [*values_by_name.items(), *(values_by_name.get("_modules") or {}).items()]:
        kind: Any = type(value)
        if kind in SETTINGS or name in _BOOKKEEPING or name.startswith("_self_"):
            continue
        # Arrays are settings in Keras. Members of sets have no names. Those of Keras' own sets are in its lists too, and a save
        # reports other sets.
        if (isinstance(value, set) and kind is not set) or _is_array(kind):
            continue
        if isinstance(value, (list, tuple, dict)):
            identities = set(_state_in(value, 0))
            if not identities:
                continue
            covered |= identities
        else:
            covered.add(id(value))
        yield name, value
    for name in OWN:
        if any(id(each) not in covered and not isinstance(each, InputLayer) for each in values_by_name.get(name, ())):
            yield name, values_by_name[name]


def is_state(value: Any) -> bool:
    """Whether a value is an object that may hold state: not a container, and not an array."""
    if isinstance(value, (Variable, KerasSaveable, SeedGenerator)):
        return True
    kind: Any = type(value)
    return not (isinstance(value, (list, tuple, dict)) or _is_array(kind)) and adapter_of_type(kind) is not None


@functools.lru_cache(maxsize=1024)
def _is_array(kind: type) -> bool:
    """Whether objects of a class are arrays or tensors of a framework other than TensorFlow, whose variables are state."""
    return issubclass(kind, (np.ndarray, np.generic)) or any(
        (base.__module__.partition(".")[0], base.__name__) in _ARRAYS for base in kind.__mro__
    )


def _state_in(container: Any, depth: int) -> Iterator[int]:
    members = container.values() if isinstance(container, dict) else container
    for member in list(members):
        if type(member) in SETTINGS:
            continue
        if isinstance(member, (list, tuple, dict)):
            if depth < _DEEPEST:
                yield from _state_in(member, depth + 1)
        elif is_state(member):
            yield id(member)
