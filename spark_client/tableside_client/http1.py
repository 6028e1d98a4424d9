"""HTTP/1.1 on one connection, without input and output: requests as bytes, and replies from bytes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import h11
import httpx

CONNECT_TIMEOUT_MAX_S = 5.0

IDLE_MAX_S = 4.0
"""An unused connection is closed after this time, in seconds, before a server does it."""

UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""The service never compresses. A proxy that compresses a response would change its etag."""

HEAD_BYTES_MAX = 64 * 1024
"""The maximum size of the status line and the headers of a reply."""

_JOINED_BYTES_MAX = 16 * 1024
"""The maximum size of a body that is copied into one segment with its headers."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send once. `timeout_s` limits the time to send it, and each wait for a part of the response.

    `repeatable` means that it may be sent again although it may have been applied.
    """

    method: str
    path: str
    table: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    repeatable: bool = True
    timeout_s: float = 30.0

    @property
    def connect_timeout_s(self) -> float:
        """The time limit of a new connection, in seconds."""
        return min(self.timeout_s, CONNECT_TIMEOUT_MAX_S)

    @property
    def target(self) -> str:
        """The path with the parameters."""
        return f"{self.path}?{urlencode(self.params, quote_via=quote)}" if self.params else self.path


@dataclass(frozen=True, slots=True)
class Reply:
    """A response. The names of its headers have lower case."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """Parse the body as JSON. Raises `ValueError` if it is invalid."""
        return json.loads(self.content)


def host_and_port(base: httpx.URL) -> tuple[str, int]:
    """Return the address to connect to. A name that is not ASCII is encoded."""
    return base.raw_host.decode("ascii"), base.port or (443 if base.scheme == "https" else 80)


class Http1:
    """The protocol of one connection to a URL, for one request after the other."""

    def __init__(self, base: httpx.URL) -> None:
        self._headers = {"Host": base.netloc.decode("ascii"), **UNCOMPRESSED, "User-Agent": "tableside"}
        self._prefix = base.raw_path.decode("ascii").rstrip("/")
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._head: h11.Response | None = None
        self._body: list[bytes] = []

    @property
    def is_idle(self) -> bool:
        """Whether a request can be sent. False also after a reply that ends the connection."""
        return self._state.our_state is h11.IDLE

    def request(self, request: Request) -> list[bytes]:
        """Return the parts of a request to write. Raises `httpx.LocalProtocolError` for an invalid header."""
        headers, content = self._headers | dict(request.headers), request.content or b""
        if content or request.method != "GET":
            headers["Content-Length"] = str(len(content))
        target, send = self._prefix + request.target, self._state.send
        try:
            head = send(h11.Request(method=request.method, target=target, headers=list(headers.items()))) or b""
            body = send(h11.Data(content)) or b"" if content else b""
            send(h11.EndOfMessage())
        except h11.LocalProtocolError as error:
            raise httpx.LocalProtocolError(str(error)) from error
        return [head + body] if len(body) <= _JOINED_BYTES_MAX else [head, body]

    def receive(self, data: bytes) -> Reply | None:
        """Return the reply with its last part, else None. Raises `httpx.RemoteProtocolError`, also without data."""
        if not data and self._head is None:
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
        try:
            self._state.receive_data(data)
            while (event := self._state.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    self._head = event
                elif isinstance(event, h11.Data):
                    self._body.append(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    return self._reply()
        except h11.RemoteProtocolError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        return None

    def _reply(self) -> Reply:
        assert self._head is not None
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in self._head.headers}
        if headers.get("content-encoding", "identity") != "identity":
            raise httpx.RemoteProtocolError("the body is compressed, which was not requested")
        reply = Reply(self._head.status_code, headers, b"".join(self._body))
        self._head, self._body = None, []
        is_complete = self._state.our_state is h11.DONE and self._state.their_state is h11.DONE
        if is_complete and not self._state.trailing_data[0]:  # Other bytes would become the next reply.
            self._state.start_next_cycle()
        return reply
