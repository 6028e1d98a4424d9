"""CPU time of the service's own code for a GET of one record, without sockets: `python -m bench.in_process`.

The layers are measured from the inside out, so the difference of two lines is the cost of one layer. The last ones
parse and write HTTP. All variants are measured in turn, and medians are shown. The ratio compares with a bare Starlette
route that is called in the same way.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from statistics import median
from typing import Any, cast

import uvloop
from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.table import Table as Shown
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Scope
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tableside.app import create_app
from tableside.catalog import CatalogMetrics, Environment
from tableside.catalog.open_stores import OpenStore
from tableside.catalog.stack import build_stack
from tableside.core.operations import Get, Put
from tableside.core.store import TableSpec
from tableside.server.connection import HttpConnection
from tableside.server.exchange import SharedState
from tableside.settings import TableSettings, validate
from tableside.stores.memory import MemoryBackend, MemoryStore

from . import records

KEY = records.key(0)
PATH = f"/v1/tables/{records.TABLE}/records/{KEY}"
CONNECTIONS = 32
HEADERS = [(b"host", b"127.0.0.1:8080")]
HEAD = f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n".encode()
BARE, BARE_HTTP = "a bare Starlette route", "a bare Starlette route, as HTTP"

Way = Callable[[int], Awaitable[None]]


async def run(calls: int, rounds: int) -> dict[str, float]:
    """Measure all variants in turn over several rounds, and return the medians in seconds per GET."""
    taken: dict[str, list[float]] = {}
    async with AsyncExitStack() as exits:
        app = create_app(validate({"stores": {"m": {"kind": "memory"}}, "tables": {records.TABLE: {"store": "m"}}}))
        await exits.enter_async_context(app.router.lifespan_context(app))
        bare = Starlette(routes=[Route("/v1/tables/{table}/records/{key:path}", _record, methods=["GET"])])
        await _put(app)
        ways = await _ways(app, bare)
        for _ in range(rounds):
            for name, way in ways.items():
                started = time.process_time()
                await way(calls)
                taken.setdefault(name, []).append((time.process_time() - started) / calls)
    return {name: median(seconds) for name, seconds in taken.items()}


async def _ways(app: Any, bare: ASGIApp) -> dict[str, Way]:
    store, table, get = MemoryStore(TableSpec(records.TABLE)), app.state.catalog.entry(records.TABLE).table, Get(KEY)
    await store.apply([Put(KEY, records.value(0))])
    open_store = OpenStore("m", "memory", MemoryBackend(), Environment(CatalogMetrics(CollectorRegistry())))
    [policies] = build_stack(store, TableSettings(store="m"), open_store, {}).policies
    return {
        BARE: _asgi(bare),
        "the store": _often(lambda: store.apply([get])),
        "the policies and the store": _often(lambda: policies.apply([get])),
        "the table": _often(lambda: table.one(get)),
        "the service": _asgi(app),
        BARE_HTTP: _http(bare, HttpToolsProtocol, ServerState()),
        "the service, as HTTP": _http(app, HttpConnection, SharedState()),
    }


async def _record(request: Request) -> Response:
    return Response(records.value(0), media_type="application/json")


async def _put(app: ASGIApp) -> None:
    body = {"type": "http.request", "body": records.value(0)}

    async def receive() -> Message:
        return body

    await app(_scope("PUT"), receive, _nowhere)


def _often(work: Callable[[], Awaitable[object]]) -> Way:
    async def way(calls: int) -> None:
        for _ in range(calls):
            await work()

    return way


def _asgi(app: ASGIApp) -> Way:
    return _often(lambda: app(_scope("GET"), _nothing, _nowhere))


def _scope(method: str) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 40000),
        "scheme": "http",
        "root_path": "",
        "headers": [*HEADERS],
        "state": {},
        "method": method,
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
    }


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _nowhere(message: Message) -> None:
    pass


def _http(app: ASGIApp, protocol: type[HttpToolsProtocol | HttpConnection], state: Any) -> Way:
    config = Config(
        app, log_config=None, access_log=False, lifespan="off", reset_contextvars=False, proxy_headers=False
    )
    config.load()

    async def way(calls: int) -> None:
        transports = [_Transport() for _ in range(CONNECTIONS)]
        connections = [protocol(config, state, {}) for _ in transports]
        for connection, transport in zip(connections, transports, strict=True):
            connection.connection_made(cast("asyncio.Transport", transport))
        for _ in range(calls // CONNECTIONS):
            for connection in connections:
                connection.data_received(HEAD)
            while not all(transport.answered for transport in transports):  # noqa: ASYNC110  # CPU is what counts
                await asyncio.sleep(0)
            for transport in transports:
                transport.answered = False
        for connection in connections:
            connection.connection_lost(None)

    return way


class _Transport:
    """A transport that receives responses. A response is complete when the data ends with the record's value."""

    answered = False

    def write(self, data: bytes) -> None:
        self.answered = data.endswith(b"}")

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass


def _show(taken: dict[str, float]) -> None:
    shown = Shown("what", "us of CPU", "ratio")
    for name, seconds in taken.items():
        base = taken[BARE_HTTP if name.endswith("HTTP") else BARE]
        shown.add_row(name, f"{seconds * 1e6:.2f}", f"{base / seconds:.2f}")
    Console().print(shown)


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.in_process", description=__doc__)
    parser.add_argument("--calls", type=int, default=6400, help="the number of GETs in one measurement")
    parser.add_argument("--rounds", type=int, default=15, help="the number of measurements of each variant")
    arguments = parser.parse_args(given)
    _show(uvloop.run(run(arguments.calls, arguments.rounds)))


if __name__ == "__main__":
    main()
