"""The settings with which a model was compiled when its run began, so that a changed program is not silently overruled.

A run saves and restores the learning rate, because other callbacks change it. The rate that the program compiled is
saved too. If that is different at the next ``fit()``, the user must choose one of the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from milepost.errors import MismatchError
from milepost.facts import Fact
from milepost.graph.adapter import adapter_of

CHOICES: Final[tuple[str | None, ...]] = (None, "program", "saved")
_left: Final[Fact[dict[str, Any]]] = Fact()
"""The settings of optimizers when a callback saw them last in this process."""


def compiled(model: Any) -> dict[str, Any]:
    """The settings with which a model is compiled, as plain data: ``optimizer``, ``rates`` and ``trainable``.

    ``rates`` are the saved settings of the optimizer. ``trainable`` are the shapes of the trainable variables, or None
    if there are none yet.
    """
    optimizer = getattr(model, "optimizer", None)
    shapes = None
    if getattr(model, "built", False):
        shapes = [[int(size) for size in variable.shape] for variable in model.trainable_variables]
    return {"optimizer": _kind(optimizer), "rates": _rates(optimizer), "trainable": shapes}


def note_rates(model: Any) -> None:
    """Records the settings of an optimizer after callbacks have changed them, to detect later changes by the program."""
    if getattr(model, "optimizer", None) is not None:
        _left[model.optimizer] = _rates(model.optimizer)


def rates_to_take(
    saved: Mapping[str, Any],
    rates_now: Mapping[str, Any],
    program: dict[str, Any],
    optimizer: Any,
    choice: str | None,
    path: str,
) -> dict[str, Any] | None:
    """Compares the settings of a program with those of its run.

    Args:
        saved: The result of `compiled` when the run began.
        rates_now: The settings at the last save.
        program: The result of `compiled` before this ``fit()``.
        optimizer: The optimizer.
        choice: Which learning rate to use if they differ: ``"program"`` or ``"saved"``; None raises an error.
        path: The checkpoint.

    Returns:
        The settings to use instead of the saved ones, or None.

    Raises:
        MismatchError: The settings differ.
    """
    must_train_the_same(saved, program, path)
    rates = program["rates"]
    if rates in (saved["rates"], rates_now) or (optimizer is not None and _left.get(optimizer) == rates):
        return None
    if choice == "saved":
        return None
    if choice == "program":
        return dict(rates)
    names = [name for name in {**saved["rates"], **rates} if saved["rates"].get(name) != rates.get(name)]
    raise MismatchError(
        f"the program has changed the {' and '.join(names)} since this run began",
        file=path,
        expected=_text({name: saved["rates"].get(name) for name in names}),
        found=_text({name: rates.get(name) for name in names}),
        remedy="train the new phase in another directory, or choose a value: "
        "CheckpointCallback(..., learning_rate='program') or learning_rate='saved'",
    )


def must_train_the_same(saved: Mapping[str, Any], program: Mapping[str, Any], path: str) -> None:
    """Raises an error if the optimizer or the trainable variables are not those of the run.

    Raises:
        MismatchError: They differ.
    """
    for name, what in (("optimizer", "a different optimizer"), ("trainable", "different trainable variables")):
        if saved[name] != program[name] and None not in (saved[name], program[name]):
            raise MismatchError(
                f"the model is compiled with {what} than when this run began",
                file=path,
                expected=_text(saved[name]),
                found=_text(program[name]),
                remedy="train the new phase in another directory, where it starts from the model's present weights, "
                "or compile the model as before",
            )


def set_rates(optimizer: Any, rates: Mapping[str, Any]) -> None:
    """Sets the settings of an optimizer. Schedules stay those of the program."""
    target = getattr(optimizer, "inner_optimizer", optimizer)
    for name, value in rates.items():
        if isinstance(value, float):
            setattr(target, name, value)


def _kind(optimizer: Any) -> str | None:
    if optimizer is None:
        return None
    inner = getattr(optimizer, "inner_optimizer", None)
    return type(optimizer).__name__ if inner is None else f"{type(optimizer).__name__} of {_kind(inner)}"


def _rates(optimizer: Any) -> dict[str, Any]:
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if isinstance(getattr(optimizer, "_hyper", None), dict):  # Keras 2's legacy optimizers save all of their settings
        return {name: _rate(value) for name, value in sorted(optimizer._hyper.items())}
    rate = getattr(optimizer, "_learning_rate", None)
    return {} if rate is None else {"learning_rate": _rate(rate)}


def _rate(rate: Any) -> Any:
    adapter = adapter_of(rate)
    if hasattr(rate, "shape") and adapter is not None:
        return float(np.asarray(adapter.values(rate)[0].read()))
    if isinstance(rate, (int, float, np.generic)):
        return float(rate)
    try:
        return f"{type(rate).__name__} {json.dumps(rate.get_config(), default=str, sort_keys=True)}"
    except Exception:  # a schedule of the program may have no configuration
        return type(rate).__name__


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return f"{len(value)} variables of shapes {value}" if isinstance(value, list) else str(value)
