"""Bytes that are not valid PostgreSQL messages close the connection before the driver loops for ever on them."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.certificates import Authority

pytestmark = pytest.mark.server


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
