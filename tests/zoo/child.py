"""Runs every case on the backend that ``KERAS_BACKEND`` names: ``python -m tests.zoo.child [TEXT]`` prints JSON.

With a text, only cases whose name has it are run.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from tests.zoo.checks import KINDS, STAGES, check, refusal
from tests.zoo.namespaces import Case, cases


def run(case: Case, directory: Path) -> dict[str, Any]:
    """The result of one case: ``refused`` if Keras cannot do it here, else an outcome for each stage."""
    recipe = case.recipe
    if recipe.requires and importlib.util.find_spec(recipe.requires) is None:
        return {"untried": f"{recipe.requires} is not installed"}
    result: dict[str, Any] = {}
    for place, kind in KINDS[case.namespace]:
        if place and recipe.variant:
            continue
        if place and recipe.alone:
            result["alone only"] = recipe.alone
            continue
        found: dict[str, Any]
        try:
            stages = STAGES[-1:] if place else STAGES
            found = check(kind, recipe, directory / (place or "alone"), stages)
        except Exception:
            found = dict.fromkeys(STAGES, traceback.format_exc(limit=-4))
        refused = refusal(kind, recipe) if any(isinstance(outcome, str) for outcome in found.values()) else ""
        if refused and not place:
            return {"refused": refused}
        if refused:
            result["alone only"] = refused
            continue
        for stage, outcome in found.items():
            if not place:
                result[stage] = outcome
            elif isinstance(outcome, str) and not isinstance(result[stage], str):
                result[stage] = f"{place}: {outcome}"
    return result


def main() -> None:
    warnings.simplefilter("ignore")  # Keras and its backends deprecate much; results are what counts here
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for number, case in enumerate(cases()):
            if wanted in str(case):
                began = time.process_time()
                results[str(case)] = run(case, Path(directory, str(number)))
                results[str(case)]["seconds"] = round(time.process_time() - began, 3)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
