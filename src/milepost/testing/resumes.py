"""`assert_resumes`: proves that a function which trains goes on exactly after it was killed."""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from milepost.errors import ArgumentError, warn
from milepost.tools.resumes.attempt import Attempt, Kill
from milepost.tools.resumes.finding import Finding
from milepost.tools.resumes.function import StepsOfFunction
from milepost.tools.resumes.outcome import TwoRuns, as_error, failure_of
from milepost.tools.resumes.processes import Program, run_killed, run_once
from milepost.tools.resumes.steps import compare_steps


def assert_resumes(
    run: Callable[[str], Iterable[Any]], *, steps: int, kill_at: Sequence[float] | None = None, timeout: float = 600.0
) -> None:
    """Asserts that a training which is killed and started again computes what an undisturbed one computes, bit for bit.

    The function is called in new processes: once for the undisturbed run; then for a run that is killed by SIGKILL and started again, each
    time in a process of its own. All values that its steps yield are compared, and all values of the last checkpoint.

    If they differ, the error names the first value that does, with its step, and what the program held after the restore that was not as at
    the save: random generators, positions in data, schedules, averages and counters that the checkpoint does not hold.

    Args:
        run: A generator function of a module, which gets a directory. It makes everything anew, as a new program does: model, optimizer, data
            and manager. It restores what the directory has, and trains. At the end of each step, after the save if there is one, it yields
            the number of the step and what to compare: numbers, text, None and arrays, in dicts, lists and tuples.
        steps: The number of the last step.
        kill_at: After which steps to kill it, in ascending order. 7 is directly after step 7; 7.5 is in the middle of the step after it, by the
            time that this step took in the undisturbed run. By default, once after a third of the steps, and once within a later step.
        timeout: The most seconds that each process may take.

    Raises:
        UnmatchedError: An ``AssertionError``: something differs, the program began anew, or it failed.
        ArgumentError: The function cannot be imported by a new process, yields something else, or ended before it was killed.

    Example:
        >>> import sys, pathlib
        >>> lines = [
        ...     "import milepost, numpy as np",
        ...     "def run(directory):",
        ...     "    noise = np.random.default_rng(0)",
        ...     "    state = milepost.Checkpoint(weights=np.zeros(3), step=0)  # noise is not in it",
        ...     "    manager = milepost.CheckpointManager(state, directory, max_to_keep=3)",
        ...     "    manager.restore_or_initialize()",
        ...     "    while state.step < 6:",
        ...     "        state.weights += noise.normal(size=3)",
        ...     "        state.step += 1",
        ...     "        manager.save(state.step)",
        ...     "        yield state.step, {'sum': state.weights.sum()}",
        ... ]
        >>> written = pathlib.Path("noisy.py").write_text("\\n".join(lines))
        >>> sys.path.insert(0, ".")
        >>> from noisy import run
        >>> assert_resumes(run, steps=6, kill_at=[2])
        Traceback (most recent call last):
        ...
        milepost.errors.UnmatchedError: another value in step 3, after it was killed after step 2 and resumed; what the program did not hold as at the save:
            noise in run() of noisy.py (Generator): one state at the save, another state after the restore; put it into the Checkpoint
          key: sum
          expected: float64 ...
          found: float64 ...
    """
    __tracebackhide__ = True  # pytest shows the line of the test instead
    points = _checked(steps, kill_at)
    with tempfile.TemporaryDirectory(prefix="milepost-") as home:
        finding = _compared(run, steps, points, timeout, Path(os.path.realpath(home)))
    if finding is not None:
        raise as_error(finding)


def _checked(steps: int, kill_at: Sequence[float] | None) -> list[float]:
    """The moments at which to kill."""
    if kill_at is None:
        points = [each for each in (max(1, steps // 3), max(1, 2 * steps // 3) + 0.5) if each < steps]
    else:
        points = list(kill_at)
    if not points or points != sorted(set(points)) or points[0] < 1 or points[-1] >= steps:
        raise ArgumentError(
            "kill_at names no moments between the first step and the last",
            key="kill_at",
            expected=f"numbers from 1 on that are less than {steps}, in ascending order",
            found=points,
            remedy="pass other numbers, or more steps",
        )
    return points


def _compared(run: Any, steps: int, points: Sequence[float], timeout: float, home: Path) -> Finding | None:
    """The first difference between the two runs."""
    homes = home / "undisturbed", home / "killed"
    programs = [_program(run, steps, timeout, each) for each in homes]
    undisturbed = run_once(programs[0], 0)
    if (failure := failure_of(undisturbed, "in the undisturbed run")) is not None:
        return failure
    kills = [_kill(point, undisturbed) for point in points]
    attempts = run_killed(programs[1], kills)
    outcome = TwoRuns(undisturbed, attempts, homes)
    if libraries := outcome.left_out():
        warn(
            f"the global random state of {' and '.join(libraries)} was not compared, since the program saves it and does not seed it; "
            "seed it before the first step"
        )
    return outcome.finding(lambda: compare_steps(undisturbed, attempts))


def _kill(point: float, undisturbed: Attempt) -> Kill:
    """The kill at a moment, whose time within a step is taken from the undisturbed run."""
    step, fraction = int(point), point - int(point)
    if not fraction:
        return Kill("step", str(step), None, f"after step {step}")
    times = {event["name"]: event["at"] for event in undisturbed.of("step")}
    if str(step) not in times or str(step + 1) not in times:
        raise ArgumentError(
            "a moment of kill_at lies within no step that the run takes",
            key="kill_at",
            expected=f"a moment between the steps {', '.join(times)}",
            found=point,
        )
    return Kill("step", str(step), fraction * (times[str(step + 1)] - times[str(step)]), f"within step {step + 1}")


def _program(run: Any, steps: int, timeout: float, home: Path) -> Program:
    """How a new process calls a function."""
    module = inspect.getmodule(run)
    name = getattr(run, "__qualname__", "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or "." in name or getattr(module, name, None) is not run:
        raise ArgumentError(
            "a new process cannot import this function",
            key="run",
            expected="a function of a module, with a name of its own",
            found=f"{getattr(run, '__module__', '')}.{name or type(run).__qualname__}",
            remedy="define it with def at the top of a file",
        )
    (home / "checkpoints").mkdir(parents=True)
    path = [os.path.abspath(each) if each else os.getcwd() for each in sys.path]
    task = StepsOfFunction(module.__name__, os.path.abspath(file), name, str(home / "checkpoints"), steps, path)
    command = [sys.executable, "-m", "milepost.tools.resumes.function", json.dumps(task)]
    return Program(
        command,
        Path.cwd(),
        home,
        {"PYTHONPATH": os.pathsep.join(path)},
        "save in the directory that the function gets",
        timeout,
    )
