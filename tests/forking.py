"""A process that has imported what programs need, and becomes each of them in a fork of its own.

`tests.programs` starts it and says what it is for. It asks for a program by a message on a socket: JSON of a `Request`, with
three open files, which become the program's standard streams, and a pipe, to which go the number of the program's process
and later how it ended.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import selectors
import socket
import struct
import sys
import types
from typing import NamedTuple

STATUS = struct.Struct("i")
"""How numbers are written to the pipe: that of the process, then what `waitpid` says."""
LONGEST = 1 << 17
"""The bytes that a request may have."""


class Request(NamedTuple):
    """A program to run.

    Attributes:
        arguments: What follows ``python`` in a command: ``-m MODULE``, ``-c CODE`` or a path, then the program's own arguments.
        directory: The working directory.
        late: Variables of the environment that it has beside those of the process that forks it.
    """

    arguments: list[str]
    directory: str
    late: dict[str, str]


def serve(control: socket.socket) -> Request | None:
    """Forks a process for each request, until the other side closes the socket.

    Returns:
        In a forked process, the program that it is to run. In the process that forks, None, in the end.
    """
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    pipes: dict[int, tuple[int, int]] = {}  # by descriptor of the process: its number, and the pipe of its status
    while True:
        for key, _ in selector.select():
            if key.fileobj is not control:
                process, pipe = pipes.pop(key.fd)
                selector.unregister(key.fd)
                os.close(key.fd)
                _report(pipe, os.waitpid(process, 0)[1])
                os.close(pipe)
                continue
            message, files, _, _ = socket.recv_fds(control, LONGEST, 4)
            if not message:
                return None
            *streams, pipe = files
            process = os.fork()
            if not process:
                selector.close()
                control.close()
                for each in (pipe, *pipes, *(other for _, other in pipes.values())):
                    os.close(each)
                for number, each in enumerate(streams):
                    os.dup2(each, number)
                    os.close(each)
                return Request(*json.loads(message))
            for each in streams:
                os.close(each)
            _report(pipe, process)
            watched = os.pidfd_open(process)
            pipes[watched] = process, pipe
            selector.register(watched, selectors.EVENT_READ)


def _report(pipe: int, number: int) -> None:
    try:
        os.write(pipe, STATUS.pack(number))
    except BrokenPipeError:
        pass  # the test has ended without waiting for the program


def become(request: Request) -> None:
    """Runs a program as ``python`` would, in the module ``__main__``."""
    os.chdir(request.directory)
    os.environ.update(request.late)
    if "coverage" in sys.modules:  # which test ran which lines is measured
        sys.modules["coverage"].Coverage.current().switch_context(request.late["PYTEST_CURRENT_TEST"])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # as on import; Python's own generator does so by itself
    kind, *others = request.arguments
    main = types.ModuleType("__main__")
    if kind == "-m":
        name, *others = others
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"No module named {name!r}")
        main.__spec__, main.__package__, main.__file__ = spec, spec.parent, spec.origin
        path, first, source = request.directory, spec.origin, spec.origin
    elif kind == "-c":
        code, *others = others
        path, first, source = "", "-c", ""
    else:
        main.__file__ = kind
        path, first, source = os.path.dirname(os.path.abspath(kind)), kind, kind
    if source:
        with open(source, encoding="utf-8") as file:
            code = file.read()
    sys.path[0], sys.argv = path, [first, *others]
    sys.modules["__main__"] = main
    exec(compile(code, source or "<string>", "exec"), main.__dict__)


MODULES = (
    "milepost.checkpoint.load_tree",
    "milepost.checkpoint.views",
    "milepost.checkpoint.below_root",
    "milepost.saving.distributed_save",
    "milepost.manager",
    "sysconfig",
)
"""Modules that the programs use. `import milepost` alone imports few of them."""


def start(descriptor: int, names: list[str]) -> None:
    """Imports modules, and serves on an inherited socket."""
    gc.disable()  # while modules are imported, there is nothing to find
    for name in (*names, *MODULES):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else each process would copy what it only looks at
    gc.enable()
    request = serve(socket.socket(fileno=descriptor))
    if request is not None:
        become(request)
