"""Counts what saves, restores and assertions do for each value: ``python -m tests.engine.amount_of_work DIRECTORY``, which prints JSON.

It is a process of its own, because adapters of frameworks that other tests have imported are asked too.
"""

import gc
import json
import sys
import tracemalloc
from pathlib import Path

import numpy as np

import milepost

PACKAGE = str(Path(milepost.__file__).parent)
SMALL, LARGE = 300, 900


def arrays(count):
    layers = {
        f"layer{n // 10}": {f"w{m}": np.full(4, n + m, np.float32) for m in range(10)} for n in range(0, count, 10)
    }
    return milepost.Checkpoint(layers=layers)


def numbers(count):
    return milepost.Checkpoint(values=[float(n) for n in range(count)])


def variables(count):
    model = milepost.Module()
    for n in range(count):
        setattr(model, f"v{n}", milepost.Variable(np.full(4, n, np.float32)))
    return milepost.Checkpoint(model=model)


STATES = {"arrays": arrays, "numbers": numbers, "variables": variables}


def operation(make, count, what, path):
    """A function that saves, restores or asserts, once everything that happens only once has happened."""
    saved, live = make(count), make(count)
    saved.write(path)
    status = live.read(path)
    status.assert_consumed()
    return {
        "save": lambda: saved.write(path + "-again"),
        "restore": lambda: live.read(path).expect_partial(),
        "assert": status.assert_consumed,
    }[what]


def calls(run):
    counted = 0

    def note(frame, event, _):
        nonlocal counted
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            counted += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return counted


def allocated(run):
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def each(measure, make, what, place):
    small, large = (measure(operation(make, count, what, str(place / str(count)))) for count in (SMALL, LARGE))
    return (large - small) / (LARGE - SMALL)


def main(directory):
    found = {"calls": {}, "bytes": {}}
    for state, make in STATES.items():
        for what in ("save", "restore", "assert"):
            place = Path(directory) / f"{state}-{what}"
            place.mkdir()
            found["calls"][f"{state}, {what}"] = each(calls, make, what, place)
            found["bytes"][f"{state}, {what}"] = each(allocated, make, what, place)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
