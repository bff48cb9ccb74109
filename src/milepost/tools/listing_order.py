"""The order of a listing of checkpoints, and which of them are the best by a metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from milepost.errors import KeyNotFoundError
from milepost.retention import Best, ManagedCheckpoint
from milepost.retention.by_metric import check_known, ranked, value_of
from milepost.series.series import split_number
from milepost.tools.inventory import CheckpointFacts, FoundCheckpoint, age_of
from milepost.tools.names import typed
from milepost.tools.pruning import managed_of, meant

Row = tuple[FoundCheckpoint, CheckpointFacts]
_Key = Callable[[FoundCheckpoint, CheckpointFacts], float | None]
_KEYS: Final[dict[str, _Key]] = {
    "step": lambda checkpoint, _: checkpoint.step,
    "size": lambda _, facts: facts.size,
    "age": age_of,
    "tensors": lambda _, facts: facts.tensors,
}
"""What a listing can be sorted by, beside names and metrics."""
SORTED_BY: Final = ("name", *_KEYS)


def in_order(rows: Sequence[Row], key: str, directory: str, *, backwards: bool = False) -> list[Row]:
    """The rows of a listing, sorted. Those without a value are the last.

    Args:
        rows: The checkpoints, in the order of their names.
        key: One of `SORTED_BY`, or the name of a metric, in which ``/`` leads into a dict of metrics.
        directory: What is listed, for the error.
        backwards: Whether the largest come first.

    Raises:
        KeyNotFoundError: No checkpoint has this metric.
    """
    if key == "name":
        return list(reversed(rows)) if backwards else list(rows)
    values = _values(rows, key, directory)
    known = [position for position, value in enumerate(values) if value is not None]
    known.sort(key=lambda position: values[position] or 0.0, reverse=backwards)
    return [rows[position] for position in [*known, *(each for each in range(len(rows)) if values[each] is None)]]


def _values(rows: Sequence[Row], key: str, directory: str) -> list[float | None]:
    if key in _KEYS:
        return [_KEYS[key](*row) for row in rows]
    managed = [managed_of(*row) for row in rows]
    name = typed(key, [metric for each in managed for metric in each.metrics or ()])
    _check(name, managed, directory)
    return [value_of(each, name) for each in managed]


def _check(name: str, managed: Sequence[ManagedCheckpoint], directory: str) -> None:
    """Raises a `KeyNotFoundError` if no checkpoint has a metric."""
    check_known(name, managed, directory)
    if not any(each.metrics for each in managed):
        raise KeyNotFoundError(
            "no checkpoint here has metrics",
            key=name,
            file=directory,
            expected=f"{', '.join(SORTED_BY)}, or a metric",
            remedy="list them in another order; metrics are what the program passes to save(metrics=...)",
        )


def best_of(rows: Sequence[Row], rules: Sequence[Best], directory: str) -> dict[str, list[str]]:
    """How each checkpoint that is among the best of its series is marked, by its path.

    Args:
        rows: The checkpoints.
        rules: Which are the best, with names of metrics as they may have been typed.
        directory: What is listed, for the error.

    Raises:
        KeyNotFoundError: No checkpoint has the metric of a rule.
    """
    managed = [managed_of(*row) for row in sorted(rows, key=lambda row: -(age_of(*row) or 0.0))]
    names = [name for each in managed for name in each.metrics or ()]
    series: dict[str, list[int]] = {}
    for position, each in enumerate(managed):
        series.setdefault((split_number(each.prefix) or (each.prefix, 0))[0], []).append(position)
    marks: dict[str, list[str]] = {}
    for rule in (meant(each, names) for each in rules):
        if isinstance(rule.by, str):
            _check(rule.by, managed, directory)
        for positions in series.values():
            of_series = [managed[position] for position in positions]
            for rank, position in enumerate(ranked(of_series, rule.by, rule.mode)[: rule.n], start=1):
                mark = "best" if rank == 1 else f"best {rank}"
                by = f" by {rule.by}" if len(rules) > 1 else ""
                marks.setdefault(of_series[position].prefix, []).append(mark + by)
    return marks
