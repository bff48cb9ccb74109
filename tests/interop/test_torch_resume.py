"""A training in PyTorch that is killed and resumed, again and again, ends as one that never was, bit for bit."""

import signal

import pytest

from tests import programs

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("torchdata", reason="torchdata is not installed")


class Training:
    """Processes on one directory, one after the other."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()

    def start(self, name, *options, hash_seed=1):
        with (self.directory / f"{name}.err").open("w") as errors:
            return programs.start(
                ["-m", "tests.interop.torch_training", self.directory, name, *options],
                imports=programs.imports("torch", "torchdata.stateful_dataloader"),
                environment=programs.environment(hash_seed=hash_seed),
                stdout=errors,
                stderr=errors,
            )

    def lines(self, name):
        """What a process wrote: the step it went on from, losses by step, and the digest in the end, if it got there."""
        return dict(line.split() for line in (self.directory / name).read_text().splitlines())

    def killed(self, name, moment, step):
        assert self.start(name, moment, step).wait() == -signal.SIGKILL, (self.directory / f"{name}.err").read_text()
        return self.lines(name)

    def finished(self, name, process):
        assert process.wait() == 0, (self.directory / f"{name}.err").read_text()
        return self.lines(name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What the process that was never killed wrote, and what those wrote that were, one after the other."""
    directory = tmp_path_factory.mktemp("resume")
    whole, broken = Training(directory / "whole"), Training(directory / "broken")
    process = whole.start("whole")
    parts = [
        broken.killed("1", "step", "57"),
        broken.killed("2", "step", "53"),
        broken.killed("3", "save", "70"),
        broken.finished("4", broken.start("4", hash_seed=2)),
    ]
    return whole.finished("whole", process), parts


def test_each_process_goes_on_from_the_last_save_that_was_finished(runs):
    assert [part["from"] for part in runs[1]] == ["0", "50", "50", "60"]


def test_losses_are_those_of_a_run_that_was_never_killed(runs):
    whole, parts = runs
    for part in parts:
        begun = int(part["from"])
        steps = [name for name in part if name.isdigit()]
        assert len(steps) > 1
        assert steps[0] == str(begun + 1)
        assert {step: part[step] for step in steps} == {step: whole[step] for step in steps}


def test_the_state_in_the_end_is_that_of_a_run_that_was_never_killed(runs):
    whole, parts = runs
    assert parts[-1]["end"] == whole["end"]
