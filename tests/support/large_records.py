"""Records that are too large to be read together."""

import tracemalloc
from collections.abc import Sequence

from contract import put, update
from tableside.catalog import Table
from tableside.core import NOT_READ, Delete, Get, Key, Operation, Outcome, Record, Written, decode
from tableside.core.budget import Budget, ValueRoom
from tableside.core.operations import Token
from tableside.core.store import Scan, Store

MIB = 2**20
COUNT = 120
UPDATE_MEMORY_MAX = 192 * MIB
"""Bounds the memory of one call that reads at most 8 MiB of records to update them."""

MEMORY_MAX = 112 * MIB
"""Bounds the memory of one call: the replies have at most 32 MiB, and a store copies them at most twice."""

GETS: list[Operation] = [Get(f"k{index}") for index in range(COUNT)]


async def write(store: Store) -> None:
    """Write records of almost a mebibyte each, which an update may still extend."""
    for index in range(COUNT):
        [outcome] = await store.apply([put(f"k{index}", {"n": index, "text": "x" * (MIB - 100)})])
        assert isinstance(outcome, Written)


async def delete(store: Store) -> None:
    """Delete the records."""
    await store.apply([Delete(f"k{index}") for index in range(COUNT)])


async def assert_read_in_pieces(store: Store) -> None:
    """Check that calls read a few of the records, and that a table reads as many as its response has room for."""
    for _ in range(3):
        peak_bytes, outcomes = await _measured(store, GETS)
        assert peak_bytes < MEMORY_MAX
        assert isinstance(outcomes[0], Record)
        assert outcomes.count(NOT_READ) >= COUNT / 2
        assert all(isinstance(outcome, Record) or outcome is NOT_READ for outcome in outcomes)
    read = await Table(store, deadline_s=60).batch(GETS, Budget(room=ValueRoom(40 * MIB)))
    found = [outcome for outcome in read if outcome is not NOT_READ]
    assert 40 <= len(found) <= 80
    assert all(isinstance(outcome, Record) for outcome in found)


async def assert_updated_in_pieces(store: Store) -> None:
    """Check that calls that read records to update them read a few, and that a table updates each record once."""
    for token in (None, Token("w", 1)):
        updates: list[Operation] = [
            update(f"k{index}", {"$inc": {"n": 1}, "$push": {"seen": token is None}}, token=token)
            for index in range(COUNT)
        ]
        peak_bytes, outcomes = await _measured(store, updates)
        assert peak_bytes < UPDATE_MEMORY_MAX
        assert isinstance(outcomes[0], Written)
        assert outcomes.count(NOT_READ) >= COUNT / 2
        waiting = [updates[index] for index, outcome in enumerate(outcomes) if outcome is NOT_READ]
        assert all(isinstance(each, Written) for each in await Table(store, deadline_s=60).batch(waiting))
    for index in range(COUNT):
        [found] = await store.apply([Get(f"k{index}")])
        assert isinstance(found, Record)
        record = decode(found.value)
        assert (record["n"], record["seen"]) == (index + 2, [True, False])


async def assert_scanned(store: Store) -> None:
    """Check that scans return all records, in pages of bounded size."""
    position: bytes | None = None
    keys: list[Key] = []
    while position is not None or not keys:
        page = await store.scan(Scan(1000, position=position, bytes_max=16 * MIB))
        assert len(page.records) <= 34
        keys += [key for key, _ in page.records]
        position = page.position
    assert sorted(set(keys)) == sorted(f"k{index}" for index in range(COUNT))


async def _measured(store: Store, operations: list[Operation]) -> tuple[int, Sequence[Outcome]]:
    """Return the peak of the memory that a call took, in bytes, and its outcomes."""
    tracemalloc.start()
    try:
        outcomes = await store.apply(operations)
        return tracemalloc.get_traced_memory()[1], outcomes
    finally:
        tracemalloc.stop()
