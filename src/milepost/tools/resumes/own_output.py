"""Gives a process a file of its own for its output, where several processes would write to one file.

The lines of several processes come in another order in each run. Python may even write the end of a line after a line of another process.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Final

_STANDARD_OUTPUT: Final = 1


def divide_output(output: str, parent: int) -> None:
    """Lets this process write whole lines, and to a file of its own if it was not started by `parent`.

    Args:
        output: The file that the processes share. One that writes elsewhere, such as to a pipe of another program, goes on with that.
        parent: The number of the process that has started the first of them.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, write_through=False)
    if os.getppid() == parent:
        return
    try:
        is_shared = os.path.samestat(os.fstat(_STANDARD_OUTPUT), os.stat(output))
    except OSError:
        return  # it is closed
    if is_shared:
        if sys.stdout is not None:
            sys.stdout.flush()
        descriptor = os.open(f"{output}-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(descriptor, _STANDARD_OUTPUT)
        os.close(descriptor)
