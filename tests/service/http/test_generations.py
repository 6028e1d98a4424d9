"""The endpoints of generations, and their numbers wherever a table is named."""

from typing import Any

import httpx
import pytest

from service.http.api_client import ApiClient, check_refused, fresh, path_of

MISSING = "generation_not_found"


@pytest.fixture
def table(api: ApiClient) -> str:
    """The name of a new table with one record."""
    name = fresh("replaced")
    assert api.put(name, "a", {"n": 1}).status_code == 204
    return name


def create(api: ApiClient, table: str, body: Any = None, **headers: str) -> httpx.Response:
    return api.client.post(f"/v1/tables/{table}/generations", json=body, headers=headers)


def created(api: ApiClient, table: str) -> int:
    number: int = create(api, table).json()["generation"]
    return number


def activate(api: ApiClient, table: str, number: object, **query: object) -> httpx.Response:
    return api.client.post(f"/v1/tables/{table}/generations/{number}/activate", params=query)  # type: ignore[arg-type]


def remove(api: ApiClient, table: str, number: object) -> httpx.Response:
    return api.client.delete(f"/v1/tables/{table}/generations/{number}")


def states(api: ApiClient, table: str) -> dict[int, str]:
    listed = api.client.get(f"/v1/tables/{table}/generations").json()["generations"]
    return {one["generation"]: one["state"] for one in listed}


def test_a_table_is_replaced_and_rolled_back(api: ApiClient, table: str) -> None:
    answer = create(api, table, {"note": "daily"})
    assert answer.status_code == 201
    entry = answer.json()
    assert (entry["generation"], entry["state"], entry["note"], entry["activated_at"]) == (2, "loading", "daily", None)
    assert api.put(f"{table}@2", "b", {"n": 2}).status_code == 204
    assert api.value(table, "a") == {"n": 1}
    assert api.get(table, "b").status_code == 404
    assert api.client.get(f"/v1/tables/{table}").json()["generation"] == 1
    assert activate(api, table, 2, expected=1).json()["state"] == "current"
    assert activate(api, table, 2, expected=1).status_code == 200  # a repetition
    assert api.value(table, "b") == {"n": 2}
    assert api.get(table, "a").status_code == 404
    assert api.value(f"{table}@1", "a") == {"n": 1}
    assert api.client.get(f"/v1/tables/{table}").json()["generation"] == 2
    assert states(api, table) == {1: "kept", 2: "current"}
    check_refused(remove(api, table, 2), 412, "precondition_failed")
    for other in (1, 7):
        check_refused(activate(api, table, 1, expected=other), 412, "precondition_failed")
    assert activate(api, table, 1).status_code == 200
    assert api.value(table, "a") == {"n": 1}
    assert remove(api, table, 2).status_code == 204
    assert remove(api, table, 2).status_code == 204
    check_refused(activate(api, table, 2), 404, MISSING)
    assert created(api, table) == 3


def test_a_repeated_idempotency_key_returns_the_same_generation_while_it_loads(api: ApiClient, table: str) -> None:
    numbers = [create(api, table, **{"Idempotency-Key": key}).json()["generation"] for key in ("x", '"x"', "y")]
    assert numbers == [2, 2, 3]
    assert activate(api, table, 3).status_code == 200
    assert states(api, table) == {1: "kept", 3: "current"}  # an older one that loads is removed
    assert create(api, table, **{"Idempotency-Key": "x"}).json()["generation"] == 4


@pytest.mark.parametrize("body", [7, [], "text", {"note": 7}, {"note": None}, {"notes": "x"}, {"note": "x" * 1001}])
def test_a_body_with_something_else_is_refused(api: ApiClient, table: str, body: object) -> None:
    check_refused(create(api, table, body), 422, "invalid_operation")
    assert states(api, table) == {1: "current"}


def test_only_a_generation_that_loads_is_written_by_its_number(api: ApiClient, table: str) -> None:
    number = created(api, table)
    for sealed in (f"{table}@1", f"{table}%40{number}"):
        assert activate(api, table, number).status_code == 200
        check_refused(api.put(sealed, "a", {}), 409, "generation_sealed")
        check_refused(api.update(sealed, "a", {"update": {"$inc": {"n": 1}}}), 409, "generation_sealed")
        check_refused(api.client.delete(path_of(sealed, "a")), 409, "generation_sealed")
        deleted = api.client.delete(f"/v1/tables/{sealed}/records", params={"all": "true"})
        check_refused(deleted, 409, "generation_sealed")
        batch = [{"op": "put", "key": "a", "value": {}}, {"op": "get", "key": "a"}, {"op": "delete", "key": "a"}]
        assert [one["status"] for one in api.batch(sealed, *batch)][::2] == [409, 409]
    assert api.value(f"{table}@1", "a") == {"n": 1}
    assert api.put(table, "c", {"n": 3}).status_code == 204
    assert api.value(f"{table}@{number}", "c") == {"n": 3}


@pytest.mark.parametrize("number", ["0", "3", "007", "999999999999999999"])
def test_an_unknown_generation_is_not_found(api: ApiClient, table: str, number: str) -> None:
    name = f"{table}@{number}"
    for response in (api.get(name, "a"), api.put(name, "a", {}), activate(api, table, number)):
        check_refused(response, 404, MISSING)
    check_refused(api.client.get(f"/v1/tables/{name}"), 404, MISSING)


@pytest.mark.parametrize("suffix", ["@", "@x", "@-1", "@1@1", "@1@runs", "@runs@1", "@1.0", "@ 1", "@1%00", "@\u0661"])
def test_other_names_with_an_at_sign_are_no_tables(api: ApiClient, table: str, suffix: str) -> None:
    check_refused(api.get(table + suffix, "a"), 404, "table_not_found")
    check_refused(api.put(table + suffix, "a", {}), 422, "invalid_operation")


def test_other_paths_change_nothing(api: ApiClient, table: str) -> None:
    for path in ("x/activate", "1.0/activate", "-1/activate", "%31%32/activate", "1/activate/", "1/other"):
        assert api.client.post(f"/v1/tables/{table}/generations/{path}").status_code == 404
    assert api.client.post(f"/v1/tables/{table}@1/generations").status_code == 422
    assert states(api, table) == {1: "current"}


def test_the_companion_is_the_same_for_all_generations(api: ApiClient, table: str) -> None:
    assert api.put(f"{table}@runs", "job", {"step": 1}).status_code == 204
    assert activate(api, table, created(api, table)).status_code == 200
    assert api.value(f"{table}@runs", "job") == {"step": 1}
    assert api.put(f"{table}@runs", "job", {"step": 2}).status_code == 204


def test_a_cursor_or_split_belongs_to_its_generation(api: ApiClient, table: str) -> None:
    for key in "bcdef":
        api.put(table, key, {"n": 1})
    first = api.client.get(f"/v1/tables/{table}/records", params={"limit": 2}).json()
    splits = api.client.get(f"/v1/tables/{table}/splits", params={"count": 2}).json()["splits"]
    number = created(api, table)
    for key in "abcdef":
        api.put(f"{table}@{number}", key, {"n": 2})
    activate(api, table, number)

    scan = api.scan
    rest = scan(table, cursor=first["cursor"]).json()["records"]
    assert [one["value"]["n"] for one in rest] == [1] * 4
    assert [one["value"]["n"] for split in splits for one in scan(table, split=split).json()["records"]] == [1] * 6
    second = scan(table, limit="2").json()
    assert [one["value"]["n"] for one in scan(table, cursor=second["cursor"]).json()["records"]] == [2] * 4
    check_refused(scan(f"{table}@{number}", cursor=first["cursor"]), 400, "malformed_request")
    check_refused(scan(f"{table}@1", cursor=second["cursor"]), 400, "malformed_request")
    check_refused(scan(table, cursor=f"{first['cursor']}.x"), 400, "malformed_request")
    check_refused(scan(table, cursor=f"{first['cursor']}.99"), 404, MISSING)
    third = created(api, table)
    activate(api, table, third)
    check_refused(scan(table, cursor=first["cursor"]), 404, MISSING)
    check_refused(scan(table, split=splits[0]), 404, MISSING)
    assert scan(table, cursor=second["cursor"]).status_code == 200


def test_pages_of_a_deletion_stay_in_their_generation(api: ApiClient, table: str) -> None:
    for key in "bcd":
        api.put(table, key, {"n": 1})
    query = {"all": "true", "limit": "2"}
    first = api.client.delete(f"/v1/tables/{table}/records", params=query).json()
    number = created(api, table)
    api.put(f"{table}@{number}", "x", {"n": 2})
    activate(api, table, number)
    api.client.delete(f"/v1/tables/{table}/records", params={**query, "cursor": first["cursor"]})
    assert api.value(table, "x") == {"n": 2}


def test_etags_tokens_and_orders_are_of_one_generation(api: ApiClient, table: str) -> None:
    put = {"op": "put", "key": "k", "value": {"n": 1}, "token": {"writer": "w", "sequence": 7}}
    api.batch(table, put)
    number = created(api, table)
    [again] = api.batch(f"{table}@{number}", put)
    assert (again["status"], again.get("replayed", False)) == (204, False)
    api.batch(f"{table}@{number}", {"op": "put", "key": "o", "value": {"n": 9}, "order": 9})
    [lower] = api.batch(table, {"op": "put", "key": "o", "value": {"n": 1}, "order": 1})
    assert not lower.get("superseded")


@pytest.mark.parametrize("api", ["memory", "partitioned"], indirect=True)
def test_a_table_needs_the_setting_and_one_partition(api: ApiClient) -> None:
    check_refused(create(api, "hour"), 501, "unsupported")
    check_refused(api.get("hour@1", "a"), 501, "unsupported")
    described = api.client.get("/v1/tables/hour").json()
    assert "generation" not in described
    assert not described["capabilities"]["generations"]
    check_refused(api.scan("hour", cursor="AAAA.5"), 404, MISSING)
