"""Processes that are connected never save to one path, by accident or at the same time; real processes, on this machine."""

import json
import socket
import subprocess
import sys
import textwrap

import pytest

TORCH = """
import torch, torch.distributed as distributed
rank, port = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
wait = distributed.barrier
end = distributed.destroy_process_group
"""

TORCH_WITH_FILES = """
import torch, torch.distributed as distributed
rank = int(sys.argv[1])
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[3]}/store", rank=rank, world_size=2)
wait = distributed.barrier
end = distributed.destroy_process_group
"""

JAX = """
import itertools, jax
from jax._src import distributed
rank, port = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
numbers = itertools.count()
wait = lambda: distributed.global_state.client.wait_at_barrier(f"test{next(numbers)}", 60_000)
end = jax.distributed.shutdown
"""

PROGRAM = """
import json, os, sys
{connect}
import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Variable
directory = sys.argv[3]
results = {{}}

def attempt(name, action):
    try:
        action()
        results[name] = "saved"
    except milepost.MilepostError as error:
        results[name] = f"{{type(error).__name__}}: {{error}}"
    wait()

state = Variable(rank)
checkpoint = Checkpoint(state=state)
{body}
print(json.dumps(results))
end()
"""


@pytest.fixture(params=["torch", "torch with files", "jax"])
def run(request, tmp_path):
    """Runs a program in two connected processes; returns what each printed."""
    connect = {"torch": TORCH, "torch with files": TORCH_WITH_FILES, "jax": JAX}[request.param]
    pytest.importorskip(request.param.partition(" ")[0])

    def run(body):
        program = PROGRAM.format(connect=connect, body=textwrap.dedent(body))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(rank), str(port), str(tmp_path)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            ended = [process.communicate(timeout=180) for process in processes]
        finally:
            for process in processes:
                process.kill()
        assert [process.returncode for process in processes] == [0, 0], ended
        return [json.loads(out.splitlines()[-1]) for out, _ in ended]

    return run


EVERYTHING = """
attempt("write", lambda: checkpoint.write(f"{directory}/one/w"))
attempt("save", lambda: checkpoint.save(f"{directory}/two/s"))
attempt("counter", lambda: results.update(count=int(checkpoint.save_counter)))
manager = CheckpointManager(checkpoint, f"{directory}/three", max_to_keep=2)
for number in range(3):
    attempt(f"manager {number}", manager.save)
attempt("weights", lambda: milepost.save_weights(milepost.Module(), f"{directory}/four/w"))
attempt("own", lambda: checkpoint.write(f"{directory}/own-{rank}"))
attempt("own again", lambda: checkpoint.write(f"{directory}/own-{rank}"))
attempt("local", lambda: checkpoint.write(f"{directory}/one/w", CheckpointOptions(process_local=True)) if rank else None)
"""


def test_one_process_saves_to_a_path_and_the_others_are_refused(run, tmp_path):
    results = run(EVERYTHING)
    for name in ("write", "save", "manager 0", "manager 1", "manager 2", "weights"):
        outcomes = sorted(each[name].partition("\n")[0] for each in results)
        assert outcomes[1] == "saved", name
        assert outcomes[0].startswith("UnsupportedError: another process of "), name
    assert all(each[name] == "saved" for each in results for name in ("own", "own again", "local"))
    assert sorted(each["count"] for each in results) == [0, 1]  # a refused save has used up no number


def test_the_refusal_names_the_rank_the_path_and_what_to_do(run, tmp_path):
    results = run("""
    if rank == 0:
        checkpoint.write(f"{directory}/ckpt")
    wait()
    if rank == 1:
        attempt = lambda name, action: None
        try:
            checkpoint.write(f"{directory}/ckpt")
        except milepost.UnsupportedError as error:
            results = dict(file=error.file, found=error.found, remedy=error.remedy)
    wait()
    """)
    refused = results[1]
    assert refused["file"] == f"{tmp_path}/ckpt"
    assert refused["found"].startswith("rank 1 of 2 processes")
    assert "if rank == 0" in refused["remedy"]
    assert "process_local=True" in refused["remedy"]


def test_saving_in_one_process_waits_for_nobody(run, tmp_path):
    run("""
    if rank == 1:
        checkpoint.save(f"{directory}/ckpt")
    else:  # which has the others' store, and so ends last
        import time
        while not os.path.exists(f"{directory}/ckpt-1.index"):
            time.sleep(0.05)
    wait()
    """)
    assert (tmp_path / "ckpt-1.index").exists()
