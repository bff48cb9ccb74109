"""Checks that saved values fit the live objects that take them, and says which do not. No value is read, and nothing changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from milepost.bundle import CastingReader, is_castable, may_round
from milepost.engine.report import Outcome, Report, ReportEntry
from milepost.engine.restore_record import RestoreRecord
from milepost.engine.translation import Translation
from milepost.errors import CorruptCheckpointError, KeyNotFoundError, MismatchError
from milepost.graph.adapter import Value, adapter_during
from milepost.graph.contract.operation import Operation
from milepost.graph.keys import ATTRIBUTES, unescape
from milepost.graph.plain.places import PlainLeaf
from milepost.graph.plain.values import SHOWN_NONE
from milepost.graph.variable import shape_fits
from milepost.restoring.take import Take
from milepost.tensor.spec import format_shape

_MOST_LISTED: Final = 10
_SHAPE_TOO: Final = "the shape differs too"
_SLOTS: Final = "its slot variables would be restored"


def _cast(reader: CastingReader, takes: Sequence[Take], translation: Translation) -> None:
    """Makes the reader convert numbers to the element types of the live objects, if the translation allows it.

    An object that accepts integers of another type converts them itself, without a loss. A plain value takes the saved type.
    """
    for take in takes:
        for value, key in take.values:
            if key in reader:
                saved = reader.saved(key).dtype
                fits = saved is value.dtype or type(take.obj) is PlainLeaf
                fits = fits or (saved in value.accepts and not may_round(saved, value.dtype))
                if not fits and is_castable(saved, value.dtype) and translation.casts(key):
                    reader.cast(key, value.dtype)


def check(operation: Operation, record: RestoreRecord, takes: Sequence[Take]) -> int:
    """Checks that every value fits its object, after the conversions of numbers that the program allows.

    Args:
        operation: The restore, or the operation in which the objects came.
        record: The record of the restore.
        takes: The values.

    Returns:
        The bytes of all values as they are in the files.

    Raises:
        MismatchError: Some values do not fit. The message names them, and ``report`` has all of them.
        CorruptCheckpointError: The checkpoint lacks a value that its object graph names.
    """
    reader, translation = record.reader, record.translated.translation
    if record.casting is not None:
        _cast(record.casting, takes, translation)
    problems = []
    castable = True
    size = 0
    for take in takes:
        for value, key in take.values:
            try:
                saved = reader.entry(key)
            except KeyNotFoundError as error:
                raise CorruptCheckpointError(
                    "the object graph names a tensor that the checkpoint does not have",
                    key=key,
                    file=reader.prefix,
                    remedy="restore another checkpoint",
                ) from error
            size += saved.spec.nbytes if saved.slices else saved.size
            fits = saved.shape == value.shape or shape_fits(saved.shape, value.shape)
            if saved.dtype is not value.dtype and saved.dtype not in value.accepts:
                note = "" if fits else _SHAPE_TOO
                castable = castable and is_castable(saved.dtype, value.dtype)
                problems.append(
                    ReportEntry(Outcome.WRONG_DTYPE, key, str(saved.spec), live_spec(operation, value, take.obj), note)
                )
            elif not fits:
                problems.append(
                    ReportEntry(Outcome.WRONG_SHAPE, key, str(saved.spec), live_spec(operation, value, take.obj))
                )
    if problems:
        problems = [replace(each, saved=SHOWN_NONE) if each.key in record.nones else each for each in problems]
        raise _mismatch(reader.prefix, problems, translation, castable)
    return size


def check_variables(operation: Operation, record: RestoreRecord, bindings: Mapping[int, Any]) -> None:
    """Checks that variables which keep their values have the shapes of the saved ones, whose slot variables they get.

    Args:
        operation: The restore, or the operation in which the objects came.
        record: The record of the restore.
        bindings: The live objects by node.

    Raises:
        MismatchError: Some have other shapes.
    """
    problems = []
    reader, translated = record.reader, record.translated
    for node, values in translated.variables.items():
        variable = bindings.get(node)
        adapter = None if variable is None else adapter_during(operation, variable)
        live = {} if adapter is None else {value.name: value for value in adapter.values(variable)}
        for saved in values:
            value = live.get(unescape(saved.name))
            if value is not None and saved.key in reader and reader.spec(saved.key).shape != value.shape:
                spec = live_spec(operation, value, variable)
                problems.append(ReportEntry(Outcome.WRONG_SHAPE, saved.key, str(reader.spec(saved.key)), spec, _SLOTS))
    if problems:
        raise _mismatch(reader.prefix, problems, translated.translation, castable=False)


def has_other_shape(entry: ReportEntry) -> bool:
    """Whether the saved value of an entry has another shape than the live one."""
    return entry.outcome is Outcome.WRONG_SHAPE or entry.note == _SHAPE_TOO


def live_spec(operation: Operation, value: Value, obj: Any) -> str:
    """Element type and shape of a value of a live object, as reports show them. None is called so."""
    if type(obj) is PlainLeaf and operation.held[obj] is None:
        return SHOWN_NONE
    return f"{value.dtype}[{format_shape(value.shape)}]"


def _mismatch(prefix: str, problems: Sequence[ReportEntry], translation: Translation, castable: bool) -> MismatchError:
    first = problems[0]
    more = "".join(f"\n    also {entry.outcome.value}: {entry}" for entry in problems[1:_MOST_LISTED])
    if len(problems) > _MOST_LISTED:
        more += f"\n    and {len(problems) - _MOST_LISTED} more"
    error = MismatchError(
        f"{first.outcome.value}: a saved value does not fit the live object; nothing was changed",
        key=first.key,
        file=prefix,
        expected=f"{first.live}, as the live object has it",
        found=f"{first.saved} in the checkpoint{more}",
        remedy=_remedy(problems, translation, castable),
    )
    error.report = Report(prefix, tuple(problems))
    return error


def _remedy(problems: Sequence[ReportEntry], translation: Translation, castable: bool) -> str:
    """The arguments with which a restore leaves these values alone or converts them.

    Args:
        problems: The values.
        translation: The changes that the restore makes.
        castable: Whether ``cast`` would convert all of other element types.
    """
    names = [translation.live_path(entry.key.partition(ATTRIBUTES)[0]) or entry.key for entry in problems]
    ignored = list(dict.fromkeys(names))
    if len(ignored) > 1:
        ignored = list(dict.fromkeys(re.sub(r"[./][^./]*$", "", name) for name in ignored))
    patterns = [translation.ignore] if isinstance(translation.ignore, str) else translation.ignore
    ignored = [*(each for each in patterns if each), *ignored]
    ignore = repr(ignored[0]) if len(ignored) == 1 else f"[{', '.join(map(repr, ignored[:_MOST_LISTED]))}]"
    if len(ignored) > _MOST_LISTED:
        ignore = "[...] with their names"
    keep = f"to keep the live values, pass ignore={ignore} to the restore"
    if any(entry.note == _SHAPE_TOO for entry in problems):
        return f"give the live object the saved element type and shape; {keep}"
    if any(entry.outcome is Outcome.WRONG_DTYPE for entry in problems):
        if any(translation.casts(entry.key) for entry in problems):
            return f"give the live object the saved element type, because cast does not convert numbers of this type to the other; {keep}"
        convert = "to convert numbers, pass cast=True to the restore; " if castable else ""
        return f"give the live object the saved element type; {convert}{keep}"
    return f"give the live object the saved shape; {keep}"
