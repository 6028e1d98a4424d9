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
ANSWER_S = 0.5
"""The timeout of an answer. Many requests are incomplete, so the service waits for the rest."""

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
            faulty = status >= 400 and (not problem or MARKER.encode() in told)
            if faulty or status in (500, 502):
                self.wrong.append(b"%b\n--\n%b" % (request[:600], head[0] + body[:600]))


async def send(url: str, count: int, seed: int, token: str | None = None) -> Answers:
    """Send `count` requests, generated from a seed. With a token, most requests are authenticated."""
    answers = Answers()
    async with asyncio.TaskGroup() as senders:
        for index in range(SENDERS):
            requests = Requests(seed * 1000 + index, token)
            senders.create_task(_sender(url, -(-count // SENDERS), requests, answers))
    return answers


async def _sender(url: str, count: int, requests: Requests, answers: Answers) -> None:
    address = urlsplit(url)
    while count > 0:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        # End with a reset: otherwise connections in TIME_WAIT would use up the ports.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTED)
        for _ in range(min(count, ON_ONE_CONNECTION)):
            request = requests.one()
            count -= 1
            answers.sent += 1
            writer.write(request)
            data = await _answered(reader)
            answers.read(request, data)
            if reader.at_eof() or not data:
                break
        writer.transport.abort()


async def _answered(reader: asyncio.StreamReader) -> bytes:
    data = b""
    with suppress(ConnectionError, TimeoutError):
        while not _is_whole(data):
            async with asyncio.timeout(ANSWER_S):
                piece = await reader.read(2**20)
            if not piece:
                break
            data += piece
    return data


def _is_whole(data: bytes) -> bool:
    """Whether the data ends with a complete response, judging by its content-length."""
    head, found, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return bool(found and length and len(body) == int(length[1]))
