"""A batch of gets that is read in columns has the same rows as any other batch."""

from typing import Any

import pyarrow as pa
import pytest

from service.http.api_client import ARROW, ON_EVERY_STORE, ApiClient, fresh, read, statuses, stream
from service.http.test_same_outcomes import of_arrow, of_json
from tableside.core import INTEGER_MAX, INTEGER_MIN
from tableside.core.columns import KEYS_MIN

COUNT = 150
"""More than KEYS_MIN, and not more than a batch may have."""

TEXT_KINDS = [pa.utf8(), pa.large_utf8(), pa.string_view()]


def filled(api: ApiClient, keys: list[Any], table: str | None = None, size_bytes: int = 10) -> str:
    """Put a record for every third key."""
    table = table or fresh("columns")
    rows = api.rows(
        table, {"key": keys[::3], "value": [f'{{"k":"{key}","x":"{"x" * size_bytes}"}}' for key in keys[::3]]}, op="put"
    )
    assert set(statuses(rows)) <= {201, 204}
    return table


def in_json(api: ApiClient, table: str, keys: list[Any], **members: Any) -> list[tuple[Any, ...]]:
    return [of_json(one) for one in api.batch(table, *({"op": "get", "key": key, **members} for key in keys))]


def in_arrow(api: ApiClient, table: str, columns: dict[str, Any], **query: Any) -> list[tuple[Any, ...]]:
    return [of_arrow(row) for row in api.rows(table, columns, **query)]


def texts() -> list[str]:
    assert KEYS_MIN <= COUNT
    return [fresh(f"k{number % 7}") for number in range(COUNT - 3)] + ["ü", "x" * 1024, "🛫/%"]


@ON_EVERY_STORE
def test_gets_have_the_same_outcomes_as_in_json(api: ApiClient) -> None:
    keys = texts()
    table = filled(api, keys)
    expected = in_json(api, table, keys)
    assert [outcome[0] for outcome in expected] == [200, 404, 404] * (COUNT // 3)
    assert in_arrow(api, table, {"key": keys}, op="get") == expected
    assert in_arrow(api, table, {"key": keys, "op": ["get"] * COUNT}) == expected
    assert in_arrow(api, table, {"key": keys[::3]}, op="get") == expected[::3]
    assert in_arrow(api, table, {"key": keys[1::3]}, op="get") == expected[1::3]


@ON_EVERY_STORE
def test_gets_of_integers_have_the_same_outcomes_as_in_json(api: ApiClient) -> None:
    keys = [INTEGER_MIN, INTEGER_MAX, *range(-70, 70)]
    filled(api, keys, "numbers")
    expected = in_json(api, "numbers", keys)
    assert [outcome[0] for outcome in expected[::3]] == [200] * len(keys[::3])
    assert in_arrow(api, "numbers", {"key": keys}, op="get") == expected
    assert in_arrow(api, "numbers", {"key": pa.array(keys[2:], pa.int8())}, op="get") == expected[2:]


@ON_EVERY_STORE
def test_a_repeated_key_has_an_outcome_at_each_of_its_positions(api: ApiClient) -> None:
    keys = texts()
    table = filled(api, keys)
    keys = [*keys[:50], keys[3], keys[1], *keys[:60]]
    assert in_arrow(api, table, {"key": keys}, op="get") == in_json(api, table, keys)


@ON_EVERY_STORE
@pytest.mark.parametrize("fields", ["k", "x,k", "nothing"])
def test_fields_select_members(api: ApiClient, fields: str) -> None:
    keys = texts()
    table = filled(api, keys)
    expected = in_json(api, table, keys, fields=fields.split(","))
    assert in_arrow(api, table, {"key": keys}, op="get", fields=fields) == expected
    assert expected[0][1].keys() == {*fields.split(",")} - {"nothing"}


@ON_EVERY_STORE
def test_the_age_of_records_may_be_limited(api: ApiClient) -> None:
    keys = texts()
    table = filled(api, keys)
    headers = {"Cache-Control": "max-age=0"}
    response = api.post(table, stream({"key": keys}), ARROW, params={"op": "get"}, headers=headers)
    rows = read(response.content).select(["status", "value", "etag", "code", "detail", "retriable", "applied"])
    assert [row["status"] for row in rows.to_pylist()] == [200, 404, 404] * (COUNT // 3)
    plain = api.post(table, stream({"key": keys}), ARROW, params={"op": "get"})
    assert read(response.content).equals(read(plain.content))


@ON_EVERY_STORE
@pytest.mark.parametrize("size_bytes", [1000, 2000])
def test_values_beyond_the_limit_of_a_response_are_not_in_it(api: ApiClient, size_bytes: int) -> None:
    """A third of the keys has a record. The response may have 64 KiB of values."""
    keys = texts()
    table = filled(api, keys, size_bytes=size_bytes)
    arrow, json = in_arrow(api, table, {"key": keys}, op="get"), in_json(api, table, keys)
    assert arrow == json
    beyond = [outcome[0] for outcome in arrow].count(413)
    assert (beyond > 0) == (size_bytes == 2000)


@ON_EVERY_STORE
def test_a_record_that_expires_has_a_column_for_it(api: ApiClient) -> None:
    keys = texts()
    table = filled(api, keys)
    api.put(table, keys[1], {"n": 1}, params={"ttl_s": 1000})
    rows = api.rows(table, {"key": keys}, op="get")
    assert [place for place, row in enumerate(rows) if row["expires_at"] is not None] == [1]
    assert [of_arrow(row) for row in rows] == in_json(api, table, keys)


@ON_EVERY_STORE
def test_an_invalid_key_fails_only_its_row(api: ApiClient) -> None:
    keys = texts()
    table = filled(api, keys)
    for invalid in ("", "a\0", "x" * 1025, None):
        mixed = [*keys[:70], invalid, *keys[70:]]
        rows = in_arrow(api, table, {"key": pa.array(mixed, pa.utf8())}, op="get")
        assert rows[70][0] == 422
        assert [*rows[:70], *rows[71:]] == in_json(api, table, keys)


@ON_EVERY_STORE
@pytest.mark.parametrize("kind", TEXT_KINDS, ids=str)
@pytest.mark.parametrize("dictionary", [False, True], ids=["plain", "dictionary"])
def test_the_types_of_many_keys(api: ApiClient, kind: pa.DataType, dictionary: bool) -> None:
    keys = texts()
    table = filled(api, keys)
    column = pa.array(keys, kind)
    if dictionary:
        column = pa.DictionaryArray.from_arrays(pa.array(range(COUNT), pa.int32()), column)
    assert in_arrow(api, table, {"key": column}, op="get") == in_json(api, table, keys)


@pytest.mark.parametrize("kind", [*TEXT_KINDS, *(pa.dictionary(pa.int32(), kind) for kind in TEXT_KINDS)], ids=str)
def test_the_types_of_the_operations_of_many_keys(api: ApiClient, kind: pa.DataType) -> None:
    keys = texts()
    table = filled(api, keys)
    ops = pa.array(["get"], kind.value_type if pa.types.is_dictionary(kind) else kind)
    if pa.types.is_dictionary(kind):
        column = pa.DictionaryArray.from_arrays(pa.array([0] * COUNT, pa.int32()), ops)
    else:
        column = pa.array(ops.to_pylist() * COUNT, kind)
    assert in_arrow(api, table, {"key": keys, "op": column}) == in_json(api, table, keys)


@pytest.mark.parametrize("as_column", [False, True], ids=["parameter", "column"])
def test_deletes_of_many_keys_are_no_gets(api: ApiClient, as_column: bool) -> None:
    keys = texts()
    table = filled(api, keys)
    if as_column:
        deleted = in_arrow(api, table, {"key": keys, "op": ["delete"] * COUNT})
    else:
        deleted = in_arrow(api, table, {"key": keys}, op="delete")
    assert [outcome[0] for outcome in deleted] == [204] * COUNT
    assert [outcome[0] for outcome in in_arrow(api, table, {"key": keys}, op="get")] == [404] * COUNT


@pytest.mark.parametrize(
    ("name", "cell"), [("value", {}), ("if_match", "x"), ("if_absent", True), ("ttl_s", 5.0), ("partitions", [0])]
)
def test_gets_with_another_member_are_checked(api: ApiClient, name: str, cell: Any) -> None:
    keys = texts()
    table = filled(api, keys)
    expected = in_json(api, table, keys, **{name: cell})
    assert {outcome[0] for outcome in expected} == {501 if name == "partitions" else 422}
    column = pa.array(["{}" if name == "value" else cell] * COUNT)
    assert in_arrow(api, table, {"key": keys, name: column}, op="get") == expected
    assert in_arrow(api, table, {"key": keys, name: column, "op": ["get"] * COUNT}) == expected
    if name != "partitions":
        assert in_arrow(api, table, {"key": keys, name: pa.nulls(COUNT, column.type)}, op="get") == in_json(
            api, table, keys
        )


def test_one_other_operation_among_gets_is_applied(api: ApiClient) -> None:
    for place in (0, 70, COUNT - 1):
        keys = texts()
        table = filled(api, keys)
        ops = ["get"] * COUNT
        ops[place] = "delete"
        expected = in_json(api, table, keys)
        found = in_arrow(api, table, {"key": keys, "op": ops})
        assert found[place][0] == 204
        assert [*found[:place], *found[place + 1 :]] == [*expected[:place], *expected[place + 1 :]]
        assert in_json(api, table, keys[place : place + 1])[0][0] == 404


@ON_EVERY_STORE
def test_found_and_absent_records_are_counted(api: ApiClient) -> None:
    keys = texts()
    table = filled(api, keys)

    def counted() -> dict[str, float]:
        start = 'tableside_operations_total{operation="get",outcome="'
        lines = [line for line in api.client.get("/metrics").text.splitlines() if line.startswith(start)]
        return {
            line.removeprefix(start).partition('"')[0]: float(line.rpartition(" ")[2])
            for line in lines
            if f'table="{table}"' in line
        }

    assert counted() == {}
    api.rows(table, {"key": keys[::3]}, op="get")
    assert counted() == {"found": COUNT / 3}, "no count for absent records before the first one"
    api.rows(table, {"key": keys}, op="get")
    assert counted() == {"found": 2 * COUNT / 3, "absent": 2 * COUNT / 3}
    api.rows(table, {"key": keys[1::3]}, op="get")
    assert counted() == {"found": 2 * COUNT / 3, "absent": COUNT}
