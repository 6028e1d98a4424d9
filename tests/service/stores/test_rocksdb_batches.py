"""RocksDB reads batches in turns and in calls of bounded size, and writes plain puts in one pass."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contract import one, put, written
from service.stores.test_rocksdb import database
from tableside.core.operations import Delete, Get, Operation, Outcome, Record, Token, Written
from tableside.core.store import Store, TableSpec
from tableside.stores.memory import MemoryStore
from tableside.stores.rocksdb import RocksdbBackend


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[RocksdbBackend]:
    async with database(tmp_path) as opened:
        yield opened


@pytest.fixture
async def store(backend: RocksdbBackend) -> Store:
    return await backend.store(TableSpec("t"))


STATES: dict[str, list[Operation]] = {
    "absent": [],
    "plain": [put("a")],
    "expiring": [put("a", ttl_s=1000)],
    "lower": [put("a", token=Token("w", 4))],
    "far lower": [put("a", token=Token("w", 0))],
    "same": [put("a", token=Token("w", 500))],
    "higher": [put("a", token=Token("w", 2**63 - 1))],
    "another writer": [put("a", token=Token("v", 9))],
    "a longer name": [put("a", token=Token("ww", 9))],
    "two writers": [put("a", token=Token("v", 9)), put("a", token=Token("w", 4))],
    "tombstone": [Delete("a", token=Token("w", 4))],
    "replayed tombstone": [Delete("a", token=Token("w", 500))],
}


@pytest.mark.parametrize("before", STATES.values(), ids=STATES.keys())
@pytest.mark.parametrize("options", [{}, {"ttl_s": 500}, {"returning": True}, {"if_match": ("*",)}], ids=str)
async def test_puts_with_tokens_have_the_outcomes_of_another_store(
    store: Store, before: list[Operation], options: dict[str, Any]
) -> None:
    token = Token("w", 500)
    found: list[object] = []
    for each in (store, MemoryStore(TableSpec("t"))):
        for operation in before:
            await written(each, operation)
        outcome = await one(each, put("a", {"n": 2}, token=token, **options))
        last = await one(each, Get("a"))
        if isinstance(outcome, Written) and isinstance(last, Record):
            assert outcome.etag == last.etag
        others = [Token("w", 500), Token("v", 9), Token("ww", 9), Token("w", 501)]
        replays = [(await written(each, put("a", {"n": 3}, token=other))).replayed for other in others]
        found.append((_described(outcome), _described(last), replays))
    assert found[0] == found[1]


def _described(outcome: Outcome) -> object:
    """Return an outcome without etag and time of expiry, which differ between stores."""
    if isinstance(outcome, Written):
        return outcome.created, outcome.replayed, outcome.value, outcome.expires_ms > 0
    return (outcome.value, outcome.expires_ms > 0) if isinstance(outcome, Record) else type(outcome)
