"""Trains the guide's model on one of Keras' backends: ``write DIRECTORY`` or ``read DIRECTORY...``.

Writing, it trains fifty steps, saves, and trains fifty more; reading, it trains those fifty after restoring each directory.
Prints the fifty losses as JSON, one line for each directory.
"""

import json
import runpy
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "guide_keras.py"
STEPS = 50


def main(action, *directories):
    guide = runpy.run_path(str(EXAMPLE))
    import keras

    for directory in directories:
        keras.utils.set_random_seed(1 if action == "write" else 2)
        checkpoint, manager = guide["create"](directory)

        def train(checkpoint=checkpoint):
            return [guide["train_step"](checkpoint.net, next(checkpoint.iterator)) for _ in range(STEPS)]

        if action == "write":
            train()
            manager.save()
            print(json.dumps(train()))
        else:
            status = checkpoint.restore(manager.latest_checkpoint)
            losses = train()
            status.assert_consumed()
            print(json.dumps(losses))


if __name__ == "__main__":
    main(*sys.argv[1:])
