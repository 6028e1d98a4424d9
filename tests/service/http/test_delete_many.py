"""Deleting the records of a prefix, of a partition or of a whole table, in pages."""

from typing import Any

import httpx
import pytest

from service.http.api_client import ON_EVERY_STORE, ApiClient, check_refused, fresh, path_of


def remove(api: ApiClient, table: str, **query: Any) -> httpx.Response:
    return api.client.delete(path_of(table).removesuffix("/"), params=query)


def remove_all(api: ApiClient, table: str, **query: Any) -> int:
    """Delete page by page. Return the number of records."""
    total, cursor = 0, None
    while True:
        page = remove(api, table, **query, **({} if cursor is None else {"cursor": cursor})).json()
        total += int(page["deleted"])
        if (cursor := page["cursor"]) is None:
            return total


def filled(api: ApiClient) -> str:
    table = fresh("many")
    keys = [f"{word}-{number:03}" for word in ("day", "night") for number in range(60)]
    api.batch(table, *({"op": "put", "key": key, "value": {"k": key}} for key in keys))
    return table


@pytest.mark.parametrize("limit", [7, 1000])
@ON_EVERY_STORE
def test_the_records_of_a_prefix_are_deleted_in_pages(api: ApiClient, limit: int) -> None:
    table = filled(api)
    assert remove_all(api, table, prefix="day-", limit=limit) == 60
    assert api.in_order([record["key"] for record in api.walk(table)]) == [f"night-{number:03}" for number in range(60)]
    assert remove_all(api, table, prefix="day-") == 0


@ON_EVERY_STORE
def test_all_records_are_deleted_with_their_tokens(api: ApiClient) -> None:
    table = filled(api)
    put = {"op": "put", "key": "a", "value": {"n": 1}, "token": {"writer": "w", "sequence": 7}}
    api.batch(table, put)
    assert remove_all(api, table, all="true", limit=50) == 121
    assert api.walk(table) == []
    [again] = api.batch(table, put)
    assert not again.get("replayed")
    assert api.value(table, "a") == {"n": 1}


@ON_EVERY_STORE
def test_the_records_of_a_partition_are_deleted(api: ApiClient) -> None:
    user = fresh("user")
    for day in ("2026-11-02", "2026-10-30", "2026-11-10"):
        api.put("visits", (user, day), {})
    api.put("visits", (user + "x", "2026-11-01"), {})
    assert remove_all(api, "visits", partition=user, limit=2) == 3
    assert api.walk("visits", partition=user) == []
    assert len(api.walk("visits", prefix=user)) == 1


@pytest.mark.parametrize(
    "query",
    [
        *({}, {"prefix": ""}, {"all": "false"}, {"all": "1"}, {"prefix": "a", "all": "true"}, {"cursor": "x"}),
        *({"prefix": "a", "partition": "b"}, {"limit": 5}, {"prefix": "a", "fields": "n"}),
    ],
    ids=str,
)
def test_a_request_needs_exactly_one_choice(api: ApiClient, query: dict[str, Any]) -> None:
    table = fresh()
    api.put(table, "a", {})
    check_refused(remove(api, table, **query), 400, "malformed_request")
    assert api.value(table, "a") == {}


def test_a_cursor_belongs_to_its_parameters(api: ApiClient) -> None:
    table = filled(api)
    cursor = remove(api, table, prefix="day-", limit=10).json()["cursor"]
    scanned = api.scan(table, prefix="day-", limit=10).json()["cursor"]
    check_refused(remove(api, table, prefix="night-", cursor=cursor), 400, "malformed_request")
    check_refused(remove(api, table, all="true", cursor=cursor), 400, "malformed_request")
    check_refused(remove(api, table, prefix="day-", cursor=scanned), 400, "malformed_request")
    check_refused(api.scan(table, prefix="day-", cursor=cursor), 400, "malformed_request")
    assert len(api.walk(table)) == 110


def test_a_partition_needs_a_composite_key_and_a_table_must_exist(api: ApiClient) -> None:
    table = filled(api)
    check_refused(remove(api, table, partition="a"), 422, "invalid_operation")
    check_refused(remove(api, fresh("absent"), all="true"), 404, "table_not_found")
