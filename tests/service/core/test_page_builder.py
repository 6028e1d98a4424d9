"""Collects records of a page, in columns or as objects. The limit on its bytes includes keys as JSON shows them."""

import json
from collections.abc import Sequence

import pytest

from tableside.core import (
    Key,
    KeyField,
    KeySchema,
    PageBuilder,
    Put,
    Record,
    Results,
    Scan,
    TableSpec,
)
from tableside.core.operations import key_bytes
from tableside.stores.memory import MemoryStore

RECORD = Record(b"{}", "e")
WIDE = ("\1" * 1024,) * 8


@pytest.mark.parametrize("key", ["a", "key-000123", "ü" * 100, "\1" * 1024, ("a", 7), WIDE, 7, 2**63 - 1, -(2**63)])
def test_a_key_counts_with_its_size_in_json(key: Key) -> None:
    size = len(json.dumps(key, ensure_ascii=False, separators=(",", ":")).encode())
    assert size - 12 <= key_bytes(key) <= size + 100


def test_a_page_ends_when_its_keys_reach_the_limit_of_bytes() -> None:
    page = PageBuilder(Scan(1000, bytes_max=100_000))
    while not page.complete:
        page.add(WIDE, RECORD)
    assert len(page.records) == 3, "each has 48 KiB"
    assert not PageBuilder(Scan(1000, bytes_max=100_000)).add_all([WIDE] * 3, results([RECORD] * 3))
    assert PageBuilder(Scan(1000, bytes_max=100_000)).add_all([WIDE] * 2, results([RECORD] * 2))


def results(records: Sequence[Record | None]) -> Results:
    found = Results.of(records)
    assert found is not None
    return found


async def test_pages_of_long_keys_contain_every_record_once() -> None:
    store = MemoryStore(TableSpec("t", KeySchema((KeyField("a"), KeyField("b")))))
    keys = [(f"{index:02}", "\1" * 1000) for index in range(20)]
    await store.apply([Put(key, b"{}") for key in keys])
    found, scan = list[Key](), Scan(1000, bytes_max=20_000)
    for _ in range(5):
        page = await store.scan(scan)
        assert len(page.records) == 4
        found += [key for key, _ in page.records]
        scan = Scan(1000, bytes_max=20_000, position=page.position)
    assert page.position is None or not (await store.scan(scan)).records
    assert found == keys
