"""The service with its real protocol on a real port, in the test's event loop, over a scripted store."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from prometheus_client import generate_latest

from support.raw_http import Connection
from support.scripted import Scripted
from support.waiting import eventually
from tableside.app import create_app
from tableside.catalog.admission import InFlight
from tableside.core.store import TableSpec
from tableside.http.middleware import RequestMiddleware
from tableside.server.server import ListenAddress, Server, ServerConfig
from tableside.settings import validate
from tableside.stores.memory import MemoryStore

RECORD = "/v1/tables/t/records/a"
BATCH = "/v1/tables/t/batch"

LIMITS: dict[str, Any] = {"timeout_s": 60, "rate_per_s": 1e6, "attempts_max": 3}

POLICIES: dict[str, dict[str, Any]] = {
    "none": {},
    **{name: {"read": {name: value}, "write": {name: value}} for name, value in LIMITS.items()},
    "bulkhead": {"concurrency_max": 4},
    "coalesce": {"batch": {"operations_max": 100}},
    "cache": {"cache": {"records_max": 100, "ttl_s": 60}},
}
POLICIES["all"] = POLICIES["bulkhead"] | POLICIES["coalesce"] | POLICIES["cache"] | {"read": LIMITS, "write": LIMITS}
"""Table settings that enable each policy."""


class Served:
    """A running service: the table `t`, the store below its policies, and the work in flight."""

    def __init__(self, url: str, app: FastAPI, store: Scripted) -> None:
        self.url = url
        self.app = app
        self.store = store

    @property
    def in_flight(self) -> InFlight:
        middleware = self.app.middleware_stack
        assert isinstance(middleware, RequestMiddleware)
        return middleware._in_flight

    @property
    def under_way(self) -> tuple[int, int, int]:
        """The number of requests, operations and bytes in flight."""
        bounds = self.in_flight
        return bounds.requests.in_flight, bounds.operations.in_flight, bounds.bytes.in_flight

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of a metric, 0 if it has none yet."""
        given = ",".join(f'{label}="{labels[label]}"' for label in sorted(labels))
        text = generate_latest(self.app.state.exposition).decode()
        found = re.search(rf"^{re.escape(f'{name}{{{given}}}')} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    async def called(self, count: int = 1) -> None:
        """Return when the store has this many calls in progress."""
        await eventually(lambda: self.store.under_way >= count)

    async def idle(self) -> None:
        """Return when no request is in flight."""
        await eventually(lambda: self.under_way == (0, 0, 0) and not self.store.under_way)


@asynccontextmanager
async def served(
    table: Mapping[str, Any] | None = None,
    auth: Mapping[str, Any] | None = None,
    others: Sequence[str] = (),
    **limits: float,
) -> AsyncIterator[Served]:
    """Run the service. `others` are stores in memory, each with a table of the same name."""
    tables = {"t": {"store": "s", "deadline_s": 30, **(table or {})}, **{name: {"store": name} for name in others}}
    data = {
        "stores": {name: {"kind": "memory"} for name in ("s", *others)},
        "tables": tables,
        "limits": {"drain_s": 0, **limits},
    }
    # Compiling the console's templates takes most of the startup time.
    settings = validate(data | ({"console": {"enabled": False}} if auth is None else {"auth": auth}))
    spec = TableSpec("t", value_bytes_max=settings.limits.value_bytes_max)
    app, store = create_app(settings), Scripted(MemoryStore(spec))
    server = Server(ServerConfig(app, settings.limits, ListenAddress("127.0.0.1", 0)))
    task = asyncio.create_task(server.serve())
    try:
        await eventually(lambda: server.started)
        app.state.catalog.entry("t")._open(store)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Served(f"http://127.0.0.1:{port}", app, store)
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def connected(service: Served, count: int) -> AsyncIterator[list[Connection]]:
    """Open this many connections."""
    connections = [await Connection.open(service.url) for _ in range(count)]
    try:
        yield connections
    finally:
        for connection in connections:
            await connection.__aexit__()
