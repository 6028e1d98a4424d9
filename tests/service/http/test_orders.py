"""Orders of writes in headers, in JSON and in Arrow, and `forget`."""

import json
from typing import Any

import pyarrow as pa
import pytest

from service.http.api_client import (
    ARROW,
    JSON,
    ON_EVERY_STORE,
    ApiClient,
    check_problem,
    check_refused,
    fresh,
    statuses,
    stream,
)

T = "records"
FIRST, LAST = -(2**63), 2**63 - 1


def order(number: object, **more: str) -> dict[str, Any]:
    return {"headers": {"Tableside-Order": str(number), **more}}


@ON_EVERY_STORE
def test_a_single_write_has_its_order_in_a_header(api: ApiClient) -> None:
    key = fresh()
    made = api.update(T, key, {"update": {"a": 7}}, **order(7))
    assert (made.status_code, "Tableside-Superseded" in made.headers) == (201, False)
    assert api.put(T, key, {"a": 5, "b": 5}, **order(5)).status_code == 204
    assert api.merge(T, key, {"a": 6, "b": 6}, order(6)["headers"]).status_code == 204
    assert api.value(T, key) == {"a": 7, "b": 6}
    assert api.delete(T, key, **order(6)).status_code == 204
    assert api.value(T, key) == {"a": 7}


@ON_EVERY_STORE
def test_a_superseded_write_returns_the_present_record(api: ApiClient) -> None:
    key, wanted = fresh(), {"Prefer": "return=representation"}
    api.put(T, key, {"n": LAST}, **order(LAST))
    etag = api.get(T, key).headers["ETag"]
    for asked, status, body in (
        (api.put(T, key, {}, **order(LAST - 1)), 204, None),
        (api.put(T, key, {}, **order(FIRST, **wanted)), 200, {"n": LAST}),
        (api.merge(T, key, {"n": 0}, order(LAST - 1)["headers"]), 204, None),
        (api.update(T, key, {"update": {"$unset": ["n"]}}, **order(LAST - 1, **wanted)), 200, {"n": LAST}),
        (api.delete(T, key, **order(LAST - 1)), 204, None),
    ):
        assert (asked.status_code, asked.headers["Tableside-Superseded"]) == (status, "true")
        assert asked.headers["ETag"] == etag
        assert asked.content == b"" if body is None else asked.json() == body
    assert api.delete(T, key, **order(LAST)).status_code == 204
    gone = api.put(T, key, {}, **order(LAST - 1, **wanted))
    assert (gone.status_code, gone.headers["Tableside-Superseded"], gone.content) == (204, "true", b"")
    assert "ETag" not in gone.headers


@ON_EVERY_STORE
@pytest.mark.parametrize("media", [JSON, ARROW])
def test_a_batch_has_an_order_for_each_write(api: ApiClient, media: str) -> None:
    keys = [fresh() for _ in range(6)]
    present = [{"op": "put", "key": key, "value": {"n": at}, "order": 2**53 + 1} for at, key in enumerate(keys)]
    assert statuses(api.batch(T, *present)) == [204] * 6
    orders = [2**53, 2**53 + 1, None, 2**53 + 2, FIRST, LAST]
    results: list[dict[str, Any]]
    if media == JSON:
        pairs = zip(keys, orders, strict=True)
        results = api.batch(T, *({"op": "put", "key": key, "value": {}, "order": at} for key, at in pairs))
    else:
        columns = {"key": keys, "value": ["{}"] * 6, "order": pa.array(orders, pa.int64())}
        results = api.rows(T, columns, op="put")
        assert all("superseded" in result for result in results)
    assert statuses(results) == [204] * 6
    superseded = [result.get("superseded", False) for result in results]
    assert superseded == [True, False, False, False, True, False]
    assert [api.value(T, key) == {} for key in keys] == [not one for one in superseded]
    assert [result["etag"] for result in results] == [api.get(T, key).headers["ETag"].strip('"') for key in keys]


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint8(), pa.uint64(), pa.dictionary(pa.int32(), pa.int64())], ids=str)
@pytest.mark.parametrize("op", ["put", "update", "delete"])
def test_the_column_of_orders_may_have_any_type_of_integers(api: ApiClient, kind: Any, op: str) -> None:
    keys = [fresh() for _ in range(3)]
    api.batch(T, *({"op": "put", "key": key, "value": {"n": 4}, "order": 4} for key in keys))
    columns: dict[str, Any] = {"key": keys, "order": pa.array([3, None, 5], kind)}
    columns |= {"put": {"value": ['{"n": 0}'] * 3}, "update": {"update": ['{"n": 0}'] * 3}, "delete": {}}[op]
    assert [result["superseded"] for result in api.rows(T, columns, op=op)] == [True, False, False]
    assert [api.get(T, key).text == '{"n":4}' for key in keys] == [True, False, False]


def test_only_an_answer_to_orders_has_the_column_superseded(api: ApiClient) -> None:
    [result] = api.rows(T, {"key": [fresh()], "value": ["{}"]}, op="put")
    assert "superseded" not in result
    columns = {"key": [fresh()] * 3, "op": ["put", "put", "get"], "value": ["{}", "[]", None]}
    rows = api.rows(T, {**columns, "order": pa.array([1, 1, None], pa.int64())})
    assert [(row["status"], row["superseded"]) for row in rows] == [(204, False), (422, False), (200, False)]


INVALID: list[Any] = [1.5, "1", True, [1], {}, 2**63, -(2**63) - 1, -1e300, float(2**53) + 2, ""]


@pytest.mark.parametrize("wrong", INVALID, ids=repr)
@pytest.mark.parametrize("kind", [{"op": "put", "value": {}}, {"op": "update", "update": {}}, {"op": "delete"}])
def test_an_order_that_is_no_integer_of_64_bits_is_rejected(api: ApiClient, wrong: Any, kind: dict[str, Any]) -> None:
    key, other = fresh(), fresh()
    good = {**kind, "key": other, "order": 1.0}
    for between in ([], [{"op": "get", "key": key}]):
        first, *_, last = api.batch(T, {**kind, "key": key, "order": wrong}, *between, good)
        check_problem(first["error"], 422, "invalid_operation")
        assert "order" in first["error"]["detail"]
        assert last["status"] in (201, 204)
        check_refused(api.get(T, key), 404, "record_not_found")


@pytest.mark.parametrize("text", ["", "x", "1.0", "1e3", "+1", "0x1", "1 2", "1,2", "9223372036854775808", "\u0661"])
def test_an_invalid_order_header_is_rejected(api: ApiClient, text: str) -> None:
    key, headers = fresh(), {"Tableside-Order": text.encode()}
    for response in (
        api.put(T, key, {}, headers=headers),
        api.update(T, key, {"update": {}}, headers=headers),
        api.delete(T, key, headers=headers),
    ):
        assert "order" in check_refused(response, 422, "invalid_operation")["detail"].lower()
    check_refused(api.get(T, key), 404, "record_not_found")


def test_an_order_on_a_get_is_rejected(api: ApiClient) -> None:
    key = fresh()
    api.put(T, key, {})
    wrong, right = api.batch(T, {"op": "get", "key": key, "order": 1}, {"op": "get", "key": key})
    check_problem(wrong["error"], 422, "invalid_operation")
    assert right["status"] == 200
    columns = {"key": [key, key], "order": pa.array([1, None], pa.int64())}
    assert [row["status"] for row in api.rows(T, columns, op="get")] == [422, 200]
    assert statuses(api.batch(T, {"op": "get", "key": key, "order": None})) == [200]
    check_refused(api.get(T, key, **order(1)), 422, "invalid_operation")


def test_orders_of_other_types_are_refused_in_arrow(api: ApiClient) -> None:
    for column in (pa.array([1.0]), pa.array(["1"]), pa.array([True]), pa.array([1], pa.timestamp("us"))):
        body = stream({"key": ["a"], "value": ["{}"], "order": column})
        problem = check_refused(api.post(T, body, ARROW, params={"op": "put"}), 400, "malformed_request")
        assert "order" in problem["detail"]
    beyond = api.rows(T, {"key": [fresh()], "value": ["{}"], "order": pa.array([2**63], pa.uint64())}, op="put")
    assert (beyond[0]["status"], beyond[0]["code"]) == (422, "invalid_operation")


@pytest.mark.parametrize(
    "more",
    [
        {"op": "put", "value": {}, "if_match": "*"},
        {"op": "put", "value": {}, "if_absent": True},
        {"op": "update", "update": {}, "default": {}},
        {"op": "update", "update": {"a": {}}},
        {"op": "update", "update": {"$inc": {"n": 1}}},
        {"op": "update", "update": {"$set": {"a.b": 1}}},
        {"op": "update", "update": [{"$set": {"a": 1}}, {"$push": {"l": 1}}]},
        {"op": "delete", "if_match": "*"},
    ],
    ids=json.dumps,
)
@ON_EVERY_STORE
def test_a_batch_refuses_only_what_cannot_be_ordered(api: ApiClient, more: dict[str, Any]) -> None:
    key, other = fresh(), fresh()
    api.put(T, key, {"n": 1})
    etag = api.get(T, key).headers["ETag"]
    wrong, right = api.batch(T, {**more, "key": key, "order": 1}, {"op": "put", "key": other, "value": {}, "order": 1})
    check_problem(wrong["error"], 422, "invalid_operation")
    assert (wrong["error"]["applied"], right["status"]) == ("no", 204)
    assert api.get(T, key).headers["ETag"] == etag


@pytest.mark.parametrize("media", [JSON, ARROW])
def test_a_batch_refuses_the_order_of_single_writes(api: ApiClient, media: str) -> None:
    key = fresh()
    api.put(T, fresh(), {})  # creates the table
    put = {"op": "put", "key": key, "value": {}}
    body = json.dumps({"operations": [put]}).encode() if media == JSON else stream({"key": [key], "value": ["{}"]})
    problem = check_refused(api.post(T, body, media, **order(1)), 400, "malformed_request")
    assert "Tableside-Order" in problem["detail"]
    check_refused(api.get(T, key), 404, "record_not_found")


# Forget


@ON_EVERY_STORE
@pytest.mark.parametrize("way", ["single", "batch"])
def test_forget_removes_the_record_with_its_tokens_and_orders(api: ApiClient, way: str) -> None:
    key, token = fresh(), {"Tableside-Token": "w/9"}
    api.put(T, key, {"n": 9}, **order(LAST, **token))
    if way == "single":
        assert api.delete(T, key, params={"forget": "true"}).status_code == 204
    else:
        assert statuses(api.batch(T, {"op": "delete", "key": key, "forget": True})) == [204]
    check_refused(api.get(T, key), 404, "record_not_found")
    again = api.put(T, key, {"n": 1}, **order(1, **token))
    assert {"Tableside-Superseded", "Tableside-Replayed"}.isdisjoint(again.headers)
    assert api.value(T, key) == {"n": 1}
    api.delete(T, key, params={"forget": "false"})
    assert api.put(T, key, {}, **order(0)).headers["Tableside-Superseded"] == "true"


def test_forget_is_true_or_false_and_has_no_token_or_order(api: ApiClient) -> None:
    key, forget = fresh(), {"forget": "true"}
    api.put(T, key, {"n": 1})
    for headers in ({"Tableside-Token": "w/1"}, {"Idempotency-Key": "a"}, {"Tableside-Order": "9"}):
        check_refused(api.delete(T, key, params=forget, headers=headers), 422, "invalid_operation")
    check_refused(api.delete(T, key, params={"forget": "yes"}), 400, "malformed_request")
    check_refused(api.put(T, key, {"n": 2}, params=forget), 400, "malformed_request")
    [wrong] = api.batch(T, {"op": "delete", "key": key, "forget": "true"})
    check_problem(wrong["error"], 422, "invalid_operation")
    assert api.value(T, key) == {"n": 1}


def test_the_records_that_a_request_deletes_are_forgotten(api: ApiClient) -> None:
    table = fresh("forgotten")
    api.put(table, "a", {}, **order(LAST))
    path = f"/v1/tables/{table}/records"
    check_refused(api.client.delete(path, params={"all": "true"}, **order(1)), 400, "malformed_request")
    assert api.client.delete(path, params={"all": "true"}).json()["deleted"] == 1
    assert "Tableside-Superseded" not in api.put(table, "a", {}, **order(1)).headers


def test_superseded_writes_are_counted(api: ApiClient) -> None:
    table = fresh("counted")
    assert api.put(table, "a", {}, **order(2)).status_code == 204
    for _ in range(3):
        api.put(table, "a", {}, **order(1))
    lines = [line for line in api.client.get("/metrics").text.splitlines() if f'"{table}"' in line]
    [count] = [line for line in lines if 'outcome="superseded"' in line and "_total" in line]
    assert float(count.rpartition(" ")[2]) == 3
    assert api.client.get(f"/v1/tables/{table}").json()["capabilities"]["order"] is True
