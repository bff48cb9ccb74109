"""Gradients that were accumulated over some batches and are not used yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.errors import MismatchError


def gradients_of(module: Any) -> dict[str, Any]:
    """The gradients of a module's parameters, by name."""
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    return {name: gradient.detach() for name, gradient in gradients.items() if gradient is not None}


def set_gradients(module: Any, gradients: Mapping[str, Any]) -> None:
    """Gives the parameters of a module the gradients that `gradients_of` returned; all others have none.

    Raises:
        MismatchError: A gradient has no parameter of its shape.
    """
    parameters = dict(module.named_parameters())
    for name, gradient in gradients.items():
        if name not in parameters or parameters[name].shape != gradient.shape:
            raise MismatchError(
                "a saved gradient fits no parameter of the model",
                key=name,
                expected=f"a parameter of shape {tuple(gradient.shape)}",
                found=f"shape {tuple(parameters[name].shape)}" if name in parameters else "no parameter of this name",
                remedy="resume with the model that was saved",
            )
    for name, parameter in parameters.items():
        gradient = gradients.get(name)
        parameter.grad = None if gradient is None else gradient.to(parameter.device, parameter.dtype)
