"""Every private name of PyTorch that milepost uses, each with what for. Tried with the version in `milepost.adapters`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

if torch.distributed.is_available():
    from torch.distributed.distributed_c10d import _get_default_store

    default_store: Callable[[], Any] = _get_default_store
    """The store by which the processes of the default group met; None where it has none, as with MPI."""
