"""A run that saves to a store until it is killed: ``python -m tests.series.store_run URL OPTIONS LEASE SAVES``.

It prints ``from N`` for the step that it continues from, ``saved N`` for each save that has returned, and ``error CLASS: TEXT`` for one that has failed.
"""

import json
import sys
import warnings
from typing import Any

import numpy as np

import milepost
from milepost.storage import ObjectStorage


def main(url: str, options: str, lease: str, saves: str) -> None:
    """Saves."""
    warnings.simplefilter("ignore")
    storage = ObjectStorage(url, json.loads(options), lease=float(lease), patience=20.0)
    state: Any = milepost.Checkpoint(step=0, values=milepost.Variable(np.zeros(5000)))
    manager = milepost.CheckpointManager(
        state, url, max_to_keep=2, options=milepost.CheckpointOptions(storage=storage, data_alignment=1)
    )
    manager.restore_or_initialize()
    assert state.values.numpy().tolist() == [float(state.step)] * 5000
    print(f"from {state.step}", flush=True)
    for _ in range(int(saves)):
        state.step += 1
        state.values.assign(np.full(5000, float(state.step)))
        try:
            manager.save(checkpoint_number=state.step)
        except milepost.MilepostError as error:
            print(f"error {type(error).__name__}: {' | '.join(str(error).splitlines())}", flush=True)
            raise SystemExit(1) from error
        print(f"saved {state.step}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
