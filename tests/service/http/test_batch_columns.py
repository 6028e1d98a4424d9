"""Batches are decoded and encoded in columns. Each operation is what the rules for one operation say."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from service.http.api_client import read
from support.pieces import finish
from tableside.core import (
    KeyField,
    KeySchema,
    Operation,
    Outcome,
    Record,
    Results,
    StoreUnavailable,
    TableError,
    TableSpec,
    Written,
    values,
)
from tableside.http.wire import arrow_answers, arrow_batch, json_batch, operation_members
from tableside.http.wire.answers import answer
from tableside.http.wire.operation_columns import DecodedBatch

SPECS = [
    TableSpec("t"),
    TableSpec("t", KeySchema((KeyField("id"),)), value_bytes_max=60),
    TableSpec("t", KeySchema((KeyField("id", "integer"),))),
    TableSpec("t", KeySchema((KeyField("a"), KeyField("b", "integer")))),
    TableSpec("t", partitions=3),
]

keys = st.sampled_from(["k", "ü", "", "x" * 1025, "a\0", 7, 2**63, 1.0, True, None, ["p", 1], ["p", "q"], ["p"]])
DOCUMENTS: list[Any] = [
    *({}, {"n": 1.0}, {"id": "k"}, {"id": "other"}, {"id": 7}, {"a": "p", "b": 1, "n": 2}),
    *({"": 1}, {"_tsx": 1}, 1, [], None, {"text": "x" * 61}, {"n": 1e17, "s": "a\0b"}, {"n": 2**70}),
    {"deep": json.loads("[" * 40 + "]" * 40)},
]
documents = st.sampled_from(DOCUMENTS)
updates: st.SearchStrategy[Any] = st.sampled_from(
    [{"$inc": {"n": 1}}, {"n": 1}, {"$set": {"a.b": []}}, {"$bad": {}}, [{"n": 1}, {"$inc": {"n": 2}}], None]
)
MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "value": documents,
    "update": updates,
    "default": documents,
    "if_match": st.sampled_from(["e", "*", "", None, 1]),
    "if_absent": st.sampled_from([True, False, None, 0]),
    "ttl_s": st.sampled_from([1, 2.5, -1, 0, True, None, "1"]),
    "token": st.sampled_from([{"writer": "w", "sequence": 1}, {"writer": "w", "sequence": True}, {"writer": ""}, None])
    | st.fixed_dictionaries(
        {"writer": st.sampled_from(["w", "", 1, []]), "sequence": st.sampled_from([0, 1.0, -1, "1"])}
    ),
    "return": st.sampled_from([True, False, None, 1]),
    "partitions": st.sampled_from([None, [0], [3], "all", []]),
    "fields": st.sampled_from([["n"], [], ["n", "m"], None, "n", [""]]),
    "other": st.none(),
}
USUAL = {"get": (), "put": ("value",), "update": ("update",), "delete": ()}


@st.composite
def batches(draw: st.DrawFn) -> list[Any]:
    """Draw operations that mostly have one kind and the same members."""
    op = draw(st.sampled_from(["get", "put", "update", "delete"]))
    names = {*USUAL[op], *draw(st.lists(st.sampled_from([*MEMBERS]), max_size=2))}
    rows: list[Any] = draw(
        st.lists(
            st.fixed_dictionaries({"op": st.just(op), "key": keys, **{name: MEMBERS[name] for name in names}}),
            max_size=6,
        )
    )
    odd = st.sampled_from([1, None, {}, {"op": "get"}, {"op": "bad", "key": "k"}, {"op": ["get"], "key": "k"}])
    return rows if draw(st.booleans()) else [*rows, draw(odd)]


def expected(spec: TableSpec, raw: Any) -> Any:
    """Return the operation of a row and its fields, or the text of its error."""
    try:
        if not isinstance(raw, dict):
            raise TypeError
        operation_members.check_value_texts(spec, json.dumps(raw).encode())
        only = operation_members.fields(raw.get("fields"))
        return operation_members.operation(spec, raw), only
    except TypeError:
        return "invalid_operation", "an operation must be an object"
    except TableError as error:
        return error.code, error.detail


def found(batch: DecodedBatch) -> list[Any]:
    operations = iter(batch.operations)
    fields = batch.fields or [None] * batch.count
    return [
        (error.code, error.detail) if (error := batch.errors.get(at)) is not None else (next(operations), fields[at])
        for at in range(batch.count)
    ]


@given(st.sampled_from(SPECS), batches())
def test_json_operations_are_those_of_the_rules_for_one(spec: TableSpec, raws: list[Any]) -> None:
    body = json.dumps({"operations": raws}).encode()
    parsed = [values.parse(json.dumps(raw)) for raw in raws]
    assert found(finish(json_batch.decode(body, spec, 100))) == [expected(spec, raw) for raw in parsed]


def test_a_batch_of_one_kind_stays_in_columns_with_an_invalid_row() -> None:
    raws = [{"op": "put", "key": f"{n}", "value": {"n": n}, "ttl_s": 5} for n in range(100)]
    raws[50] = {"op": "put", "key": "", "value": {}}
    batch = finish(json_batch.decode(json.dumps({"operations": raws}).encode(), TableSpec("t"), 100))
    assert [*batch.errors] == [50]
    assert sorted(batch.operations.columns) == ["key", "ttl_s", "value"]  # type: ignore[attr-defined]  # a `Batch`


TEXTS = st.sampled_from(
    [
        b"{}",
        b'{"n":1.0}',
        b'{"n": 1}',
        b'{"id":"k"}',
        b'{"id":"other"}',
        b"[]",
        b"{",
        b"\xff",
        b'{"text":"%b"}' % (b"x" * 61),
    ]
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    op = draw(st.sampled_from(["get", "put", "update", "delete"]))
    kinds: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
        "value": (pa.binary(), TEXTS),
        "default": (pa.utf8(), st.sampled_from(["{}", '{"n":1}', '{"id":"k"}', "[]"])),
        "update": (pa.utf8(), st.sampled_from(['{"$inc":{"n":1}}', '{"n":1}', '{"$bad":{}}', "{"])),
        "if_match": (pa.utf8(), st.sampled_from(["e", "*"])),
        "if_absent": (pa.bool_(), st.booleans()),
        "ttl_s": (pa.float64(), st.sampled_from([1.0, -1.0, 0.0])),
        "sequence": (pa.int64(), st.sampled_from([1, -1, 2**62])),
    }
    names = {*USUAL[op], *draw(st.lists(st.sampled_from([*kinds]), max_size=2))}
    count = draw(st.integers(1, 6))
    columns = {
        "key": pa.array(
            draw(st.lists(st.sampled_from(["k", "ü", "", None]), min_size=count, max_size=count)), pa.utf8()
        )
    }
    for name in names:
        kind, cells = kinds[name]
        columns[name] = pa.array(draw(st.lists(cells | st.none(), min_size=count, max_size=count)), kind)
    if draw(st.booleans()):
        ops = draw(st.lists(st.sampled_from([op, op, op, "bad"]), min_size=count, max_size=count))
        columns["op"] = pa.array(ops, pa.utf8())
    return pa.table(columns).replace_schema_metadata({"op": op})


@given(st.sampled_from(SPECS[:2]), tables(), st.booleans())
def test_arrow_operations_are_those_of_the_rules_for_one(spec: TableSpec, table: pa.Table, returning: bool) -> None:
    op = None if "op" in table.column_names else table.schema.metadata[b"op"].decode()
    writer = "w" if "sequence" in table.column_names else None
    batch = finish(arrow_batch.decode(table, spec, arrow_batch.RowSettings(op, writer, returning)))
    raws: list[Any] = []
    for row in table.to_pylist():
        raw = {name: cell for name, cell in row.items() if cell is not None} | {"key": row["key"]}
        if "sequence" in raw:
            raw["token"] = {"writer": writer, "sequence": raw.pop("sequence")}
        if returning and raw.get("op", op) != "get":
            raw["return"] = True
        raws.append({"op": op, **raw})
    each = [one if isinstance(one, tuple) and isinstance(one[0], Operation) else one[0] for one in found(batch)]
    assert each == [_of_row(spec, raw) for raw in raws]


def _of_row(spec: TableSpec, raw: dict[str, Any]) -> Any:
    """Return the operation of a row, or the code of its error."""
    try:
        for name in ("value", "default"):
            spec.check_value(raw.get(name) or "")
        for name in ("value", "default", "update"):
            if name in raw:
                raw[name] = values.parse(raw[name])
        return operation_members.operation(spec, raw), None
    except TableError as error:
        return error.code


OUTCOMES: list[list[Outcome]] = [
    [],
    [Record(b'{"n":1}', "e"), None, Record(b"{}", "f", 86_400_000), StoreUnavailable("no")],
    [Written("e"), Written("f", created=True), StoreUnavailable("no", applied="unknown"), Written(None)],
    [Written("e", replayed=True), Written("f", value=b"{}", expires_ms=86_400_000), Written("g", expires_ms=1)],
    [Record(b"{}", "e")] * 3,
    [StoreUnavailable("no")],
]


@pytest.mark.parametrize("outcomes", OUTCOMES)
def test_outcomes_in_columns_have_the_answers_of_each(outcomes: list[Outcome]) -> None:
    results = Results.of(outcomes)
    assert results is not None
    assert results == outcomes
    answers = [answer(outcome) for outcome in outcomes]
    arrow = finish(arrow_answers.encode_results(results)), finish(arrow_answers.encode(answers))
    assert [read(_joined(encoded)) for encoded in arrow[:1]] == [read(_joined(arrow[1]))]
    as_json = finish(json_batch.encode_results(results)), finish(json_batch.encode(answers))
    assert json.loads(_joined(as_json[0])) == json.loads(_joined(as_json[1]))


def _joined(encoded: Any) -> bytes:
    return encoded if isinstance(encoded, bytes) else b"".join(encoded)


@given(st.sampled_from(OUTCOMES), st.sets(st.integers(0, 5), max_size=3))
def test_errors_are_inserted_at_their_positions(outcomes: list[Outcome], positions: set[int]) -> None:
    error = StoreUnavailable("inserted")
    given_at = {at: error for at in positions if at < len(outcomes) + len(positions)}
    results = Results.of(outcomes)
    assert results is not None
    inserted: list[Outcome] = [*outcomes]
    for at in sorted(given_at):
        inserted.insert(at, error)
    if [at for at, one in enumerate(inserted) if one is error] == sorted(given_at):
        assert [*results.with_errors(given_at)] == inserted
