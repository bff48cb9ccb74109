"""The page for those who run jobs: its commands print what it says, in a shell, one after the other."""

from __future__ import annotations

import doctest
import io
import re
import shutil
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from milepost.tools.cli import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "operators.md").read_text()
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NAMED = re.findall(r"`(tests/[\w/]+\.py)((?:::\w+)*)`", PAGE)


def blocks(language: str) -> list[str]:
    """The blocks of a language, of which some are indented."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
    return ["".join(line.removeprefix(indent) for line in block.splitlines(keepends=True)) for indent, block in found]


CLIENT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    server.sendall("\\0".join(sys.argv[2:]).encode())
    server.shutdown(socket.SHUT_WR)
    answer = b"".join(iter(lambda: server.recv(1 << 16), b"")).decode()
status, out, error = answer.split("\\0")
sys.stdout.write(out)
sys.stderr.write(error)
sys.exit(int(status))
"""


@pytest.fixture
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The command `milepost` as a function of the shell. It is run in this process, which has imported milepost already."""
    directory = tmp_path_factory.mktemp("command")
    place = str(directory / "socket")
    (directory / "client.py").write_text(CLIENT)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            arguments = self.rfile.read().decode().split("\0")
            with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as error:
                status = main(arguments)
            self.wfile.write("\0".join([str(status), out.getvalue(), error.getvalue()]).encode())

    with socketserver.UnixStreamServer(place, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f'milepost() {{ "{sys.executable}" -S -E "{directory}/client.py" "{place}" "$@"; }}'
        server.shutdown()
        thread.join()


@pytest.mark.skipif(not (shutil.which("bash") and shutil.which("jq")), reason="bash and jq are not installed")
def test_every_command_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """In one directory, after the program on the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    names: dict[str, object] = {}
    for block in blocks("python"):
        test = doctest.DocTestParser().get_doctest(block, names, "program", "operators.md", 0)
        assert doctest.DocTestRunner(optionflags=OPTIONS).run(test, clear_globs=False).failed == 0
        names = test.globs
    examples = [
        example.partition("\n")[::2]
        for block in blocks("console")
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]
    assert len(examples) > 20
    script = f"exec 2>&1\n{command}\n" + "".join(f"{line}\nprintf '\\0'\n" for line, _ in examples)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    printed = done.stdout.split("\0")
    assert len(printed) == len(examples) + 1, printed[-1]
    checker = doctest.OutputChecker()

    wrong = [
        f"$ {line}\n{found}"
        for (line, expected), found in zip(examples, printed, strict=False)
        if not checker.check_output(expected, found, OPTIONS)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("path", "names"), NAMED, ids="".join)
def test_a_test_that_is_named_exists(path: str, names: str) -> None:
    text = (ROOT / path).read_text()
    assert all(re.search(rf"(def|class) {name}\b", text) for name in names.split("::")[1:])
