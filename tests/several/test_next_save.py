"""What one process suffers in a save fails that save on all, and what comes of the next save of the same processes."""

import re

import pytest

from tests.several.programs import run, same

TIMEOUT = 2
"""Seconds of the time limit."""
PROGRAM = """
import resource, signal, subprocess
import milepost.coordination

# It goes on when both others have ended their saves.
WAKE = "for each in $(seq 1200); do [ $(ls {mark}-* 2>/dev/null | wc -l) = 2 ] && break; sleep 0.05; done; kill -CONT {process}"

class Stopping:
    "A coordinator that stops its process before one of its messages, counted from 0 without those that show progress."

    def __init__(self, inner):
        self.inner, self.at = inner, None
        self.rank, self.size, self.library = inner.rank, inner.size, inner.library

    def post(self, topic, message):
        if not topic.endswith("progress") and self.at is not None:
            self.at -= 1
            if self.at == -1:
                subprocess.Popen(["sh", "-c", WAKE.format(process=os.getpid(), mark=f"{directory}/ended-{checkpoint.step}")])
                os.kill(os.getpid(), signal.SIGSTOP)
        self.inner.post(topic, message)

    def wait(self, topic, rank, timeout):
        return self.inner.wait(topic, rank, timeout)

    def clear(self, topic):
        self.inner.clear(topic)

class Plain:
    fails = False
    def state_dict(self):
        if self.fails:
            raise RuntimeError("no state now")
        return {"n": 1}
    def load_state_dict(self, state):
        pass

stopping = Stopping(coordinator)
plain = Plain()
checkpoint = Checkpoint(step=0, plain=plain, own=np.random.default_rng(rank), **{name: np.zeros(200_000) for name in "abc"})
usual = CheckpointOptions(coordinator=stopping, process_timeout=60)
manager = CheckpointManager(checkpoint, directory + "/run", max_to_keep=2, options=usual)

def number(path):
    return path and path.rpartition("-")[2]

def tried(options=None):
    checkpoint.step = step = checkpoint.step + 1
    for name in "abc":  # each process writes one of them
        setattr(checkpoint, name, np.full(200_000, float(checkpoint.step)))
    try:
        outcome = "saved"
        manager.save(options=options)
    except MilepostError as error:
        outcome = f"{type(error).__name__}: {error.problem}"
    open(f"{directory}/ended-{step}-{rank}", "w").close()
    return outcome

def case(name, begin, end, timeout=60):
    begin()
    found = [tried(CheckpointOptions(coordinator=stopping, process_timeout=timeout))]
    end()
    found.append(number(milepost.latest_checkpoint(directory + "/run")))
    found.append(tried())
    found.append(number(manager.latest_checkpoint))
    found.append(checkpoint.step)
    results[name] = found

def nothing():
    pass

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

tried()
for failing in (0, 1):
    mine = rank == failing
    def fail(is_to=True):
        plain.fails = mine and is_to
    case(f"plan {failing}", fail, lambda: fail(False))
    case(f"disk {failing}", lambda: limit(100_000) if mine else None, lambda: limit(resource.RLIM_INFINITY))
    for at in (0, 1):
        def arm():
            stopping.at = at if mine else None
        case(f"stop {failing} {at}", arm, nothing, timeout=TIMEOUT)
        stopping.at = None
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What each of three processes has seen, by case."""
    body = PROGRAM.replace("timeout=TIMEOUT", f"timeout={TIMEOUT}")
    return run(body, 3, tmp_path_factory.mktemp("next"))


CASES = [f"{kind} {rank}" for rank in (0, 1) for kind in ("plan", "disk", "stop")]
CASES = [f"{case} {at}" if "stop" in case else case for case in CASES for at in ((0, 1) if "stop" in case else (0,))]


@pytest.mark.parametrize("name", CASES)
def test_the_save_fails_on_all_and_names_the_process(seen, name):
    failing = int(name.split()[1])
    for rank, each in enumerate(seen):
        outcome = each[name][0]
        if name == "stop 0 1":  # process 0 had committed, and could not say so
            assert outcome.startswith("AfterCommitError" if rank else "saved")
            continue
        assert outcome.partition(":")[0].endswith("Error")
        if rank != failing:
            assert re.search(rf"process {failing} of 3", outcome), outcome


@pytest.mark.parametrize("name", CASES)
def test_what_was_saved_before_stays(seen, name):
    before = same([each[name][1] for each in seen])
    assert before is not None


@pytest.mark.parametrize("name", CASES)
def test_the_next_save_works(seen, name):
    for each in seen:
        _, before, outcome, after, _ = each[name]
        assert outcome == "saved"
        assert int(after) == int(before) + 1
