"""One line of `logging` for what happened to a checkpoint: saved, restored, skipped or removed, at the level INFO of the logger ``milepost``.

A program that has not imported `logging` listens to nothing, so milepost does not import it either.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Final

NAME: Final = "milepost"


def heard() -> Any:
    """The logger, if somebody listens to it, and otherwise None.

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
    return logger if logger.isEnabledFor(logging.INFO) else None


def seconds_since(start: float) -> str:
    """How long ago a moment of `time.monotonic` was, for a line.

    Example:
        >>> seconds_since(time.monotonic())
        '0.000 s'
    """
    return f"{time.monotonic() - start:.3f} s"
