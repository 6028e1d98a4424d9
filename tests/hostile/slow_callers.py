"""Many slow clients of several kinds. Each sends at most one byte per second.

All sockets belong to one thread, so thousands of them cost little.
"""

import itertools
import socket
import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

KINDS = ("silent", "head", "body", "unread", "idle")
"""Each kind of client: sends nothing, sends a head or body byte by byte, reads no response, idles after a request."""

BYTE_S = 1.0
SHARES = 50
"""The number of groups of clients, which send at different times within `BYTE_S`."""

RECEIVE_BYTES = 4096
BODY_BYTES = 100_000


class SlowCallers:
    """Slow clients, `counts` of each kind, that read a large record at `path` and write one at `path` + `-written`."""

    def __init__(self, url: str, path: str, counts: Mapping[str, int]) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname or "127.0.0.1", parts.port or 80
        self._head = f"HTTP/1.1\r\nhost: {self._address[0]}\r\n".encode()
        self._path = path.encode()
        self.sockets = {kind: [self._connected(kind) for _ in range(counts[kind])] for kind in counts}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._drip)
        self._thread.start()

    def close(self) -> None:
        """Close all connections."""
        self._done.set()
        self._thread.join()
        for sockets in self.sockets.values():
            for one in sockets:
                one.close()

    def _connected(self, kind: str) -> socket.socket:
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        one.connect(self._address)
        one.setblocking(False)
        one.send(self._first(kind))
        return one

    def _first(self, kind: str) -> bytes:
        match kind:
            case "head":
                return b"GET %b %bx: " % (self._path, self._head)
            case "body":
                return b"PUT %b %bcontent-length: %d\r\n\r\n" % (self._path + b"-written", self._head, BODY_BYTES)
            case "unread":
                return b"GET %b %b\r\n" % (self._path, self._head) * 2
            case "idle":
                return b"GET /livez %b\r\n" % self._head
        return b""

    def _drip(self) -> None:
        dripping = [one for kind in ("head", "body") for one in self.sockets.get(kind, ())]
        shares = [dripping[share::SHARES] for share in range(SHARES)]
        for share in itertools.cycle(shares):
            if self._done.wait(BYTE_S / SHARES):
                return
            for one in share:
                try:
                    one.send(b" ")
                except OSError:
                    continue  # The service has closed the connection.
