"""Removal and estimates of whole tables on every store: nothing remains of the removed one, and all of the others."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contract import COMPOSITE, STRINGS, put, record, scanned, value, written
from support.dynamodb_tables import CREDENTIALS
from support.kinds import kind
from tableside import stores
from tableside.core import TableNotFound
from tableside.core.backend import Backend
from tableside.core.keys import KeySchema
from tableside.core.operations import Delete, Get, Token
from tableside.core.store import Store, TableSpec, drop_records
from tableside.settings import validate

pytestmark = pytest.mark.server

STORES = ["memory", "rocksdb", "redis", "redis-cluster", "postgres", "dynamodb"]


@pytest.fixture(scope="module")
def redis_cluster_urls(own_redis_cluster_urls: list[str]) -> list[str]:
    return own_redis_cluster_urls


@pytest.fixture(params=STORES)
async def backend(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Backend]:
    for variable, setting in CREDENTIALS.items():
        monkeypatch.setenv(variable, setting)
    [settings] = validate(kind(request.param, request, tmp_path).configuration()).stores.values()
    backend = await stores.backend_type(settings.kind).open(settings.options)
    yield backend
    await backend.close()


@pytest.fixture
def name() -> str:
    """The name of a table, with characters that have a meaning in patterns and in SQL."""
    return f"T-{uuid.uuid4().hex[:8]}."


def at(name: str, generation: int = 1, key: KeySchema = STRINGS, **rest: Any) -> TableSpec:
    return TableSpec(name, key, generation=generation, create=True, key_given=key.has_names, **rest)


async def fill(store: Store, *keys: Any) -> None:
    """Put records, one with the token of a deleted record and one that has outlived its record."""
    await store.apply([put(key, {"n": 1}) for key in keys])
    for key in keys[:2]:
        await written(store, put(key, {"n": 2}, token=Token("w", 1), ttl_s=3600))
    await written(store, Delete(keys[0], order=5))


@pytest.mark.parametrize(("dropped", "kept"), [(1, 8), (8, 1), (8, 80), (80, 8)])
async def test_a_drop_removes_one_generation(backend: Backend, name: str, dropped: int, kept: int) -> None:
    store, other = await backend.store(at(name, dropped)), await backend.store(at(name, kept))
    longer, shorter = await backend.store(at(f"{name}2")), await backend.store(at(name[:-1]))
    for each in (store, other, longer, shorter):
        await fill(each, "a", "b", "c", "x:y", "{x}", f"{name}:a", f"8@{name}:a")
        await written(each, put(f"only in {each.spec.name}", {}))
    await drop_records(store)
    await drop_records(await backend.store(at(name, dropped)))
    for each in (other, longer, shorter):
        kept_keys = ["b", "c", "x:y", "{x}", f"{name}:a", f"8@{name}:a", f"only in {each.spec.name}"]
        assert sorted(map(str, await scanned(each))) == sorted(kept_keys)
        assert (await written(each, put("b", {"n": 3}, token=Token("w", 1)))).replayed


async def test_a_dropped_table_can_be_made_again_with_nothing_remembered(backend: Backend, name: str) -> None:
    store = await backend.store(at(name, key=COMPOSITE))
    await fill(store, *[(f"u{at % 3}", at) for at in range(2000)])
    await drop_records(store)
    again = await backend.store(at(name, key=COMPOSITE))
    assert await scanned(again) == []
    for key in [("u0", 0), ("u1", 1)]:
        written_again = await written(again, put(key, {"n": 4}, token=Token("w", 1)))
        assert (written_again.replayed, written_again.superseded) == (False, False)
        assert await value(again, key) == {"n": 4}
        assert (await record(again, key)).expires_ms == 0
    if again.capabilities.partition_scan:
        assert await scanned(again, partition="u0") == [("u0", 0)]


async def test_a_drop_is_not_undone_by_an_open_store(backend: Backend, name: str) -> None:
    first, second = await backend.store(at(name, 2)), await backend.store(at(name, 2))
    await fill(first, "a", "b", "c")
    await drop_records(first)
    [outcome] = await second.apply([Get("b")])
    assert outcome is None or isinstance(outcome, TableNotFound)


async def test_estimates_are_unknown_or_plausible(backend: Backend, name: str) -> None:
    store = await backend.store(at(name))
    await store.apply([put(f"{index}", {"text": "x" * 100}) for index in range(500)])
    if not hasattr(store, "estimate"):
        return
    found = await store.estimate()
    assert found.records is None or 0 <= found.records <= 1000
    assert found.size_bytes is None or 0 <= found.size_bytes <= 10_000_000
