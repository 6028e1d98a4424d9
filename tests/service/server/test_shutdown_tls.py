"""The shutdown of a service with TLS."""

import asyncio
import socket
from pathlib import Path

import pytest
from psutil import Process, wait_procs

from servers.process import free_port
from support.certificates import Authority
from support.running import running

pytestmark = pytest.mark.server


async def test_an_idle_client_that_does_not_confirm_the_close_causes_a_short_delay(tmp_path: Path) -> None:
    config, authority = tmp_path / "config.yaml", Authority(tmp_path / "authority")
    config.write_text("stores: {s: {kind: memory}}\nlimits: {drain_s: 0, shutdown_s: 40}\n")
    signed = authority.sign("server")
    given = ["--ssl-certfile", str(signed.certificate), "--ssl-keyfile", str(signed.key)]
    with running(tmp_path, config, probes_port=free_port(), options=given) as service:
        port = int(service.url.rpartition(":")[2])
        # A blocking socket reads, and confirms the close, only during a call of `recv`.
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
