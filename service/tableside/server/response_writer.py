"""One request on a connection and its answer, which leaves in one piece.

uvicorn's own way sends head and body apart, and looks at every header of every answer twice. It is left what is out of
the ordinary: answers in parts, and those that say something of the connection. Knows nothing of the application.
"""

from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

JOINED_BYTES_MAX = 65_536
"""Longer bodies are not copied to be sent together with the head."""

_SAID = {
    b"cache-control": b"cache-control: no-cache\r\n",
    b"x-content-type-options": b"x-content-type-options: nosniff\r\n",
}

ALWAYS = b"".join(_SAID.values())
"""What every answer says that does not say otherwise: a store on the way asks here before it answers from what it has,
be it that a record is absent; and a browser takes no answer for a page.
"""

_CONTROLS = bytes({*range(32), 127} - {9})
_EMPTY = frozenset({204, 304})


class Cycle(RequestResponseCycle):
    """One request and its answer."""

    _head: bytes | None = None

    async def send(self, message: Any) -> None:
        """Send a part of the answer. Its head waits for what follows."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            await self._begin(message)
        elif self._head is None:
            await super().send(message)
        else:
            head, self._head = self._head, None
            if message.get("more_body"):
                self.transport.write(head)
                await super().send(message)
            else:
                self._end(head, message.get("body", b""))

    async def _begin(self, message: Any) -> None:
        if self.waiting_for_100_continue:
            # The answer comes before the body was asked for: nobody knows whether it follows.
            self.keep_alive = False
        starts = message["type"] == "http.response.start"
        head = self._plain(message["status"], message["headers"]) if starts else None
        if head is None:
            await super().send(message)
        else:
            self.response_started, self.waiting_for_100_continue, self._head = True, False, head

    def _plain(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes | None:
        """Return the head, None if it is out of the ordinary."""
        lines, values, size_bytes, kept = [STATUS_LINE[status]], [], None, ALWAYS
        for name, value in (*self.default_headers, *headers):
            if name == b"content-length":
                size_bytes = int(value)
            elif name in _TOLD_APART:
                if name in _OF_CONNECTION:
                    return None
                kept = kept.replace(_SAID[name], b"")
            elif not name.islower():
                return None
            lines += (name, b": ", value, b"\r\n")
            values.append(value)
        together = b"".join(values)
        if len(together.translate(None, _CONTROLS)) != len(together) or (size_bytes is None and status not in _EMPTY):
            return None
        if size_bytes is not None:
            self.chunked_encoding, self.expected_content_length = False, size_bytes
        lines += (kept, b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        return b"".join(lines)

    def _end(self, head: bytes, body: bytes) -> None:
        if self.scope["method"] == "HEAD":
            body = b""
        elif len(body) != self.expected_content_length:
            raise RuntimeError("the body of an answer is not as long as its head says")
        if len(body) > JOINED_BYTES_MAX:
            self.transport.write(head)
            self.transport.write(body)
        else:
            self.transport.write(head + body)
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


_OF_CONNECTION = frozenset({b"connection", b"transfer-encoding"})
_TOLD_APART = _OF_CONNECTION | _SAID.keys()
