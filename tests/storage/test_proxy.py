"""The proxy: what the store and the client see of each fault. The store is a server of a few lines."""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.storage.proxy import Fault, proxy, random_faults, scripted

BODY = bytes(range(256)) * 100


class Objects(BaseHTTPRequestHandler):
    """Keeps what is put, and counts."""

    protocol_version = "HTTP/1.1"
    received: list[tuple[str, str, bytes]]

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append(("PUT", self.path, body))
        self._reply(b"" if len(body) == int(self.headers["Content-Length"]) else None)

    def do_GET(self):
        self.received.append(("GET", self.path, b""))
        self._reply(f"{len(self.received)}".encode() if "list-type=2" in self.path else BODY)

    def _reply(self, body):
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def store():
    received = []
    handler = type("Handler", (Objects,), {"received": received})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], received
        server.shutdown()


def ask(port, method="GET", path="/bucket/a", body=b"", timeout=10):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body)
        reply = connection.getresponse()
        return reply.status, reply.read(), dict(reply.getheaders())
    finally:
        connection.close()


def once(fault):
    return scripted((lambda request: True, fault))


def test_without_a_fault_nothing_changes(store):
    port, received = store
    with proxy(port) as between:
        assert ask(between.port, "PUT", "/bucket/a%20b?x=1", BODY)[0] == 200
        status, body, headers = ask(between.port)
    assert (status, body, headers["ETag"]) == (200, BODY, '"1"')
    assert received == [("PUT", "/bucket/a%20b?x=1", BODY), ("GET", "/bucket/a", b"")]
    assert [(request.method, request.size, fault) for request, fault in between.requests] == [
        ("PUT", len(BODY), None),
        ("GET", 0, None),
    ]


@pytest.mark.parametrize(
    ("fault", "times"), [(Fault.LOST_REQUEST, 0), (Fault.LOST_REPLY, 1), (Fault.RESET, 1), (Fault.CUT_REPLY, 1)]
)
def test_a_put_whose_reply_does_not_come(store, fault, times):
    port, received = store
    with proxy(port, once(fault)) as between, pytest.raises((http.client.HTTPException, OSError)):
        ask(between.port, "PUT", body=BODY)
    assert len(received) == times


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.CUT_REPLY])
def test_a_body_that_breaks_off(store, fault):
    port, _ = store
    with proxy(port, once(fault)) as between, pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        ask(between.port)


def test_a_request_that_breaks_off(store):
    port, received = store
    with proxy(port, once(Fault.CUT_REQUEST)) as between, pytest.raises((http.client.HTTPException, OSError)):
        ask(between.port, "PUT", body=BODY)
    assert all(len(body) < len(BODY) for *_, body in received)


def test_a_request_that_comes_twice(store):
    port, received = store
    with proxy(port, once(Fault.DUPLICATED)) as between:
        assert ask(between.port, "PUT", body=BODY)[0] == 200
    assert received == [("PUT", "/bucket/a", BODY)] * 2


@pytest.mark.parametrize(("fault", "status"), [(Fault.BUSY, 503), (Fault.THROTTLED, 429), (Fault.CONFLICT, 409)])
def test_a_request_that_is_refused(store, fault, status):
    port, received = store
    with proxy(port, once(fault)) as between:
        assert ask(between.port, "PUT", body=BODY)[0] == status
        assert ask(between.port, "PUT", body=BODY)[0] == 200
    assert len(received) == 1


@pytest.mark.parametrize("fault", [Fault.LATE_REPLY, Fault.SLOW])
def test_what_comes_late_is_whole(store, fault):
    port, _ = store
    with proxy(port, once(fault), late=0.5) as between:
        assert ask(between.port)[1] == BODY


def test_who_does_not_wait_for_a_late_reply_gets_none(store):
    port, received = store
    with proxy(port, once(Fault.LATE_REPLY)) as between, pytest.raises(TimeoutError):
        ask(between.port, "PUT", body=BODY, timeout=0.1)
    assert len(received) == 1


def test_a_listing_that_is_stale(store):
    port, _ = store
    listing = "/bucket?list-type=2"
    with proxy(port, lambda request: Fault.STALE if request.number == 2 else None) as between:
        assert [ask(between.port, path=listing)[1] for _ in range(4)] == [b"1", b"2", b"1", b"3"]


def test_the_same_seed_draws_the_same_faults(store):
    port, _ = store
    drawn = []
    for _ in range(2):
        with proxy(port, random_faults(7, {Fault.BUSY: 0.3, Fault.THROTTLED: 0.3, Fault.STALE: 0.4})) as between:
            drawn.append([ask(between.port)[0] for _ in range(30)])
    assert drawn[0] == drawn[1]
    assert set(drawn[0]) == {200, 429, 503}
