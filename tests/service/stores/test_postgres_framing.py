"""Bytes that are not valid PostgreSQL messages close the connection before the driver loops for ever on them."""

import random
import struct
import subprocess
import sys

import pytest

from tableside.stores.postgres.framing import MESSAGE_BYTES_MAX, MessageFrames

pytestmark = pytest.mark.server


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", 4 + len(body)) + body


STREAM = b"".join(
    message(kind, b"x" * size) for kind, size in [(b"R", 4), (b"Z", 1), (b"1", 0), (b"D", 5000), (b"C", 9)]
)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 1000, 10_000])
def test_messages_are_sound_however_they_are_cut(size: int) -> None:
    frames = MessageFrames()
    assert all(frames.accepts(STREAM[start : start + size]) for start in range(0, len(STREAM), size))
    assert not frames.accepts(b"\0" * 5)


@pytest.mark.parametrize(
    "head",
    [
        b"R" + struct.pack(">i", 3),
        b"R" + struct.pack(">i", 0),
        b"E" + struct.pack(">i", -1),
        b"t" + struct.pack(">i", -(2**31)),
        b"D" + struct.pack(">i", MESSAGE_BYTES_MAX + 1),
        b"\0" + struct.pack(">i", 8),
        b"HTTP/1.1 400 Bad Request",
    ],
    ids=range(7),
)
@pytest.mark.parametrize("size", [1, 4, 100])
def test_what_is_no_message_is_not(head: bytes, size: int) -> None:
    frames, data = MessageFrames(), STREAM + head
    assert not all(frames.accepts(data[start : start + size]) for start in range(0, len(data), size))


def test_any_cut_of_many_messages_is_sound() -> None:
    chance = random.Random(5)
    data = b"".join(message(b"D", chance.randbytes(chance.choice([0, 1, 7, 300]))) for _ in range(300))
    frames, position = MessageFrames(), 0
    while position < len(data):
        size = chance.choice([1, 3, 5, 50, 700])
        assert frames.accepts(data[position : position + size])
        position += size


GARBAGE = """
import asyncio, contextlib, random
import asyncpg
from tableside.stores.postgres.framing import frame_checking_loop

class Garbage(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(chance.randbytes(256))

async def main():
    server = await asyncio.get_running_loop().create_server(Garbage, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for index in range(600):
        with contextlib.suppress(Exception):
            ssl = (False, "prefer")[index % 2]
            loop = frame_checking_loop()
            await asyncpg.connect(f"postgresql://u@127.0.0.1:{port}/d", timeout=0.05, ssl=ssl, loop=loop)
    server.close()

chance = random.Random(1)
asyncio.run(main())
"""


def test_garbage_does_not_hold_up_the_process() -> None:
    """Run in a separate process, since a driver that loops for ever cannot be interrupted from within."""
    done = subprocess.run([sys.executable, "-c", GARBAGE], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
