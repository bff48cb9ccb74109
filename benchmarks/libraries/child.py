"""A process of its own for some objects of a library: `python -m benchmarks.libraries.child TASK`.

One process makes, uses and saves them; another, which knows nothing but the files, restores them and goes on.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import milepost
from benchmarks.libraries import catalogue
from benchmarks.libraries.compare import difference, plain
from benchmarks.libraries.specimen import Specimen, UntriedError

STEPS = 3
_SECONDS = 90
_SAVED, _RESUMED = 1, 2
"""Seeds: what is restored was made with other values than what was saved."""


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]


@contextlib.contextmanager
def _within_time() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"took longer than {_SECONDS} seconds")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def _go_on(specimen: Specimen, first: int) -> Any:
    return {str(step): plain(specimen.use(step)) for step in range(first, first + STEPS)}


def save(make: Any, name: str, folder: Path) -> dict[str, Any]:
    """Makes an object, uses and saves it, and goes on.

    Returns:
        What the resumed one has to do; or why the object was not tried; or what `milepost` said.
    """
    folder.mkdir(parents=True)
    try:
        specimen = make(name, _SAVED)
        _go_on(specimen, 0)
        saved = plain(specimen.account())
    except Exception as error:
        return {"untried": _told(error)}
    found: dict[str, Any] = {"account": saved, "own": _told_by(lambda: specimen.save(folder / "own"))}
    checkpoint = milepost.Checkpoint
    found["milepost"], found["warned"] = _watched(lambda: checkpoint(**specimen.tracked()).write(folder / "checkpoint"))
    if difference(plain(specimen.account()), saved):
        found["milepost"] = found["milepost"] or f"the save changed {difference(plain(specimen.account()), saved)}"
    try:
        found["next"] = _go_on(specimen, STEPS)
        found["end"] = plain(specimen.account())
    except Exception as error:
        return {"untried": _told(error)}
    return found


def resume(make: Any, name: str, folder: Path, saved: dict[str, Any]) -> dict[str, Any]:
    """Restores an object in both ways, and goes on with each.

    Returns:
        What `milepost` said; where its object differs, at once and later; and the same for the library's own way.
    """
    found: dict[str, Any] = {"milepost": {}, "own": {}}
    if not saved["milepost"]:
        specimen = make(name, _RESUMED)

        def restore() -> None:
            checkpoint = milepost.Checkpoint(**specimen.tracked())
            status = checkpoint.read(folder / "checkpoint")
            specimen.adopt(checkpoint)
            status.assert_consumed()

        said, warned = _watched(restore)
        found["milepost"] = {"said": said, "warned": warned, **_compared(specimen, saved)}
    if not saved["own"]:
        other = make(name, _RESUMED)
        found["own"] = {"said": _told_by(lambda: other.load(folder / "own")), **_compared(other, saved)}
    return found


def _compared(specimen: Specimen, saved: dict[str, Any]) -> dict[str, str]:
    try:
        at_once = difference(plain(specimen.account()), saved["account"])
        later = difference(_go_on(specimen, STEPS), saved["next"], "outputs")
        return {"at once": at_once, "later": later or difference(plain(specimen.account()), saved["end"], "state")}
    except Exception as error:
        return {"at once": "", "later": _told(error)}


def _told_by(action: Any) -> str:
    try:
        action()
    except Exception as error:
        return _told(error)
    return ""


def _watched(action: Any) -> tuple[str, str]:
    """What an action of `milepost` raised, and of what it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        raised = _told_by(action)
    said = [str(each.message) for each in caught if issubclass(each.category, milepost.MilepostWarning)]
    return raised, " ".join(" | ".join(said).split())[:600]


def _main(task: dict[str, Any]) -> None:
    folder = Path(task["folder"])
    library = catalogue.load(task["library"])
    if task["do"] == "names":
        Path(task["answer"]).write_text(json.dumps(list(library.names())))
        return
    for number, name in enumerate(task["names"]):
        place = folder / str(number)
        saved, answer = place / "saved.json", place / f"{task['do']}d.json"
        if task["do"] == "save":
            print(f"{name} ...", file=sys.stderr, flush=True)
        elif not saved.exists() or "untried" in json.loads(saved.read_text()):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with _within_time():
                    if task["do"] == "save":
                        found = save(library.make, name, place)
                    else:
                        found = resume(library.make, name, place, json.loads(saved.read_text()))
            except (Exception, UntriedError) as error:
                found = {"untried": _told(error)}
        answer.write_text(json.dumps(found))


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
