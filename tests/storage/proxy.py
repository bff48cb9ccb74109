"""A proxy between a client and an object store, which makes requests fail as networks and stores do.

A plan decides for each request which fault happens to it. `scripted` gives faults to requests that a test describes, and `random_faults`
draws them from a seed.

==============  ==========================================================  =======================================================
fault           the store                                                   the client
==============  ==========================================================  =======================================================
`LOST_REQUEST`  gets nothing                                                sees the connection end without a reply
`LOST_REPLY`    carries out the request                                     sees the connection end without a reply
`LATE_REPLY`    carries out the request                                     gets the reply some seconds later
`DUPLICATED`    carries out the request twice                               gets the second reply
`BUSY`          gets nothing                                                gets 503 with ``Retry-After``
`THROTTLED`     gets nothing                                                gets 429
`CONFLICT`      gets nothing                                                gets 409, which means that a request is in progress
`RESET`         carries out the request                                     gets a part of the reply, and then a reset connection
`CUT_REPLY`     carries out the request                                     gets a part of the body, and then the end of the connection
`CUT_REQUEST`   gets a part of the body, and then the end                   sees the connection end without a reply
`SLOW`          carries out the request                                     gets the body slowly
`STALE`         is not asked for a listing that was asked for before        gets the earlier listing
==============  ==========================================================  =======================================================
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

_PATIENCE: Final = 60.0
"""Seconds in which the store has to answer."""
_PARTS: Final = 50
"""In how many parts a slow body comes."""
_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "expect"})
"""Headers that each connection has for itself (RFC 9110, section 7.6.1)."""


class Fault(Enum):
    """What happens to a request."""

    LOST_REQUEST = auto()
    LOST_REPLY = auto()
    LATE_REPLY = auto()
    DUPLICATED = auto()
    BUSY = auto()
    THROTTLED = auto()
    CONFLICT = auto()
    RESET = auto()
    CUT_REPLY = auto()
    CUT_REQUEST = auto()
    SLOW = auto()
    STALE = auto()


_REFUSED: Final = {
    Fault.BUSY: (503, "SlowDown"),
    Fault.THROTTLED: (429, "TooManyRequests"),
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
}


@dataclass(frozen=True)
class Request:
    """A request that has arrived.

    Attributes:
        method: ``"PUT"`` and the like.
        path: The path, with the query.
        headers: Their names in small letters.
        size: The bytes of its body.
        number: How many have arrived before.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    size: int
    number: int

    @property
    def is_conditional(self) -> bool:
        """Whether the store is to carry it out under a condition."""
        return "if-match" in self.headers or "if-none-match" in self.headers

    @property
    def is_listing(self) -> bool:
        """Whether it asks for the names of objects."""
        return self.method == "GET" and "list-type=2" in self.path


Plan = Callable[[Request], Fault | None]
"""Returns the fault of a request, or None. It is called by one thread at a time."""


def scripted(*faults: tuple[Callable[[Request], bool], Fault]) -> Plan:
    """Gives each fault to the first request that its condition holds for, in this order.

    Args:
        faults: Conditions and faults.
    """
    left = list(faults)

    def plan(request: Request) -> Fault | None:
        if left and left[0][0](request):
            return left.pop(0)[1]
        return None

    return plan


def random_faults(seed: int, rates: Mapping[Fault, float]) -> Plan:
    """Draws the fault of each request.

    Args:
        seed: What they are drawn from.
        rates: How probable each fault is. `Fault.STALE` happens to listings only.
    """
    numbers = random.Random(seed)

    def plan(request: Request) -> Fault | None:
        drawn, sums = numbers.random(), 0.0
        for fault, rate in rates.items():
            sums += rate
            if drawn < sums:
                return None if fault is Fault.STALE and not request.is_listing else fault
        return None

    return plan


@dataclass
class Proxy:
    """A proxy that runs.

    Attributes:
        port: Its port on 127.0.0.1.
        plan: Which fault a request has. It can be replaced at any time.
        late: Seconds by which a late reply is late, and which a slow body takes.
        requests: All requests and their faults, in the order in which they came.
    """

    port: int
    plan: Plan
    late: float
    requests: list[tuple[Request, Fault | None]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    listings: dict[str, tuple[int, list[tuple[str, str]], bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def arrived(self, method: str, path: str, headers: Mapping[str, str], size: int) -> tuple[Request, Fault | None]:
        """Notes a request. Returns it with its fault."""
        with self.lock:
            request = Request(method, path, headers, size, len(self.requests))
            fault = self.plan(request)
            self.requests.append((request, fault))
        return request, fault


@contextlib.contextmanager
def proxy(store: int, plan: Plan = lambda _: None, late: float = 1.0) -> Iterator[Proxy]:
    """A proxy in front of a store, in threads of this process.

    Args:
        store: The port of the store on 127.0.0.1.
        plan: Which fault a request has.
        late: Seconds by which a late reply is late, and which a slow body takes.
    """

    class Handler(_Handler):
        target = store

    with _Server(("127.0.0.1", 0), Handler) as server:
        Handler.state = state = Proxy(server.server_address[1], plan, late)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of connections that the client has ended."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 0
    target: int
    state: Proxy

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(1 << 16)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        request, fault = self.state.arrived(
            self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, len(body)
        )
        if fault is Fault.LOST_REQUEST:
            self._end()
        elif fault is Fault.CUT_REQUEST:
            if len(body) > 1:  # some stores take a request without any byte of its body for one without a body
                self._send_part(request, body)
            self._end()
        elif fault in _REFUSED:
            status, code = _REFUSED[fault]
            text = f"<Error><Code>{code}</Code><Message>the proxy refuses this</Message></Error>".encode()
            self._reply(status, [("Content-Type", "application/xml"), ("Retry-After", "1")], text)
        elif fault is Fault.STALE and request.path in self.state.listings:
            self._reply(*self.state.listings[request.path])
        else:
            if fault is Fault.DUPLICATED:
                self._ask(request, body)
            reply = self._ask(request, body)
            if request.is_listing:
                self.state.listings.setdefault(request.path, reply)
            self._return(fault, *reply)

    def _return(self, fault: Fault | None, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        if fault is Fault.LOST_REPLY:
            self._end()
        elif fault is Fault.LATE_REPLY:
            time.sleep(self.state.late)
            self._reply(status, headers, body)
        elif fault is Fault.SLOW:
            self._begin(status, headers, body)
            step = max(1, len(body) // _PARTS)
            for start in range(0, len(body), step):
                self.wfile.write(body[start : start + step])
                time.sleep(self.state.late / _PARTS)
        elif fault in (Fault.RESET, Fault.CUT_REPLY) and body:
            self._begin(status, headers, body)
            self.wfile.write(body[: len(body) // 2])
            if fault is Fault.RESET:
                # A connection that is closed so is reset, and the client gets no end of it.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._end()
        elif fault in (Fault.RESET, Fault.CUT_REPLY):
            self._end()
        else:
            self._reply(status, headers, body)

    def _ask(self, request: Request, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Carries out a request. Host stays that of the client, since its signature has it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=_PATIENCE)
        try:
            self._send_head(connection, request)
            connection.send(body)
            reply = connection.getresponse()
            return reply.status, reply.getheaders(), reply.read()
        finally:
            connection.close()

    def _send_part(self, request: Request, body: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=_PATIENCE)
        self._send_head(connection, request)
        connection.send(body[: len(body) // 2])
        connection.close()

    def _send_head(self, connection: http.client.HTTPConnection, request: Request) -> None:
        connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                connection.putheader(name, value)
        connection.endheaders()

    def _reply(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self._begin(status, headers, body)
        self.wfile.write(body)

    def _begin(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP | {"content-length"}:
                self.send_header(name, value)
        length = {name.lower(): value for name, value in headers}.get("content-length")
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(body)))
        self.end_headers()

    def _end(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
