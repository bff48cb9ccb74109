"""What a manager says of checkpoints that are not finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from milepost.errors import printable, warn
from milepost.logs import WARNING, heard
from milepost.manager.managed_series import ManagedSeries

_MOST_LISTED: Final = 3


def tell_nonfinite(series: ManagedSeries, prefix: str, names: Sequence[str]) -> None:
    """Warns of a checkpoint that was saved and is not finite, and logs it."""
    step = series.last_finite_step()
    kept = "none" if step is None else f"{series.path_of(step)}, which stays until another finite one is saved"
    _tell(
        f"{prefix} is saved, and marked as not finite: NaN or infinity is in {_some(names)}; the last finite checkpoint: {kept}"
    )


def tell_restored(series: ManagedSeries, prefix: str, names: Sequence[str]) -> None:
    """Warns of a checkpoint that was restored and is not finite, and logs it."""
    step = series.last_finite_step()
    remedy = "there is no finite one" if step is None else f"restore({step}) restores the last finite one"
    _tell(
        f"{prefix} was restored, and is not finite: NaN or infinity is in {_some(names)}; {remedy}; a manager with "
        "nonfinite=milepost.KeepLastFinite(restore=True) continues from the last finite one"
    )


def tell_passed_over(prefix: str, names: Sequence[str], instead: str) -> None:
    """Warns of a checkpoint that was not restored because it is not finite, and logs it."""
    _tell(f"{prefix} was passed over, because NaN or infinity is in {_some(names)}; restored instead: {instead}")


def _tell(message: str) -> None:
    if (log := heard(WARNING)) is not None:
        log.warning("%s", printable(message, one_line=True))
    warn(message)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if names[_MOST_LISTED:] else ""
    return ", ".join(names[:_MOST_LISTED]) + more
