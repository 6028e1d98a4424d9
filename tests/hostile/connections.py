"""Fuzz the HTTP protocol: a connection with an application that only records requests reads any bytes."""

import asyncio
from typing import Any, cast

from starlette.types import Receive, Scope, Send
from uvicorn import Config

from tableside.server.connection import HttpConnection
from tableside.server.exchange import SharedState

PIECE_BYTES_MAX = 64


def take(data: bytes) -> None:
    """Send the data to one connection in one piece, and to another in small pieces. Both must see the same requests."""
    whole, pieces = _Seen(), _Seen()
    with asyncio.Runner() as runner:
        runner.run(whole.given([data]))
        runner.run(pieces.given([data[at : at + PIECE_BYTES_MAX] for at in range(0, len(data), PIECE_BYTES_MAX)]))
    common = min(len(whole.requests), len(pieces.requests))
    assert whole.requests[:common] == pieces.requests[:common]


class _Seen:
    """The transport and application of a connection. Records requests and responses."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        self.written: list[bytes] = []
        self.closing = False

    async def given(self, pieces: list[bytes]) -> None:
        config = Config(self.serve, interface="asgi3", log_config=None, access_log=False, lifespan="off")
        config.load()
        protocol = HttpConnection(config, SharedState(), {})
        protocol.connection_made(cast("asyncio.Transport", self))
        for piece in pieces:
            if self.closing:
                break
            protocol.data_received(piece)
            for _ in range(3):
                await asyncio.sleep(0)
        protocol.connection_lost(None)
        if protocol.server_state.tasks:
            await asyncio.wait(protocol.server_state.tasks, timeout=5)
        assert not protocol.server_state.tasks, "a task waits for a closed connection"

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        self.requests.append((scope["method"], scope["path"], body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    # As a transport

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closing = True

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...
