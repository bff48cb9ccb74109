"""Compares the values that the steps of a function yield, bit for bit."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from milepost.tools import amounts
from milepost.tools.resumes.attempt import Attempt
from milepost.tools.resumes.facts import short
from milepost.tools.resumes.finding import Finding
from milepost.tools.resumes.yielded import Encoded
from milepost.tools.values.blocks import BlockMemory, blocks_of
from milepost.tools.values.statistics import TensorDifference


def compare_steps(undisturbed: Attempt, attempts: Sequence[Attempt]) -> Finding | None:
    """The first value of a step that another process has not computed as the undisturbed run did; None if all are the same.

    Args:
        undisturbed: The run that was not killed.
        attempts: The processes of the other one.
    """
    expected = {event["name"]: event["values"] for event in undisturbed.of("step")}
    order, reached = [*expected], -1
    for number, attempt in enumerate(attempts):
        steps = [*attempt.of("step")]
        if (
            steps
            and number
            and (finding := _wrong_start(steps[0]["name"], order, reached, attempts[:number])) is not None
        ):
            return finding
        for event in steps:
            name = event["name"]
            when = f"step {name}, {_when(number, attempts)}"
            if name not in expected:
                return Finding(
                    f"the undisturbed run has no {when}", None, f"one of the steps {order[0]} to {order[-1]}", name
                )
            if (finding := _compare(expected[name], event["values"], when, is_resumed=number > 0)) is not None:
                return finding
            reached = max(reached, order.index(name))
    if order and reached < len(order) - 1:
        return Finding("the resumed run ends too early", None, f"step {order[-1]}", f"step {order[reached]}")
    return None


def _when(number: int, attempts: Sequence[Attempt]) -> str:
    if not number:
        return "before anything was killed"
    kill = attempts[number - 1].killed
    return f"after it was killed {kill.text} and resumed" if kill is not None else "after it was started again"


def _wrong_start(name: str, order: Sequence[str], reached: int, before: Sequence[Attempt]) -> Finding | None:
    """What is wrong if a process begins with this step."""
    has_saved = any(True for attempt in before for _ in attempt.of("saved"))
    if not has_saved:
        return Finding(
            "no checkpoint was saved before the run was killed, so nothing was resumed",
            is_resumed=False,
            remedy="kill it later, or save more often",
        )
    if name == order[0]:
        return Finding(
            "the program began anew when it was started again, although a checkpoint had been saved",
            None,
            f"a step after {order[0]}",
            f"step {name}",
            is_resumed=False,
            remedy="restore before the first step, as with manager.restore_or_initialize(), and count the steps from what is restored",
        )
    if name in order and order.index(name) > reached + 1:
        return Finding("the resumed run leaves out steps", None, f"step {order[reached + 1]}", f"step {name}")
    return None


def _compare(
    expected: Mapping[str, Encoded], found: Mapping[str, Encoded], when: str, *, is_resumed: bool
) -> Finding | None:
    """The first value of one step that is not the same."""
    for name in [*expected, *(each for each in found if each not in expected)]:
        before, after = expected.get(name), found.get(name)
        if before != after:
            texts = _text(before), _text(after)
            if before is not None and after is not None and before[:3] == after[:3] and before[0] == "array":
                texts = texts[0], f"{texts[1]}{_difference(before, after)}"
            return Finding(f"another value in {when}", name or "what the step yields", *texts, is_resumed=is_resumed)
    return None


def _array(value: Encoded) -> Any:
    _, dtype, shape, data = value
    return np.frombuffer(base64.b64decode(data), np.dtype(dtype)).reshape(shape)


def _text(value: Encoded | None) -> str:
    if value is None:
        return "no such value"
    kind, dtype, shape, data = value
    if kind == "text":
        return repr(float.fromhex(data)) if dtype == "float" else f"{data}"
    array = _array(value)
    return f"{dtype} {short(array.item())}" if array.size == 1 else f"{dtype}[{','.join(map(str, shape))}]"


def _difference(before: Encoded, after: Encoded) -> str:
    """How much two arrays differ, if they are of numbers."""
    first, second = _array(before).reshape(-1), _array(after).reshape(-1)
    if first.dtype.kind not in "biufc" or first.size == 1:
        return ""
    found = TensorDifference()
    for old, new in zip(blocks_of(first, BlockMemory()), blocks_of(second, BlockMemory()), strict=True):
        found.add(old, new)
    return f", {amounts.difference(found.count, found.unequal, found.largest, found.relative)}"
