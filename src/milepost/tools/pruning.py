"""Which checkpoints of a series to delete, by the policies of managers."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from milepost.bundle import index_path
from milepost.errors import CheckpointNotFoundError, MilepostError, StorageError, UnsupportedError
from milepost.foreign import steps_of_orbax
from milepost.foreign.jax import orbax_layout
from milepost.retention import Best, ManagedCheckpoint, Policy
from milepost.retention.by_metric import check_known
from milepost.retention.plan import RetentionPlan
from milepost.retention.rules import RetentionPolicy
from milepost.series.directory import good_checkpoints
from milepost.series.series import split_number
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools.inventory import CheckpointFacts, FoundCheckpoint, facts_of, inventory_of
from milepost.tools.names import typed
from milepost.tools.terminal import named


@dataclass(slots=True)
class Pruning:
    """What becomes of the checkpoints of a series.

    Attributes:
        kept: The path of each checkpoint that stays, with the reasons, oldest first.
        deleted: The same of those that are deleted.
        bad: Checkpoints that are not whole, with what is wrong. They count for no rule and stay.
        sizes: The bytes of each checkpoint.
    """

    kept: dict[str, tuple[str, ...]]
    deleted: dict[str, tuple[str, ...]]
    bad: dict[str, MilepostError]
    sizes: dict[str, int]


def planned(
    directory: str, name: str | None, keep: int | None, policy: Policy | None, best: Sequence[Best] = (), said: str = ""
) -> Pruning:
    """Decides. The newest whole checkpoint, of which all checksums are compared, pinned ones, and the newest one that is finite are always kept.

    Args:
        directory: The directory.
        name: The name of the series, such as ``ckpt``; it may be left out if there is one.
        keep: How many of the newest to keep; None for one.
        policy: Which to keep beside them.
        best: Which to keep as the best by a metric. Its name, and that of the series, may be typed as they were printed.
        said: How the user has said ``policy`` and ``best``, for the reasons; by default as they are written in Python.

    Raises:
        CheckpointNotFoundError: There are no numbered checkpoints.
        KeyNotFoundError: A rule names a metric that no checkpoint has, where they have others.
        UnsupportedError: There are several series, and no name.
        StateFileError: The state file is malformed.
        StorageError: A file cannot be read.
    """
    inventory = inventory_of(directory)
    if inventory.problems:
        raise inventory.problems[0]
    checkpoints = _of_series(directory, name, inventory.places)
    checkpoints_with_facts = [(checkpoint, facts_of(checkpoint)) for checkpoint in checkpoints]
    for _, facts in checkpoints_with_facts:
        if isinstance(facts.problem, StorageError):  # it may be whole, and the newest
            raise facts.problem
    bad = {checkpoint.path: facts.problem for checkpoint, facts in checkpoints_with_facts if facts.problem is not None}
    whole = [(checkpoint, facts) for checkpoint, facts in checkpoints_with_facts if checkpoint.path not in bad]
    newest_first = [checkpoint.path for checkpoint, _ in reversed(whole)]
    finite_first = [checkpoint.path for checkpoint, facts in reversed(whole) if not facts.nonfinite]
    newest, _ = (
        next(good_checkpoints(DEFAULT_STORAGE, paths, "checksums", bad.__setitem__), None)
        for paths in (newest_first, finite_first)
    )
    managed = [managed_of(checkpoint, facts) for checkpoint, facts in whole if checkpoint.path not in bad]
    names = [metric for each in managed for metric in each.metrics or ()]
    for rule in (meant(each, names) for each in best):
        if isinstance(rule.by, str):
            check_known(rule.by, managed, directory)
        policy = rule if policy is None else policy | rule
    plan = RetentionPolicy(keep, keep=policy).plan(managed, 0.0) if managed else RetentionPlan(())
    kept = {each.path: each.reasons for each in plan if each.kept or each.path == newest}
    unkept = f"not kept by {policy!r}", f"not kept by {said or repr(policy)}"
    return Pruning(
        kept,
        {each.path: tuple(why.replace(*unkept) for why in each.reasons) for each in plan if each.path not in kept},
        bad,
        {checkpoint.path: facts.size for checkpoint, facts in checkpoints_with_facts},
    )


def meant(rule: Best, names: Sequence[str]) -> Best:
    """A rule with the name of the metric that the user means, who may have typed it as it was printed.

    Args:
        rule: The rule.
        names: The metrics of all checkpoints.
    """
    return replace(rule, by=typed(rule.by, names)) if isinstance(rule.by, str) else rule


def managed_of(checkpoint: FoundCheckpoint, facts: CheckpointFacts) -> ManagedCheckpoint:
    """A checkpoint as the rules of managers take it."""
    saved = facts.modified if checkpoint.saved is None else checkpoint.saved
    return ManagedCheckpoint(
        checkpoint.path, saved or 0.0, _flat(facts.metrics) or None, checkpoint.is_pinned, bool(facts.nonfinite)
    )


def _flat(metrics: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Metrics under the names that commands print: those in dicts are joined by a slash."""
    flat: dict[str, Any] = {}
    for name, value in metrics.items():
        flat |= _flat(value, f"{above}{name}/") if isinstance(value, dict) else {above + name: value}
    return flat


def _only_directories(directory: str, paths: Sequence[str]) -> CheckpointNotFoundError:
    """The error for a directory whose checkpoints are all directories of other libraries."""
    unfinished = [os.path.basename(path) for path in paths if orbax_layout.unfinished_error(path) is not None]
    steps = bool(steps_of_orbax(DEFAULT_STORAGE, directory))
    left = "1 directory, left as it is" if len(paths) == 1 else f"{len(paths):,} directories, left as they are"
    if unfinished:
        left += f"; Orbax has not finished {', '.join(map(named, unfinished))}: its save is running, or was killed"
    return CheckpointNotFoundError(
        "this is a directory of Orbax, whose steps are not pruned" if steps else "there are no numbered checkpoints",
        file=directory,
        expected="a series of checkpoints, such as ckpt-1.index",
        found=left,
        remedy="pass max_to_keep to the manager of Orbax; remove what it has not finished by hand, when no save is running"
        if steps
        else "only series of numbered checkpoints are pruned; delete others one by one",
    )


def _of_series(directory: str, name: str | None, checkpoints: Sequence[FoundCheckpoint]) -> list[FoundCheckpoint]:
    series: dict[str, list[FoundCheckpoint]] = {}
    others: list[str] = []
    for checkpoint in checkpoints:
        if DEFAULT_STORAGE.is_directory(checkpoint.path) and not DEFAULT_STORAGE.is_file(index_path(checkpoint.path)):
            others.append(checkpoint.path)
            continue
        split = split_number(checkpoint.path)
        if split is not None and os.path.dirname(checkpoint.path) == directory.rstrip(os.sep):
            series.setdefault(os.path.basename(split[0]), []).append(checkpoint)
    if name is None and len(series) > 1:
        raise UnsupportedError(
            "this directory has several series of checkpoints",
            file=directory,
            found=", ".join(map(named, sorted(series))),
            remedy=f"pass the name of one, as in --name {shlex.quote(named(min(series)))}",
        )
    wanted = next(iter(series), None) if name is None else typed(name, series)
    if wanted is None and others:
        raise _only_directories(directory, others)
    if wanted not in series:
        raise CheckpointNotFoundError(
            "there are no numbered checkpoints of this name in the directory"
            if name
            else "there are no numbered checkpoints",
            file=directory,
            expected=f"{name or 'ckpt'}-1.index or the like",
            found=", ".join(map(named, sorted(series))) or "none",
            remedy="only series of numbered checkpoints are pruned; delete others one by one",
        )
    return series[wanted]
