"""A training that is killed goes on in a fresh process as if nothing had happened, bit for bit."""

import json
import signal

import pytest

from tests import programs

pytest.importorskip("jax")
pytest.importorskip("flax.nnx")


def start(directory, last, hash_seed=1):
    directory.mkdir(exist_ok=True)
    with (directory / "errors.txt").open("w") as errors:
        return programs.start(
            ["-m", "tests.adapters.flax.child", directory, str(last)],
            imports=programs.imports("jax", "flax.nnx", "optax"),
            environment=programs.environment(hash_seed=hash_seed),
            stdout=errors,
            stderr=errors,
        )


def finished(process, directory):
    """The losses by step, and what describes the final state."""
    assert process.wait() == 0, (directory / "errors.txt").read_text()
    losses, *state = json.loads((directory / "result.json").read_text())
    return losses, state


def killed(directory, last):
    assert start(directory, last).wait() == -signal.SIGKILL, (directory / "errors.txt").read_text()


def test_a_killed_training_goes_on_bit_for_bit(tmp_path):
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    process = start(straight, 20)
    killed(broken, 12)  # saved at 10
    killed(broken, 14)  # saved again at 10, right after the restore
    losses, state = finished(start(broken, 20, hash_seed=2), broken)
    expected, expected_state = finished(process, straight)
    assert list(losses) == [str(step) for step in range(11, 21)]
    assert losses == {step: loss for step, loss in expected.items() if int(step) > 10}
    assert state == expected_state
