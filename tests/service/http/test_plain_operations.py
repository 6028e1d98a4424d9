"""Operations without special members are decoded together, with the same result as decoding each separately."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pieces import finish
from tableside.core import (
    Get,
    KeyField,
    KeySchema,
    Operation,
    Record,
    TableError,
    TableSpec,
    TooLarge,
    Update,
    Written,
)
from tableside.core.concurrency import Pieces, in_pieces
from tableside.core.directions import AllReads
from tableside.core.operations import Token
from tableside.http.wire import arrow_answers, arrow_batch, json_batch
from tableside.http.wire.answers import answers, valid_operations
from tableside.http.wire.arrow_runs import RUN_ROWS_MIN, runs
from tableside.http.wire.plain_operations import plain_gets, plain_operations, plain_puts

SPECS = [
    TableSpec("t"),
    TableSpec("t", KeySchema((KeyField("n", "integer"),))),
    TableSpec("t", KeySchema((KeyField(None, "integer"),))),
]
KEYS: list[Any] = ["a", "ü", "", "a\0", "x" * 1025, 7, 2**63, True, None, 1.0]
VALUES = [
    *("{}", '{"a":1}', '{"a":1.0}', '{"a": 1e2}', '{"n":7}', '{"n":8}', '{"a":"1\\n2"}', '{"a":[{"b":[]}]}'),
    *("[1]", "1", "null", "", "{", "{},{}", "{}\n{}", '{"":1}', '{"_ts":1}', '{"a":"\\u0000"}', '{"a":NaN}'),
    *(f'{{"a":{2**63}}}', f'{{"a":{2**63 - 1}}}', '{"a":-0.0}', '{"a":' + "[" * 29 + "]" * 29 + "}"),
    *('{"a":' + "[" * 30 + "]" * 30 + "}", '{"a":"' + "x" * 5000 + '"}', '{"a":"\\ud800"}'),
]


def finished(work: Pieces[json_batch.Batch]) -> list[str]:
    """Return the operations of a batch, as text because errors have no equality."""
    return [described(operation) for operation in finish(work).operations]


def described(operation: Operation | TableError) -> str:
    """Return an operation, or the error that it is."""
    return f"{type(operation).__name__} {operation}"


def from_json(raws: Sequence[Any], spec: TableSpec) -> list[str]:
    return finished(json_batch.decode(json.dumps({"operations": raws}).encode(), spec, 10_000))


def from_arrow(columns: dict[str, Any], spec: TableSpec, op: str | None = None) -> list[str]:
    return finished(arrow_batch.decode(pa.table(columns), spec, arrow_batch.RowSettings(op)))


def each(decode: Any, rows: Sequence[Any]) -> list[str]:
    """Decode every row in a separate batch."""
    return [operation for row in rows for operation in decode([row])]


@pytest.mark.parametrize("spec", SPECS, ids=["string", "named integer", "integer"])
@given(rows=st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES[:8])), min_size=1, max_size=5))
def test_a_batch_of_json_equals_its_operations_decoded_separately(spec: TableSpec, rows: list[tuple[Any, str]]) -> None:
    puts = [{"op": "put", "key": key, "value": json.loads(text)} for key, text in rows]
    gets = [{"op": "get", "key": key} for key, _ in rows]
    updates = [{"op": "update", "key": key, "update": json.loads(text)} for key, text in rows]
    for raws in (puts, gets, updates, [*puts, *gets]):
        assert from_json(raws, spec) == each(lambda one: from_json(one, spec), raws)


@given(texts=st.lists(st.sampled_from(VALUES), min_size=1, max_size=5))
@pytest.mark.parametrize("op", ["put", "update"])
def test_a_batch_of_arrow_equals_its_rows_decoded_separately(op: str, texts: list[str]) -> None:
    name = {"put": "value", "update": "update"}[op]

    def decode(rows: list[str]) -> list[str]:
        return from_arrow({"key": ["a"] * len(rows), name: rows}, SPECS[0], op)

    assert decode(texts) == each(decode, texts)


@pytest.mark.parametrize("spec", SPECS, ids=["string", "named integer", "integer"])
@pytest.mark.parametrize("op", ["put", "update"])
@given(
    rows=st.lists(
        st.tuples(
            st.integers(7, 9),
            st.sampled_from([*VALUES[:6] * 50, *VALUES]),
            st.sampled_from([*VALUES[:6] * 50, *VALUES, None]),
            st.sampled_from([*range(40), 2**63 - 1, 2**63, None]),
        ),
        min_size=1,
        max_size=5,
    ),
    writer=st.sampled_from([*["w"] * 20, "", "x" * 129]),
    has_default=st.booleans(),
)
def test_writes_with_tokens_and_defaults_equal_rows_decoded_one_by_one(
    spec: TableSpec, op: str, rows: list[tuple[int, str, str | None, int | None]], writer: str, has_default: bool
) -> None:
    numbers, texts, defaults, sequences = zip(*rows, strict=True)
    keys = numbers if spec.key.fields[0].type == "integer" else [*map(str, numbers)]
    columns = {"key": keys, "value" if op == "put" else "update": texts, "sequence": pa.array(sequences, pa.uint64())}
    if has_default and op == "update":
        columns["default"] = pa.array(defaults, pa.utf8())
    together = arrow_batch.decode(pa.table(columns), spec, arrow_batch.RowSettings(op, writer))
    columns["op"] = [op] * len(keys)  # So few rows with this column are decoded one by one.
    one_by_one = arrow_batch.decode(pa.table(columns), spec, arrow_batch.RowSettings(writer=writer))
    assert finished(together) == finished(one_by_one)


@pytest.mark.parametrize("columns", [{"value": "{}"}, {"update": "{}", "default": "{}"}], ids=["put", "update"])
def test_writes_with_tokens_are_decoded_together(columns: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_batch._RowDecoder, "_mixed", None)
    rows = pa.table({"key": ["a", "b"], "sequence": [1, 2], **{name: [text] * 2 for name, text in columns.items()}})
    settings = arrow_batch.RowSettings("put" if "value" in columns else "update", "w")
    operations: Any = finish(arrow_batch.decode(rows, SPECS[0], settings)).operations
    assert [operation.token for operation in operations] == [Token("w", 1), Token("w", 2)]


@pytest.mark.parametrize("kind", [pa.utf8(), pa.large_utf8(), pa.string_view(), pa.dictionary(pa.int8(), pa.utf8())])
@given(ops=st.lists(st.sampled_from(["get", "put", "update", "delete", "other", None]), min_size=1, max_size=6))
def test_runs_of_operations_equal_rows_decoded_separately(kind: pa.DataType, ops: list[str | None]) -> None:
    ops = [op for op in ops for _ in range(RUN_ROWS_MIN)]
    values = ['{"a":1}' if op == "put" else None for op in ops]
    changes = ['{"$inc":{"a":1}}' if op == "update" else None for op in ops]
    rows = pa.table({"key": ["a"] * len(ops), "op": pa.array(ops).cast(kind), "value": values, "update": changes})

    def decode(table: pa.Table) -> list[str]:
        return finished(arrow_batch.decode(table, SPECS[0], arrow_batch.RowSettings()))

    assert decode(rows) == [operation for index in range(len(ops)) for operation in decode(rows.slice(index, 1))]


def test_an_op_column_with_one_value_is_the_parameter_op() -> None:
    [(op, rows)] = runs(pa.table({"key": ["a"] * 20, "op": ["get"] * 20, "value": pa.nulls(20, pa.utf8())}))
    assert (op, rows.column_names) == ("get", ["key"])


def test_a_run_keeps_the_column_partitions_without_values() -> None:
    partitions = pa.nulls(20, pa.list_(pa.int32()))
    [(_, rows)] = runs(pa.table({"key": ["a"] * 20, "op": ["delete"] * 20, "partitions": partitions}))
    assert rows.column_names == ["key", "partitions"]


def test_short_runs_are_not_divided() -> None:
    rows = pa.table({"key": ["a"] * 20, "op": ["get", "delete"] * 10})
    assert [(op, run.num_rows) for op, run in runs(rows)] == [(None, 20)]


def test_gets_and_puts_are_decoded_together() -> None:
    spec = TableSpec("t")
    assert plain_gets(["a", "b"], spec)
    assert plain_puts(["a"], [b'{"a":[1.5,{"b":1}]}'], spec, [None])
    assert plain_operations([{"op": "get", "key": "a"}], spec)
    assert plain_operations([{"op": "put", "key": "a", "value": {}}], spec)
    assert plain_operations([{"op": "update", "key": "a", "update": {"$inc": {"n": 1}}}], spec)


def test_equal_updates_are_parsed_once_and_others_are_not_mistaken_for_them() -> None:
    changes = [{"$inc": {"n": 1}}, {"$inc": {"n": 1}}, {"$set": {"n": 1}}, {"$set": {"n": True}}]
    found = plain_operations([{"op": "update", "key": "a", "update": change} for change in changes], TableSpec("t"))
    assert found is not None
    first, second, number, boolean = (operation.changes for operation in found if isinstance(operation, Update))
    assert first is second
    assert str(number) != str(boolean)
    assert plain_operations([{"op": "update", "key": "a", "update": {"$inc": {"n": True}}}], TableSpec("t")) is None


@pytest.mark.parametrize(
    "raws",
    [
        [1],
        [[]],
        [{}],
        [{"op": []}],
        [{"op": "get"}],
        [{"op": "get", "key": "a", "fields": ["b"]}],
        [{"op": "put", "key": "a", "ttl_s": 1}],
        [{"op": "get", "key": "a"}, {"op": "put", "key": "a", "value": {}}],
    ],
    ids=str,
)
def test_other_operations_are_decoded_separately(raws: list[Any]) -> None:
    assert plain_operations(raws, TableSpec("t")) is None


async def test_found_records_are_encoded_at_once_with_the_same_result() -> None:
    records = [Record(b'{"a":%d}' % index, f"e{index}") for index in range(600)]
    found = await in_pieces(answers(records, bytes_max=10**6, operations=records))
    assert await in_pieces(json_batch.encode_records(records)) == await in_pieces(json_batch.encode(found))


async def test_writes_are_encoded_at_once_with_the_same_result() -> None:
    writes = [Written(f"e{index}", created=index % 3 == 0, expires_ms=index % 2) for index in range(600)]
    found = await in_pieces(answers(writes, bytes_max=10**6, operations=writes))
    assert await in_pieces(arrow_answers.encode_writes(writes)) == await in_pieces(arrow_answers.encode(found))
    assert await in_pieces(json_batch.encode_writes(writes)) == await in_pieces(json_batch.encode(found))


def test_a_batch_of_gets_is_marked_as_reads_only() -> None:
    put = plain_puts(["a"], [b"{}"], SPECS[0], [None]) or []
    assert type(valid_operations([Get("a"), Get("b")])) is AllReads
    assert valid_operations([Get("a"), TooLarge("b")]) == [Get("a")]
    assert type(valid_operations([Get("a"), *put])) is not AllReads
