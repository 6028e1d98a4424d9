"""Send hostile requests over several sockets at a time, and record the responses."""

import asyncio
import re
import socket
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from hostile.requests import MARKER, Requests

SENDERS = 48
BEAT_S = 0.05
ANSWER_BEATS = 3
"""The timeout of an answer in beats of the pulse. Many requests are incomplete, so the service waits for the rest."""

ON_ONE_CONNECTION = 5

_HEADS = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n(.*?)\r\n\r\n", re.DOTALL)
_ABORTED = struct.pack("ii", 1, 0)


@dataclass
class Answers:
    """The responses: the number of each status, and wrong responses."""

    sent: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[bytes] = field(default_factory=list)

    def read(self, request: bytes, data: bytes) -> None:
        """Record the data that a connection received."""
        for head in _HEADS.finditer(data):
            status = int(head[1])
            self.statuses[status] += 1
            body = data[head.end() : data.find(b"HTTP/1.1 ", head.end()) % (len(data) + 1)]
            problem = b"content-type: application/problem+json" in head[2].lower()
            told = b"" if b'"table_not_found"' in body else head[2] + body  # the error names the table
            if status >= 400 and (not problem or MARKER.encode() in told):
                self.wrong.append(b"%b\n--\n%b" % (request[:600], head[0] + body[:600]))
            if status in (500, 502):
                self.wrong.append(b"%b\n--\n%b" % (request[:600], head[0] + body[:600]))


class Pulse:
    """Beats after each response to a normal request: a timer that slows down on a busy machine."""

    def __init__(self) -> None:
        self._beat = asyncio.Event()

    async def run(self, host: str, port: int) -> None:
        """Beat until cancelled."""
        reader, writer = await asyncio.open_connection(host, port)
        try:
            while True:
                writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                data = b""
                while not _whole(data):
                    data += (piece := await reader.read(2**16))
                    assert piece, "the service has closed the connection of a normal request"
                await asyncio.sleep(BEAT_S)
                self._beat.set()
                self._beat = asyncio.Event()
        finally:
            writer.transport.abort()

    async def read(self, reader: asyncio.StreamReader) -> bytes:
        """Return the next bytes, or none if the connection has ended or too many beats have passed."""
        reading = asyncio.create_task(reader.read(2**20))
        for _ in range(ANSWER_BEATS):
            beat = asyncio.create_task(self._beat.wait())
            await asyncio.wait({reading, beat}, return_when=asyncio.FIRST_COMPLETED)
            beat.cancel()
            if reading.done():
                return reading.result()
        reading.cancel()
        await asyncio.wait({reading})
        return b""


def send(url: str, count: int, seed: int, token: str | None = None) -> Answers:
    """Send `count` requests, generated from a seed. With a token, most requests are authenticated."""
    return asyncio.run(_sent(url, count, seed, token))


async def _sent(url: str, count: int, seed: int, token: str | None) -> Answers:
    answers, pulse, parts = Answers(), Pulse(), urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    async with asyncio.TaskGroup() as group:
        beating = group.create_task(pulse.run(host, port))
        async with asyncio.TaskGroup() as senders:
            for index in range(SENDERS):
                requests = Requests(seed * 1000 + index, token)
                senders.create_task(_sender(host, port, -(-count // SENDERS), requests, answers, pulse))
        beating.cancel()
    return answers


async def _sender(host: str, port: int, count: int, requests: Requests, answers: Answers, pulse: Pulse) -> None:
    while count > 0:
        reader, writer = await asyncio.open_connection(host, port)
        # End with a reset: otherwise connections in TIME_WAIT would use up the ports.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTED)
        try:
            for _ in range(min(count, ON_ONE_CONNECTION)):
                request = requests.one()
                count -= 1
                answers.sent += 1
                writer.write(request)
                data = await _answered(reader, pulse)
                answers.read(request, data)
                if reader.at_eof() or not data:
                    break
        finally:
            writer.transport.abort()


async def _answered(reader: asyncio.StreamReader, pulse: Pulse) -> bytes:
    data = b""
    with suppress(ConnectionError):
        while piece := await pulse.read(reader):
            data += piece
            if len(piece) < 2**16 and _whole(data):
                break
    return data


def _whole(data: bytes) -> bool:
    """Whether the data ends with a complete response, judging by its content-length."""
    head, found, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return bool(found and length and len(body) == int(length[1]))
