"""RocksDB does large work in short turns: scans, splits, batches of writes and the sweep leave time for other calls."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from contract import Time, pages, put, scanned, written
from service.stores.test_rocksdb import database
from tableside.core.budget import Budget
from tableside.core.errors import DeadlineExceeded
from tableside.core.operations import Get, Operation, Written
from tableside.core.page_builder import PAGE_SKIPPED_MAX
from tableside.core.store import Scan, Store, TableSpec
from tableside.stores.rocksdb import RocksdbBackend, group_commit
from tableside.stores.rocksdb.scans import KEYS_PER_TURN_MAX


@pytest.fixture
def time() -> Time:
    return Time(real=False)


@pytest.fixture
async def backend(tmp_path: Path, time: Time) -> AsyncIterator[RocksdbBackend]:
    async with database(tmp_path, time) as opened:
        yield opened


@pytest.fixture
async def store(backend: RocksdbBackend) -> Store:
    return await backend.store(TableSpec("t"))


@pytest.fixture
def examined(backend: RocksdbBackend, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of keys that each turn of a scan examines, as far as there are turns."""
    counts: list[int] = []
    run_scan, items = backend._database.run_scan, backend._database.items

    async def run(turn: Callable[[], Any]) -> Any:
        counts.append(0)
        return await run_scan(turn)

    def counted(*arguments: Any) -> Any:
        found, more = items(*arguments)
        counts[-1] += len(found)
        return found, more

    monkeypatch.setattr(backend._database, "run_scan", run)
    monkeypatch.setattr(backend._database, "items", counted)
    return counts


async def fill_expired(store: Store, time: Time, count: int) -> None:
    """Add expired records, and a live one after them."""
    await store.apply([put(f"{index:06}", {}, ttl_s=1) for index in range(count)])
    await written(store, put("live"))
    await time.passes(1.0)


async def test_a_page_ends_early_among_expired_records(store: Store, time: Time, examined: list[int]) -> None:
    await fill_expired(store, time, 2 * PAGE_SKIPPED_MAX + 1)
    found = await pages(store, Scan(1))
    assert [len(page.records) for page in found] == [0, 0, 1]
    assert max(examined) <= KEYS_PER_TURN_MAX + 1


async def test_a_cancelled_scan_ends_with_its_turn(store: Store, time: Time, examined: list[int]) -> None:
    await fill_expired(store, time, 3 * KEYS_PER_TURN_MAX)
    scan = asyncio.create_task(store.scan(Scan(1)))
    while not examined:
        await asyncio.sleep(0)
    scan.cancel()
    await asyncio.wait([scan])
    assert await store.apply([Get(f"missing-{index}") for index in range(100)]) == [None] * 100
    assert len(examined) == 1


async def test_other_writes_run_between_the_turns_of_a_large_batch(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "OPERATIONS_PER_TURN_MAX", 10)
    finished: list[str] = []

    async def apply(name: str, operations: list[Operation]) -> None:
        outcomes = await store.apply(operations)
        assert {type(outcome) for outcome in outcomes} == {Written}
        finished.append(name)

    await asyncio.gather(apply("large", [put(f"a{index}") for index in range(100)]), apply("small", [put("b")]))
    assert finished == ["small", "large"]
    assert len(await scanned(store, limit=1000)) == 101


async def test_a_large_batch_ends_at_its_deadline(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "OPERATIONS_PER_TURN_MAX", 10)
    outcomes = await store.apply([put(f"{index:02}") for index in range(30)], Budget(asyncio.get_running_loop().time()))
    assert {type(outcome) for outcome in outcomes[:10]} == {Written}
    late = [outcome for outcome in outcomes[10:] if isinstance(outcome, DeadlineExceeded)]
    assert [outcome.applied for outcome in late] == ["no"] * 20
    assert len(await scanned(store)) == 10
