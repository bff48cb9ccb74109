"""Modules whose class, hooks or PyTorch itself convert states of older versions when they load them: `load_state_dict` gets what was saved.

They may rename, convert, fuse or leave out values, and look at the version of their class at the save.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

import torch

from milepost.adapters.torch.accounts import (
    account_to_load,
    is_complete,
    overrides_loading,
    registered_tensors,
)
from milepost.adapters.torch.distributed.local_shards import is_dtensor
from milepost.adapters.torch.memory import as_tensor
from milepost.adapters.torch.private import VERSIONS
from milepost.graph.contract.matching import LoadedState, SavedState

_VERSION: Final = "version"


def load_saved(module: Any, saved: SavedState) -> LoadedState | None:
    """Makes a module load its saved state, if that differs in names or versions from the one that it would save now.

    Args:
        module: The module, whose tensors have the values of their names.
        saved: What else was saved.

    Returns:
        What it has loaded; None if nothing differs, or if it cannot load a whole state yet.
    """
    tensors = registered_tensors(module)
    others = {key: each for key, each in tensors.items() if id(each) not in saved.restored}
    absent = {key: each for key, each in others.items() if id(each) not in saved.kept}
    if not (saved.others or absent or _is_other(module, saved.versions)) or not is_complete(module):
        return None
    if any(is_dtensor(each) for each in tensors.values()) or any(each.is_meta for each in others.values()):
        return None  # it cannot copy plain tensors into these
    former = {key: (each, each.detach().clone()) for key, each in others.items()}
    saved.undo(partial(_put_back, former.values()))
    present = account_to_load(module)
    account = OrderedDict((key, value) for key, value in present.items() if key not in absent)
    account |= {key: as_tensor(array) for key, array in saved.others.items()}
    vars(account)[VERSIONS] = getattr(present, VERSIONS, None) if saved.versions is None else dict(saved.versions)
    accepts = inspect.signature(module.load_state_dict).parameters
    result = module.load_state_dict(account, **({"strict": False} if "strict" in accepts else {}))
    missing, unexpected = getattr(result, "missing_keys", ()), getattr(result, "unexpected_keys", ())
    _put_back([each for key, each in former.items() if key not in absent])
    tensors = registered_tensors(module)
    filled = [tensors[key] for key in absent if key not in missing and key in tensors]
    return LoadedState([key for key in saved.others if key not in unexpected], filled)


def _put_back(former: Iterable[tuple[Any, Any]]) -> None:
    with torch.no_grad():
        for tensor, value in former:
            tensor.copy_(value)


def _is_other(module: Any, versions: Mapping[str, Any] | None) -> bool:
    """Whether a module, or one in it, has another version than at the save. PyTorch's own classes take a state without versions for a present one."""
    if versions is None or not (versions or overrides_loading(module)):
        return False
    for name, submodule in module.named_modules(remove_duplicate=False):
        noted = versions.get(name, {})
        if isinstance(noted, Mapping) and noted.get(_VERSION) != getattr(submodule, "_version", None):
            return True
    return False
