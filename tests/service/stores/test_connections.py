"""The connection counts of backends while a known number of calls is blocked."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from contract import put
from servers.proxy import FaultProxy
from support.dynamodb_tables import CREDENTIALS
from support.kinds import kind
from support.waiting import eventually
from tableside import stores
from tableside.core.backend import Backend, Connections
from tableside.core.budget import Budget
from tableside.core.operations import Get, Record
from tableside.core.store import Store
from tableside.settings import validate
from tableside.stores.memory import MemoryBackend, MemorySettings

pytestmark = pytest.mark.server


@asynccontextmanager
async def opened(configuration: dict[str, Any]) -> AsyncIterator[tuple[Backend, Store]]:
    """Open the store of the configuration's only table, with a record."""
    settings = validate(configuration)
    backend = await stores.backend_type(settings.stores["s"].kind).open(settings.stores["s"].options)
    try:
        store = await backend.store(settings.tables["t"].spec("t", settings.options.get("t")))
        await store.apply([put("a", {"n": 1})])
        yield backend, store
    finally:
        await backend.close()


@pytest.mark.parametrize(
    ("name", "member"), [("redis", "url"), ("postgres", "dsn"), ("dynamodb", "endpoint_url")], ids=lambda one: one
)
async def test_blocked_calls_count_as_connections_in_use(
    name: str, member: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, setting in CREDENTIALS.items():
        monkeypatch.setenv(variable, setting)
    configuration = kind(name, request, tmp_path).configuration()
    used = configuration["stores"]["s"]
    async with FaultProxy.before(used[member]) as proxy:
        used = {**used, member: proxy.through(used[member])}
        async with opened({**configuration, "stores": {"s": {**used, "connections_max": 4}}}) as (backend, store):
            assert hasattr(backend, "connections")
            told = backend.connections()
            assert (told.in_use, told.most) == (0, 4)
            assert told.open == (0 if name == "dynamodb" else proxy.open_connections) <= 2
            proxy.hang()
            held = [asyncio.create_task(store.apply([Get("a")])) for _ in range(3)]
            await eventually(lambda: backend.connections() == Connections(3, 3, 4))
            held += [asyncio.create_task(store.apply([Get("a")])) for _ in range(3)]
            await eventually(lambda: backend.connections() == Connections(4, 4, 4))
            await asyncio.sleep(0.05)
            assert backend.connections() == Connections(4, 4, 4)
            proxy.forward()
            assert {type(outcome) for [outcome] in await asyncio.gather(*held)} == {Record}
            assert backend.connections() == Connections(0, 0 if name == "dynamodb" else 4, 4)
            proxy.cut()
            await asyncio.gather(*(store.apply([Get("a")], Budget(time.monotonic() + 1)) for _ in range(2)))
            await eventually(lambda: backend.connections() == Connections(0, 0, 4))


async def test_a_backend_without_connections_has_no_counts() -> None:
    assert not hasattr(await MemoryBackend.open(MemorySettings()), "connections")
