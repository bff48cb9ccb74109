"""State of runs that was written before plain state had its present form."""

import base64
import json
import random

import numpy as np

from milepost.callbacks.plain_data import from_json, set_random_state


def first_form():
    """What the first version wrote of the random state that the program has now."""
    version, numbers, gauss = random.getstate()
    name, words, *rest = np.random.get_state()
    array = {"!": "array", "dtype": "<u4", "shape": [624], "base64": base64.b64encode(words.tobytes()).decode()}
    return json.dumps(
        {
            "python": {"!": "tuple", "items": [version, {"!": "tuple", "items": list(numbers)}, gauss]},
            "numpy": {"!": "tuple", "items": [name, array, *rest]},
        }
    )


def test_random_state_is_still_understood():
    text = first_form()
    expected = random.random(), np.random.random()
    set_random_state(from_json(text))
    assert (random.random(), np.random.random()) == expected
