"""HTTP over a socket that the test controls, so that the test sees how each connection ends."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self


class Refused(Exception):
    """The server refused the connection."""


class Unanswered(Exception):
    """The connection ended without a response."""


@dataclass(frozen=True)
class Answer:
    """A response: the status, headers by lower-case name, and the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def last(self) -> bool:
        """Whether the server closes the connection after this response."""
        return self.headers.get("connection") == "close"

    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, url: str) -> Self:
        host, _, port = url.removeprefix("http://").partition(":")
        try:
            return cls(*await asyncio.open_connection(host, int(port)))
        except ConnectionRefusedError:
            raise Refused from None

    async def ask(self, method: str, path: str, document: object = None, **headers: str) -> Answer:
        """Send a request and return the response."""
        self.send(method, path, document, **headers)
        return await self.answer()

    def send(self, method: str, path: str, document: object = None, **headers: str) -> None:
        body = document if isinstance(document, bytes) else b"" if document is None else json.dumps(document).encode()
        given = {"host": "test", "content-type": "application/json", "content-length": str(len(body))}
        given |= {name.replace("_", "-"): text for name, text in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in given.items() if text)]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def answer(self) -> Answer:
        """Return the next response. Raise `Unanswered` if the connection ends first."""
        try:
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines[1:])}
            body = await self._body(headers)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Unanswered(repr(error)) from None
        return Answer(int(lines[0].split()[1]), headers, body)

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return await self.reader.readexactly(int(headers.get("content-length", "0")))
        chunks = []
        while size_bytes := int(await self.reader.readline(), 16):
            chunks.append(await self.reader.readexactly(size_bytes + 2))
        await self.reader.readline()
        return b"".join(chunk[:-2] for chunk in chunks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        """Reset the connection, as a killed process does."""
        self.writer.transport.abort()
