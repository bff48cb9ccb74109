"""The state of the other callbacks of a run.

A callback with ``get_state()`` and ``set_state()``, or ``state_dict()`` and ``load_state_dict()``, defines its state
itself. The state of any other consists of the attributes that have changed since training began, in this process or in
an earlier one. So settings, such as a patience, are always those of the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from milepost.callbacks.data.sources import state_of
from milepost.callbacks.records import Record, fingerprint, put_back, record, saved_form
from milepost.errors import MilepostError, MismatchError, warn

_OWN: Final = frozenset({"model", "_model", "params", "validation_data"})
"""What Keras gives to every callback."""

_WITHOUT_STATE: Final[Mapping[str, str]] = {
    "History": "saved with the run by this callback",
    "ProgbarLogger": "shows the progress that Keras reports at every step",
    "BackupAndRestore": "has its own backup",
    "Callback": "does nothing",
}
"""Callbacks of Keras whose attributes are not saved, and why."""

_CHOSEN: Final = {
    "monitor_op": "chosen from the mode and the metric in the first epoch",
    "min_delta": "a setting, which gets its sign then",
}

_EXEMPT: Final[Mapping[str, Mapping[str, str]]] = {
    "EarlyStopping": _CHOSEN,
    "ReduceLROnPlateau": _CHOSEN,
    "ModelCheckpoint": _CHOSEN,
    "CSVLogger": {"csv_file": "an open file", "writer": "writes to it"},
    "TensorBoard": dict.fromkeys(
        (
            *("_writers", "_train_dir", "_train_step", "_val_dir", "_val_step", "_should_trace", "_prev_summary_state"),
            *("_is_tracing", "_start_batch", "_stop_batch", "_profiler_started", "_train_accumulated_time"),
            *("_batch_start_time", "_epoch_start_time", "_test_begin_time"),
            *("_summary_module", "_train_writer", "_val_writer", "_previous_epoch_iterations"),
        ),
        "opened, measured or set anew in each process",
    ),
}
"""Attributes of Keras' own callbacks that each process makes anew, and why they are not state."""


class OtherCallbacks:
    """The other callbacks of a run.

    Args:
        callbacks: These callbacks, after training has begun for each of them.
    """

    def __init__(self, callbacks: Iterable[Any]) -> None:
        numbers: Counter[str] = Counter()
        self._named: dict[str, Any] = {}
        for callback in callbacks:
            kind = type(callback).__name__
            if _is_keras(callback) and kind in _WITHOUT_STATE:
                continue
            numbers[kind] += 1
            self._named[kind if numbers[kind] == 1 else f"{kind} {numbers[kind]}"] = callback
        self._first = {name: _look_at(callback) for name, callback in self._named.items() if state_of(callback) is None}
        self._changed: dict[str, set[str]] = {name: set() for name in self._named}
        self._complained: set[tuple[str, str]] = set()

    @property
    def names(self) -> list[str]:
        """The names of the callbacks: their classes, with a number if there are several of one class."""
        return list(self._named)

    def state(self) -> dict[str, Any]:
        """The state of all callbacks, as plain data. Warns once of each attribute that has changed and cannot be saved."""
        states: dict[str, Any] = {}
        lost: list[str] = []
        for name, callback in self._named.items():
            methods = state_of(callback)
            if methods is not None:
                states[name] = {"state": methods[0]()}
                continue
            attributes = {}
            for attribute, (mark, kept) in _look_at(callback).items():
                first = self._first[name].get(attribute)
                if attribute not in self._changed[name] and first is not None and _is_same(first[0], mark):
                    continue
                if kept is not None:
                    self._changed[name].add(attribute)
                    attributes[attribute] = saved_form(kept)
                elif (name, attribute) not in self._complained:
                    self._complained.add((name, attribute))
                    lost.append(f"{name}.{attribute}")
            states[name] = {"attributes": attributes}
        if lost:
            warn(
                f"{', '.join(lost)} changed during training and cannot be saved, so a resumed run starts without them: keep plain "
                "data in them, or give the callback get_state() and set_state()"
            )
        return states

    def put_back(self, saved: Mapping[str, Any]) -> None:
        """Restores the state that `state` returned.

        Raises:
            MismatchError: A callback rejects its state.
        """
        for name, state in saved.items():
            callback = self._named.get(name)
            if callback is None:
                continue
            try:
                methods = state_of(callback)
                if "state" in state and methods is not None:
                    methods[1](state["state"])
                for attribute, value in state.get("attributes", {}).items():
                    put_back(callback, attribute, value)
                    self._changed[name].add(attribute)
            except Exception as error:
                raise MismatchError(
                    "a callback cannot take the state that was saved with this run",
                    key=name,
                    expected="the callback as it was made when the run was saved",
                    found=f"{type(error).__name__}: {error}",
                    remedy="make the callback as before, or use another directory",
                ) from error

    def warn_of_differences(self, saved: Iterable[str]) -> None:
        """Warns of callbacks that were added or removed."""
        before = list(saved)
        new = [name for name in self._named if name not in before]
        gone = [name for name in before if name not in self._named]
        differences = [
            *([f"{', '.join(new)} is new in this run and starts without state"] if new else []),
            *(
                [f"the state of {', '.join(gone)} is not restored, because there is no such callback now"]
                if gone
                else []
            ),
        ]
        if differences:
            warn(f"the callbacks have changed since this run was saved: {'; '.join(differences)}")

    def warn_of_new_files(self) -> None:
        """Warns of callbacks that overwrite their file when a run is resumed."""
        if any(
            _is_keras(each) and type(each).__name__ == "CSVLogger" and not each.append for each in self._named.values()
        ):
            warn("CSVLogger overwrites its file when this run is resumed: pass append=True")


class CallbackStates:
    """The saved state of `OtherCallbacks`, as an object in the checkpoint."""

    def __init__(self) -> None:
        self.now: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """The state."""
        return self.now

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keeps a state until `put_back`."""
        self.now = state


Look = dict[str, tuple[Any, Record | None]]
"""For each attribute: a mark by which a change is seen, and its record if it has one."""


def _look_at(callback: Any) -> Look:
    exempt: Mapping[str, str] = {}
    for base in type(callback).__mro__:
        if base.__module__.partition(".")[0] in ("keras", "tf_keras"):
            exempt = {**exempt, **_EXEMPT.get(base.__name__, {})}
    look: Look = {}
    for name, value in vars(callback).items():
        if name in _OWN or name in exempt:
            continue
        try:
            kept = record(value)
            look[name] = (fingerprint(kept), kept)
        except (MilepostError, RecursionError):
            look[name] = (_Same(value), None)
    return look


class _Same:
    """A mark for a value that can be compared only by identity."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _is_same(first: Any, now: Any) -> bool:
    if isinstance(first, _Same) and isinstance(now, _Same):
        # Methods are made anew whenever they are looked up, and are equal.
        return first.value is now.value or (callable(now.value) and first.value == now.value)
    return bool(first == now)


def _is_keras(callback: Any) -> bool:
    return type(callback).__module__.partition(".")[0] in ("keras", "tf_keras")
