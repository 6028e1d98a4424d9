"""The service applies a changed configuration while it runs. A faulty configuration changes nothing."""

import asyncio
import hashlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import yaml
from prometheus_client import CollectorRegistry

from contract import put, update
from support.kinds import kind
from support.running import Service, running
from support.scripted import Scripted
from support.waiting import eventually, until
from tableside.catalog import Catalog, CatalogMetrics, Environment
from tableside.catalog.reloader import Reloader, beyond_reloading
from tableside.catalog.table import Table
from tableside.core.errors import StoreUnavailable, TableNotFound
from tableside.core.operations import Get, Put, Record, Written
from tableside.core.store import Store, TableSpec
from tableside.settings import Settings, SettingsError, load, validate

pytestmark = pytest.mark.server

MEMORY = {"local": {"kind": "memory"}}


def settings(tables: Mapping[str, Any], **top: Any) -> Settings:
    return validate(
        {"stores": MEMORY, "tables": {name: {"store": "local", **table} for name, table in tables.items()}, **top}
    )


@pytest.mark.parametrize(
    ("tables", "top", "faults"),
    [
        ({"t": {"read": {"rate_per_s": 5}}}, {}, []),
        ({"t": {"cache": {"records_max": 5, "ttl_s": 1}}, "u": {}}, {}, []),
        ({}, {"limits": {"in_flight_max": 3}, "logs": {"requests": 1}}, []),
        ({"t": {}}, {"limits": {"value_bytes_max": 5000}}, ["limits.value_bytes_max"]),
        ({"t": {"ttl_s": 5}}, {}, ["tables.t.ttl_s"]),
        ({"t": {"key": {"a": "string"}}}, {}, ["tables.t.key"]),
        ({"t": {"name": "other"}}, {}, ["tables.t.name"]),
        ({"t": {}}, {"auto_create": True}, ["auto_create"]),
        ({"t": {}}, {"retry_budget": {"share": 0.5}}, ["retry_budget"]),
    ],
)
def test_changes_that_need_a_restart_are_named(tables: dict[str, Any], top: dict[str, Any], faults: list[str]) -> None:
    found = beyond_reloading(settings({"t": {}}), settings(tables, **top))
    assert [fault.path for fault in found] == faults
    assert all("restart" in fault.message for fault in found)


@pytest.fixture
async def catalog() -> AsyncIterator[Catalog]:
    opened = await Catalog.open(settings({"t": {}}), Environment(CatalogMetrics(CollectorRegistry())))
    yield opened
    await opened.close()


async def test_a_table_that_cannot_be_opened_changes_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(spec: object) -> None:
        raise TableNotFound("there is no such table in the store")

    before = await catalog.table("t")
    monkeypatch.setattr(catalog._backends["local"], "store", refuse)
    with pytest.raises(SettingsError) as refused:
        await catalog.change(settings({"t": {"deadline_s": 1}, "u": {}}))
    assert [fault.path for fault in refused.value.faults] == ["tables.u"]
    assert await catalog.table("t") is before
    assert [entry.spec.name for entry in catalog.entries()] == ["t"]


async def test_operations_in_flight_finish_with_the_old_policies(catalog: Catalog) -> None:
    """While the policies of a table change 50 times, each update from many callers is applied once."""

    async def count(writer: int) -> None:
        for _ in range(200):
            outcome = await (await catalog.table("t")).one(update("a", {"$inc": {"n": 1}}, {"n": 0}))
            assert isinstance(outcome, Written)
            await asyncio.sleep(0)

    callers = [asyncio.create_task(count(writer)) for writer in range(8)]
    for number in range(50):
        kept = {"cache": {"records_max": 10, "ttl_s": 60}} if number % 2 else {}
        shared = {"batch": {"operations_max": 100}} if number % 3 else {}
        await catalog.change(settings({"t": {**kept, **shared, "deadline_s": 10 + number}}))
        await asyncio.sleep(0.002)
    await asyncio.gather(*callers)
    found = await (await catalog.table("t")).one(Get("a"))
    assert isinstance(found, Record)
    assert orjson.loads(found.value) == {"n": 8 * 200}


CACHED = {"cache": {"records_max": 10, "ttl_s": 60}}


def slow_puts(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay the puts of stores whose tables open later."""
    backend = catalog._backends["local"]
    open_store = backend.store

    async def store(spec: TableSpec) -> Scripted:
        slow = Scripted(await open_store(spec))
        slow.takes_s = lambda operations: 0.1 if isinstance(operations[0], Put) else 0.0
        return slow

    monkeypatch.setattr(backend, "store", store)


async def number(table: Table) -> int:
    found = await table.one(Get("a"))
    assert isinstance(found, Record)
    return int(orjson.loads(found.value)["n"])


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ([{"old": CACHED}], "old"),
        ([{"other": {"name": "old", **CACHED}}], "other"),
        (
            [
                {"old": {"deadline_s": 9}},
                {"other": {"name": "old"}},
                {"old": CACHED},
                {"old": {**CACHED, "deadline_s": 8}},
            ],
            "old",
        ),
    ],
)
async def test_a_replaced_table_makes_no_record_of_the_new_cache_stale(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, changes: list[dict[str, Any]], name: str
) -> None:
    slow_puts(catalog, monkeypatch)
    await catalog.change(settings({"old": {}}))
    old = await catalog.table("old")
    await old.one(put("a", {"n": 1}))
    writing = asyncio.create_task(old.one(put("a", {"n": 2})))
    await asyncio.sleep(0.02)
    for change in changes:
        await catalog.change(settings(change))
    table = await catalog.table(name)
    assert table.spec.name == name
    assert await number(table) == 1
    assert isinstance(await writing, Written)
    assert await number(table) == 2
    await asyncio.sleep(0.01)
    await number(table)
    kept = await table.one(Get("a"))
    assert isinstance(kept, Record)
    assert kept.age_s is not None, "the cache keeps records once no write bypasses it"


async def made_by_writes() -> Catalog:
    return await Catalog.open(settings({}, auto_create=True), Environment(CatalogMetrics(CollectorRegistry())))


@pytest.mark.parametrize(("name", "table"), [("made", CACHED), ("other", {"name": "made", **CACHED})])
async def test_a_configured_table_replaces_one_created_by_a_write(
    monkeypatch: pytest.MonkeyPatch, name: str, table: dict[str, Any]
) -> None:
    catalog = await made_by_writes()
    slow_puts(catalog, monkeypatch)
    made = await catalog.table_to_write("made")
    await made.one(put("a", {"n": 1}))
    writing = asyncio.create_task(made.one(put("a", {"n": 2})))
    await asyncio.sleep(0.02)
    await catalog.change(settings({name: table}, auto_create=True))
    assert [entry.spec.name for entry in catalog.entries()] == [name]
    assert await number(await catalog.table(name)) == 1
    assert isinstance(await writing, Written)
    assert await number(await catalog.table(name)) == 2
    await catalog.close()


async def test_a_reload_during_the_creation_of_a_table_keeps_the_configured_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = await made_by_writes()
    backend, there = catalog._backends["local"], asyncio.Event()
    open_store = backend.store

    async def store(spec: TableSpec) -> Store:
        await there.wait()
        return await open_store(spec)

    monkeypatch.setattr(backend, "store", store)
    writers = [asyncio.create_task(catalog.table_to_write("made")) for _ in range(3)]
    await asyncio.sleep(0)
    monkeypatch.setattr(backend, "store", open_store)
    await catalog.change(settings({"made": CACHED}, auto_create=True))
    writers[0].cancel()
    there.set()
    _, *late = await asyncio.gather(*writers, return_exceptions=True)
    assert all(isinstance(one, StoreUnavailable) for one in late), "retriable: no write bypasses the new table"
    assert catalog.entry("made").settings.cache is not None
    await catalog.change(settings({"made": {}}, auto_create=True))
    await catalog.close()


@pytest.fixture(autouse=True)
def files_are_checked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tableside.catalog.reloader.POLL_INTERVAL_S", 0.01)


class Watched:
    """A configuration file, the settings that a reloader applied from it, and the reloader, which reads it often."""

    def __init__(self, directory: Path, accepted: Path | None = None, **members: Any) -> None:
        self.file, self.tokens = directory / "tableside.yaml", directory / "tokens.yaml"
        self.write_tokens("a", "b")
        self.write(**members)
        self.registry = CollectorRegistry()
        self.applied: list[Settings] = []
        self._accepted, self._started_with = accepted, load(self.file)

    @cached_property
    def reloader(self) -> Reloader:
        return Reloader(self.file, self._started_with, self.apply, self.registry, self._accepted)

    async def apply(self, changed: Settings) -> None:
        self.applied.append(changed)

    def write(self, **members: Any) -> None:
        self.file.write_text(yaml.safe_dump({"stores": MEMORY, **members}))

    def write_tokens(self, *names: str) -> None:
        self.tokens.write_text(yaml.safe_dump(tokens_of(*names)))

    def reloads(self, outcome: str) -> float:
        return self.registry.get_sample_value("tableside_settings_reloads_total", {"outcome": outcome}) or 0

    def callers(self) -> list[str]:
        """Return the names of the tokens of the settings that were applied last."""
        auth = self.applied[-1].auth
        assert auth is not None
        return [token.name for token in auth.tokens]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.reloader.run())
        yield
        task.cancel()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path, tables={"t": {"store": "local"}})


async def test_a_file_is_read_only_when_it_changes(watched: Watched) -> None:
    async with watched.running():
        await asyncio.sleep(0.1)
        assert watched.applied == []
        watched.write(tables={"t": {"store": "local", "deadline_s": 2}})
        await eventually(lambda: len(watched.applied) == 1)
        watched.file.write_text("stores: [")
        await eventually(lambda: watched.reloads("refused") == 1)
        watched.file.unlink()
        await asyncio.sleep(0.05)
        assert watched.reloads("refused") == 1, "a file that is away for a moment is not a faulty one"
        signal.raise_signal(signal.SIGHUP)
        await eventually(lambda: watched.reloads("refused") == 2)
    assert watched.applied[0].tables["t"].deadline_s == 2
    assert watched.reloads("applied") == 1


@pytest.mark.parametrize("earlier", ["a: " + "[" * 100_000, "a: 1" + ":1" * 300_000, "stores: &a {m: *a}"])
async def test_a_file_that_revokes_a_token_is_applied_after_any_other(tmp_path: Path, earlier: str) -> None:
    watched = Watched(tmp_path, auth={"tokens": tokens_of("first", "second")})
    async with watched.running():
        watched.file.write_text(earlier)
        await eventually(lambda: watched.reloads("refused") == 1)
        watched.write(auth={"tokens": tokens_of("first")})
        await eventually(lambda: len(watched.applied) == 1)
    assert watched.callers() == ["first"]


async def test_a_new_table_on_a_hung_store_does_not_delay_other_changes(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, answers = catalog._backends["local"], asyncio.Event()
    open_store = backend.store

    async def store(spec: TableSpec) -> Store:
        await answers.wait()
        return await open_store(spec)

    monkeypatch.setattr(backend, "store", store)
    monkeypatch.setattr("tableside.catalog.table_entry.RELOAD_OPEN_MAX_S", 0.01)
    await catalog.change(settings({"t": {"deadline_s": 1}, "hanging": {"deadline_s": 3600}}))
    assert catalog.entry("t").settings.deadline_s == 1
    assert catalog.entry("hanging").table is None
    answers.set()
    assert isinstance(await (await catalog.table("hanging")).one(put("a", {})), Written)


def tokens_of(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()} for name in names]


async def test_a_file_of_tokens_is_watched_too(tmp_path: Path) -> None:
    watched = Watched(tmp_path, auth={"tokens_file": "tokens.yaml"})  # in the directory of the configuration
    async with watched.running():
        await asyncio.sleep(0.05)
        watched.write_tokens("second")
        await eventually(lambda: len(watched.applied) == 1)
    assert watched.callers() == ["second"]


@pytest.mark.parametrize("before", [None, "- {name: faulty}", "- ["])
async def test_a_file_of_tokens_of_a_rejected_configuration_is_watched(tmp_path: Path, before: str | None) -> None:
    watched = Watched(tmp_path, auth={"tokens_file": "tokens.yaml"})
    async with watched.running():
        watched.tokens = tmp_path / "second.yaml"
        if before is not None:
            watched.tokens.write_text(before)
        watched.write(auth={"tokens_file": watched.tokens.name})
        await eventually(lambda: watched.reloads("refused") >= 1)
        watched.write_tokens("a")
        await eventually(lambda: len(watched.applied) >= 1)
    assert watched.callers() == ["a"]


async def test_a_missing_file_of_tokens_does_not_hide_a_change_of_the_configuration(tmp_path: Path) -> None:
    watched = Watched(tmp_path, auth={"tokens_file": str(tmp_path / "tokens.yaml")})
    async with watched.running():
        await asyncio.sleep(0.05)
        watched.tokens.unlink()
        watched.write(auth={"tokens": tokens_of("a")})
        await eventually(lambda: len(watched.applied) >= 1)
    assert watched.callers() == ["a"]


# A real service


def configuration(**table: Any) -> str:
    return yaml.safe_dump(
        {"stores": {"local": {"kind": "rocksdb", "path": "data"}}, "tables": {"t": {"store": "local", **table}}}
    )


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Path]]:
    directory = tmp_path_factory.mktemp("reloading")
    file = directory / "tableside.yaml"
    file.write_text(configuration())
    with running(directory, file) as running_service:
        yield running_service, file


def deadline_s(url: str) -> float | None:
    try:
        found: float = httpx.get(f"{url}/v1/tables/t").json()["policies"]["deadline_s"]
    except httpx.TransportError:
        return None  # for a moment no worker serves
    return found


def until_deadline_is(url: str, expected_s: float) -> None:
    until(lambda: deadline_s(url) == expected_s)


def test_a_running_service_applies_its_file_under_load_and_drops_no_request(service: tuple[Service, Path]) -> None:
    running_service, file = service
    stop, failures, written = threading.Event(), list[int](), list[int]()

    def load(writer: int) -> None:
        with httpx.Client(base_url=running_service.url) as client:
            body = {"update": {"$inc": {"n": 1}}, "default": {"n": 0}}
            while not stop.is_set():
                status = client.patch("/v1/tables/t/records/a", json=body).status_code
                (written if status in (201, 204) else failures).append(status)

    threads = [threading.Thread(target=load, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for number in range(3):
        file.write_text(configuration(deadline_s=20 + number, cache={"records_max": 9, "ttl_s": 1 + number}))
        until_deadline_is(running_service.url, 20 + number)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert httpx.get(f"{running_service.url}/v1/tables/t/records/a").json() == {"n": len(written)}


def test_a_faulty_file_is_logged_and_the_settings_stay(
    service: tuple[Service, Path],
) -> None:
    running_service, file = service
    file.write_text(configuration(deadline_s=7))
    until_deadline_is(running_service.url, 7)
    file.write_text(configuration(deadline_s=-1, colour="red"))
    until(lambda: "tables.t.colour" in running_service.log.read_text())
    assert "tables.t.deadline_s" in running_service.log.read_text()
    assert deadline_s(running_service.url) == 7
    assert httpx.get(f"{running_service.url}/readyz").status_code == 200
    metrics = httpx.get(f"{running_service.url}/metrics").text
    assert 'tableside_settings_reloads_total{outcome="refused"} 1.0' in metrics


def test_a_replacement_worker_uses_the_accepted_settings_if_the_file_is_faulty(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    file = tmp_path / "tableside.yaml"
    given = kind("redis", request, tmp_path).configuration()
    file.write_text(yaml.safe_dump(given))
    with running(tmp_path, file, workers=2) as service:
        given["tables"]["t"]["deadline_s"] = 7
        file.write_text(yaml.safe_dump(given))
        until_deadline_is(service.url, 7)
        file.write_text("stores: [")
        before = {*service.worker_pids}
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len({*service.worker_pids} - before) == 2)
        until_deadline_is(service.url, 7)
