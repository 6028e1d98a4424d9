"""A batch of puts that is written in columns has the same rows as any other batch."""

import json
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from service.http.api_client import ARROW, ON_EVERY_STORE, ApiClient, fresh, read, statuses, stream
from service.http.conftest import CONFIG
from service.http.test_encoded_columns import table as table_of
from service.http.test_same_outcomes import of_arrow, of_json
from support.pieces import finish
from support.running import running
from tableside.auth import Forbidden, with_refusals
from tableside.catalog.table_metrics import OperationMetrics, TableMetrics
from tableside.core import (
    INTEGER_MAX,
    INTEGER_MIN,
    PutColumn,
    StoreUnavailable,
    WriteHealth,
    WritesRejected,
    Written,
    WrittenColumn,
)
from tableside.core.columns import KEYS_MIN
from tableside.http.wire import arrow_answers
from tableside.http.wire.answers import answers

COUNT = 150
"""More than KEYS_MIN, and not more than a batch may have."""

NO_ETAG = [(204, None, True, None, None, None, None, False, False)]
"""The outcome of a put, with whether there is an etag instead of it."""


def texts() -> list[str]:
    assert KEYS_MIN <= COUNT
    return [fresh(f"k{number % 7}") for number in range(COUNT - 3)] + ["ü", "x" * 1024, "🛫/%"]


def values_of(keys: Sequence[Any], number: int = 1) -> list[Any]:
    return [{"key": str(key), "n": number, "s": "ü" * (place % 4), "d": 0.5} for place, key in enumerate(keys)]


def columns_of(keys: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    return {"key": keys, "value": [json.dumps(value) for value in values]}


def without_etags(outcomes: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(status, value, etag is not None, *rest) for status, value, etag, *rest in outcomes]


def in_json(api: ApiClient, table: str, keys: Sequence[Any], values: Sequence[Any]) -> list[tuple[Any, ...]]:
    puts = [{"op": "put", "key": key, "value": value} for key, value in zip(keys, values, strict=True)]
    return [of_json(one) for one in api.batch(table, *puts)]


def in_arrow(api: ApiClient, table: str, columns: dict[str, Any], **query: Any) -> list[tuple[Any, ...]]:
    return [of_arrow(row) for row in api.rows(table, columns, **query)]


def kept(api: ApiClient, table: str, keys: Sequence[Any]) -> list[Any]:
    """Return the value and the etag of each record."""
    found = api.batch(table, *({"op": "get", "key": key} for key in keys))
    return [(one.get("value"), one.get("etag")) for one in found]


@ON_EVERY_STORE
@pytest.mark.parametrize("as_column", [False, True], ids=["parameter", "column"])
def test_puts_have_the_same_outcomes_as_in_json(api: ApiClient, as_column: bool) -> None:
    keys, table, other = texts(), fresh("puts"), fresh("puts")
    query: dict[str, Any] = {} if as_column else {"op": "put"}
    for number in (1, 2):
        values = values_of(keys, number)
        columns = columns_of(keys, values) | ({"op": ["put"] * COUNT} if as_column else {})
        outcomes = in_arrow(api, table, columns, **query)
        assert without_etags(outcomes) == without_etags(in_json(api, other, keys, values)) == NO_ETAG * COUNT
        assert kept(api, table, keys) == [(value, one[2]) for value, one in zip(values, outcomes, strict=True)]
        assert len({one[2] for one in outcomes}) == COUNT or api.partitioned


@ON_EVERY_STORE
def test_puts_of_integers_have_the_same_outcomes_as_in_json(api: ApiClient) -> None:
    keys = [INTEGER_MIN, INTEGER_MAX, *range(-70, 70)]
    values = values_of(keys)
    outcomes = in_arrow(api, "numbers", columns_of(keys, values), op="put")
    assert without_etags(outcomes) == NO_ETAG * len(keys)
    assert kept(api, "numbers", keys) == [(value, one[2]) for value, one in zip(values, outcomes, strict=True)]


@ON_EVERY_STORE
def test_a_repeated_key_keeps_its_last_value(api: ApiClient) -> None:
    keys, table, other = texts()[:80], fresh("puts"), fresh("puts")
    keys = [*keys, keys[3], keys[1], *keys[:60]]
    values = [{"n": place} for place in range(len(keys))]
    outcomes = in_arrow(api, table, columns_of(keys, values), op="put")
    assert without_etags(outcomes) == without_etags(in_json(api, other, keys, values)) == NO_ETAG * len(keys)
    last = {key: place for place, key in enumerate(keys)}
    assert kept(api, table, keys) == [({"n": last[key]}, outcomes[last[key]][2]) for key in keys]


@ON_EVERY_STORE
@pytest.mark.parametrize("place", [0, 70, COUNT - 1])
@pytest.mark.parametrize("invalid", ["[1]", "{", '{"_ts":1}', '{"a":"\\u0000"}', None, "", '{"n":9223372036854775808}'])
def test_an_invalid_value_fails_only_its_row(api: ApiClient, place: int, invalid: str | None) -> None:
    keys, table = texts(), fresh("puts")
    values = values_of(keys)
    columns = columns_of(keys, values)
    columns["value"][place] = invalid
    outcomes = in_arrow(api, table, columns, op="put")
    assert outcomes[place][0] in (400, 422)
    expected = [(value, one[2]) for value, one in zip(values, outcomes, strict=True)]
    expected[place] = None, None
    assert kept(api, table, keys) == expected
    assert without_etags([*outcomes[:place], *outcomes[place + 1 :]]) == NO_ETAG * (COUNT - 1)


@ON_EVERY_STORE
@pytest.mark.parametrize("invalid", ["", "a\0", "x" * 1025, None])
def test_an_invalid_key_fails_only_its_row(api: ApiClient, invalid: str | None) -> None:
    keys, table = texts(), fresh("puts")
    values = values_of(keys)
    columns = columns_of([*keys[:70], invalid, *keys[70:]], [*values[:70], {}, *values[70:]])
    outcomes = in_arrow(api, table, columns, op="put")
    assert outcomes.pop(70)[0] == 422
    assert without_etags(outcomes) == NO_ETAG * COUNT
    assert kept(api, table, keys) == [(value, one[2]) for value, one in zip(values, outcomes, strict=True)]


@ON_EVERY_STORE
def test_values_are_kept_in_the_canonical_form(api: ApiClient) -> None:
    keys, table = texts(), fresh("puts")
    columns = {"key": keys, "value": [f' {{ "n" : 12.0, "id": "{uuid.UUID(int=7)}", "n": 1e1 }} '] * COUNT}
    assert without_etags(in_arrow(api, table, columns, op="put")) == NO_ETAG * COUNT
    rows = api.rows(table, {"key": keys}, op="get")
    assert {row["value"] for row in rows} == {b'{"n":10,"id":"00000000-0000-0000-0000-000000000007"}'}


@ON_EVERY_STORE
def test_tokens_are_kept(api: ApiClient) -> None:
    keys, table = texts(), fresh("puts")
    tokened = {**columns_of(keys[7:8], [{}]), "sequence": [5]}
    assert statuses(api.rows(table, tokened, op="put", writer="w")) == [204]
    assert without_etags(in_arrow(api, table, columns_of(keys, values_of(keys)), op="put")) == NO_ETAG * COUNT
    [again] = api.rows(table, tokened, op="put", writer="w")
    assert again["replayed"]
    assert kept(api, table, keys)[7][0] == values_of(keys)[7]


@ON_EVERY_STORE
def test_a_table_whose_records_expire(api: ApiClient) -> None:
    keys = texts()
    outcomes = in_arrow(api, "hour", columns_of(keys, values_of(keys)), op="put")
    assert all(row["expires_at"] for row in api.rows("hour", {"key": keys}, op="get"))
    assert without_etags(outcomes) == without_etags(in_json(api, "hour", keys, values_of(keys)))


@ON_EVERY_STORE
def test_puts_are_counted_as_written(api: ApiClient) -> None:
    keys, table = texts(), fresh("puts")
    start = "tableside_operations_total{"
    for calls in (1, 2):
        in_arrow(api, table, columns_of(keys, values_of(keys)), op="put")
        lines = [line for line in api.client.get("/metrics").text.splitlines() if line.startswith(start)]
        [line] = [line for line in lines if f'table="{table}"' in line]
        assert 'operation="put",outcome="written"' in line
        assert float(line.rpartition(" ")[2]) == calls * COUNT


@pytest.mark.parametrize("api", ["memory", "rocksdb"], indirect=True)
@pytest.mark.parametrize("query", [{"return": "true"}, {"fields": "n"}, {"return": "true", "fields": "n"}], ids=str)
def test_puts_that_return_their_values(api: ApiClient, query: dict[str, str]) -> None:
    keys, table = texts(), fresh("puts")
    rows = api.rows(table, columns_of(keys, values_of(keys)), op="put", **query)
    assert statuses(rows) == [200 if "return" in query else 204] * COUNT
    returned = {"n": 1} if "fields" in query else None
    for row, value in zip(rows, values_of(keys), strict=True):
        assert (row["value"] is None) == ("return" not in query)
        assert row["value"] is None or json.loads(row["value"]) == (returned or value)


def test_the_response_of_a_column_is_that_of_other_batches(api_on: Any) -> None:
    """The memory store returns no column."""
    keys = texts()
    found = []
    for store in ("memory", "rocksdb"):
        content = stream(columns_of(keys, values_of(keys)))
        response = api_on(store).post(fresh("puts"), content, ARROW, params={"op": "put"})
        rows = read(response.content)
        rows.validate(full=True)
        found.append(rows)
    assert found[0].schema.equals(found[1].schema, check_metadata=True)
    assert found[0].drop_columns("etag").equals(found[1].drop_columns("etag"))


@pytest.fixture(scope="module")
def on_redis(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[ApiClient]:
    directory: Path = tmp_path_factory.mktemp("redis")
    config = directory / "tableside.yaml"
    config.write_text(CONFIG % f"{{kind: redis, url: '{redis_url}'}}")
    with running(directory, config) as started, httpx.Client(base_url=started.url, timeout=30) as client:
        yield ApiClient(client)


@pytest.mark.server
def test_puts_on_redis_have_the_same_outcomes_as_in_json(on_redis: ApiClient) -> None:
    keys, table, other = texts(), f"t-{uuid.uuid4().hex}", f"t-{uuid.uuid4().hex}"
    for number in (1, 2):
        values = values_of(keys, number)
        outcomes = in_arrow(on_redis, table, columns_of(keys, values), op="put")
        assert without_etags(outcomes) == without_etags(in_json(on_redis, other, keys, values)) == NO_ETAG * COUNT
        assert kept(on_redis, table, keys) == [(value, one[2]) for value, one in zip(values, outcomes, strict=True)]
    repeated = [*keys[:70], *keys[:70]]
    values = [{"n": place} for place in range(140)]
    outcomes = in_arrow(on_redis, table, columns_of(repeated, values), op="put")
    assert kept(on_redis, table, keys[:70]) == [({"n": place}, outcomes[place][2]) for place in range(70, 140)]
    columns = columns_of(keys, values_of(keys, 3))
    columns["value"][70] = "[1]"
    assert [outcome[0] for outcome in in_arrow(on_redis, table, columns, op="put")] == [204] * 70 + [422] + [204] * 79


# Outcomes in a column


@pytest.mark.parametrize("count", [1, 40, 150, 1000])
def test_a_column_of_writes_is_encoded_like_answers(count: int) -> None:
    etags = [f"{number:032x}" for number in range(count)]
    writes = WrittenColumn(pa.array(["before", *etags, "after"])[1:-1])
    expected = table_of(finish(arrow_answers.encode(finish(answers(list(writes), bytes_max=2**30, operations=[])))))
    for column in (writes, WrittenColumn(pa.array(etags))):
        found = table_of(arrow_answers.encode_write_column(column))
        assert found.schema.equals(expected.schema, check_metadata=True)
        assert found.equals(expected)
    assert found.column("status").to_pylist() == [204] * count
    assert found.column("etag").to_pylist() == etags


def test_gets_and_puts_of_one_length_do_not_affect_each_other() -> None:
    """Columns that are alike in all batches of one length are made once."""
    for written in (Written("a"), Written("b", created=True), Written("c")):
        one_by_one = finish(answers([written] * 40, bytes_max=2**30, operations=[]))
        expected = table_of(finish(arrow_answers.encode(one_by_one)))
        assert table_of(finish(arrow_answers.encode_writes([written] * 40))).equals(expected)
        found = table_of(arrow_answers.encode_write_column(WrittenColumn(pa.array(["a"] * 40))))
        assert found.column("status").to_pylist() == [204] * 40


def test_a_column_of_writes_ends_a_reported_rejection(monkeypatch: pytest.MonkeyPatch) -> None:
    health, sizes = WriteHealth(lambda: 100.0), list[int]()
    make = WrittenColumn._make

    def noted(column: WrittenColumn) -> list[Written]:
        sizes.append(len(column))
        return make(column)

    monkeypatch.setattr(WrittenColumn, "_make", noted)
    health.observe([WritesRejected("full")])
    health.observe(WrittenColumn(pa.array([], pa.utf8())))
    with pytest.raises(StoreUnavailable):
        health.check()
    health.observe(WrittenColumn(pa.array(["e"] * 1000)))
    health.check()
    assert max(sizes) == 1


def test_a_column_of_writes_is_counted_without_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(column: object) -> None:
        raise AssertionError("objects are made")

    registry = CollectorRegistry()
    metrics = TableMetrics(OperationMetrics(registry), "t")
    for kind in (PutColumn, WrittenColumn):
        monkeypatch.setattr(kind, "_make", fails)
    puts = PutColumn(pa.array([f"{number}" for number in range(2500)]), pa.array([b"{}"] * 2500))
    finish(metrics.many(puts, WrittenColumn(pa.array(["e"] * 2500)), 0.5))
    labels = {"table": "t", "operation": "put", "outcome": "written"}
    assert registry.get_sample_value("tableside_operations_total", labels) == 2500
    assert registry.get_sample_value("tableside_operation_duration_seconds_sum", labels) == 0.5


def test_a_caller_who_may_only_read_writes_no_column() -> None:
    class Reader:
        def may(self, permission: str, table: str) -> bool:
            return permission == "read"

        def refusal(self, permission: str, table: str) -> Forbidden:
            return Forbidden(f"{permission} {table}")

    caller: Any = Reader()
    puts = PutColumn(pa.array([f"{number}" for number in range(150)]), pa.array([b"{}"] * 150))
    assert [str(one) for one in with_refusals(caller, "t", puts)] == [str(Forbidden("write t"))] * 150
