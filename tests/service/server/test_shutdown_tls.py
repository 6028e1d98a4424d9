"""The end of a service that speaks TLS: who has connected is answered, though both sides have to agree first."""

import asyncio
import os
import signal
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from psutil import Process, wait_procs

from servers.process import free_port
from support.certificates import Authority
from support.running import running

pytestmark = pytest.mark.server


async def test_who_has_connected_and_begins_to_speak_tls_late_is_answered(tmp_path: Path) -> None:
    config, authority = tmp_path / "config.yaml", Authority(tmp_path / "authority")
    config.write_text("stores: {s: {kind: memory}}\nlimits: {drain_s: 0, shutdown_s: 10}\n")
    signed = authority.sign("server")
    given = ["--ssl-certfile", str(signed.certificate), "--ssl-keyfile", str(signed.key)]
    with running(tmp_path, config, probes_port=free_port(), options=given) as service:
        loop, port = asyncio.get_running_loop(), int(service.url.rpartition(":")[2])
        late, silent = socket.socket(), socket.socket()
        for one in (late, silent):
            one.setblocking(False)
            await loop.sock_connect(one, ("127.0.0.1", port))
        os.kill(service.pid, signal.SIGTERM)
        async with asyncio.timeout(10):
            with suppress(ConnectionRefusedError):
                while True:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
        answer = await asked(late, authority.trusting())
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b"connection: close" in answer
        with silent:
            assert await asyncio.wait_for(ended(silent), 5)


async def test_an_idle_client_that_does_not_confirm_the_end_delays_it_by_little(tmp_path: Path) -> None:
    config, authority = tmp_path / "config.yaml", Authority(tmp_path / "authority")
    config.write_text("stores: {s: {kind: memory}}\nlimits: {drain_s: 0, shutdown_s: 40}\n")
    signed = authority.sign("server")
    given = ["--ssl-certfile", str(signed.certificate), "--ssl-keyfile", str(signed.key)]
    with running(tmp_path, config, probes_port=free_port(), options=given) as service:
        port = int(service.url.rpartition(":")[2])
        # A blocking socket reads, and confirms, only when asked to.
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            authority.trusting().wrap_socket(plain, server_hostname="localhost") as idle,
        ):
            idle.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert idle.recv(1000).startswith(b"HTTP/1.1 200 OK")
            process = Process(service.pid)
            process.terminate()
            ended, _ = await asyncio.to_thread(wait_procs, [process], 20)
            assert ended == [process]


async def asked(connected: socket.socket, context: ssl.SSLContext) -> bytes:
    """Return what is answered until the connection is closed."""
    reader, writer = await asyncio.open_connection(sock=connected, ssl=context, server_hostname="localhost")
    writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


async def ended(connected: socket.socket) -> bool:
    """Return when the other side has closed the connection."""
    try:
        return await asyncio.get_running_loop().sock_recv(connected, 1) == b""
    except ConnectionResetError:
        return True
