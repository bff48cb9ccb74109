"""A training that is killed and resumed in fresh processes ends with the very bits of one that was not."""

import signal

import pytest

from tests import programs

pytest.importorskip("jax")
pytest.importorskip("optax")


def run(directory, steps, *flags, hash_seed=1):
    done = programs.run(
        ["-m", "tests.adapters.jax.training", directory, str(steps), *flags],
        imports=programs.imports("jax", "optax"),
        environment=programs.environment(hash_seed=hash_seed),
    )
    assert done.returncode == (-signal.SIGKILL if "--kill" in flags else 0), done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole"), 20)


@pytest.mark.parametrize("form", [[], ["--trees"]], ids=["checkpoint", "trees"])
def test_three_processes_end_as_one(tmp_path, expected, form):
    run(tmp_path, 7, "--kill", *form)
    run(tmp_path, 12, "--kill", *form)
    assert run(tmp_path, 20, *form, hash_seed=2) == expected
