"""The process in which `milepost.testing.assert_resumes` runs the steps of a function."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from milepost.engine.watching import watchers
from milepost.errors import ArgumentError
from milepost.tools.resumes.recording import VARIABLE, Recorder
from milepost.tools.resumes.yielded import encoded


class StepsOfFunction(NamedTuple):
    """What to run.

    Attributes:
        module: The module of the function.
        file: Its file.
        name: The name of the function in it.
        directory: The directory that the function gets.
        last: The number of the last step.
        path: Where modules are looked for.
    """

    module: str
    file: str
    name: str
    directory: str
    last: int
    path: list[str]


def function_of(steps: StepsOfFunction) -> Callable[[str], Any]:
    """The function, in a module that is imported as a new program imports it."""
    if steps.module == "__main__":
        return runpy.run_path(steps.file, run_name="__mp_main__")[steps.name]  # type: ignore[no-any-return]
    try:
        module = importlib.import_module(steps.module)
    except ModuleNotFoundError as error:
        if error.name != steps.module:
            raise
        spec = importlib.util.spec_from_file_location(steps.module, steps.file)
        if spec is None or spec.loader is None:
            raise
        module = importlib.util.module_from_spec(spec)
        sys.modules[steps.module] = module
        spec.loader.exec_module(module)
    return getattr(module, steps.name)  # type: ignore[no-any-return]


def numbered(value: Any) -> tuple[int, Any]:
    """The number of a step and its values, from what a function has yielded.

    Raises:
        ArgumentError: It is something else.
    """
    if isinstance(value, tuple) and len(value) == 2 and not isinstance(value[0], (bool, str)):
        try:
            return int(value[0]), value[1]
        except (TypeError, ValueError):
            pass
    raise ArgumentError(
        "a step has no number",
        expected="yield step, values at the end of each step, such as: yield step, {'loss': loss}",
        found=f"a {type(value).__qualname__}",
    )


def main(words: Sequence[str]) -> None:
    """Runs the steps."""
    steps = StepsOfFunction(*json.loads(words[0]))
    sys.path[:] = steps.path
    del os.environ[VARIABLE]  # processes that the program starts record nothing
    recorder = next(each for each in watchers if isinstance(each, Recorder))
    iterator = iter(function_of(steps)(steps.directory))
    for each in iterator:
        number, values = numbered(each)
        recorder.step(str(number), dict(encoded(values)))
        if number >= steps.last:
            break
    close = getattr(iterator, "close", None)
    if close is not None:
        close()


if __name__ == "__main__":
    main(sys.argv[1:])
