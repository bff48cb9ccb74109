"""``CheckpointOptions(progress=True)``: what is shown on a terminal, and what in a log."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import milepost
from tests.terminals import everything_from

ROOT = Path(__file__).parents[2]
SLOW = """
import sys
import milepost
from tests.checkpoint.test_progress import SlowStorage, large
"""
LONG = """
options = milepost.CheckpointOptions(progress=True, storage=SlowStorage(0.05))
checkpoint = milepost.Checkpoint(v=large())
path = checkpoint.write("run/ckpt", options)
checkpoint.read(path, options)
"""
SHORT = """
options = milepost.CheckpointOptions(progress=True, storage=SlowStorage(0))
milepost.Checkpoint(v=large(1)).write("run/ckpt", options)
"""
SOON = """
from milepost.engine import progress_bar
progress_bar._LINES = 0.3
"""


def in_a_terminal(command, width=120):
    """What a program shows on a terminal, without what moves the cursor and changes colours."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(width)}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, cwd=ROOT, env=environment)
    os.close(theirs)
    shown = everything_from(ours)
    assert process.wait(60) == 0, shown.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


def in_a_log(program):
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)


def test_a_long_operation_shows_a_bar_on_a_terminal():
    shown = in_a_terminal([sys.executable, "-c", SLOW + LONG])
    assert re.search(r"saving run/ckpt .*/50.3 MB .* MB/s", shown)
    assert re.search(r"restoring run/ckpt .*50.3/50.3 MB", shown)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_bar_takes_one_line_of_a_narrow_terminal(width):
    long = LONG.replace("run/ckpt", f"run/{'long' * 30}/ckpt")
    shown = in_a_terminal([sys.executable, "-c", SLOW + long], width)
    lines = [each.rstrip() for each in re.split(r"[\r\n]+", shown) if each.strip()]
    assert max(map(len, lines)) <= width
    assert all(re.match(r"(saving|restoring) \S+kpt .*/50.3 MB", each) for each in lines), lines


def test_a_short_operation_shows_nothing_on_a_terminal():
    assert in_a_terminal([sys.executable, "-c", SLOW + SHORT]).strip() == ""


def test_a_long_operation_writes_lines_to_a_log():
    done = in_a_log(SLOW + SOON + LONG)
    lines = done.stderr.splitlines()
    assert done.stdout == ""
    assert re.fullmatch(
        r"milepost: saving run/ckpt: [\d.]+ MB of 50.3 MB \(\d+%\), [\d.]+ MB/s, \d+ s left", lines[0]
    ), lines
    assert any(re.fullmatch(r"milepost: saved run/ckpt: 50.3 MB in \d+ s", line) for line in lines)
    assert re.fullmatch(r"milepost: restored run/ckpt: 50.3 MB in \d+ s", lines[-1])


def test_a_log_gets_no_line_in_the_first_ten_seconds():
    done = in_a_log(SLOW + LONG)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_terminal_that_is_gone_does_not_fail_a_save(tmp_path):
    program = SLOW + "import os; os.close(2)\n" + SOON + LONG + "print(checkpoint.v.all())"
    assert in_a_log(program).stdout == "True\n"


def test_a_save_that_is_interrupted_gives_the_terminal_back():
    program = """
    class Full(SlowStorage):
        def rename(self, source, target):
            raise milepost.StorageError("no space left", file=target)

    options = milepost.CheckpointOptions(progress=True, storage=Full(0.1))
    try:
        milepost.Checkpoint(v=large()).write("run/ckpt", options)
    except milepost.StorageError:
        print("failed")
    """
    shown = in_a_terminal([sys.executable, "-c", SLOW + textwrap.dedent(program)])
    assert re.search(r"saving run/ckpt", shown)
    assert shown.rstrip().endswith("failed")


def test_control_characters_of_a_path_do_not_reach_the_terminal():
    from milepost.engine.progress import Progress
    from milepost.engine.progress_bar import line

    assert "\x1b" not in line(Progress("save", "a\x1b[2Jb\n", 1, 2, 1.0))


def test_the_command_verify_goes_on_a_terminal_and_without_one(tmp_path):
    path = milepost.save(tmp_path / "state", {"epoch": 3})
    command = [sys.executable, "-m", "milepost", "verify", path]
    assert "all checksums correct" in in_a_terminal(command)
    assert "all checksums correct" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
