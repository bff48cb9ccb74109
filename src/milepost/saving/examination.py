"""Which values of a save are not finite.

The values are looked at before they are written, since what is found is saved with them: of a save in the background, on its thread. With
several processes, each looks at what it writes, and process 0 gets what all have found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import call
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from milepost.bundle.memory import blocks
from milepost.bundle.parallel import THREADS, for_each
from milepost.engine.plan import PlannedWrite
from milepost.graph.adapter import Array
from milepost.graph.keys import ATTRIBUTES, VARIABLE_VALUE
from milepost.graph.plain.places import PLAIN_TYPES
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.tensor import PiecewiseArray
from milepost.tensor.finite import Nonfinite, can_be_nonfinite, is_finite, nonfinite_in

if TYPE_CHECKING:  # a process that saves alone does not import it
    from milepost.saving.distributed_plan import SharePlan

_BLOCK: Final = 1 << 20
"""Bytes that are looked at together: as many as stay in the cache."""
_SMALL: Final = 4 << 10
"""The most bytes of a value that is looked at together with others."""
_TOGETHER: Final = 256
"""How many of these."""
_WORTH_THREADS: Final = 8 << 20
"""The least bytes that several threads look at faster than one."""


class Examined(NamedTuple):
    """The names of the values that are not finite, in order.

    Attributes:
        nan: Those with NaN.
        infinite: Those with infinity and without NaN.
    """

    nan: tuple[str, ...] = ()
    infinite: tuple[str, ...] = ()


def joined(parts: Iterable[Sequence[Sequence[str]]]) -> Examined:
    """What several processes have found.

    Example:
        >>> joined([Examined(("a",), ("b",)), (["b"], [])])
        Examined(nan=('a', 'b'), infinite=())
    """
    parts = list(parts)
    nan = dict.fromkeys(name for part in parts for name in part[0])
    infinite = dict.fromkeys(name for part in parts for name in part[1] if name not in nan)
    return Examined(tuple(nan), tuple(infinite))


def name_of(key: str) -> str:
    """The name of a value as `milepost.list_variables` shows it, without what it is called in its object if it is the only one there.

    Example:
        >>> name_of("net/kernel/.ATTRIBUTES/VARIABLE_VALUE"), name_of("table/.ATTRIBUTES/keys")
        ('net/kernel', 'table/keys')
    """
    path, _, local = key.partition(ATTRIBUTES)
    return path if local == VARIABLE_VALUE else f"{path}/{local}"


def examined(
    graph: ObjectGraph,
    writes: Sequence[PlannedWrite],
    arrays: Sequence[Array | PiecewiseArray],
    counts: Callable[[str], bool],
    moved: Callable[[int], object],
) -> Examined:
    """Looks at the values that are to be written. Numbers of Python are no tensors, and are not looked at.

    Args:
        graph: The object graph.
        writes: What is written.
        arrays: The elements of each.
        counts: Whether a value of a name counts. It is asked for those that are not finite.
        moved: Called again and again with a number of bytes that were looked at.
    """
    bad: set[int] = set()
    size = sum([array.nbytes for array in arrays])
    for_each(call, _work(arrays, bad, moved), threads=THREADS if size >= _WORTH_THREADS else 1)
    nan, infinite = [], []
    for number in sorted(bad):
        write, name = writes[number], name_of(writes[number].key)
        is_plain = write.node >= 0 and graph.nodes[write.node].python in PLAIN_TYPES
        if not is_plain and counts(name):
            found = _nonfinite(arrays[number])
            nan += [name] if found.nan else []
            infinite += [name] if found.infinity else []
    return joined([(nan, infinite)])


def examined_share(
    plan: SharePlan,
    arrays: Sequence[Array | PiecewiseArray],
    counts: Callable[[str], bool],
    moved: Callable[[int], object],
) -> Examined:
    """Looks at what one of several processes writes, and at the pieces that process 0 writes for it. Arguments are those of `examined`."""
    specs = [plan.sharded[piece.key] for piece in plan.small]
    pieces = [np.frombuffer(piece.data, spec.dtype.numpy) for piece, spec in zip(plan.small, specs, strict=True)]
    small = [PlannedWrite(piece.key, -1, spec.dtype, spec.shape) for piece, spec in zip(plan.small, specs, strict=True)]
    return examined(plan.graph, [*plan.writes, *small], [*arrays, *pieces], counts, moved)


def _work(arrays: Sequence[Any], bad: set[int], moved: Callable[[int], object]) -> Iterator[Callable[[], None]]:
    """Functions that look at all arrays, and add the numbers of those that are not finite to ``bad``."""

    def look(numbers: Sequence[int], elements: Any) -> None:
        array = np.ascontiguousarray(elements)
        moved(array.nbytes)
        if not is_finite(array):
            bad.update(number for number in numbers if len(numbers) == 1 or not is_finite(arrays[number]))

    def look_together(numbers: Sequence[int]) -> None:
        look(numbers, np.concatenate([arrays[number].reshape(-1) for number in numbers]))

    together: dict[np.dtype[Any], list[int]] = {}
    for number, array in enumerate(arrays):
        if not can_be_nonfinite(array.dtype):
            continue
        if type(array) is np.ndarray and array.nbytes <= _SMALL:
            numbers = together.setdefault(array.dtype, [])
            numbers.append(number)
            if len(numbers) == _TOGETHER:
                yield _bound(look_together, together.pop(array.dtype))
            continue
        if isinstance(array, np.ndarray) and array.flags.c_contiguous:
            array = array.reshape(-1)
        for block in blocks(array, _BLOCK):
            yield _bound(look, [number], block)
    for numbers in together.values():
        yield _bound(look_together, numbers)


def _bound(function: Callable[..., None], *arguments: Any) -> Callable[[], None]:
    return lambda: function(*arguments)


def _nonfinite(array: Array | PiecewiseArray) -> Nonfinite:
    """What is not finite in an array."""
    found = [nonfinite_in(np.asarray(block)) for block in blocks(array, _BLOCK)]
    return Nonfinite(any(each.nan for each in found), any(each.infinity for each in found))
