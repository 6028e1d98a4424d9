"""Bytes that are not valid PostgreSQL messages close the connection before the driver loops for ever on them."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from support.certificates import Authority
from tableside.stores.postgres.framing import MessageFrames

pytestmark = pytest.mark.server


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", 4 + len(body)) + body


STREAM = b"".join(
    message(kind, b"x" * size) for kind, size in [(b"R", 4), (b"Z", 1), (b"1", 0), (b"D", 5000), (b"C", 9)]
)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 1000, 10_000])
@pytest.mark.parametrize(
    "head",
    [
        b"R" + struct.pack(">i", 3),
        b"E" + struct.pack(">i", -1),
        b"t" + struct.pack(">i", -(2**31)),
        b"D" + struct.pack(">i", 2**30 + 1),
        b"\0" + struct.pack(">i", 8),
        b"HTTP/1.1 400 Bad Request",
    ],
    ids=range(6),
)
def test_messages_are_valid_until_the_first_invalid_one_with_any_division_into_pieces(head: bytes, size: int) -> None:
    frames, data = MessageFrames(), STREAM + head
    valid = [frames.accepts(data[start : start + size]) for start in range(0, len(data), size)]
    assert all(valid[: len(STREAM) // size])
    assert not all(valid)


GARBAGE = """
import asyncio, contextlib, random, ssl, sys
import asyncpg
from tableside.stores.postgres.framing import frame_checking_loop

async def encrypted(reader, writer):
    await reader.readexactly(8)
    writer.write(b"S")
    await writer.start_tls(context)
    await garbage(reader, writer)

async def garbage(reader, writer):
    while await reader.read(1000):
        writer.write(chance.randbytes(256))
    writer.close()

async def main():
    server = await asyncio.start_server(encrypted if sys.argv[1:] else garbage, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for index in range(600):
        with contextlib.suppress(Exception):
            mode = "require" if sys.argv[1:] else ("disable", "prefer")[index % 2]
            loop = frame_checking_loop()
            await asyncpg.connect(f"postgresql://u@127.0.0.1:{port}/d", timeout=0.05, ssl=mode, loop=loop)
    server.close()

chance = random.Random(1)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
if sys.argv[1:]:
    context.load_cert_chain(*sys.argv[1:])
asyncio.run(main())
"""


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_garbage_does_not_block_the_process(tmp_path: Path, tls: bool) -> None:
    """Run in a separate process, since a driver that loops for ever cannot be interrupted from within."""
    signed = Authority(tmp_path).sign("server") if tls else None
    files = [signed.certificate, signed.key] if signed else []
    done = subprocess.run(
        [sys.executable, "-c", GARBAGE, *files], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
