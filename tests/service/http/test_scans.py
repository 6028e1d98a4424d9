"""Scans in pages, by prefix, by partition and by splits, as JSON and as Arrow."""

import json
from typing import Any

import pyarrow as pa
import pytest

from service.http.api_client import ARROW, JSON, ON_EVERY_STORE, ApiClient, check_refused, fresh, read

COUNT = 137


@pytest.fixture(scope="module")
def filled(api: ApiClient) -> str:
    """Return the name of a table with `COUNT` records, from record-000 on, and a few others."""
    table = fresh("filled")
    puts = [{"op": "put", "key": f"record-{n:03}", "value": {"n": n, "m": -n}} for n in range(COUNT)]
    others: list[object] = [
        {"op": "put", "key": key, "value": {}} for key in ("a", "record", "record.", "z", "ü", "😀")
    ]
    api.batch(table, *puts)
    api.batch(table, *others)
    return table


def keys(records: list[dict[str, Any]]) -> list[Any]:
    return [record["key"] for record in records]


@ON_EVERY_STORE
def test_a_page_contains_keys_values_and_etags(api: ApiClient, filled: str) -> None:
    response = api.scan(filled, prefix="record-00", limit=3)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == JSON
    page = response.json()
    assert page.keys() == {"records", "cursor"}
    first = page["records"][0]
    if api.partitioned:
        assert first.pop("partition") in (0, 1)
    else:
        assert keys(page["records"]) == ["record-000", "record-001", "record-002"]
    assert len(page["records"]) == 3
    assert first.keys() == {"key", "value", "etag"}
    n = int(first["key"].removeprefix("record-"))
    assert first["value"] == {"n": n, "m": -n}
    assert api.get(filled, first["key"]).headers["ETag"] == f'"{first["etag"]}"'
    assert response.headers["Tableside-Cursor"] == page["cursor"]


@pytest.mark.parametrize(
    ("prefix", "count"),
    [("record-", COUNT), ("record-13", 7), ("record", COUNT + 2), ("ü", 1), ("x", 0), ("", COUNT + 6)],
)
@ON_EVERY_STORE
def test_a_prefix_limits_the_scan(api: ApiClient, filled: str, prefix: str, count: int) -> None:
    for limit in (5, 1000):
        records = api.walk(filled, prefix=prefix, limit=limit)
        assert len(records) == count
        assert all(key.startswith(prefix) for key in keys(records))


def test_fields_choose_members(api: ApiClient, filled: str) -> None:
    [record] = api.walk(filled, prefix="record-007", fields="m,x")
    assert record["value"] == {"m": -7}


# Composite keys


@ON_EVERY_STORE
def test_a_partition_is_scanned_in_the_order_of_its_parts(api: ApiClient) -> None:
    user = fresh("user")
    for day in ("2026-11-02", "2026-10-30", "2026-11-10"):
        api.put("visits", (user, day), {})
    api.put("visits", (user + "x", "2026-11-01"), {})
    api.put("visits", (user + "/", "2026-11-01"), {})
    in_order = [[user, "2026-10-30"], [user, "2026-11-02"], [user, "2026-11-10"]]
    for limit in (1, 2, 1000):
        assert keys(api.walk("visits", partition=user, limit=limit)) == in_order
    assert keys(api.walk("visits", partition=user, prefix="2026-11")) == in_order[1:]
    assert len(api.walk("visits", prefix=user)) == 5


@pytest.mark.parametrize("partition", ["a%", "a+b", "a/b", "%2F", "ü&="])
def test_a_partition_may_be_any_string(api: ApiClient, partition: str) -> None:
    partition = fresh() + partition
    api.put("visits", (partition, "d"), {})
    assert keys(api.walk("visits", partition=partition)) == [[partition, "d"]]


def test_a_partition_and_a_prefix_need_keys_that_have_them(api: ApiClient, filled: str) -> None:
    check_refused(api.scan(filled, partition="a"), 422, "invalid_operation")
    check_refused(api.scan("visits", partition=""), 422, "invalid_operation")
    check_refused(api.scan("numbers", prefix="1"), 422, "invalid_operation")
    check_refused(api.scan("pages", partition="a", prefix="1"), 422, "invalid_operation")


# Limits and cursors


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "", "1e3", "٣"])
def test_a_limit_and_a_count_are_integers_from_1_on(api: ApiClient, filled: str, text: str) -> None:
    check_refused(api.scan(filled, limit=text), 400, "malformed_request")
    splits = api.client.get(f"/v1/tables/{filled}/splits", params={"count": text})
    check_refused(splits, 400, "malformed_request")


def test_a_bad_cursor_is_malformed(api: ApiClient, filled: str) -> None:
    cursor = api.scan(filled, limit=1).json()["cursor"]
    changed = (cursor[:-4], cursor + "AAAA", ("B" if cursor[0] == "A" else "A") + cursor[1:])
    for bad in ("", "x", "ü", "AAAA", "A" * 1000, "%", "null", "=", "a b", *changed):
        check_refused(api.scan(filled, cursor=bad), 400, "malformed_request")


@ON_EVERY_STORE
def test_the_cursor_of_another_scan_is_malformed(api: ApiClient, filled: str) -> None:
    cursor = api.scan(filled, limit=1, prefix="record").json()["cursor"]
    other = fresh("other")
    api.put(other, "record", {})
    check_refused(api.scan(filled, cursor=cursor), 400, "malformed_request")
    check_refused(api.scan(filled, cursor=cursor, prefix="z"), 400, "malformed_request")
    check_refused(api.scan(other, cursor=cursor, prefix="record"), 400, "malformed_request")
    assert api.scan(filled, cursor=cursor, prefix="record", limit=7).status_code == 200


# Splits


@pytest.mark.parametrize("count", [1, 3, 8, 1000])
@ON_EVERY_STORE
def test_splits_are_disjoint_and_cover_the_table(api: ApiClient, filled: str, count: int) -> None:
    response = api.client.get(f"/v1/tables/{filled}/splits", params={"count": count})
    splits = response.json()["splits"]
    assert 1 <= len(splits) <= count
    parts = [keys(api.walk(filled, split=split, limit=20)) for split in splits]
    together = [key for part in parts for key in part]
    assert len(together) == len(set(together)) == COUNT + 6
    if count <= 8:
        assert len(splits) == count
        assert max(map(len, parts)) < 3 * (COUNT + 6) / count


def test_the_split_of_another_table_is_malformed(api: ApiClient, filled: str) -> None:
    other = fresh("other")
    api.put(other, "a", {})
    [split] = api.client.get(f"/v1/tables/{other}/splits", params={"count": 1}).json()["splits"]
    for wrong in (split, "x", "", split[:-1]):
        check_refused(api.scan(filled, split=wrong), 400, "malformed_request")


# As Arrow


def arrow_page(api: ApiClient, table: str, **query: Any) -> tuple[Any, str | None]:
    response = api.client.get(f"/v1/tables/{table}/records", params=query, headers={"Accept": ARROW})
    assert response.status_code == 200
    assert response.headers["Content-Type"] == ARROW
    page = read(response.content)
    cursor = (page.schema.metadata or {}).get(b"cursor")
    assert response.headers.get("Tableside-Cursor") == (None if cursor is None else cursor.decode())
    return page, response.headers.get("Tableside-Cursor")


@ON_EVERY_STORE
def test_arrow_pages_equal_json_pages(api: ApiClient, filled: str) -> None:
    rows, cursor = arrow_page(api, filled, limit=10)
    pages = 1
    assert {field.name: field.type for field in rows.schema} == {
        "key": pa.utf8(),
        "value": pa.binary(),
        "etag": pa.utf8(),
        **({"partition": pa.int32()} if api.partitioned else {}),
    }
    records = rows.to_pylist()
    while cursor is not None:
        rows, cursor = arrow_page(api, filled, limit=10, cursor=cursor)
        records += rows.to_pylist()
        pages += 1
    assert pages >= 15
    assert [{**row, "value": json.loads(row["value"])} for row in records] == api.walk(filled)
    whole, cursor = arrow_page(api, filled, limit=1000)
    assert whole.to_pylist() == records
    assert cursor is None
    empty, cursor = arrow_page(api, filled, prefix="nothing")
    assert (empty.num_rows, empty.schema, cursor) == (0, whole.schema, None)


def test_keys_in_arrow_pages_have_the_types_of_the_table(api: ApiClient) -> None:
    api.put("numbers", 3, {})
    api.put("pages", ("typed", 3), {})
    assert arrow_page(api, "numbers")[0].schema.field("key").type == pa.int64()
    page, _ = arrow_page(api, "pages", partition="typed")
    assert page.column("key").to_pylist() == [{"book": "typed", "page": 3}]


@ON_EVERY_STORE
def test_arrow_pages_show_expiries_and_choose_fields(api: ApiClient) -> None:
    table = fresh("expiring")
    api.put(table, "a", {"n": 1, "m": 2}, params={"ttl_s": 100})
    api.put(table, "b", {"n": 1, "m": 2})
    first, second = sorted(arrow_page(api, table, fields="n")[0].to_pylist(), key=lambda row: str(row["key"]))
    assert first["value"] == b'{"n":1}'
    assert first["expires_at"] == api.get(table, "a").headers["Tableside-Expires-At"]
    assert second["expires_at"] is None


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("*/*", JSON),
        (f"{ARROW}, {JSON}", JSON),
        (f"{ARROW}, {JSON};q=0.9", ARROW),
        (f"{ARROW}, */*;q=0.1", ARROW),
        (f"{JSON};q=0, */*", ARROW),
        ("text/html, */*;q=0.1", JSON),
        (f"image/*, {JSON};q=0", None),
    ],
)
def test_the_media_type_is_the_callers_preference(api: ApiClient, filled: str, accept: str, media: str | None) -> None:
    response = api.client.get(f"/v1/tables/{filled}/records", params={"limit": 1}, headers={"Accept": accept})
    if media is None:
        check_refused(response, 406, "not_acceptable")
    else:
        assert (response.headers["Content-Type"], response.headers["Vary"]) == (media, "Accept")
