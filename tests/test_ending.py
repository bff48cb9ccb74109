"""How a process ends whose last save has failed in the background: each program is a process of its own, and the disk refuses its files."""

import subprocess
import sys

import pytest

from milepost import ending

SAVE = """
import sys, milepost
checkpoint = milepost.Checkpoint(v=milepost.Variable(1.0))
def save():
    checkpoint.write(sys.argv[1] + "/file/ckpt", milepost.CheckpointOptions(enable_async=True))
"""
WHY = "milepost: the exit status of this process is {}, because an asynchronous save failed, and nothing was saved: cannot make"
IN_CHILD = """
import multiprocessing
if __name__ == "__main__":
    child = multiprocessing.get_context("{}").Process(target=save)
    child.start()
    child.join()
    print(child.exitcode)
"""


@pytest.fixture
def end(tmp_path):
    """Runs a program whose saves fail, and returns its exit status, its output and what it wrote to the standard error stream."""
    (tmp_path / "file").write_bytes(b"")

    def run(code, *options):
        program = tmp_path / "program.py"
        program.write_text(SAVE + code)
        command = [sys.executable, *options, str(program), str(tmp_path)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout, ran.stderr

    return run


@pytest.mark.parametrize(
    "code",
    ["save()", "save(); sys.exit(0)", "save(); sys.exit(3)", "save(); del checkpoint", "save(); raise ValueError"],
    ids=["last line", "exit 0", "exit 3", "checkpoint gone", "error"],
)
def test_the_status_says_that_a_save_has_failed(end, code):
    """However the program ends; Python's own status for an error at the end."""
    status, _, error = end(code)
    assert status == ending.STATUS == 120
    assert error.count(WHY.format(120)) == 1


def test_the_error_is_written_where_warnings_are_off(end):
    status, output, error = end("save()", "-W", "ignore")
    assert (status, output) == (120, "")
    assert error.startswith(WHY.format(120))
    assert "remedy: save to another directory" in error


def test_an_error_that_the_program_has_handled_does_not_count(end):
    assert end(
        "save()\n"
        "try:\n"
        "    checkpoint.sync()\n"
        "except milepost.StorageError:\n"
        "    pass\n"
    ) == (0, "", "")  # fmt: skip


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.skipif(sys.platform == "win32", reason="Windows spawns only")
def test_a_process_of_multiprocessing_ends_with_an_error_too(end, method):
    """It neither calls functions of `atexit` nor finalizes its interpreter, in two of three ways."""
    status, output, error = end(IN_CHILD.format(method))
    assert (status, output.strip()) in [(0, "1"), (0, "120")]
    assert error.count(WHY.format(1)) == 1
    assert "Traceback" not in error


def test_threads_of_such_a_process_end_before_it(end):
    """As they do without an error."""
    code = (
        "import threading, time\n"
        "def save_and_go_on():\n"
        "    threading.Thread(target=lambda: (time.sleep(0.5), print('done', flush=True))).start()\n"
        "    save()\n"
    )
    status, output, _ = end(code + IN_CHILD.format("fork").replace("=save)", "=save_and_go_on)"))
    assert (status, output.split()) == (0, ["done", "1"])


def test_a_child_that_was_forked_has_not_failed_with_its_parent(end):
    """What failed in the parent is told by the parent alone."""
    code = (
        "import os, time\n"
        "def child():\n"
        "    pass\n"
        "save()\n"
        "while milepost.Checkpoint and checkpoint._private.writer.is_running:\n"
        "    time.sleep(0.01)\n"
    )
    status, output, error = end(code + IN_CHILD.format("fork").replace("=save)", "=child)"))
    assert (status, output.strip()) == (120, "0")
    assert error.count(WHY.format(120)) == 1


@pytest.mark.parametrize("stream", ["sys.stderr = None", "sys.stderr.close()"])
def test_a_program_without_a_standard_error_stream_has_the_status(end, stream):
    assert end(f"save(); {stream}")[0] == 120


def test_what_other_libraries_do_at_the_end_is_done(end):
    """Also by functions that were registered before milepost was imported, which may flush the stream."""
    code = (
        "import atexit\n"
        "def last():\n"
        "    print('flushed', file=sys.stderr, flush=True)\n"
        "    print('last', flush=True)\n"
        "atexit.register(last)\n"
        "save()\n"
    )
    program = code.replace("save()\n", "") + SAVE + "save()\n"
    status, output, error = end(program)
    assert (status, output) == (120, "last\n")
    assert "flushed" in error
    assert "Traceback" not in error


def test_a_test_run_says_so_too(tmp_path):
    """A test that leaves a failed save behind passes, and the run of the tests ends with an error."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "test_it.py").write_text(
        f"import sys\nsys.argv = ['', {str(tmp_path)!r}]\n{SAVE}\ndef test_it(): save()\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 120
    assert "1 passed" in ran.stdout
    assert WHY.format(120) in ran.stderr
