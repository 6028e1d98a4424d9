"""A partitioned table over memory, RocksDB and Redis: partitions of records, results, and rejected requests."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from service.http.api_client import ARROW, ApiClient, check_problem, check_refused, fresh, read, stream
from support.running import running
from tableside.core.partitioner import default_partition

pytestmark = pytest.mark.server

COUNT = 3
CHANGED = """
stores:
  shards: {kind: partitioned, partitions: [%s]}
  one: {kind: memory}
  two: {kind: memory}
  three: {kind: memory}
tables:
  t: {store: shards}
"""
CONFIG = """
stores:
  shards: {kind: partitioned, partitions: [one, two, three]}
  one: {kind: memory}
  two: {kind: rocksdb, path: ./data}
  three: {kind: redis, url: "%s"}
  alone: {kind: partitioned, partitions: [one]}
tables:
  t: {store: shards}
  dropping: {store: shards}
  numbers: {store: shards, key: {id: integer}}
  visits: {store: shards, key: {user: string, day: string}}
  single: {store: alone}
  plain: {store: two, name: plain}
limits: {response_bytes_max: 1000000}
"""


@pytest.fixture(scope="module")
def shards(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiClient]:
    directory = tmp_path_factory.mktemp("shards")
    config = directory / "tableside.yaml"
    config.write_text(CONFIG % redis_url.replace("/0", "/7"))
    with running(directory, config) as started, httpx.Client(base_url=started.url, timeout=30) as client:
        yield ApiClient(client)


def in_each(shards: ApiClient, key: object, table: str = "t") -> list[Any]:
    """Return the record's value in every partition, or None if it is absent."""
    found = shards.batch(table, *({"op": "get", "key": key, "partitions": [index]} for index in range(COUNT)))
    assert {result["status"] for result in found} <= {200, 404}
    return [result.get("value") for result in found]


# Single records


def test_a_write_to_no_partition_is_acknowledged_as_dropped(shards: ApiClient) -> None:
    key, nowhere = fresh(), {"partitions": ""}
    for response in (
        shards.put("t", key, {"n": 1}, params=nowhere),
        shards.put("t", key, {"n": 1}, params=nowhere, headers={"If-Match": '"x"', "Prefer": "return=representation"}),
        shards.update("t", key, {"update": {"n": 1}, "default": {}}, params=nowhere),
        shards.delete("t", key, params=nowhere),
    ):
        assert response.status_code == 204
        assert response.content == b""
        assert response.headers["Tableside-Dropped"] == "true"
        assert "Tableside-Partitions" not in response.headers
    assert in_each(shards, key) == [None] * COUNT


def test_created_means_created_in_every_partition(shards: ApiClient) -> None:
    key, everywhere, absent = fresh(), {"partitions": "all"}, {"If-None-Match": "*"}
    assert shards.put("t", key, {}, params={"partitions": "0,1"}, headers=absent).status_code == 201
    default = {"update": {"$inc": {"n": 1}}, "default": {"n": 0}}
    assert shards.update("t", key, default, params=everywhere).status_code == 204
    assert shards.update("t", fresh(), default, params=everywhere).status_code == 201


def test_a_failure_lists_the_outcome_of_each_partition(shards: ApiClient) -> None:
    key = fresh()
    shards.put("t", key, {"n": 0}, params={"partitions": "1"})
    response = shards.put("t", key, {"n": 1}, params={"partitions": "all"}, headers={"If-None-Match": "*"})
    problem = check_refused(response, 412, "precondition_failed")
    assert (problem["applied"], problem["retriable"]) == ("unknown", False)
    assert "1 of 3 partitions failed (1)" in problem["detail"]
    assert response.headers["Tableside-Partitions"] == "0,1,2"
    first, second, third = problem["partitions"]
    assert (first["partition"], first["status"], first.keys()) == (0, 201, {"partition", "status", "etag"})
    assert (second["partition"], second["status"]) == (1, 412)
    check_problem(second["error"], 412, "precondition_failed")
    assert second["error"]["applied"] == "no"
    assert third["status"] == 201
    assert in_each(shards, key) == [{"n": 1}, {"n": 0}, {"n": 1}]


def test_a_token_is_a_replay_in_partitions_that_applied_it(shards: ApiClient) -> None:
    key = fresh()
    increment = {"update": {"$inc": {"n": 1}}, "default": {"n": 0}}
    token = {"Tableside-Token": "w/1"}
    assert shards.update("t", key, increment, headers=token, params={"partitions": "0"}).status_code == 201
    for replayed in (None, "true"):
        response = shards.update("t", key, increment, headers=token, params={"partitions": "all"})
        assert response.status_code == 204
        assert response.headers.get("Tableside-Replayed") == replayed
    assert in_each(shards, key) == [{"n": 1}] * COUNT


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("3", "no partition 3"),
        ("-2", "no partition -2"),
        ("-1,0", "-1 in partitions must be the only"),
        ("x", "indexes"),
    ],
)
def test_invalid_partitions_are_rejected(shards: ApiClient, query: str, detail: str) -> None:
    response = shards.put("t", fresh(), {}, params={"partitions": query})
    assert detail in check_refused(response, 422, "invalid_operation")["detail"]


@pytest.mark.parametrize("query", ["0,1", "all", ""])
def test_a_get_requires_exactly_one_partition(shards: ApiClient, query: str) -> None:
    check_refused(shards.get("t", fresh(), params={"partitions": query}), 422, "invalid_operation")


def test_an_etag_and_a_returned_value_are_of_one_partition(shards: ApiClient) -> None:
    key, several = fresh(), {"partitions": "0,1"}
    refused = shards.put("t", key, {"n": 1}, params=several, headers={"If-Match": "*"})
    check_refused(refused, 422, "invalid_operation")
    value = shards.put("t", key, {"n": 1}, params=several, headers={"Prefer": "return=representation"})
    assert "batch" in check_refused(value, 422, "invalid_operation")["detail"]
    assert in_each(shards, key) == [None] * COUNT
    # A delete leaves no value to return.
    assert shards.delete("t", key, params=several, headers={"Prefer": "return=representation"}).status_code == 204
    one = shards.put("t", key, {"n": 1}, params={"partitions": "1"}, headers={"Prefer": "return=representation"})
    assert (one.status_code, one.json()) == (200, {"n": 1})


def test_a_table_without_partitions_rejects_partitions(shards: ApiClient) -> None:
    said: list[Any] = [[], [0], None, "all", [None], "nonsense"]
    puts = [{"op": "put", "key": "a", "value": {"_ts": 1}, "partitions": one} for one in said]
    for refused in shards.batch("plain", *puts):
        check_problem(refused["error"], 501, "unsupported")
        assert "partitions" in refused["error"]["detail"]
        assert "partitions" not in refused
    [row] = shards.rows("plain", {"key": ["a"], "value": ["no JSON"], "partitions": [[0]]}, op="put")
    assert (row["status"], row["code"]) == (501, "unsupported")
    for query in ("", "0", "all", "default"):
        params = {"partitions": query}
        check_refused(shards.put("plain", "a", {}, params=params), 501, "unsupported")
        check_refused(shards.get("plain", "a", params=params), 501, "unsupported")
        check_refused(shards.scan("plain", partitions=query), 501, "unsupported")
    response = shards.put("plain", "a", {})
    assert "Tableside-Partitions" not in response.headers
    [result] = shards.batch("plain", {"op": "put", "key": "a", "value": {}})
    assert result.keys() == {"status", "etag"}


def test_a_dropped_operation_is_validated(shards: ApiClient) -> None:
    nowhere: dict[str, Any] = {"partitions": []}
    results = shards.batch(
        "t",
        {"op": "put", "key": "a", "value": {"_ts": 1}, **nowhere},
        {"op": "update", "key": "a", "update": {"$what": {}}, **nowhere},
        {"op": "put", "key": "", "value": {}, **nowhere},
        {"op": "delete", "key": "a", "token": {"writer": "", "sequence": 1}, **nowhere},
        {"op": "put", "key": "a", "value": {}, "if_match": "x", **nowhere},
    )
    assert [result["status"] for result in results] == [422, 422, 422, 422, 204]
    assert results[4] == {"status": 204, "partitions": [], "dropped": True}


# Scans and descriptions


def test_scans_return_partitions_and_read_the_chosen_ones(shards: ApiClient) -> None:
    shards.batch("visits", *({"op": "put", "key": ["eve", f"{n}"], "value": {}, "partitions": None} for n in range(5)))
    found = shards.walk("visits", partition="eve", limit=2)
    assert sorted((record["partition"], record["key"][1]) for record in found) == [
        (index, f"{n}") for index in range(COUNT) for n in range(5)
    ]
    for query, wanted in {"2": {2}, "0,2": {0, 2}, "all": {0, 1, 2}}.items():
        chosen = shards.walk("visits", partition="eve", partitions=query, limit=2)
        assert {record["partition"] for record in chosen} == wanted
        assert len(chosen) == 5 * len(wanted)
    for query in ("", "default", "3", "x"):
        check_refused(shards.scan("visits", partitions=query), 422, "invalid_operation")
    cursor = shards.scan("visits", partitions="0", limit=1).json()["cursor"]
    check_refused(shards.scan("visits", partitions="1", limit=1, cursor=cursor), 400, "malformed_request")


def test_splits_and_arrow_pages_have_the_partition(shards: ApiClient) -> None:
    shards.batch("numbers", *({"op": "put", "key": n, "value": {}, "partitions": "all"} for n in range(100, 110)))
    splits = shards.client.get("/v1/tables/numbers/splits", params={"count": 6}).json()["splits"]
    found = []
    for split in splits:
        cursor: str | None = ""
        while cursor is not None:
            query = {"split": split, "limit": 4, **({"cursor": cursor} if cursor else {})}
            response = shards.client.get("/v1/tables/numbers/records", params=query, headers={"Accept": ARROW})
            rows = read(response.content)
            assert rows.column_names[-1] == "partition"
            assert rows.schema.field("partition").type == pa.int32()
            found += [(row["partition"], row["key"]) for row in rows.to_pylist() if 100 <= row["key"] < 110]
            cursor = response.headers.get("Tableside-Cursor")
    assert sorted(found) == [(index, n) for index in range(COUNT) for n in range(100, 110)]


def test_cursors_and_splits_are_rejected_after_a_change_of_partitions(tmp_path: Path) -> None:
    """Records are now in other partitions: a scan that continued would miss some of them."""
    config = tmp_path / "tableside.yaml"
    taken: dict[str, str] = {}
    for parts in ("one, two", "one, two, three"):
        config.write_text(CHANGED % parts)
        with running(tmp_path / "run", config) as started, httpx.Client(base_url=started.url, timeout=30) as client:
            api = ApiClient(client)
            for member, text in taken.items():
                params = {"limit": "1", member: text} if member == "cursor" else {member: text}
                check_refused(client.get("/v1/tables/t/records", params=params), 400, "malformed_request")
            for key in "ab":
                api.put("t", key, {}, params={"partitions": "all"})
            first = client.get("/v1/tables/t/records", params={"limit": 1}).json()
            taken["cursor"] = first["cursor"]
            [taken["split"], *_] = client.get("/v1/tables/t/splits", params={"count": 2}).json()["splits"]
            going_on = client.get("/v1/tables/t/records", params={"limit": 1, "cursor": taken["cursor"]})
            of_split = client.get("/v1/tables/t/records", params={"split": taken["split"]})
            assert (going_on.status_code, of_split.status_code) == (200, 200)


def test_a_description_contains_the_number_of_partitions(shards: ApiClient) -> None:
    tables = {table["name"]: table for table in shards.client.get("/v1/tables").json()["tables"]}
    assert {name: table.get("partitions") for name, table in tables.items()} == {
        "t": 3, "dropping": 3, "numbers": 3, "visits": 3, "single": 1, "plain": None,
    }  # fmt: skip
    capabilities = tables["t"]["capabilities"]
    assert (capabilities["partitions"], capabilities["sorted_scan"], capabilities["tokens"]) == (True, False, True)
    assert tables["plain"]["capabilities"]["partitions"] is False
    assert tables["single"]["capabilities"]["sorted_scan"] is True
    assert tables["t"]["store"] == {"name": "shards", "kind": "partitioned"}
    assert "redis://" not in json.dumps(tables)


# Batches, against a table that is three dictionaries


def apply(records: dict[str, int], operation: dict[str, Any]) -> int:
    """Apply an operation to one partition of counters, and return its status there."""
    key = operation["key"]
    match operation["op"]:
        case "put" if operation["if_absent"] and key in records:
            return 412
        case "put":
            records[key] = operation["value"]["n"]
            return 201 if operation["if_absent"] else 204
        case "update":
            there = key in records
            records[key] = records.get(key, 0) + 1
            return 204 if there else 201
    records.pop(key, None)
    return 204


def random_operation(chance: random.Random) -> dict[str, Any]:
    increment: dict[str, Any] = {"op": "update", "update": {"$inc": {"n": 1}}, "default": {"n": 0}}
    put: dict[str, Any] = {"op": "put", "value": {"n": chance.randrange(100)}, "if_absent": chance.random() < 0.4}
    partitions = chance.choice([[], None, [-1], [0, 2], [2, 1, 2], [1], "default"])
    operation = chance.choice([put, increment, increment, {"op": "delete"}])
    return {**operation, "key": f"k{chance.randrange(12)}", "partitions": partitions}


@pytest.mark.parametrize("seed", range(3))
def test_random_batches_equal_three_dictionaries(shards: ApiClient, seed: int) -> None:
    chance, keys = random.Random(seed), [f"k{n}" for n in range(12)]
    shards.batch("t", *({"op": "delete", "key": key, "partitions": "all"} for key in keys))
    model: list[dict[str, int]] = [{} for _ in range(COUNT)]
    for _ in range(12):
        operations = [random_operation(chance) for _ in range(chance.randrange(1, 30))]
        for operation, result in zip(operations, shards.batch("t", *operations), strict=True):
            given = operation["partitions"]
            default = [default_partition(operation["key"], COUNT)]
            places = range(COUNT) if given in (None, [-1]) else default if given == "default" else sorted({*given})
            wanted = [(index, apply(model[index], operation)) for index in places]
            statuses = {status for _, status in wanted}
            assert [(part["partition"], part["status"]) for part in result["partitions"]] == wanted, operation
            assert result["status"] == (412 if 412 in statuses else 201 if statuses == {201} else 204), operation
            assert result.get("dropped", False) == (not wanted)
    for key in keys:
        assert [value and value["n"] for value in in_each(shards, key)] == [records.get(key) for records in model]


# Features of batches


def test_a_result_has_an_etag_and_a_value_only_with_one_partition(shards: ApiClient) -> None:
    put = {"op": "put", "key": fresh(), "value": {"n": 1}, "return": True}
    one, several = shards.batch("t", {**put, "partitions": [1]}, {**put, "partitions": [0, 1]})
    assert one == {
        "status": 200, "value": {"n": 1}, "etag": one["etag"],
        "partitions": [{"partition": 1, "status": 200, "value": {"n": 1}, "etag": one["etag"]}],
    }  # fmt: skip
    assert several.keys() == {"status", "partitions"}
    assert several["status"] == 200
    assert [(part["status"], part["value"]) for part in several["partitions"]] == [(200, {"n": 1})] * 2
    [none] = shards.batch("t", {**put, "partitions": [0, 1], "fields": ["m"]})
    assert [part["value"] for part in none["partitions"]] == [{}, {}]


def test_arrow_returns_the_outcome_of_each_partition(shards: ApiClient) -> None:
    columns = {
        "key": pa.array([fresh(), fresh(), fresh(), fresh()]),
        "value": pa.array(["{}"] * 4),
        "partitions": pa.array([None, [], [-1], [2, 0]], pa.large_list(pa.int64())),
    }
    response = shards.post("t", stream(columns), ARROW, params={"op": "put"})
    table = read(response.content)
    assert table.column_names[-2:] == ["partitions", "dropped"]
    rows = table.to_pylist()
    assert [[part["partition"] for part in row["partitions"]] for row in rows] == [[0, 1, 2], [], [0, 1, 2], [0, 2]]
    assert [row["dropped"] for row in rows] == [False, True, False, False]
    part = rows[3]["partitions"][1]
    assert part["etag"]
    assert (part["status"], part["code"], part["applied"], part["replayed"]) == (204, None, None, False)
    [found] = shards.rows("t", {"key": columns["key"].slice(1, 1)}, op="get")
    assert (found["status"], found["partitions"], found["dropped"]) == (404, None, False)


def test_arrow_may_carry_a_writer_in_every_row(shards: ApiClient) -> None:
    key = fresh()
    columns: dict[str, Any] = {
        "key": pa.array([key] * 5),
        "update": pa.array(['{"$inc": {"n": 1}}'] * 5),
        "default": pa.array(['{"n": 0}'] * 5),
        "writer": pa.array(["v", "w", "v", "w", "v"]),
        "sequence": pa.array([1, 1, 1, 2, 2]),
    }
    rows = shards.rows("t", columns, op="update")
    assert [row["replayed"] for row in rows] == [False, False, True, False, False]
    assert shards.value("t", key) == {"n": 4}
    refused = shards.post("t", stream(columns), ARROW, params={"op": "update", "writer": "x"})
    check_refused(refused, 400, "malformed_request")
    del columns["sequence"]
    check_refused(shards.post("t", stream(columns), ARROW, params={"op": "update"}), 400, "malformed_request")
    half = {"key": pa.array(["a", "b"]), "writer": pa.array(["w", None]), "sequence": pa.array([None, 1], pa.int64())}
    assert [row["code"] for row in shards.rows("t", half, op="delete")] == ["invalid_operation"] * 2


@pytest.mark.parametrize("column", [pa.array([1]), pa.array([["a"]]), pa.array([[1.5]]), pa.array(["all"])], ids=str)
def test_a_column_that_is_no_list_of_integers_is_malformed(shards: ApiClient, column: Any) -> None:
    body = stream({"key": pa.array(["a"]), "partitions": column})
    check_refused(shards.post("t", body, ARROW, params={"op": "delete"}), 400, "malformed_request")


def test_values_of_every_partition_count_towards_the_limit_of_the_answer(shards: ApiClient) -> None:
    put = {"op": "put", "value": {"s": "x" * 200_000}, "partitions": "all", "return": True}
    first, second = shards.batch("t", {**put, "key": fresh()}, {**put, "key": fresh()})
    assert [part["status"] for part in first["partitions"]] == [200] * COUNT
    assert (first["status"], second["status"]) == (200, 204)
    assert [part.keys() for part in second["partitions"]] == [{"partition", "status", "etag"}] * COUNT
    assert [part["status"] for part in second["partitions"]] == [204] * COUNT
