"""The steps that a user writes: which saved values they take, which values they make of them, and which step undoes them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from milepost.engine.arguments import is_whole_number, wrong
from milepost.engine.layouts.patterns import Pattern

_AXIS: Final = "the number of an axis"
_LENGTHS: Final = "lengths from 1 on, of which one may be -1 for what is left"


@dataclass(frozen=True)
class Step(ABC):
    """One step of ``convert``, which makes values with new names of saved values. Its classes are `Concatenate`, `Split`, `Stack`, `Unstack`,
    `Transpose` and `Reshape`.
    """

    @abstractmethod
    def inverse(self) -> Step:
        """The step that undoes this one."""


@dataclass(frozen=True)
class Concatenate(Step):
    """Joins values along an axis, such as q, k and v into qkv.

    Names are those of the file. They fit everything below them too: ``"*/q"`` takes ``q/weight`` and ``q/bias``. ``*`` stands for one level, and
    ``**`` at the beginning for any number of levels. All names of a step have the same wildcards, which stand for the same text in each.

    Args:
        sources: The names of the values, in their order.
        target: The name of the result.
        axis: The axis. Negative numbers count from the last one.
        sizes: The lengths of the values along the axis, if they differ, as those of q, k and v do in attention with grouped queries.

    Raises:
        UnsupportedError: An argument cannot be used.

    Example:
        >>> import milepost, numpy as np, tempfile
        >>> from milepost.layouts import Concatenate
        >>> directory = tempfile.mkdtemp()
        >>> path = milepost.save(directory + "/state", {"attn": {"q": np.zeros((2, 3)), "k": np.ones((2, 3))}})
        >>> milepost.load(path, convert=[Concatenate(["attn/q", "attn/k"], "attn/qk")])["attn"]["qk"].shape
        (4, 3)
    """

    sources: Sequence[str]
    target: str
    axis: int = 0
    sizes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        _set(self, sources=_listed("sources", self.sources), sizes=_checked_sizes(self.sizes, self.sources))
        _check_axis("axis", self.axis)
        _check(self)

    def inverse(self) -> Split:
        return Split(self.target, self.sources, self.axis, self.sizes)


@dataclass(frozen=True)
class Split(Step):
    """Divides a value along an axis, such as qkv into q, k and v.

    Names are as for `Concatenate`, which is the inverse.

    Args:
        source: The name of the value.
        targets: The names of the results, in their order.
        axis: The axis. Negative numbers count from the last one.
        sizes: The lengths of the results along the axis. By default they are equal.

    Raises:
        UnsupportedError: An argument cannot be used.

    Example:
        >>> import milepost, numpy as np, tempfile
        >>> from milepost.layouts import Split
        >>> path = milepost.save(tempfile.mkdtemp() + "/state", {"attn": {"qkv": np.arange(6)}})
        >>> milepost.load(path, convert=[Split("attn/qkv", ["attn/q", "attn/k", "attn/v"], sizes=(4, 1, 1))])
        {'attn': {'q': array([0, 1, 2, 3]), 'k': array([4]), 'v': array([5])}}
    """

    source: str
    targets: Sequence[str]
    axis: int = 0
    sizes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        _set(self, targets=_listed("targets", self.targets), sizes=_checked_sizes(self.sizes, self.targets))
        _check_axis("axis", self.axis)
        _check(self)

    def inverse(self) -> Concatenate:
        return Concatenate(self.targets, self.source, self.axis, self.sizes)


@dataclass(frozen=True)
class Stack(Step):
    """Stacks values along a new axis, such as the weights of experts.

    Names are as for `Concatenate`. In addition, ``#`` stands for the numbers 0, 1, 2, ... of members, of which none may be missing.

    Args:
        sources: The names of the values in their order, or one name with ``#``.
        target: The name of the result.
        axis: The position of the new axis in the result. Negative numbers count from the last one.

    Raises:
        UnsupportedError: An argument cannot be used.

    Example:
        >>> import milepost, numpy as np, tempfile
        >>> from milepost.layouts import Stack
        >>> experts = {"experts": [{"w": np.zeros((2, 3))}, {"w": np.ones((2, 3))}]}
        >>> path = milepost.save(tempfile.mkdtemp() + "/state", experts)
        >>> milepost.load(path, convert=[Stack("experts/#/w", "experts/w")])["experts"]["w"].shape
        (2, 2, 3)
    """

    sources: str | Sequence[str]
    target: str
    axis: int = 0

    def __post_init__(self) -> None:
        _set(self, sources=_listed("sources", self.sources, numbered=True))
        _check_axis("axis", self.axis)
        _check(self, numbered=isinstance(self.sources, str))

    def inverse(self) -> Unstack:
        return Unstack(self.target, self.sources, self.axis)


@dataclass(frozen=True)
class Unstack(Step):
    """Divides a value into the members of an axis, which the results do not have.

    Names are as for `Stack`, which is the inverse.

    Args:
        source: The name of the value.
        targets: The names of the results in their order, or one name with ``#`` for their numbers.
        axis: The axis. Negative numbers count from the last one.

    Raises:
        UnsupportedError: An argument cannot be used.

    Example:
        >>> import milepost, numpy as np, tempfile
        >>> from milepost.layouts import Unstack
        >>> path = milepost.save(tempfile.mkdtemp() + "/state", {"experts": {"w": np.arange(4).reshape(2, 2)}})
        >>> milepost.load(path, convert=[Unstack("experts/w", "experts/#/w")])
        {'experts': {'0': {'w': array([0, 1])}, '1': {'w': array([2, 3])}}}
    """

    source: str
    targets: str | Sequence[str]
    axis: int = 0

    def __post_init__(self) -> None:
        _set(self, targets=_listed("targets", self.targets, numbered=True))
        _check_axis("axis", self.axis)
        _check(self, numbered=isinstance(self.targets, str))

    def inverse(self) -> Stack:
        return Stack(self.targets, self.source, self.axis)


@dataclass(frozen=True)
class Transpose(Step):
    """Gives a value its axes in another order, such as a kernel of Flax or Keras that becomes a weight of PyTorch.

    Names are as for `Concatenate`. The inverse is a transpose, too.

    Args:
        source: The name of the value.
        target: The name of the result; by default the same.
        axes: The axes of the value in the order of the result. By default the order is reversed, whatever number of axes a value has.

    Raises:
        UnsupportedError: An argument cannot be used.

    Example:
        >>> import milepost, numpy as np, tempfile
        >>> from milepost.layouts import Transpose
        >>> path = milepost.save(tempfile.mkdtemp() + "/state", {"dense": {"kernel": np.ones((2, 3)), "bias": np.ones(3)}})
        >>> milepost.load(path, convert=[Transpose("*/kernel", "*/weight")])["dense"]["weight"].shape
        (3, 2)
    """

    source: str
    target: str | None = None
    axes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.axes is not None:
            axes = tuple(self.axes) if isinstance(self.axes, Sequence) else ()
            if not all(map(is_whole_number, axes)) or sorted(axes) != [*range(len(axes))] or not axes:
                raise wrong("axes", self.axes, "None, or each axis from 0 on once, in the order of the result")
            _set(self, axes=axes)
        _check(self)

    def inverse(self) -> Transpose:
        axes = None if self.axes is None else tuple(map(self.axes.index, range(len(self.axes))))
        return Transpose(_or_same(self.target, self.source), self.source, axes)


@dataclass(frozen=True)
class Reshape(Step):
    """Gives a value other axes instead of some neighbouring ones, with the same elements in the same order.

    Names are as for `Concatenate`. The inverse is a reshape, too.

    Args:
        source: The name of the value.
        old: The lengths of the axes to replace. One may be -1, which is any length.
        new: The lengths of the axes instead of them. One may be -1, which is what is left.
        target: The name of the result; by default the same.
        axis: The first of the axes to replace, from 0 on.

    Raises:
        UnsupportedError: An argument cannot be used.

    Example:
        >>> import milepost, numpy as np, tempfile
        >>> from milepost.layouts import Reshape
        >>> path = milepost.save(tempfile.mkdtemp() + "/state", {"attn": {"kernel": np.ones((8, 2, 4)), "bias": np.ones(8)}})
        >>> merged = Reshape("attn/kernel", old=(2, 4), new=(-1,), axis=1)
        >>> milepost.load(path, convert=[merged])["attn"]["kernel"].shape
        (8, 8)
    """

    source: str
    old: Sequence[int]
    new: Sequence[int]
    target: str | None = None
    axis: int = 0

    def __post_init__(self) -> None:
        _set(self, old=_checked_lengths("old", self.old), new=_checked_lengths("new", self.new))
        if -1 not in (*self.old, *self.new) and math.prod(self.old) != math.prod(self.new):
            raise wrong("new", self.new, f"lengths whose product is that of old, {math.prod(self.old)}")
        if not is_whole_number(self.axis) or self.axis < 0:
            raise wrong("axis", self.axis, f"{_AXIS} from 0 on")
        _check(self)

    def inverse(self) -> Reshape:
        return Reshape(_or_same(self.target, self.source), self.new, self.old, self.source, self.axis)


def inverse(steps: Sequence[Step]) -> list[Step]:
    """The steps that undo some steps: the inverse of each, from the last to the first.

    The names that the steps make must fit no other value of the file. Otherwise the inverse takes that one too.

    Args:
        steps: The steps.

    Raises:
        UnsupportedError: A member is no step.

    Example:
        >>> inverse([Transpose("kernel", "weight"), Concatenate(["q", "k"], "qk", sizes=(4, 2))])
        [Split(source='qk', targets=('q', 'k'), axis=0, sizes=(4, 2)), Transpose(source='weight', target='kernel', axes=None)]
    """
    return [step.inverse() for step in reversed(checked(steps))]


def names_of(step: Step) -> tuple[list[Pattern], list[Pattern]]:
    """The names of what a step takes, and of what it makes, each in their order.

    Raises:
        UnsupportedError: One of them is no name.
    """
    source: str | Sequence[str]
    target: str | Sequence[str] | None
    if isinstance(step, (Concatenate, Stack)):
        source, target = step.sources, step.target
    elif isinstance(step, (Split, Unstack)):
        source, target = step.source, step.targets
    else:
        assert isinstance(step, (Transpose, Reshape)), "there are no other steps"
        source, target = step.source, step.source if step.target is None else step.target
    return _patterns("the name of a source", source), _patterns("the name of a target", target)


def checked(steps: Any) -> tuple[Step, ...]:
    """Some steps that a user has given.

    Raises:
        UnsupportedError: A member is no step.
    """
    kinds = Concatenate, Split, Stack, Unstack, Transpose, Reshape
    if not isinstance(steps, Sequence) or not all(isinstance(each, kinds) for each in steps):
        raise wrong("convert", steps, "a list of steps, such as milepost.layouts.Transpose('*/kernel', '*/weight')")
    return tuple(steps)


def _set(step: Step, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(step, name, value)  # which the caller cannot change


def _or_same(target: str | None, source: str) -> str:
    return source if target is None else target


def _listed(argument: str, names: Any, *, numbered: bool = False) -> Any:
    if numbered and isinstance(names, str):
        return names
    if isinstance(names, str) or not isinstance(names, Sequence) or not names or len(set(names)) < len(names):
        more = ", or one name with # for the numbers of members" if numbered else ""
        raise wrong(argument, names, f"a list of names, each once{more}")
    return tuple(names)


def _patterns(argument: str, names: str | Sequence[str]) -> list[Pattern]:
    return [Pattern(each, argument) for each in (names if isinstance(names, (tuple, list)) else [names])]


def _check(step: Step, *, numbered: bool = False) -> None:
    """Checks that names of a step have the same wildcards, and that ``#`` is in the only name of the members, if there is one."""
    sources, targets = names_of(step)
    everything = [*sources, *targets]
    of_members = [each.is_numbered for each in everything]
    if len({each.wildcards for each in everything}) > 1 or of_members.count(True) != numbered:
        raise wrong(
            "a step of convert",
            ", ".join(map(str, everything)),
            "names that all have the same * and **, and # in the one name of members that are stacked or unstacked",
        )


def _check_axis(argument: str, axis: Any) -> None:
    if not is_whole_number(axis):
        raise wrong(argument, axis, _AXIS)


def _checked_sizes(sizes: Any, names: Sequence[str]) -> tuple[int, ...] | None:
    if sizes is None:
        return None
    if not isinstance(sizes, Sequence) or len(sizes) != len(names) or not all(map(is_whole_number, sizes)):
        raise wrong("sizes", sizes, f"None, or {len(names)} lengths, one for each name")
    if min(sizes) < 1:
        raise wrong("sizes", sizes, "lengths from 1 on")
    return tuple(sizes)


def _checked_lengths(argument: str, lengths: Any) -> tuple[int, ...]:
    if not isinstance(lengths, Sequence) or not lengths or not all(map(is_whole_number, lengths)):
        raise wrong(argument, lengths, _LENGTHS)
    if any(each < 1 for each in lengths if each != -1) or list(lengths).count(-1) > 1:
        raise wrong(argument, lengths, _LENGTHS)
    return tuple(lengths)
