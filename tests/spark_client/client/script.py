"""A server that a test scripts byte by byte."""

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

CLOSE = None
Step = bytes | float | None
"""Bytes to send, a pause in seconds, or the end of the connection."""


def reply(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """Return the bytes of a reply."""
    return b"\r\n".join([b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers, b"", body])


class Script:
    """A server that plays the steps of one reply for each request, on however many connections."""

    def __init__(self, *replies: Sequence[Step]) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self._replies = list(replies)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(30)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while request := connection.recv(65536):
                self.requests.append(request)
                for step in self._replies.pop(0):
                    if isinstance(step, float):
                        time.sleep(step)
                    elif step is CLOSE:
                        return
                    else:
                        connection.sendall(step)
