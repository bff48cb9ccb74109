"""Runs a function in a process of its own, which is forked from one that has everything imported and used nothing."""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 600


def forked(function: Callable[..., Any], *arguments: Any) -> Any:
    """What ``function`` returned, or how its process ended: ``{"ended": ...}``."""
    with tempfile.TemporaryDirectory() as directory:
        answer, output = Path(directory, "answer"), Path(directory, "output")
        child = os.fork()
        if not child:
            _be_child(function, arguments, answer, output)
        _, status = os.waitpid(child, 0)
        if answer.exists():
            return pickle.loads(answer.read_bytes())
        code = os.waitstatus_to_exitcode(status)
        how = "hung" if code == -signal.SIGALRM else "killed" if code == -signal.SIGKILL else f"exit status {code}"
        return {"ended": how, "output": output.read_text(errors="replace")[-2000:]}


def _be_child(function: Callable[..., Any], arguments: tuple[Any, ...], answer: Path, output: Path) -> None:
    code = 70
    try:
        signal.alarm(SECONDS)
        file = os.open(output, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, 1)
        os.dup2(file, 2)
        result = pickle.dumps(function(*arguments))
        unfinished = answer.with_suffix(".part")
        unfinished.write_bytes(result)
        unfinished.rename(answer)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
