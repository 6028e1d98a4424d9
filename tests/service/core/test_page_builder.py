"""Collects records of a page, in columns or as objects. The limit on its bytes includes keys as JSON shows them."""

import json

import pyarrow as pa
import pytest

from tableside.core import (
    COLUMN_BYTES_MAX,
    KEYS_MIN,
    Key,
    KeyField,
    KeySchema,
    Page,
    PageBuilder,
    Put,
    Record,
    RecordColumns,
    Scan,
    TableSpec,
)
from tableside.core.columns import KeyedRecords
from tableside.core.operations import key_bytes
from tableside.stores import partitioned
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
    assert not PageBuilder(Scan(1000, bytes_max=100_000)).add_all([WIDE] * 3, [RECORD] * 3)
    assert PageBuilder(Scan(1000, bytes_max=100_000)).add_all([WIDE] * 2, [RECORD] * 2)


KEYS = [f"{index}" for index in range(6)]
RECORDS = [Record(b'{"n":%d}' % index, f"e{index}") for index in range(6)]


def in_columns(keys: list[str], records: list[Record]) -> tuple[pa.Array, RecordColumns]:
    columns = KeyedRecords.of(keys, records, pa.utf8())
    return columns.keys, columns.records


def test_records_that_do_not_expire_join_columns() -> None:
    page = PageBuilder(Scan(1000))
    assert page.add_columns(*in_columns(KEYS[:3], RECORDS[:3]))
    assert page.add_all(KEYS[3:], RECORDS[3:])
    assert isinstance(page.result, KeyedRecords)
    assert [*page.result] == [*zip(KEYS, RECORDS, strict=True)]
    assert page.count == 6
    objects = PageBuilder(Scan(1000))
    assert objects.add_all(KEYS[:3], RECORDS[:3])
    assert objects.add_all(KEYS[3:], RECORDS[3:])
    assert objects.bytes_left == page.bytes_left


@pytest.mark.parametrize("alone", [True, False])
def test_a_record_that_expires_or_is_added_alone_ends_columns(alone: bool) -> None:
    page, more = PageBuilder(Scan(1000)), Record(b"{}", "e", 0 if alone else 1)
    assert page.add_columns(*in_columns(KEYS[:3], RECORDS[:3]))
    if alone:
        page.add("x", more)
    else:
        assert page.add_all(["x"], [more])
    assert page.result == [*zip(KEYS[:3], RECORDS[:3], strict=True), ("x", more)]
    assert page.add_columns(*in_columns(KEYS[3:], RECORDS[3:])) == alone
    assert alone or page.add_all(KEYS[3:], RECORDS[3:])
    assert (page.count, page.room) == (7, 993)


@pytest.mark.parametrize("count", [1, KEYS_MIN, KEYS_MIN + 1])
def test_a_few_records_before_columns_join_them(count: int) -> None:
    page, keys = PageBuilder(Scan(1000)), [f"x{index}" for index in range(count)]
    assert page.add_all(keys, [RECORDS[0]] * count)
    joined = page.add_columns(*in_columns(KEYS, RECORDS))
    assert joined == isinstance(page.result, KeyedRecords) == (count <= KEYS_MIN)
    assert [*page.result] == [*zip(keys + KEYS, [RECORDS[0]] * count + RECORDS, strict=True)][: page.count]


def test_columns_beyond_their_limit_of_bytes_become_objects() -> None:
    page, large = PageBuilder(Scan(1000)), [Record(b"x" * (COLUMN_BYTES_MAX // 5), "e")] * 6
    assert page.add_columns(*in_columns(KEYS[:3], large[:3]))
    assert not page.add_columns(*in_columns(KEYS[3:], large[3:]))
    assert page.add_all(KEYS[3:], large[3:])
    assert page.result == [*zip(KEYS, large, strict=True)]


def test_columns_with_an_absent_record_or_too_many_records_are_not_added() -> None:
    page, (keys, records) = PageBuilder(Scan(5)), in_columns(KEYS, RECORDS)
    assert not page.add_columns(keys, records)
    absent = RecordColumns(pa.array([b"{}", None], pa.binary()), pa.array(["e", None], pa.utf8()))
    assert not page.add_columns(keys[:2], absent)
    assert page.add_columns(keys[:5], records[:5])
    assert page.complete


def test_columns_end_a_page_at_its_limit_of_records_and_never_exceed_it() -> None:
    page = PageBuilder(Scan(5))
    assert page.add_columns(*in_columns(KEYS[:3], RECORDS[:3]))
    assert not page.add_all(KEYS[3:], RECORDS[3:])
    assert page.add_all(KEYS[3:5], RECORDS[3:5])
    assert page.complete
    assert isinstance(page.result, KeyedRecords)


def test_the_keys_of_all_partitions_count() -> None:
    page = partitioned.scans.PageBuilder(Scan(1000, bytes_max=90_000))
    page.add(Page([(WIDE, RECORD)], None), 0)
    assert not page.full
    page.add(Page([(WIDE, RECORD)], None), 1)
    assert page.full


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
