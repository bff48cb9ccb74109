"""Finds what a program held at a save, and did not hold after the restore of that checkpoint.

A value counts if it was the same in both runs when the checkpoint was saved, so it is no time and no number of a process, if it was
another one at every line between the restore and the first line of the loop, and if it is not the same at the next save, as where a trainer
restores it later. The lines of the loop are those that the undisturbed run has
run between two saves. What the checkpoint holds is left out: a restore gives it back, perhaps later.
Positions of loops are compared at the next save, because no loop runs while a program restores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from milepost.tools.resumes.attempt import Attempt
from milepost.tools.resumes.evidence import GLOBAL
from milepost.tools.resumes.facts import Recorded
from milepost.tools.resumes.finding import Reason

_MOST_REASONS: Final = 10
_MOST_VALUES: Final = 3
"""Values of one object that are named."""
_ORDER: Final = ("random", "iterator", "object", "value")
_REMEDIES: Final = {
    "global": "put milepost.RandomState() into the Checkpoint",
    "random": "put it into the Checkpoint",
    "iterator": "save the position in the data, as docs/data.md says",
    "object": "put it into the Checkpoint",
    "value": "keep it in the Checkpoint, or compute it from what is restored",
}


def reasons_of_all(undisturbed: Attempt, attempts: Sequence[Attempt], homes: tuple[Path, Path]) -> tuple[Reason, ...]:
    """What could explain a difference, in each process, with what only some of them lack named with the process.

    Args:
        undisturbed: The run that was not killed.
        attempts: The starts of the other run.
        homes: The directories of the two runs.
    """
    reasons = [*reasons_of(undisturbed, attempts, homes)]
    known = {each.name for each in reasons}
    for rank in undisturbed.others:
        of_rank = reasons_of(undisturbed.of_process(rank), [each.of_process(rank) for each in attempts], homes)
        reasons += [replace(each, name=f"{each.name}, in process {rank}") for each in of_rank if each.name not in known]
        known |= {each.name for each in of_rank}
    return tuple(reasons[:_MOST_REASONS])


def reasons_of(undisturbed: Attempt, attempts: Sequence[Attempt], homes: tuple[Path, Path]) -> tuple[Reason, ...]:
    """What could explain a difference, the likely first.

    Args:
        undisturbed: The run that was not killed.
        attempts: The processes of the other run.
        homes: The directories of the two runs, below which checkpoints of the same name are the same.
    """
    saves = _facts_at_saves(undisturbed, homes[0])
    own: dict[str, Mapping[str, Recorded]] = {}
    loop = {line for event in undisturbed.of("loop") for line in event["lines"]}
    for attempt in attempts:
        restored = [
            (name_of(event, homes[1]), number)
            for number, event in enumerate(attempt.events)
            if event["event"] == "restored"
        ]
        known = [(name, number) for name, number in restored if name in saves and name in own]
        if known:
            name, number = known[-1]
            lost = _lost(saves[name], own[name], attempt.events[number:], loop)
            at_next, now = _next_save(saves, attempt.events[number:], homes[1])
            lost = {each: facts for each, facts in lost.items() if not _is_same(each, at_next, now)}
            lost |= _lost_positions(at_next, now)
            if lost:
                return _grouped(lost)
        own |= _facts_at_saves(attempt, homes[1])
    return ()


def name_of(event: Mapping[str, Any], home: Path) -> str:
    """The name of a checkpoint in the directory of its run."""
    path = Path(event["name"])
    return path.relative_to(home).as_posix() if path.is_relative_to(home) else str(path)


def _facts(event: Mapping[str, Any]) -> dict[str, Recorded]:
    return {name: Recorded(*fact) for name, fact in event["facts"].items()}


def _facts_at_saves(attempt: Attempt, home: Path) -> dict[str, Mapping[str, Recorded]]:
    return {name_of(event, home): _facts(event) for event in attempt.of("reading")}


def unrepeated(undisturbed: Attempt, first: Attempt, homes: tuple[Path, Path]) -> list[str]:
    """The global random states that were not the same in the two runs at the first save of both, since the program does not seed them."""
    saves, own = _facts_at_saves(undisturbed, homes[0]), _facts_at_saves(first, homes[1])
    name = next((each for each in own if each in saves), None)
    if name is None:
        return []
    return [
        title
        for title, fact in saves[name].items()
        if title.startswith(GLOBAL) and title in own[name] and own[name][title].digest != fact.digest
    ]


def _lost(
    at_save: Mapping[str, Recorded], again: Mapping[str, Recorded], events: Sequence[Mapping[str, Any]], loop: Set[str]
) -> dict[str, tuple[Recorded, Recorded]]:
    """The values that were not the same at any line after a restore: what each was at the save, and when it was first seen after the restore.

    Args:
        at_save: What the undisturbed run held at the save.
        again: What the other run held at the save.
        events: The events of the process that has restored, from the restore on.
        loop: The lines of the loop.
    """
    after: dict[str, list[Recorded]] = defaultdict(list)
    for number, event in enumerate(events):
        if number and event["event"] != "line":
            break
        for name, fact in _facts(event).items():
            after[name].append(fact)
        if event["name"] in loop:
            break
    # A trainer that restores values without the objects of the program gives them to these later, and no line of the program tells when.
    is_early = not events[0]["has_objects"] and not any(event["event"] == "line" for event in events[1:2])
    return {
        name: (fact, after[name][0])
        for name, fact in at_save.items()
        if name in after
        and name in again
        and not fact.is_saved
        and not (is_early and fact.kind == "object")
        and not after[name][0].is_saved
        and again[name].digest == fact.digest
        and fact.digest not in {each.digest for each in after[name]}
    }


def _next_save(
    saves: Mapping[str, Mapping[str, Recorded]], events: Sequence[Mapping[str, Any]], home: Path
) -> tuple[Mapping[str, Recorded], Mapping[str, Recorded]]:
    """What the undisturbed run and the resumed one held at the next save of both; nothing if there is none."""
    for event in events:
        if event["event"] == "reading" and name_of(event, home) in saves:
            return saves[name_of(event, home)], _facts(event)
    return {}, {}


def _is_same(name: str, expected: Mapping[str, Recorded], found: Mapping[str, Recorded]) -> bool:
    return name in expected and name in found and expected[name].digest == found[name].digest


def _lost_positions(
    expected: Mapping[str, Recorded], found: Mapping[str, Recorded]
) -> dict[str, tuple[Recorded, Recorded]]:
    """The positions in data that are not the same at the next save."""
    return {
        name: (fact, found[name])
        for name, fact in expected.items()
        if fact.kind == "iterator" and name in found and found[name].digest != fact.digest and not fact.is_saved
    }


def _grouped(lost: Mapping[str, tuple[Recorded, Recorded]]) -> tuple[Reason, ...]:
    """One reason for each object."""
    groups: dict[str, list[tuple[str, Recorded, Recorded]]] = defaultdict(list)
    for name, (before, after) in sorted(lost.items(), key=lambda item: _ORDER.index(item[1][0].kind)):
        groups[before.group].append((name, before, after))
    reasons = []
    for group, members in groups.items():
        first, shown = members[0][1], members[:_MOST_VALUES]
        more = f" and {len(members) - _MOST_VALUES} more" if len(members) > _MOST_VALUES else ""
        old, new = (
            ", ".join(_text(group, name, facts, side) for name, *facts in shown)  # at the save, after the restore
            for side in (0, 1)
        )
        reasons.append(Reason(group, first.group_kind, old + more, new + more, _remedy(group, first, len(members))))
    return tuple(reasons[:_MOST_REASONS])


def _remedy(group: str, fact: Recorded, count: int) -> str:
    """What to do about an object of which this many values were not the same."""
    if group.startswith(GLOBAL):
        return _REMEDIES["global"]
    return _REMEDIES["object" if fact.kind == "value" and count > 1 else fact.kind]


def _text(group: str, name: str, facts: Sequence[Recorded], side: int) -> str:
    """One value at the save or after the restore, with its name below the object."""
    before, after = (fact.text or "state" for fact in facts)
    own, other = (before, after) if side == 0 else (after, before)
    if own == other:
        text = f"{('one', 'another')[side]} {own}"
    else:
        text = ", ".join(part for part in own.split(", ") if part not in other.split(", ")) or own
    variable = group.partition(" ")[0]
    below = name.partition(" ")[0].removeprefix(variable).removeprefix(".")
    return text if name == group or not below else f"{below} = {text}"
