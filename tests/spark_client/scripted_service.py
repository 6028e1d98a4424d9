"""A service with scripted responses, for behavior that is rare in a real service. It records its requests."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PAIR = {"key": [{"name": "place", "type": "string"}, {"name": "item", "type": "string"}], "policies": {}}
JSON = {"Content-Type": "application/json"}
PROBLEM = {"Content-Type": "application/problem+json"}


@dataclass(frozen=True)
class Request:
    """A request and the time of its arrival."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at_s: float

    @property
    def operations(self) -> list[dict[str, Any]]:
        """The operations of a batch. A request for the table has none."""
        return list(json.loads(self.body)["operations"]) if self.body else []


@dataclass(frozen=True)
class Reply:
    """A response. `sent_max` truncates its body, and after `hangs_s` more the connection closes."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: dict(JSON))
    delay_s: float = 0.0
    sent_max: int | None = None
    hangs_s: float = 0.0


def results(operations: list[dict[str, Any]], **replies: Any) -> Reply:
    """Return the response to a batch. Each value contains the operation's key."""
    found = [{"status": 200, "value": {"key": operation["key"]}, "etag": "e"} for operation in operations]
    return Reply(200, json.dumps({"results": found}).encode(), **replies)


def problem(status: int, code: str, *, retriable: bool, **more: Any) -> dict[str, Any]:
    """Return a problem in the format of the service."""
    return {"status": status, "code": code, "detail": f"as told: {code}", "retriable": retriable, **more}


def refusal(status: int, code: str, *, retriable: bool, headers: dict[str, str] | None = None, **more: Any) -> Reply:
    """Return a response that consists of a problem."""
    said = json.dumps(problem(status, code, retriable=retriable, **more)).encode()
    return Reply(status, said, {**PROBLEM, **(headers or {})})


Script = Callable[[Request], Reply | None]


class Scripted:
    """Responds according to its `script`, or like a table of pairs if the script returns None."""

    def __init__(self) -> None:
        self.url = ""
        self.script: Script = lambda _: None
        self.asked: list[Request] = []
        self.under_way_max = 0
        self._under_way = 0
        self._lock = threading.Lock()

    @property
    def batches(self) -> list[Request]:
        """The requests with operations."""
        return [asked for asked in self.asked if asked.method == "POST"]

    def answer(self, asked: Request) -> Reply:
        with self._lock:
            self.asked.append(asked)
        if reply := self.script(asked):
            return reply
        return results(asked.operations) if asked.method == "POST" else Reply(200, json.dumps(PAIR).encode())

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the requests under way."""
        with self._lock:
            self._under_way += 1
            self.under_way_max = max(self._under_way, self.under_way_max)
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1


@contextmanager
def scripted() -> Iterator[Scripted]:
    """Run a scripted service on the loopback interface."""
    service = Scripted()
    server = _server(service)
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _server(service: Scripted) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): text for name, text in self.headers.items()}
            with service.counting(), suppress(OSError):  # the client may disconnect
                self._send(service.answer(Request(self.command, self.path, headers, body, time.monotonic())))

        do_GET = do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815  # the library's names

        def _send(self, reply: Reply) -> None:
            time.sleep(reply.delay_s)
            self.send_response(reply.status)
            for name, text in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(reply.body[: reply.sent_max])
            self.wfile.flush()
            time.sleep(reply.hangs_s)
            self.close_connection = reply.sent_max is not None

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the library's name
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore the error: the client has disconnected."""

    return Server(("127.0.0.1", 0), Handler)
