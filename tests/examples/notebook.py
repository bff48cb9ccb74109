"""Runs the cells of a notebook without Jupyter, and gives the outputs that Jupyter would give.

    python -m tests.examples.notebook examples/looking_inside.ipynb

writes them into the notebook. A program that a cell starts with ``!`` is milepost's command line.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

_REPRESENTATIONS = {"text/html": "_repr_html_", "image/svg+xml": "_repr_svg_"}


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, notebook: Any) -> None:
    """Writes a notebook as Jupyter writes it."""
    path.write_text(json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def executed(notebook: Any) -> Any:
    """The notebook with the outputs of its cells, run in their order in the working directory."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell = {**cell, "execution_count": count, "outputs": _outputs("".join(cell["source"]), names, count)}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, names: dict[str, Any], count: int) -> list[Any]:
    if source.startswith("!milepost "):
        return _stream(_command(source))
    *body, last = ast.parse(source).body
    shown = isinstance(last, ast.Expr)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body if shown else [*body, last], []), "<cell>", "exec"), names)
        value = (
            eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if isinstance(last, ast.Expr) else None
        )
    outputs = _stream(printed.getvalue())
    if value is not None:
        outputs.append(
            {"data": _data(value), "execution_count": count, "metadata": {}, "output_type": "execute_result"}
        )
    return outputs


def _command(source: str) -> str:
    command = [sys.executable, "-m", *shlex.split(source[1:])]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def _stream(text: str) -> list[Any]:
    return [{"name": "stdout", "output_type": "stream", "text": _lines(text)}] if text else []


def _data(value: Any) -> dict[str, list[str]]:
    found = {kind: getattr(value, name)() for kind, name in _REPRESENTATIONS.items() if hasattr(value, name)}
    return {kind: _lines(text) for kind, text in (found | {"text/plain": repr(value)}).items()}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    for each in map(Path, sys.argv[1:]):
        place = each.resolve()
        write(place, executed(read(place)))
