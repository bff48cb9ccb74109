"""`milepost verify`: reads all data of checkpoints, and compares every checksum."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from milepost.engine.progress import saved_sizes
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError
from milepost.restoring.load import open_any
from milepost.series.files import file_sizes
from milepost.series.saved_model import is_of_saved_model
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools import amounts
from milepost.tools.arguments import CANNOT, DIFFERS, SUCCESS, add_checkpoint, add_command, add_json, add_recursive
from milepost.tools.inventory import deletion_of, inventory_of, not_searched_note, size_of
from milepost.tools.remedies import for_command
from milepost.tools.terminal import is_drawn, line, note, print_json, progress, shown


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "verify",
        run,
        "read all data of checkpoints and compare every checksum",
        ["milepost verify ./tf_ckpts", "milepost verify ./tf_ckpts/ckpt-10 && echo whole"],
        {
            0: "all are whole, but for those that a program deletes",
            1: "one is damaged or missing, or the state file is malformed",
            3: "one could not be read for another reason, and none is known to be damaged",
        },
        "Files of other libraries may have no checksums: those of safetensors, Flax and HDF5, and of torch.save from before 1.6. "
        "Then it is found out whether all tensors can be read, and the output says so.",
    )
    add_checkpoint(
        command,
        "path",
        "a checkpoint, a SavedModel, a file or directory of another library, or a directory, in which every checkpoint is verified, whether "
        "or not its state file lists it",
    )
    add_recursive(command, "verify the checkpoints")
    add_json(command)


@dataclass(slots=True)
class _Result:
    """What was found out about one checkpoint."""

    path: str
    tensors: int | None = None
    files: Sequence[str] = ()
    checksums: int | None = None
    stored: int = 0
    objects: int = 0
    in_part: int = 0
    is_of_saved_model: bool = False
    size: int = 0
    seconds: float = 0.0
    error: MilepostError | None = None
    is_deleted: bool = False

    @property
    def status(self) -> int:
        if self.error is None or self.is_deleted:
            return SUCCESS
        return DIFFERS if isinstance(self.error, (CorruptCheckpointError, CheckpointNotFoundError)) else CANNOT

    @property
    def state(self) -> str:
        if self.is_deleted:
            return "deleted"
        if isinstance(self.error, CheckpointNotFoundError) and not self.size:
            return "missing"
        return {SUCCESS: "whole", DIFFERS: "damaged", CANNOT: "not read"}[self.status]

    def to_dict(self) -> dict[str, Any]:
        error = self.error
        problem = None
        if error is not None:
            problem = {name: _text(getattr(error, name)) for name in ("problem", "key", "file", "expected", "found")}
        return {
            "path": self.path,
            "state": self.state,
            "tensors": self.tensors,
            "files": list(self.files),
            "tensors_without_checksum": None if self.checksums is None else self.stored - self.checksums,
            "objects_not_read": self.objects,
            "objects_read_in_part": self.in_part,
            "program_not_read": self.is_of_saved_model,
            "bytes": self.size,
            "seconds": round(self.seconds, 3),
            "error": problem,
        }


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    inventory = inventory_of(options.path, levels=None if options.recursive else 1)
    results = []
    for problem in inventory.problems:
        note(f"error: {for_command(problem, 'verify')}")
    for checkpoint in inventory.newest_first():
        result = _verified(checkpoint.path)
        results.append(result)
        if not options.json:
            _print(result)
    if options.json:
        print_json(
            {
                "path": options.path,
                "state_file_problem": "\n".join(map(str, inventory.problems)) or None,
                "checkpoints": [each.to_dict() for each in results],
                "not_searched": inventory.not_searched,
            }
        )
    elif text := not_searched_note(inventory):
        note(text)
    statuses = {result.status for result in results} | ({DIFFERS} if inventory.problems else set())
    return next(status for status in (DIFFERS, CANNOT, SUCCESS) if status in statuses)


def _verified(path: str) -> _Result:
    result = _Result(path, size=size_of(path))
    started = time.perf_counter()
    try:
        with open_any(DEFAULT_STORAGE, path) as reader:
            result.path = reader.prefix
            result.is_of_saved_model = is_of_saved_model(DEFAULT_STORAGE, reader.prefix)
            keys = reader.keys()
            with progress("verify", reader.prefix, sum(saved_sizes(reader, keys))):
                result.checksums, result.stored = reader.verify()
            result.files = [*file_sizes(reader)]
            result.tensors = len(keys) - len(result.files)
            catalogue = reader.catalogue()
            result.objects = len(catalogue.objects)
            result.in_part = len(catalogue.objects) - len(catalogue.unread)
    except MilepostError as error:
        deletion = deletion_of(path)
        result.error, result.is_deleted = deletion or error, deletion is not None
    result.seconds = time.perf_counter() - started
    return result


def _print(result: _Result) -> None:
    if result.error is not None:
        line(f"{shown(result.path)}: {result.state}")
        note(f"{'note' if result.is_deleted else 'error'}: {for_command(result.error, 'verify')}")
        return
    rate = ""
    if is_drawn() and result.seconds > 0:
        rate = f" ({amounts.size(result.size)}, {amounts.size(int(result.size / result.seconds))}/s)"
    counts = ((result.objects - result.in_part, "not read"), (result.in_part, "read in part"))
    unread = "".join(f"; {amounts.plural(count, 'object')} {how}" for count, how in counts if count)
    unread += "; the program of this SavedModel is not read" if result.is_of_saved_model else ""
    counted = amounts.plural(result.tensors or 0, "tensor")
    counted += f", {amounts.plural(len(result.files), 'file')}" if result.files else ""
    line(f"{shown(result.path)}: {counted}, {_found(result)}{unread}{rate}")


def _found(result: _Result) -> str:
    """What was compared."""
    if result.checksums == result.stored:
        return "all checksums correct" if result.stored else "all readable"
    if not result.checksums:
        return "all readable; no checksums were compared, so changed bytes may go unnoticed"
    without = result.stored - (result.checksums or 0)
    return f"all readable, and all checksums correct; {without:,} have none, so changed bytes in them may go unnoticed"


def _text(fact: object) -> str | None:
    return None if fact is None else str(fact)
