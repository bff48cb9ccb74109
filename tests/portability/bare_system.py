"""Takes from this process what some operating systems do not have, before milepost is imported.

A plugin of pytest, ``-p tests.portability.bare_system``, and a module that a program imports first. ``BARE_SYSTEM`` says how much
goes: ``macos`` what macOS lacks before version 11, ``windows`` what Windows lacks. Availability is that of the reference of Python's
library, "os" and "fcntl".
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile

_NOT_ON_MACOS = [
    "O_TMPFILE",
    "preadv",
    "pwritev",
    "posix_fallocate",
    "posix_fadvise",
    "sched_getaffinity",
    "copy_file_range",
    "memfd_create",
    "splice",
]
_NOT_ON_WINDOWS = [
    *_NOT_ON_MACOS,
    "O_CLOEXEC",
    "O_DIRECTORY",
    "O_NOFOLLOW",
    "O_NONBLOCK",
    "chown",
    "fchmod",
    "fchown",
    "fdatasync",
    "fork",
    "forkpty",
    "link",
    "lockf",
    "mkfifo",
    "pread",
    "pwrite",
    "readv",
    "register_at_fork",
    "statvfs",
    "sync",
    "sysconf",
    "writev",
]
_MODULES_NOT_ON_WINDOWS = ["fcntl", "grp", "pwd", "resource", "termios"]

SYSTEM = os.environ.get("BARE_SYSTEM", "")


def take_away() -> None:
    if "milepost" in sys.modules:
        raise RuntimeError("milepost was imported before the system was made bare")
    if SYSTEM == "windows":
        # What the tests themselves, and the libraries, use is imported first: it has ways of its own on Windows.
        import asyncio
        import pathlib
        import platform
        import subprocess

        import google.protobuf.text_format
        import ml_dtypes
        import numpy.random

        platform.platform()
        del asyncio, google, ml_dtypes, numpy, pathlib, subprocess
    tempfile._O_TMPFILE_WORKS = False  # type: ignore[attr-defined]  # it has looked already
    if SYSTEM == "windows":
        shutil._use_fd_functions = False  # type: ignore[attr-defined]  # it too
    for name in {"macos": _NOT_ON_MACOS, "windows": _NOT_ON_WINDOWS}[SYSTEM]:
        if hasattr(os, name):
            delattr(os, name)
    for name in _MODULES_NOT_ON_WINDOWS if SYSTEM == "windows" else []:
        sys.modules[name] = None  # type: ignore[assignment]  # so that importing it raises ImportError


take_away()
