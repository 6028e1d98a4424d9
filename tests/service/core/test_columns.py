"""Columns of operations and of outcomes are sequences of the usual objects, at any offset in their buffers."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tableside.core import COLUMN_BYTES_MAX, READ_BYTES_MAX
from tableside.core.columns import (
    GetColumn,
    PutColumn,
    RecordColumns,
    WrittenColumn,
    column_of_equal_lengths,
    etag_column,
    text_of,
)
from tableside.core.directions import all_succeeded, count_reads
from tableside.core.operations import Get, Put, Record, Written
from tableside.core.transitions import are_plain_puts
from tableside.http.wire.answers import valid_operations

TEXTS = [f"k{number}" for number in range(6)] + ["ü", "x" * 40, "🛫", "k"]
NUMBERS = [0, 1, -1, 7, 2**63 - 1, -(2**63), 8, 9, 10, 11]
RECORDS = [
    Record(b'{"n":1}', "e0"),
    None,
    Record(b"{}", "e1"),
    Record(b'{"s":"\xc3\xbc"}', "e2"),
    None,
    None,
    Record(b'{"text":"' + b"x" * 50 + b'"}', "e3"),
    Record(b"{}", "e1"),
    None,
    Record(b'{"n":2}', "e4"),
]
VALUES = [b"{}", b'{"n":1}', '{"s":"ü"}'.encode(), b'{"text":"' + b"x" * 50 + b'"}', b'{"n":1}'] * 2
ETAGS = [f"{number * 7919 % 10:032x}" for number in range(10)]
SLICES = [
    slice(None), slice(3), slice(3, None), slice(2, 7), slice(-4, -1), slice(5, 5), slice(20, 30), slice(0, 100),
    slice(None, None, 2), slice(1, 9, 3), slice(None, None, -1), slice(8, 1, -2),
]  # fmt: skip


def gets(keys: Sequence[Any]) -> GetColumn:
    return GetColumn(pa.array(keys))


def puts(keys: Sequence[Any], values: Sequence[bytes] = VALUES) -> PutColumn:
    return PutColumn(pa.array(keys), pa.array(values, pa.binary()))


def put_objects(keys: Sequence[Any], values: Sequence[bytes] = VALUES) -> list[Put]:
    return [Put(key, value) for key, value in zip(keys, values, strict=True)]


def written(etags: Sequence[str]) -> WrittenColumn:
    return WrittenColumn(pa.array(etags, pa.utf8()))


def records(outcomes: Sequence[Record | None]) -> RecordColumns:
    return RecordColumns(
        pa.array([None if outcome is None else outcome.value for outcome in outcomes], pa.binary()),
        pa.array([None if outcome is None else outcome.etag for outcome in outcomes], pa.utf8()),
    )


@pytest.fixture(
    params=[
        lambda: (gets(TEXTS), list(map(Get, TEXTS))),
        lambda: (gets(NUMBERS), list(map(Get, NUMBERS))),
        lambda: (gets(["before", *TEXTS, "after"])[1:-1], list(map(Get, TEXTS))),
        lambda: (records(RECORDS), RECORDS),
        lambda: (records([RECORDS[0], None, *RECORDS, RECORDS[0]])[2:-1], RECORDS),
        lambda: (puts(TEXTS), put_objects(TEXTS)),
        lambda: (puts(NUMBERS), put_objects(NUMBERS)),
        lambda: (puts(["before", *TEXTS, "after"], [b"{}", *VALUES, b"{}"])[1:-1], put_objects(TEXTS)),
        lambda: (PutColumn(gets(["before", *TEXTS])[1:].keys, puts(TEXTS).values), put_objects(TEXTS)),
        lambda: (written(ETAGS), list(map(Written, ETAGS))),
        lambda: (written(["before", *ETAGS, "after"])[1:-1], list(map(Written, ETAGS))),
    ],
    ids=[
        *("texts", "integers", "gets with an offset", "records", "records with an offset"),
        *("puts", "puts with integers", "puts with an offset", "puts with an offset of the keys"),
        *("writes", "writes with an offset"),
    ],
)
def both(request: pytest.FixtureRequest) -> Any:
    """A column, and the same objects in a list."""
    return request.param()


def test_the_objects_of_a_column_go_by_their_index(both: tuple[Any, list[Any]]) -> None:
    column, objects = both
    count = len(objects)
    assert len(column) == count
    assert [column[index] for index in range(-count, count)] == objects * 2
    for outside in (count, -count - 1):
        with pytest.raises(IndexError):
            column[outside]


def test_a_column_is_iterated_like_a_list(both: tuple[Any, list[Any]]) -> None:
    column, objects = both
    assert [list(column), list(column), [*reversed(column)]] == [objects, objects, objects[::-1]]
    assert [each in column for each in objects] == [True] * len(objects)
    assert Get("other") not in column
    assert [column.count(each) for each in objects] == [objects.count(each) for each in objects]


@pytest.mark.parametrize("part", SLICES, ids=str)
def test_a_slice_of_a_column_is_a_column(both: tuple[Any, list[Any]], part: slice) -> None:
    column, objects = both
    assert type(column[part]) is type(column)
    assert list(column[part]) == objects[part]
    assert list(column[part][1:]) == objects[part][1:]
    assert list(column) == objects, "the column is unchanged"


def test_columns_with_one_row() -> None:
    for column, only in (
        (gets(["a"]), Get("a")),
        (records(RECORDS[:1]), RECORDS[0]),
        (records([None]), None),
        (puts(["a"], [b"{}"]), Put("a", b"{}")),
        (written(["e"]), Written("e")),
    ):
        assert (len(column), list(column), column[0], column[-1], only in column) == (1, [only], only, only, True)


def test_columns_without_rows() -> None:
    for column in (
        *(gets(TEXTS)[:0], GetColumn(pa.array([], pa.int64())), records([]), records(RECORDS)[:0]),
        *(puts(TEXTS)[:0], puts([], []), written(ETAGS)[:0], written([])),
    ):
        assert (len(column), list(column), list(column[:5])) == (0, [], [])
    assert (records([]).absent_count, records([]).value_bytes, gets(TEXTS)[:0].keys_differ) == (0, 0, True)


@pytest.mark.parametrize("part", SLICES, ids=str)
@pytest.mark.parametrize("outcomes", [RECORDS, [None] * 10, RECORDS[:1] * 10], ids=["some", "none", "all"])
def test_absent_records_and_the_bytes_of_values_are_counted(outcomes: list[Record | None], part: slice) -> None:
    for column in (records(outcomes)[part], records([RECORDS[6], *outcomes])[1:][part]):
        assert column.absent_count == outcomes[part].count(None)
        assert column.value_bytes == sum(len(outcome.value) for outcome in outcomes[part] if outcome is not None)


@pytest.mark.parametrize("part", SLICES, ids=str)
@pytest.mark.parametrize("kind", [pa.utf8(), pa.binary()], ids=str)
def test_the_text_of_a_column_consists_of_its_rows(kind: pa.DataType, part: slice) -> None:
    rows = [None, "a", "", "ü", "bc", None, "d" * 70, "\0", "e", None]
    column = pa.array(rows).cast(kind)
    assert text_of(column[part]) == "".join(row or "" for row in rows[part]).encode()
    assert text_of(column[2:][1:4]) == "übc".encode()
    assert text_of(column[1:]) == text_of(column)


@pytest.mark.parametrize("empty", [pa.array([], pa.utf8()), pa.nulls(3, pa.binary()), pa.array(["", ""]), pa.nulls(0)])
def test_a_column_may_have_no_text(empty: pa.Array) -> None:
    assert text_of(empty) == b""


@pytest.mark.parametrize("length", [1, 16, 32])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 8, 9, 31, 32, 33, 1000])
def test_etags_of_one_length_become_a_column(count: int, length: int) -> None:
    etags = [f"{index:0{length}x}"[-length:] for index in range(count)]
    column = etag_column("".join(etags), pa.array([b"x"] * count, pa.binary()))
    column.validate(full=True)
    assert (column.type, column.null_count, column.to_pylist()) == (pa.utf8(), 0, etags)


@pytest.mark.parametrize("count", [0, 1, 2, 31, 32, 1000])
@pytest.mark.parametrize("kind", [pa.binary(), pa.utf8()], ids=str)
def test_texts_of_one_length_become_a_column(kind: pa.DataType, count: int) -> None:
    texts = [f"{index:03}" for index in range(count)]
    column = column_of_equal_lengths("".join(texts).encode(), count, kind)
    column.validate(full=True)
    assert column.type == kind
    assert column.cast(pa.utf8()).to_pylist() == texts


@pytest.mark.parametrize("absent", [{0}, {4}, {1, 2}, {0, 1, 2, 3, 4}], ids=str)
def test_an_absent_record_has_no_etag(absent: set[int]) -> None:
    etags = [f"{index:032x}" for index in range(5)]
    like = pa.array([None if index in absent else b"x" for index in range(5)], pa.binary())
    expected = [None if index in absent else etag for index, etag in enumerate(etags)]
    assert etag_column("".join(etags), like).to_pylist() == expected
    shifted = pa.array([b"x", None, *like.to_pylist()], pa.binary())[2:]
    assert etag_column("".join(etags), shifted).to_pylist() == expected


def test_repeated_keys_are_found() -> None:
    for keys, other in ((TEXTS, "other"), (NUMBERS, 12)):
        assert gets([*keys, other]).keys_differ
        assert not gets([*keys, keys[0]]).keys_differ
        assert gets([*keys, keys[0]])[1:].keys_differ, "the other one is not in the slice"
        assert puts([*keys, other], [b"{}"] * 11).keys_differ
        assert not puts([*keys, keys[0]], [*VALUES, b"{}"]).keys_differ
        assert puts([*keys, keys[0]], [b"{}"] * 11)[1:].keys_differ


def test_batches_in_columns_are_classified_without_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(column: object) -> None:
        raise AssertionError("objects are made")

    for kind in (GetColumn, PutColumn, RecordColumns, WrittenColumn):
        monkeypatch.setattr(kind, "_make", fails)
    column, writes = gets(TEXTS), puts(TEXTS)
    assert (count_reads(column), count_reads(writes)) == (len(TEXTS), 0)
    assert all_succeeded(records(RECORDS))
    assert all_succeeded(written(ETAGS))
    assert valid_operations(column) is column
    assert valid_operations(writes) is writes


def test_the_puts_of_a_column_are_plain() -> None:
    assert are_plain_puts(puts(TEXTS))
    assert all(type(put.value) is bytes for put in puts(TEXTS))
    assert all(type(put.key) is int for put in puts(NUMBERS))


def test_a_call_in_columns_is_smaller_than_a_call_that_leaves_records_unread() -> None:
    assert COLUMN_BYTES_MAX < READ_BYTES_MAX, "a column has no row for a record that was not read"
