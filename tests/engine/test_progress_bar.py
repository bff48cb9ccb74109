"""What the display of progress has room for."""

import threading

import pytest

from milepost.engine.progress import Progress
from milepost.engine.progress_bar import Bar, line


@pytest.fixture
def shown(monkeypatch, capsys):
    """What a terminal of some width shows of an operation."""

    def shown(width, path="run/ckpt", seconds=2.0):
        for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(width), "LINES": "20"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("NO_COLOR", raising=False)
        bar = Bar()
        bar.show(Progress("save", path, 10**9, 4 * 10**9, seconds))
        bar.close()
        return capsys.readouterr().err

    return shown


@pytest.mark.parametrize(("width", "has_bar"), [(79, False), (80, True)])
def test_a_bar_needs_80_letters(shown, width, has_bar):
    assert ("━" in shown(width)) == has_bar


@pytest.mark.parametrize(("width", "has_rate"), [(59, False), (60, True)])
def test_a_rate_needs_60_letters(shown, width, has_rate):
    assert ("m?\x1b" in shown(width)) == has_rate  # it is not known yet


def test_a_path_has_the_room_that_is_left(shown):
    assert "long/ckpt" in shown(200, "long/" * 5 + "ckpt")
    assert "saving long...ckpt " in shown(40, "long/" * 20 + "ckpt")


def test_nothing_is_shown_in_the_first_second(shown):
    assert shown(80, seconds=0.9) == ""


@pytest.mark.parametrize(
    ("operation", "doing", "did"),
    [
        ("save", "saving", "saved"),
        ("restore", "restoring", "restored"),
        ("load", "loading", "loaded"),
        ("compare", "comparing", "compared"),
        ("convert", "converting", "converted"),
        ("read", "reading", "read"),
        ("verify", "verifying", "verified"),
    ],
)
def test_the_words_of_each_operation(operation, doing, did):
    assert line(Progress(operation, "ckpt", 0, 2, 1.0)) == f"milepost: {doing} ckpt: 0 bytes of 2 bytes (0%)"
    assert line(Progress(operation, "ckpt", 2, 2, 1.0)) == f"milepost: {did} ckpt: 2 bytes in 1 s"


def test_a_bar_leaves_a_long_path_the_rest_of_the_line(shown):
    assert "saving long/long/long/l...g/long/long/ckpt \x1b[91m━" in shown(80, "long/" * 40 + "ckpt")


def test_a_bar_starts_no_thread(shown, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", lambda thread: pytest.fail(f"{thread} was started"))
    assert shown(80)
