"""One call of ``fit()``, as the program made it, and how a callback gets to know it.

Keras tells a callback neither the arguments of ``fit()`` nor the other callbacks, nor that ``fit()`` has ended with an
exception. So ``fit()`` of Keras' ``Model`` is wrapped when the first callback of this package is made. A call without such
a callback goes on unchanged.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from milepost.errors import UnsupportedError


@dataclass(slots=True)
class FitCall:
    """One call of ``fit()``.

    Attributes:
        model: The model.
        arguments: The arguments by name, with those that have their default. They are empty if a program calls the methods
            of its callbacks itself. ``initial_epoch`` may be changed before ``fit()`` begins.
        others: The other callbacks, in their order, without those that Keras adds.
    """

    model: Any
    arguments: dict[str, Any] = field(default_factory=dict)
    others: list[Any] = field(default_factory=list)


class Served(Protocol):
    """A callback that is told of each call of ``fit()`` that uses it."""

    def _serve(self, call: FitCall) -> AbstractContextManager[None]:
        """A context in which the call runs."""
        ...


def tell_of_calls(model: Any, kind: type[Served], flatten: Callable[[Any], list[Any]]) -> None:
    """Makes ``fit()`` of a class of models tell callbacks of a kind of each call, and puts them last. A second time has no effect.

    Args:
        model: The class of the models.
        kind: The class of the callbacks.
        flatten: Makes a list of what ``callbacks=`` of ``fit()`` accepts.
    """
    keras_fit = model.fit
    if getattr(keras_fit, "tells_of_calls", False):
        return
    signature = inspect.signature(keras_fit)

    @functools.wraps(keras_fit)
    def fit(*positional: Any, **named: Any) -> Any:
        call = signature.bind(*positional, **named)
        argument: Any = call.arguments.get("callbacks")
        is_list = hasattr(argument, "callbacks")  # a CallbackList, which Keras uses as it is
        callbacks = argument.callbacks if is_list else flatten(argument) if argument else []
        served = [each for each in callbacks if isinstance(each, kind)]
        if not served or not _is_compiled(call.arguments["self"]):  # Keras raises an error
            return keras_fit(*positional, **named)
        if len(served) > 1:
            _refuse_several(served)
        others = [each for each in callbacks if each is not served[0]]
        call.apply_defaults()
        if is_list:
            argument.callbacks[:] = [*others, *served]
        else:
            call.arguments["callbacks"] = [*others, *served]
        fit_call = FitCall(call.arguments["self"], call.arguments, others)
        with served[0]._serve(fit_call):
            return keras_fit(*call.args, **call.kwargs)

    fit.tells_of_calls = True  # type: ignore[attr-defined]
    model.fit = fit


def _is_compiled(model: Any) -> bool:
    """Whether a model of Keras 3, or of Keras 2, is compiled."""
    return bool(getattr(model, "compiled", True)) and getattr(model, "compiled_loss", True) is not None


def _refuse_several(callbacks: list[Any]) -> None:
    raise UnsupportedError(
        "fit() can be resumed by one CheckpointCallback only; nothing was trained",
        expected="one CheckpointCallback in callbacks=",
        found=f"{len(callbacks)}, for {', '.join(each.directory for each in callbacks)}",
        remedy="pass one of them: with monitor= it also keeps the best epochs, and with "
        "keep_checkpoint_every_n_hours= older checkpoints",
    )
