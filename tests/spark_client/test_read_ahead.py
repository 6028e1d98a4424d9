"""Reading ahead keeps the order and errors, computes one item ahead, and scans use it."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from tableside_client.connection import Connection
from tableside_spark.datasource.options import ReadOptions, TableOptions
from tableside_spark.datasource.reader import Decoder, KeyLookup, PageScan, TableReader
from tableside_spark.executor.task_client import read_ahead
from tableside_spark.plan.table_schema import TableSchema

WAIT_MAX_S = 30


class Source:
    """Numbers from 0. An event is set for each number that has been computed."""

    def __init__(self, count: int) -> None:
        self.computed = [threading.Event() for _ in range(count)]

    def __iter__(self) -> Iterator[int]:
        for number, event in enumerate(self.computed):
            event.set()
            yield number


def test_items_come_in_order() -> None:
    assert list(read_ahead(iter(range(10)))) == list(range(10))
    assert list(read_ahead(iter(()))) == []


def test_one_item_is_computed_ahead_of_the_consumer() -> None:
    source = Source(4)
    items = read_ahead(iter(source))
    assert next(items) == 0
    assert source.computed[1].wait(WAIT_MAX_S)
    assert next(items) == 1
    assert source.computed[2].wait(WAIT_MAX_S)
    assert not source.computed[3].is_set()


def test_an_error_is_raised_in_the_place_of_its_item() -> None:
    def source() -> Iterator[int]:
        yield 0
        raise LookupError("one")

    items = read_ahead(source())
    assert next(items) == 0
    with pytest.raises(LookupError, match="one"):
        next(items)


def test_closing_does_not_wait_for_the_item_ahead() -> None:
    started, released = threading.Event(), threading.Event()

    def source() -> Iterator[int]:
        yield 0
        started.set()
        assert released.wait(WAIT_MAX_S)
        yield 1

    items = read_ahead(source())
    assert next(items) == 0
    assert started.wait(WAIT_MAX_S)
    items.close()  # type: ignore[attr-defined] # it is a generator
    released.set()


def test_a_scan_requests_the_next_page_while_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(3)
    schema = StructType([StructField("key", StringType()), StructField("value", StringType())])
    target = TableOptions(Connection("http://127.0.0.1:1"), "t", ("key",), TableSchema())
    decoder = Decoder.from_schema(schema, target, "fail")

    def pages(_reader: TableReader, _part: PageScan | KeyLookup) -> Iterator[pa.Table]:
        return (pa.table({"key": [f"{number}"], "value": [b"{}"]}) for number in source)

    monkeypatch.setattr(TableReader, "_scan", pages)
    batches = TableReader(target, decoder, ReadOptions(1)).read(PageScan(None, None))
    assert next(batches)["key"].to_pylist() == ["0"]
    assert source.computed[1].wait(WAIT_MAX_S)
    assert [batch["key"].to_pylist() for batch in batches] == [["1"], ["2"]]
