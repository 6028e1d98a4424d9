"""Requests for one record (GET, PUT) over 32 connections, against a bare Starlette route in the same kind of server."""

import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from examples.demo.service import free_port, running

from . import records
from .cases import puts
from .load import send_all, small_requests_per_second
from .report import Result
from .turns import Comparison, measured

CONNECTIONS = 32
RECORDS = 5000
TARGETS = {"GET, RocksDB": 0.5}

BARE = textwrap.dedent(
    f"""
    import sys, uvicorn
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    async def record(request):
        return Response({records.value(0)!r}, media_type="application/json")

    app = Starlette(routes=[Route("/v1/tables/{{table}}/records/{{key:path}}", record, methods=["GET"])])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=False, log_level="warning")
    """
)

GET = """
math.randomseed(os.time())
request = function()
  return wrk.format("GET", string.format("/v1/tables/%s/records/N%%06d", math.random(0, %d)))
end
"""

PUT = """
wrk.headers["Content-Type"] = "application/json"
request = function()
  local body = '{"manufacturer":"BOEING","seats":' .. math.random(0, 300) .. '}'
  return wrk.format("PUT", string.format("/v1/tables/%s/records/N%%06d", math.random(0, %d)), nil, body)
end
"""


def run(seconds: float, rounds: int = 3) -> list[Result]:
    """Measure all variants in turn over several rounds, and return the medians in requests per second."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as service, _bare() as bare:
        send_all(service.url, puts(RECORDS))
        ways = {
            "GET, a bare Starlette route": partial(_rate, bare, GET, seconds),
            "GET, RocksDB": partial(_rate, service.url, GET, seconds),
            "PUT, RocksDB, durable": partial(_rate, service.url, PUT, seconds),
        }
        return measured([Comparison("single, 32 connections", "requests", ways, TARGETS)], rounds)


@contextmanager
def _bare() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", BARE, str(port)])
    try:
        _wait_until_listening(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait_until_listening(port: int) -> None:
    for _ in range(100):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise RuntimeError("the bare route did not start")


def _rate(url: str, script: str, seconds: float) -> float:
    filled = script % (records.TABLE, RECORDS - 1)
    return small_requests_per_second(url, filled, connections=CONNECTIONS, seconds=seconds)
