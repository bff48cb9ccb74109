"""One line of `logging` for what happened to a checkpoint: saved, restored, skipped or removed, at the level INFO of the logger ``milepost``.

A save that has failed, and that a manager tolerates (`milepost.Tolerate`), is a line at the level WARNING.

A program that has not imported `logging` listens to nothing, so milepost does not import it either.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Final

NAME: Final = "milepost"
INFO, WARNING = 20, 30
"""The levels of `logging` that milepost uses."""


def heard(level: int = INFO) -> Any:
    """The logger, if somebody listens to it, and otherwise None.

    Args:
        level: The level of the line.

    Example:
        >>> import logging
        >>> logging.getLogger("milepost").isEnabledFor(logging.INFO), heard()
        (False, None)
    """
    logging: Any = sys.modules.get("logging")
    if logging is None:
        return None
    logger = logging.getLogger(NAME)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger if logger.isEnabledFor(level) else None


def seconds_since(start: float) -> str:
    """How long ago a moment of `time.monotonic` was, for a line.

    Example:
        >>> seconds_since(time.monotonic())
        '0.000 s'
    """
    return f"{time.monotonic() - start:.3f} s"
