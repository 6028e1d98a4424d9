"""Requests to a table that does not exist yet, in a service with `auto_create`, and to names that no table can have."""

from typing import Any

import pytest

from service.http.api_client import ARROW, ON_EVERY_STORE, ApiClient, check_refused, fresh, statuses, stream

PUT = {"op": "put", "key": "a", "value": {"n": 1}}

INVALID = [
    ({"op": "put", "key": 7, "value": {}}, "a key of this table is a string, not a number"),
    ({"op": "put", "key": "", "value": {}}, "a string in a key must have 1 to 1024 bytes of UTF-8"),
    ({"op": "put", "key": "a", "value": {}, "ttl_s": 0}, "ttl_s must be a number above 0, or -1 for no expiry"),
    ({"op": "put", "key": "a", "value": [1]}, "a value must be a JSON object"),
    ({"op": "update", "key": "a", "update": {"$add": 1}, "default": {}}, "unknown operator `$add`"),
    ({"op": "delete", "key": None}, "a key of this table is a string, not null"),
]


def is_table(api: ApiClient, table: str) -> bool:
    """Return whether the service lists the table."""
    return table in [one["name"] for one in api.client.get("/v1/tables").json()["tables"]]


@ON_EVERY_STORE
def test_invalid_operations_on_a_new_table_have_their_reasons_and_create_no_table(api: ApiClient) -> None:
    table = fresh("new")
    results = api.batch(table, *[operation for operation, _ in INVALID])
    assert statuses(results) == [422] * len(INVALID)
    for result, (_, reason) in zip(results, INVALID, strict=True):
        assert reason in result["error"]["detail"]
    assert not is_table(api, table)


@ON_EVERY_STORE
def test_invalid_rows_for_a_new_table_have_their_reasons_and_create_no_table(api: ApiClient) -> None:
    table = fresh("new")
    columns: dict[str, Any] = {"key": ["", "b", "c", "d"], "value": ["{}", "[1]", None, "{}"], "ttl_s": [1, 1, 1, -2]}
    rows = api.rows(table, columns, op="put")
    for row, reason in zip(rows, ("key", "object", "object", "ttl_s"), strict=True):
        assert (row["status"], row["code"]) == (422, "invalid_operation")
        assert reason in row["detail"]
    assert not is_table(api, table)


@ON_EVERY_STORE
def test_one_valid_write_creates_the_table(api: ApiClient) -> None:
    table = fresh("new")
    assert statuses(api.batch(table, INVALID[0][0], {"op": "get", "key": "a"}, PUT)) == [422, 404, 204]
    assert api.value(table, "a") == {"n": 1}


def test_gets_of_a_table_that_does_not_exist_leave_invalid_operations_their_reasons(api: ApiClient) -> None:
    table = fresh("new")
    absent, invalid = api.batch(table, {"op": "get", "key": "a"}, {"op": "get", "key": 7})
    assert (absent["error"]["code"], invalid["error"]["code"]) == ("table_not_found", "invalid_operation")
    check_refused(api.post(table, b'{"operations":[{"op":"get","key":"a"}]}'), 404, "table_not_found")
    assert api.batch(table) == []
    assert not is_table(api, table)


def test_an_invalid_put_to_a_new_table_has_its_reason(api: ApiClient) -> None:
    table = fresh("new")
    path = f"/v1/tables/{table}/records/a"
    check_refused(api.client.put(path, content=b"{"), 400, "malformed_request")
    check_refused(api.client.put(path, content=b"[]"), 422, "invalid_operation")
    check_refused(api.client.put(path, content=b"{}", headers={"Prefer": "wait=x"}), 400, "malformed_request")
    assert not is_table(api, table)


@pytest.mark.parametrize("name", ["_a", ".a", "a b", "a%2Fb", "x" * 129, "%C3%BC", "a%0A", "a$"])
def test_a_name_that_no_table_can_have_is_explained(api: ApiClient, name: str) -> None:
    row = stream({"key": ["a"], "value": ["{}"]})
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "", {}),
        ("GET", "/records", {}),
        ("GET", "/splits", {}),
        ("GET", "/records/k", {}),
        ("PUT", "/records/k", {"json": {}}),
        ("PATCH", "/records/k", {"json": {"update": {}}}),
        ("DELETE", "/records/k", {}),
        ("POST", "/batch", {"json": {"operations": [PUT]}}),
        ("POST", "/batch?op=put", {"content": row, "headers": {"Content-Type": ARROW}}),
    ]
    for method, path, options in requests:
        response = api.client.request(method, f"/v1/tables/{name}{path}", **options)
        problem = check_refused(response, *(404, "table_not_found") if method == "GET" else (422, "invalid_operation"))
        assert "1 to 128 letters, digits, _, . and -" in problem["detail"]
