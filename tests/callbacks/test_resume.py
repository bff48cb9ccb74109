"""Runs that are interrupted in the middle of an epoch, and go on in a fresh process as if nothing had happened."""

import importlib.util
import json
import signal

import pytest

from tests import programs

TRAINERS = {
    "jax": ("keras", "jax", ["keras", "jax"]),
    "torch": ("keras", "torch", ["keras", "torch"]),
    "tensorflow": ("keras", "tensorflow", ["keras", "tensorflow"]),
    "tf_keras": ("tf_keras", "tensorflow", ["tf_keras", "tensorflow"]),
}
NEEDS = {"dataset": "tensorflow", "endless dataset": "tensorflow", "loader": "torch"}
DATA = ["numbered", "dataset", "endless dataset", "loader", "rereadable", "readings", "walk"]
TRACED = ("tensorflow", "tf_keras")
EAGER = (
    "rereadable",
    "readings",
    "walk",
    "unwrapped, between epochs",
    "part of a pass",
    "part of a pass, between epochs",
)
"""Runs that do without tracing on TensorFlow, where it takes most of the time of the others."""
RUNS = {
    **{kind: {"data": kind, "stop": ["raise", 11]} for kind in DATA},
    "subclassed": {"model": "subclassed", "stop": ["raise", 11]},
    "asynchronous": {"options": {"asynchronous": True}, "stop": ["raise", 11]},
    "within the first epoch": {"stop": ["raise", 5]},
    "after the last batch of an epoch": {"options": {"every_steps": 6, "every_epochs": None}, "stop": ["raise", 13]},
    "between epochs": {"options": {"every_steps": None}, "stop": ["raise", 11]},
    "unwrapped, between epochs": {"data": "plain", "options": {"every_steps": None}, "stop": ["raise", 11]},
    "several batches at once": {"compiled": {"steps_per_execution": 2}, "stop": ["raise", 5]},
    "several batches at once, not in all steps": {
        "compiled": {"steps_per_execution": 4},
        "options": {"every_steps": 1},
        "stop": ["raise", 4],
    },
    "part of a pass": {"data": "part of a pass", "options": {"every_steps": 1}, "stop": ["raise", 6]},
    "part of a pass, between epochs": {
        "data": "part of a pass",
        "options": {"every_steps": None},
        "stop": ["raise", 5],
    },
    "terminated": {"options": {"every_steps": None, "on_sigterm": True}, "stop": ["term", 9]},
    "killed": {"stop": ["kill", 11]},
}
# PyTorch's trainer runs one batch at a time. TensorFlow's shuffles arrays from a state that nobody can save.
# The rest is left out for the sake of time: other trainers read it in the same way.
LEFT_OUT = {
    "jax": {"endless dataset", "within the first epoch"},
    "torch": {
        "several batches at once",
        "several batches at once, not in all steps",
        "numbered",
        "asynchronous",
        "readings",
    },
    "tensorflow": {"unwrapped, between epochs", "loader", "readings", "asynchronous"},
    "tf_keras": {"unwrapped, between epochs", "loader", "readings", "asynchronous", "within the first epoch"},
}


def is_installed(package):
    return importlib.util.find_spec(package) is not None


def runs_of(trainer):
    return {
        name: {**arguments, "compiled": {"run_eagerly": True}} if trainer in TRACED and name in EAGER else arguments
        for name, arguments in RUNS.items()
        if name not in LEFT_OUT[trainer] and is_installed(NEEDS.get(arguments.get("data"), "numpy"))
    }


def without_options(runs):
    """The runs that train the same, whenever they save, once each and without an end; and by run, which of these it is."""
    names = {}
    kinds = {}
    for name, arguments in runs.items():
        kind = {key: value for key, value in arguments.items() if key not in ("options", "stop")}
        kinds[name] = names.setdefault(json.dumps(kind, sort_keys=True), name)
    return {name: {**runs[name], "stop": None} for name in names.values()}, kinds


class Child:
    """A process that does some runs."""

    def __init__(self, trainer, directory, runs, hash_seed=1):
        package, backend, needed = TRAINERS[trainer]
        directory.mkdir(exist_ok=True)
        self._result = directory / "result.json"
        self._errors = directory / "errors.txt"
        self._result.unlink(missing_ok=True)
        arguments = {"package": package, "directory": str(directory), "runs": runs, "result": str(self._result)}
        with self._errors.open("w") as errors:
            self._process = programs.start(
                ["-m", "tests.callbacks.child", json.dumps(arguments)],
                imports=programs.imports(*needed),
                environment=programs.environment(backend, hash_seed),
                stdout=errors,
                stderr=errors,
            )

    def status(self):
        return self._process.wait()

    def outcomes(self):
        assert self.status() == 0, self._errors.read_text()
        return json.loads(self._result.read_text())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("trainer", list(TRAINERS))
def test_interrupted_runs_end_as_if_nothing_had_happened(trainer, tmp_path):
    """Losses of every batch that is left, history of all epochs and final weights are those of whole runs, bit for bit."""
    missing = [package for package in TRAINERS[trainer][2] if not is_installed(package)]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    runs = runs_of(trainer)
    killed = {"killed": runs["killed"]}
    ending = {name: arguments for name, arguments in runs.items() if name not in killed}
    whole = {name: {**arguments, "stop": None} for name, arguments in runs.items()}
    different, kinds = without_options(runs)
    uninterrupted = Child(trainer, tmp_path / "whole", different)
    ended = Child(trainer, tmp_path / "parts", ending).outcomes()
    assert {name for name, outcome in ended.items() if outcome == "interrupted"} == ending.keys() - {"terminated"}
    assert Child(trainer, tmp_path / "parts", killed).status() == -signal.SIGKILL
    resumed = Child(trainer, tmp_path / "parts", whole, hash_seed=2).outcomes()
    expected_outcomes = uninterrupted.outcomes()
    for name, outcome in resumed.items():
        expected = dict(expected_outcomes[kinds[name]])
        assert 0 < len(outcome["losses"]) < len(expected["losses"]), name
        expected["losses"] = expected["losses"][-len(outcome["losses"]) :]
        assert outcome == expected, name


@pytest.mark.timeout(300)
@pytest.mark.parametrize("trainer", ["tensorflow", "tf_keras"])
def test_an_epoch_that_was_resumed_is_saved_and_resumed_again(trainer, tmp_path):
    """On a step count, and on SIGTERM, in the epoch in which the run was taken up."""
    missing = [package for package in TRAINERS[trainer][2] if not is_installed(package)]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    options = {"every_steps": 1, "on_sigterm": True}
    kinds = {
        "dataset": {"data": "dataset", "options": options},
        "endless dataset": {"data": "endless dataset", "options": options, "compiled": {"run_eagerly": True}},
    }

    def run(stop, hash_seed=1):
        runs = {kind: {**arguments, "stop": stop} for kind, arguments in kinds.items()}
        return Child(trainer, tmp_path / "parts", runs, hash_seed).outcomes()

    assert set(run(["raise", 7]).values()) == {"interrupted"}
    assert set(run(["raise", 3]).values()) == {"interrupted"}
    assert all(outcome["terminated"] for outcome in run(["term", 1]).values())
    resumed = run(None, hash_seed=2)
    whole = Child(trainer, tmp_path / "whole", kinds).outcomes()
    for kind, outcome in resumed.items():
        assert len(outcome["losses"]) == len(whole[kind]["losses"]) - 9
        whole[kind]["losses"] = whole[kind]["losses"][9:]
        assert outcome == whole[kind]


class TestSigterm:
    @pytest.fixture(scope="class")
    @classmethod
    def outcome(cls, tmp_path_factory):
        trainer = next((name for name in TRAINERS if all(map(is_installed, TRAINERS[name][2]))), None)
        if trainer is None:
            pytest.skip("no trainer is installed")
        return Child(trainer, tmp_path_factory.mktemp("runs"), {"run": RUNS["terminated"]}).outcomes()["run"]

    def test_stops_after_the_batch_in_which_it_came(self, outcome):
        assert len(outcome["losses"]) == 9

    def test_is_told_afterwards(self, outcome):
        assert outcome["terminated"]

    def test_has_its_previous_handler_afterwards(self, outcome):
        assert outcome["handler is back"]
