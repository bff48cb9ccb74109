"""What hooks may change in modules and parameters while a run trains, and what their ``state_dict`` leaves out.

A callback such as ``BackboneFinetuning`` freezes parameters when every run begins, and thaws them in the hook of one epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_ATTRIBUTES: Final = ("training", "track_running_stats")


def modes(module: Any) -> dict[str, Any]:
    """Which parameters are trained, and the modes of all modules, by name."""
    return {
        "trained": {name: parameter.requires_grad for name, parameter in module.named_parameters()},
        **{
            attribute: {name: bool(getattr(part, attribute)) for name, part in _with(module, attribute)}
            for attribute in _ATTRIBUTES
        },
    }


def set_modes(module: Any, saved: Mapping[str, Any]) -> None:
    """Restores what `modes` returned, in what is still there."""
    for name, parameter in module.named_parameters():
        is_trained = saved.get("trained", {}).get(name, parameter.requires_grad)
        if is_trained != parameter.requires_grad:
            parameter.requires_grad_(is_trained)
    for attribute in _ATTRIBUTES:
        for name, part in _with(module, attribute):
            value = saved.get(attribute, {}).get(name)
            if value not in (None, getattr(part, attribute)):
                setattr(part, attribute, value)


def _with(module: Any, attribute: str) -> list[tuple[str, Any]]:
    return [(name, part) for name, part in module.named_modules() if hasattr(part, attribute)]
