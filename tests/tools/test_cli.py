"""What is the same for all commands: help, exit status, errors, pipes, terminals."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, Variable
from milepost.tools.cli import main, parser
from milepost.tools.manual import documented
from tests.terminals import everything_from
from tests.tools.commands import damage, net, run, series

COMMANDS = [
    "ls",
    "show",
    "cat",
    "diff",
    "digest",
    "files",
    "match",
    "status",
    "verify",
    "repair",
    "prune",
    "rm",
    "pin",
    "unpin",
    "convert",
    "graph",
    "report",
    "check-resume",
    "demo",
    "completion",
]
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.fixture
def saved(tmp_path):
    return Checkpoint(v=Variable(np.arange(6.0).reshape(2, 3)), s=Variable("text")).save(tmp_path / "ckpt")


def test_these_are_all_commands():
    listed = [line.split()[0] for line in parser().format_help().splitlines() if re.match(r"    \w", line)]
    assert listed == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_and_exit_statuses(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    examples, statuses = text.split("examples:")[1].split("exit status:")
    assert f"milepost {command}" in examples
    assert [line.split()[0] for line in statuses.split("\n") if line.strip()][-2:] == ["2", "3"]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_has_the_arguments_and_exit_statuses_of_every_command(command):
    assert documented(command) in PAGE.read_text(), f"python -m milepost.tools.manual {command}"


def test_wrong_arguments_have_their_own_status():
    assert run("show").returncode == 2
    assert run("no-such-command").returncode == 2


@pytest.mark.parametrize(
    "command", [["ls"], ["show"], ["verify"], ["graph"], ["report"], ["cat", "--as=float32"], ["repair"]]
)
def test_what_is_not_there_is_an_error_without_a_traceback(tmp_path, command):
    arguments = [command[0], tmp_path / "none", *(["key", "-o", tmp_path / "out"] if command[0] == "cat" else [])]
    done = run(*arguments)
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_a_warning_has_no_line_of_code(tmp_path, capsys):
    """Of the newest that a directory of checkpoints has, the index is gone."""
    paths = series(tmp_path, [1.0, 1.0])
    os.remove(paths[-1] + ".index")
    assert main(["show", str(tmp_path)]) == 0
    message = capsys.readouterr().err
    assert message.startswith("warning: ")
    assert paths[-1] in message
    assert ".py" not in message


def test_what_the_terminal_cannot_show_is_escaped(tmp_path):
    """A terminal of another encoding, as on Windows, is no reason to fail."""
    path = Checkpoint(größe=Variable(1.0), ключ=Variable(1.0)).write(tmp_path / "ckpt")
    done = run("show", path, env=os.environ | {"PYTHONIOENCODING": "cp1252"}, encoding="cp1252")
    assert done.returncode == 0, done.stderr
    assert "größe/.ATTRIBUTES" in done.stdout
    assert "\\u043a\\u043b\\u044e\\u0447/.ATTRIBUTES" in done.stdout


def test_the_c_locale_is_no_reason_to_fail(tmp_path):
    """Python's handler of errors in the C locale lets only escaped bytes pass."""
    path = Checkpoint(größe=Variable(1.0), w=Variable(np.arange(4.0))).write(tmp_path / "ckpt")
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    listed = run("show", path, env=environment)
    assert (listed.returncode, "gr\\xf6\\xdfe/.ATTRIBUTES" in listed.stdout) == (0, True), listed.stderr
    tensor = run("show", path, "w", env=environment)
    assert (tensor.returncode, "|#    " in tensor.stdout) == (0, True), tensor.stderr


def test_a_warning_that_is_given_twice_is_shown_once(tmp_path):
    series(tmp_path, [1.0])
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "checkpoint").mkdir()
    assert run("show", tmp_path).stderr.count("is a directory and not a state file") == 1


def test_no_framework_and_no_drawing_is_imported(saved):
    """A list takes as long as the index takes to read."""
    heavy = ["rich", "torch", "tensorflow", "jax", "keras", "orbax", "safetensors", "h5py"]
    code = (
        "import sys; from milepost.tools.cli import main\n"
        f"for command in ('ls', 'show', 'verify'): main([command, {saved!r}])\n"
        f"main(['diff', {saved!r}, {saved!r}])\n"
        f"print(*sorted(set(sys.modules) & set({heavy})), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGPIPE")
@pytest.mark.parametrize(
    "command", [["cat", "{}", "v", "-o"], ["graph", "{}", "-o"], ["report", "{}", "-o"], ["convert", "{}"]]
)
def test_a_file_is_replaced_only_if_asked(saved, tmp_path, capsys, command):
    endings = {"cat": "npy", "graph": "svg", "report": "html", "convert": "npz"}
    target = tmp_path / f"a.{endings[command[0]]}"
    target.write_text("old")
    words = [*(each.format(saved) for each in command), str(target)]
    assert main(words) == 3
    assert "pass --overwrite" in capsys.readouterr().err
    assert target.read_text() == "old"
    assert main([*words, "--overwrite"]) == (1 if command[0] == "convert" else 0)
    assert target.read_bytes() != b"old"


@pytest.mark.parametrize(
    "words",
    [
        ("cat", "CHECKPOINT", "v", "-o", "FILE.npy"),
        ("graph", "CHECKPOINT", "-o", "FILE.svg"),
        ("report", "CHECKPOINT", "-o", "FILE.html"),
        ("convert", "CHECKPOINT", "FILE.npz", "--only", "v"),
    ],
    ids=lambda words: words[0],
)
def test_what_was_written_is_said_on_the_output(saved, tmp_path, capsys, words):
    said = [word.replace("CHECKPOINT", saved).replace("FILE", str(tmp_path / "written")) for word in words]
    path = next(word for word in said if word.startswith(str(tmp_path / "written")))
    assert main(said) == 0
    assert capsys.readouterr().out.startswith(f"{path}: ")


def test_a_device_is_written_to(saved):
    if not os.path.exists("/dev/null"):
        pytest.skip("this system has no such device")
    assert main(["cat", saved, "v", "-o", "/dev/null"]) == 0


def test_a_closed_pipe_ends_the_command_silently(tmp_path):
    tree = {f"v{number}": Variable(1.0) for number in range(3000)}
    path = Checkpoint(**tree).write(tmp_path / "ckpt")
    shell = f"set -o pipefail; {sys.executable} -m milepost show {path} | head -1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert done.returncode == 141
    assert done.stdout.startswith(path)
    assert done.stderr == ""


def shell(command, *words):
    return subprocess.run(
        ["bash", "-c", f'"$@" {command}', "-", sys.executable, "-m", "milepost", *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is full")
def test_an_output_that_cannot_be_written_is_an_error(saved):
    done = shell("> /dev/full", "diff", saved, saved)
    assert done.returncode == 3, "1 would mean that they differ"
    assert done.stderr.startswith("error: cannot write the output: ")


@pytest.mark.skipif(os.name == "nt", reason="its shell closes no streams")
def test_messages_do_not_get_into_the_output_if_the_error_output_is_closed(saved):
    done = shell("2>&-", "show", f"{saved}-missing")
    assert (done.returncode, done.stdout) == (3, "")


@pytest.mark.skipif(os.name == "nt", reason="its shell closes no streams")
def test_a_closed_output_is_no_error(saved):
    done = shell(">&-", "report", saved)
    assert (done.returncode, done.stderr) == (0, "")


class TestOnATerminal:
    @pytest.fixture(autouse=True)
    def _posix(self):
        pytest.importorskip("pty")
        pytest.importorskip("rich")

    def seen(self, *arguments, columns=60, program=("-m", "milepost"), **variables):
        """What a terminal gets."""
        import fcntl
        import pty
        import struct
        import termios

        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "TERM")}
        environment |= {"TERM": "xterm-256color", **variables}
        command = [sys.executable, *program, *map(str, arguments)]
        with subprocess.Popen(command, stdout=child, stderr=child, env=environment) as process:
            os.close(child)
            shown = everything_from(parent)
        assert process.returncode in (0, 1, 3)
        return shown.decode()

    def test_a_table_is_coloured_and_as_wide_as_the_terminal(self, tmp_path):
        series(tmp_path / "run", [0.5, 0.25], checkpoint_name="long" * 20)
        text = self.seen("ls", tmp_path / "run", columns=56)
        assert "\x1b[" in text
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert max(map(len, plain.splitlines())) <= 56
        assert "left out, since the terminal is narrow: " in plain

    def test_no_color_is_observed(self, tmp_path):
        series(tmp_path, [0.5])
        text = self.seen("ls", tmp_path, columns=80, NO_COLOR="1")
        assert "latest" in text
        assert "\x1b" not in text

    def test_a_table_fits_forty_columns(self, tmp_path):
        series(tmp_path, [0.5, 0.25])
        text = self.seen("ls", tmp_path, columns=40, NO_COLOR="1")
        head, first, second = text.splitlines()[:3]
        assert {"STEP", "STATE", "MARKS", "NAME"} < set(head.split())
        assert max(map(len, (head, first, second))) <= 40
        assert "left out, since the terminal is narrow: AGE, TENSORS, METRICS" in " ".join(text.split())

    def test_no_number_is_broken_on_a_narrow_terminal(self, tmp_path):
        paths = series(tmp_path, [0.123456789, 0.25])
        for words in (
            ["diff", *paths],
            ["show", tmp_path, "--flat"],
            ["show", paths[0], "net/w"],
        ):
            text = self.seen(*words, columns=40, NO_COLOR="1")
            wide = self.seen(*words, columns=300, NO_COLOR="1")
            assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 40
            numbers = re.findall(r"(?<![\w.])\d[\d.]*(?:e[-+]\d+)?(?![\w.])", wide)
            assert set(numbers) <= set(re.findall(r"(?<![\w.])\d[\d.]*(?:e[-+]\d+)?(?![\w.])", text)), text

    def test_a_graph_is_a_tree_on_a_terminal(self, tmp_path):
        layer = net()
        path = Checkpoint(one=layer, two=layer).write(tmp_path / "ckpt")
        text = self.seen("graph", path, NO_COLOR="1")
        assert "<svg" not in text
        assert re.search(r"^    w +float32\[2,3\]", text, re.MULTILINE)
        assert re.search(r"^  two +the same as one", text, re.MULTILINE)

    def test_a_dumb_terminal_gets_plain_text(self, tmp_path):
        series(tmp_path, [0.5])
        assert "\x1b" not in self.seen("ls", tmp_path, TERM="dumb")

    def test_tensors_are_a_tree(self, saved):
        text = re.sub(r"\x1b\[[0-9;]*m", "", self.seen("show", saved))
        assert re.search(r"^ *v +float64\[2,3\] +48 B", text, re.MULTILINE)
        assert "/.ATTRIBUTES" not in text

    def test_a_large_tree_is_folded(self, tmp_path):
        tree = {f"layer{number}": {"a": Variable(1.0), "b": Variable(1.0)} for number in range(120)}
        path = Checkpoint(**tree).write(tmp_path / "ckpt")
        text = self.seen("show", path)
        assert "(2 tensors)" in text
        assert "--depth" in text

    def test_a_name_is_no_markup_and_no_command(self, tmp_path):
        """rich would take words in brackets for colours, and a terminal an escape for a command."""
        path = Checkpoint(**{"[red]x": Variable(1.0), "e\x1b[2J": Variable(1.0)}).write(tmp_path / "ckpt")
        text = self.seen("show", path, columns=100)
        assert "[red]x" in text
        assert "e\\x1b[2J" in text
        assert "\x1b[2J" not in text

    def test_npy_is_not_written_to_it(self, saved):
        assert "is not text, and would disturb the terminal" in " ".join(self.seen("cat", saved, "v").split())

    def test_a_long_read_shows_its_progress(self, tmp_path):
        path = Checkpoint(v=Variable(np.ones(1 << 24))).write(tmp_path / "ckpt")
        code = (
            "import sys, time; from milepost.bundle import reader; from milepost.tools.cli import main\n"
            "read = reader.read_spans\n"
            "def slow(*arguments, **options): read(*arguments, **options); time.sleep(1.2); read(*arguments, **options)\n"
            "reader.read_spans = slow; sys.exit(main(sys.argv[1:]))"
        )
        text = self.seen("verify", path, columns=160, program=["-c", code])
        assert f"verifying {path}" in text
        assert "all checksums correct (128.0 MiB" in " ".join(text.split())

    def test_json_is_the_same_as_in_a_pipe(self, saved):
        assert json.loads(self.seen("show", saved, "--json", columns=20)) == json.loads(
            run("show", saved, "--json").stdout
        )


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_is_a_script_of_all_commands(shell):
    pytest.importorskip("shtab")
    done = run("completion", shell)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in COMMANDS)


def test_the_script_for_bash_completes_options(tmp_path):
    pytest.importorskip("shtab")
    if os.name == "nt":
        pytest.skip("this needs bash")
    script = tmp_path / "script"
    script.write_text(run("completion", "bash").stdout)
    code = f"source {script}; COMP_WORDS=(milepost diff --na); COMP_CWORD=2; _shtab_milepost milepost --na diff; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert "--names-only" in done.stdout.split()


def test_a_demo_without_a_directory_is_an_error(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["demo", "--directory", str(tmp_path / "file" / "demo")]) == 3
    assert capsys.readouterr().err.startswith("error: ")


def test_reading_changes_no_file(tmp_path):
    """Not even where there is something to repair."""
    paths = series(tmp_path, [1.0, 1.0])
    damage(paths[0])
    (tmp_path / "ckpt-30.index.milepost-0123456789abcdef-of-00001.tmp").touch()
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    for command in (["ls"], ["show"], ["verify"], ["graph"], ["repair", "--dry-run"], ["prune", "--keep", "1"]):
        assert main([command[0], str(tmp_path), *command[1:]]) in (0, 1)
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_without_a_command(capsys, word):
    with pytest.raises(SystemExit) as ended:
        main([word])
    assert ended.value.code == 0
    assert "read all data of checkpoints and compare every checksum" in capsys.readouterr().out


def test_the_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"milepost {milepost.__version__}\n"


class TestWrongWords:
    def said(self, capsys, *words):
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        assert ended.value.code == 2
        return capsys.readouterr().err

    @pytest.mark.parametrize(
        ("word", "meant"),
        [("dif", "diff"), ("veryfy", "verify"), ("shwo", "show"), ("inspect", "show"), ("list", "ls")],
    )
    def test_a_command(self, capsys, word, meant):
        assert f"there is no command '{word}'; did you mean '{meant}'?" in self.said(capsys, word, "a")

    def test_a_command_unlike_all_others(self, capsys):
        assert "the commands are ls, show, " in self.said(capsys, "xyzzy")

    @pytest.mark.parametrize(
        ("words", "meant"),
        [
            (["diff", "a", "b", "--name-only"], "--names-only"),
            (["show", "a", "--jsno"], "--json"),
            (["convert", "a", "b", "--overwirte"], "--overwrite"),
        ],
    )
    def test_an_option(self, capsys, words, meant):
        assert f"did you mean {meant}?" in self.said(capsys, *words)

    def test_an_option_before_the_command(self, capsys):
        assert "options come after it" in self.said(capsys, "--json", "ls")
        assert "did you mean --version?" in self.said(capsys, "--verison")

    def test_no_command_at_all(self, capsys):
        assert "list the checkpoints of a directory" in " ".join(self.said(capsys).split())

    def test_help_is_a_command_too(self, capsys):
        for words, first in ([["help"], "usage: milepost [-h]"], [["help", "diff"], "usage: milepost diff"]):
            with pytest.raises(SystemExit) as ended:
                main(words)
            assert ended.value.code == 0
            assert capsys.readouterr().out.startswith(first)


@pytest.mark.parametrize(
    ("words", "name", "ending"),
    [
        (["cat", "{}", "v"], "k.txt", "-o FILE.npy"),
        (["report", "{}"], "r.pdf", "-o FILE.html"),
        (["graph", "{}"], "g.png", "-o FILE.svg"),
    ],
)
def test_a_file_of_another_kind_is_not_written(saved, tmp_path, capsys, words, name, ending):
    with pytest.raises(SystemExit) as ended:
        main([*(each.format(saved) for each in words), "-o", str(tmp_path / name)])
    assert ended.value.code == 2
    assert ending in capsys.readouterr().err
    assert not (tmp_path / name).exists()


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="this system has no such name for the output")
@pytest.mark.parametrize("words", [["cat", "{}", "v"], ["report", "{}"], ["graph", "{}"]])
def test_the_output_may_be_a_file(saved, tmp_path, words):
    """``/dev/stdout`` is then a file that exists. It is appended to where the shell says so, and nothing else is written there."""
    command = [each.format(saved) for each in words]
    expected = subprocess.run([sys.executable, "-m", "milepost", *command], capture_output=True, check=True).stdout
    with open(tmp_path / "out", "ab") as file:
        file.write(b"before")
        file.flush()
        done = run(*command, "-o", "/dev/stdout", stdout=file, stderr=subprocess.PIPE, capture_output=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_bytes() == b"before" + expected


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("r.pt", "this is not a file of PyTorch, although its name ends in .pt"),
        ("x.npz", "this is not a file of NumPy, although its name ends in .npz"),
        ("m.keras", "this is not a file of Keras, although its name ends in .keras"),
        ("w.safetensors", "safetensors"),
        ("data", "none of the formats that milepost reads"),
    ],
)
def test_bytes_at_random(tmp_path, capsys, name, problem):
    """What is wrong and what to do fit the file that was named."""
    path = tmp_path / name
    path.write_bytes(b"\xa7" + np.random.default_rng(0).bytes(4000))
    assert main(["show", str(path)]) == 3
    said = capsys.readouterr().err
    assert problem in said
    assert "remedy: copy or download it again" in said
    assert "index" not in said
    assert "milepost" not in said.replace("that milepost reads", "")


def test_a_header_with_too_many_levels(tmp_path, capsys):
    path = tmp_path / "m.safetensors"
    header = b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    assert main(["show", str(path)]) == 3
    said = capsys.readouterr().err
    assert "too many levels deep" in said
    assert "found: 200001 levels" in said
    assert "recursion" not in said
    assert all(fact in said for fact in ("file: ", "expected: ", "remedy: copy or download it again"))


def test_a_directory_that_does_not_exist(tmp_path, capsys):
    assert main(["ls", str(tmp_path / "nowhere")]) == 3
    assert "no such checkpoint, file or directory" in capsys.readouterr().err


def test_a_directory_of_saves_that_did_not_finish(tmp_path, capsys):
    """As a program leaves it that is killed in its first save."""
    (tmp_path / "ckpt-1.data-00000-of-00001.milepost-0123456789abcdef.tmp").touch()
    (tmp_path / "ckpt-1.index.milepost-0123456789abcdef-of-00001.tmp").touch()
    for command in ("ls", "show", "verify"):
        assert main([command, str(tmp_path)]) == 3
        said = capsys.readouterr().err
        assert "no save to it has finished" in said
        assert "2 files of saves that are running or were killed" in said


def test_directories_with_checkpoints_below_one_without(tmp_path, capsys):
    series(tmp_path / "tf_ckpts", [0.5])
    (tmp_path / "other").mkdir()
    assert main(["show", str(tmp_path)]) == 3
    assert f"pass a directory in it that holds checkpoints: {str(tmp_path / 'tf_ckpts')!r}" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["show"], ["prune", "--keep", "1"], ["verify"]])
def test_a_malformed_state_file_is_repaired_by_a_command(tmp_path, capsys, command):
    series(tmp_path, [0.5])
    (tmp_path / "checkpoint").write_text("nonsense")
    assert main([command[0], str(tmp_path), *command[1:]]) in (1, 3)
    said = capsys.readouterr().err
    assert f"'milepost repair {tmp_path}'" in said
    assert "update_checkpoint_state" not in said


def test_verify_does_not_advise_to_verify(tmp_path, capsys):
    (path,) = series(tmp_path, [0.5])
    damage(path, "net/w")
    assert main(["verify", path]) == 1
    said = capsys.readouterr().err
    assert "remedy: use an intact copy or another checkpoint" in said
    assert "milepost verify" not in said
