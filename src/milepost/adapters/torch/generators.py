"""`torch.Generator`. Its state is one value; the number of bytes depends on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from milepost.adapters.torch.memory import as_array
from milepost.errors import MismatchError
from milepost.graph.adapter import Adapter, Array, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.tensor import DType


class TorchGeneratorAdapter(Adapter):
    """`torch.Generator`."""

    each_process = "random"

    def handles(self, kind: type) -> bool:
        return issubclass(kind, torch.Generator)

    def values(self, obj: Any) -> Sequence[Value]:
        state = as_array(obj.get_state())
        return (Value(VARIABLE_VALUE, DType.of(state), state.shape, state),)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        try:
            obj.set_state(torch.from_numpy(arrays[VARIABLE_VALUE].copy()))
        except RuntimeError as error:
            raise MismatchError(
                "this is not the state of a generator on this device",
                expected=f"a state of a generator on {obj.device}",
                found=str(error).splitlines()[0],
                remedy="make the generator on the device that it was saved from",
            ) from error
        return obj


register(TorchGeneratorAdapter())
