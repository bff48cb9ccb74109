"""Finds the ``rename`` that would match the values that a restore has not matched.

A saved name and a live name belong together if they have the same end and the values have the same shape. Either their beginnings
differ: one may have ``module.`` or ``backbone.`` there. Or one of them has more names in between, which wrappers add, such as
``base_layer`` and ``default``. An argument is tried on all names before it is offered.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from milepost.engine.report import Outcome, ReportEntry
from milepost.engine.translation import Rename, Translation
from milepost.graph.keys import ATTRIBUTES

_ADDED: Final = frozenset(
    {
        *("base_layer", "default", "module", "_orig_mod", "modules_to_save", "original_module"),
        *("_fsdp_wrapped_module", "_checkpoint_wrapped_module"),
    }
)
"""Names of levels that wrappers add."""
_MOST: Final = 20_000
"""The most names that are compared. If there are more, nothing is offered."""
_MOST_OFFERED: Final = 3
"""The most entries of a mapping that are offered."""
_ENOUGH: Final = 0.5
"""The smallest share of the unmatched values that the argument must match: of the saved or of the live ones, whichever are fewer."""
_FEW: Final = 0.1
"""The smallest share of all pairs of names that must differ in the same way. A smaller share counts as a coincidence."""
_POINT: Final = ".."
"""A point in one name. The keys of a ``state_dict()`` that was saved as a tree have such points where objects have levels."""
_Names = tuple[str, ...]


def offered(entries: Sequence[ReportEntry]) -> str:
    """The argument that would match saved values with live values, such as ``rename={'module': 'model'}``, or nothing.

    Args:
        entries: The entries of a report.
    """
    left = {each.key.partition(ATTRIBUTES)[0]: _shape(each.saved) for each in entries if each.saved and _is_left(each)}
    saved = {_names(key): shape for key, shape in left.items()}
    live = {_names(each.key): _shape(each.live) for each in entries if each.live and each.outcome is Outcome.MISSING}
    saved = {names: shape for names, shape in saved.items() if names not in live}
    if not saved or not live or len(saved) + len(live) > _MOST:
        return ""
    dotted = any("." in each.key.partition(ATTRIBUTES)[0] for each in entries if each.saved and _is_left(each))
    arguments: list[Rename] = [_mapping(saved, live, dotted=dotted), _expressions(saved, live)]
    counts = [_matched(argument, saved, live) if argument else 0 for argument in arguments]
    best = max(counts)
    enough = max(1, min(len(saved), len(live)) * _ENOUGH)
    of_points = sum(live.get(_names(key.replace(_POINT, "/"))) == shape for key, shape in left.items() if _POINT in key)
    if of_points >= max(best, enough):
        return f"rename={[(re.escape(_POINT), '/')]!r}"
    if best < enough:
        return ""
    chosen = arguments[counts.index(best)]
    if isinstance(chosen, dict) and "" in chosen:
        # it renames all names except those that are listed, and names that already match must stay
        matched = {_names(each.key)[0] for each in entries if each.outcome is Outcome.MATCHED}
        chosen = chosen | {name: name for name in sorted(matched - {names[0] for names in saved})}
    return f"rename={chosen!r}"


def _is_left(entry: ReportEntry) -> bool:
    return entry.outcome in (Outcome.DEFERRED, Outcome.UNEXPECTED)


def _names(key: str) -> _Names:
    return tuple(re.split("[./]", key.partition(ATTRIBUTES)[0]))


def _shape(spec: str) -> str:
    return spec[max(spec.find("["), 0) :]  # what is no tensor has none, and fits its like only


def _pairs(saved: Mapping[_Names, str], live: Mapping[_Names, str]) -> list[tuple[_Names, _Names]]:
    """Saved and live names that belong together: the longest common end, and one saved name that has it."""
    by_end: dict[tuple[_Names, str], list[_Names]] = {}
    for names, shape in saved.items():
        for start in range(len(names)):
            by_end.setdefault((names[start:], shape), []).append(names)
    pairs = []
    for names, shape in live.items():
        for start in range(len(names)):
            candidates = by_end.get((names[start:], shape), ())
            if candidates:
                if len(candidates) == 1:
                    pairs.append((candidates[0], names))
                break
    return pairs


def _mapping(saved: Mapping[_Names, str], live: Mapping[_Names, str], *, dotted: bool) -> dict[str, str]:
    beginnings: Counter[tuple[_Names, _Names]] = Counter()
    for old, new in _pairs(saved, live):
        same = 0
        while same < min(len(old), len(new)) and old[-1 - same] == new[-1 - same]:
            same += 1
        beginnings[old[: len(old) - same], new[: len(new) - same]] += 1
    separator = "." if dotted else "/"
    mapping: dict[str, str] = {}
    for (old, new), count in beginnings.most_common():
        if count >= beginnings.total() * _FEW:
            mapping.setdefault(separator.join(old), "/".join(new))
    return dict(list(mapping.items())[:_MOST_OFFERED])


def _expressions(saved: Mapping[_Names, str], live: Mapping[_Names, str]) -> list[tuple[str, str]]:
    """Replacements that remove or add the names of levels that wrappers add, and the beginning that differs after that."""
    plain_saved = {_without_added(names): shape for names, shape in saved.items()}
    plain_live = {_without_added(names): shape for names, shape in live.items()}
    removed = sorted({name for names in saved for name in names[:-1] if name in _ADDED})
    added: dict[str, set[str]] = {}  # runs of names that live names have, with the names that they follow
    for names in live:
        above = ""
        for is_added, run in itertools.groupby(names[:-1], _ADDED.__contains__):
            listed = list(run)
            if is_added and above:
                added.setdefault("/".join(listed), set()).add(above)
            above = listed[-1]
    expressions = [(rf"(^|[./])(?:(?:{'|'.join(removed)})[./])+", r"\1")] if removed else []
    begin = "" if plain_saved.keys() & plain_live.keys() else None
    if begin is None:
        for old, new in list(_mapping(plain_saved, plain_live, dotted=False).items())[:1]:
            levels = re.escape(old).replace("/", "[./]")
            expressions.append((rf"^{levels}(?:[./]|$)" if old else "^", f"{new}/" if new else ""))
    known: set[str] = set()  # of two levels below one name, a saved value can take one
    for name, parents in sorted(added.items()):
        fresh = sorted(parents - known)
        known |= parents
        if fresh:
            expressions.append((rf"(^|[./])({'|'.join(map(re.escape, fresh))})[./]", rf"\1\2/{name}/"))
    return expressions if removed or added else []


def _without_added(names: _Names) -> _Names:
    return tuple(name for name in names[:-1] if name not in _ADDED) + names[-1:]


def _matched(argument: Rename, saved: Mapping[_Names, str], live: Mapping[_Names, str]) -> int:
    """How many live values the argument would match."""
    translation = Translation(argument)
    new = ((translation.live_name("/".join(names)), shape) for names, shape in saved.items())
    return len({names for name, shape in new if name is not None and live.get(names := _names(name)) == shape})
