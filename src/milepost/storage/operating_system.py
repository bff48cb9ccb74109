"""The module of the operating system that this program runs on: `on_posix` or `on_windows`."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from milepost.storage import on_windows as system
else:
    from milepost.storage import on_posix as system

__all__ = ["system"]
