"""Valid and invalid keys in paths and in batches: strings, integers and composites."""

import http.client
from typing import Any
from urllib.parse import quote

import pytest

from service.http.api_client import ON_EVERY_STORE, ApiClient, check_problem, check_refused, fresh, path_of, statuses

T = "keys"

LEGAL = [
    *(
        "a/b",
        "//",
        "a//b/",
        "%",
        "%2F",
        " ",
        "a?b#c",
        "a+b",
        "a;b=c",
        "a&b",
        "...",
        "\\",
        '"',
        "\r\n",
        "\x7f",
        "\u2028",
    ),
    *("ü", "😀", "é" + "e\u0301", "x" * 1024, "ü" * 512, "records", "0"),
]


@pytest.mark.parametrize("key", LEGAL, ids=lambda key: quote(key, safe="")[:20])
def test_a_key_is_one_encoded_segment_of_a_path_and_the_same_in_a_batch(api: ApiClient, key: str) -> None:
    value = {"key": key}
    assert api.put(T, key, value).status_code == 204
    assert api.value(T, key) == value
    [found] = api.batch(T, {"op": "get", "key": key})
    assert found["value"] == value
    [row] = api.rows(T, {"key": [key]}, op="get")
    assert row["status"] == 200
    assert row["etag"] == found["etag"]
    assert [record["key"] for record in api.walk(T, prefix=key) if record["key"] == key] == [key]
    assert api.delete(T, key).status_code == 204


def test_the_keys_that_clients_resolve_away_are_sent_in_a_batch(api: ApiClient) -> None:
    for key in (".", ".."):
        put, got = api.batch(T, {"op": "put", "key": key, "value": {"n": 1}}, {"op": "get", "key": key})
        assert [put["status"], got["status"]] == [204, 200]


@ON_EVERY_STORE
def test_keys_that_look_alike_are_different_keys(api: ApiClient) -> None:
    keys = ["a/b", "a%2Fb", "a%252Fb", "A/b", "a/b ", "a/b/", "é", "e\u0301"]
    assert statuses(api.batch("alike", *({"op": "put", "key": key, "value": {"k": key}} for key in keys))) == [204] * 8
    assert [api.value("alike", key)["k"] for key in keys] == keys


@pytest.mark.parametrize("path", ["", "%00", "a%00b", "x" * 1025, quote("ü" * 512 + "x"), "a/b", "a/", "/a"])
def test_a_path_without_a_legal_key_is_refused(api: ApiClient, path: str) -> None:
    for method in ("GET", "DELETE"):
        check_refused(api.client.request(method, f"/v1/tables/{T}/records/{path}"), 422, "invalid_operation")


@pytest.mark.parametrize("key", ["%", "%2", "%zz", "a%2", "%%41", "%FF", "%C3", "%ED%A0%80"])
def test_a_path_that_is_not_percent_encoded_text_is_malformed(api: ApiClient, key: str) -> None:
    assert api.put(T, fresh(), {}).status_code == 204
    host = api.client.base_url
    connection = http.client.HTTPConnection(host.host, host.port or 80, timeout=30)
    connection.request("GET", f"/v1/tables/{T}/records/{key}")
    response = connection.getresponse()
    assert response.status == 400
    assert b'"malformed_request"' in response.read()
    connection.close()


INVALID: dict[str, list[Any]] = {
    T: ["", "x" * 1025, "ü" * 513, "a\0", 1, 1.5, True, None, [], ["a"], {}],
    "numbers": ["1", 1.5, True, None, [1], 2**63, -(2**63) - 1, 10**30, 1e300],
    "visits": ["a", ["a"], ["a", "b", "c"], ["a", 1], ["a", ""], ["a", None], [], {"user": "a"}, None],
}


@pytest.mark.parametrize("table", INVALID)
def test_an_invalid_key_in_a_batch_fails_only_its_operation(api: ApiClient, table: str) -> None:
    legal = {T: "a", "numbers": 1, "visits": ["a", "b"]}[table]
    operations = [{"op": "get", "key": key} for key in INVALID[table]]
    *refused, fine = api.batch(table, *operations, {"op": "put", "key": legal, "value": {}})
    for result in refused:
        check_problem(result["error"], 422, "invalid_operation")
    assert fine["status"] == 204


# Integer keys


@pytest.mark.parametrize("key", [0, 1, -1, 42, 2**63 - 1, -(2**63)])
@ON_EVERY_STORE
def test_an_integer_key_is_decimal_in_a_path(api: ApiClient, key: int) -> None:
    assert api.put("numbers", key, {"n": 1}).status_code == 204
    assert api.value("numbers", key) == {"n": 1}
    [found, same] = api.batch("numbers", {"op": "get", "key": key}, {"op": "get", "key": key})
    assert found == same
    assert found["value"] == {"n": 1}


def test_a_double_that_equals_an_integer_is_that_key(api: ApiClient) -> None:
    api.put("numbers", 77, {"n": 77})
    body = b'{"operations":[{"op":"get","key":77.0},{"op":"get","key":7.7e1},{"op":"get","key":77}]}'
    assert [result["value"] for result in api.post("numbers", body).json()["results"]] == [{"n": 77}] * 3


@pytest.mark.parametrize(
    "key", ["a", "", "1.0", "1e3", "01", "+1", " 1", "0x1", "9223372036854775808", "1/2", "٣", "-"]
)
def test_a_path_accepts_only_decimal_integers(api: ApiClient, key: str) -> None:
    response = api.client.get(f"/v1/tables/numbers/records/{quote(key)}")
    check_refused(response, 422, "invalid_operation")


@ON_EVERY_STORE
def test_text_is_an_integer_key_in_a_path_and_not_in_a_batch(api: ApiClient) -> None:
    """A path has only text. In JSON and Arrow a string is not an integer."""
    assert api.put("numbers", "4242", {}).status_code == 204
    operations = [{"op": "get", "key": 4242}, {"op": "get", "key": "4242"}, {"op": "get", "key": 42.5}]
    found, text, fraction = api.batch("numbers", *operations)
    assert found["status"] == 200
    assert text["error"]["detail"] == "a key of this table is an integer, not a string"
    assert fraction["error"]["detail"] == "a key of this table is an integer, not a number with a fraction"
    [row] = api.rows("numbers", {"key": ["4242"]}, op="get")
    assert (row["code"], row["detail"]) == (text["error"]["code"], text["error"]["detail"])


# Composite keys


@pytest.mark.parametrize(
    "key",
    [("user-1", "2026-11-20"), ("a/b", "c/d"), ("%2F", "😀"), (" ", "..."), ("ü", "x" * 1024), ("records", "batch")],
)
def test_a_composite_key_has_one_segment_per_part(api: ApiClient, key: tuple[str, str]) -> None:
    assert api.put("visits", key, {"n": 1}).status_code == 204
    assert api.value("visits", *key) == {"n": 1}
    [found] = api.batch("visits", {"op": "get", "key": list(key)})
    assert found["value"] == {"n": 1}
    [row] = api.rows("visits", {"key": [{"day": key[1], "user": key[0]}]}, op="get")
    assert row["status"] == 200


@ON_EVERY_STORE
def test_a_composite_key_of_a_string_and_an_integer(api: ApiClient) -> None:
    assert api.put("pages", ("book", -3), {"n": 1}).status_code == 204
    assert api.value("pages", "book", "-3") == {"n": 1}
    assert api.batch("pages", {"op": "get", "key": ["book", -3.0]})[0]["value"] == {"n": 1}
    assert api.rows("pages", {"key": [{"book": "book", "page": -3}]}, op="get")[0]["status"] == 200


@pytest.mark.parametrize("path", ["a", "a/b/c", "a/", "/b", "", "a//b", "a%2Fb", "x" * 1025 + "/b"])
def test_a_composite_key_with_other_parts_is_refused_in_a_path(api: ApiClient, path: str) -> None:
    check_refused(api.client.get(f"/v1/tables/visits/records/{path}"), 422, "invalid_operation")


# Members of a value that repeat the key


@pytest.mark.parametrize(
    ("table", "key", "members"),
    [
        ("aircraft", "N10156", {"tailnum": "N10156"}),
        ("numbers", 5, {"id": 5}),
        ("numbers", 6, {"id": 6.0}),
        ("visits", ("u", "d"), {"user": "u", "day": "d"}),
        ("visits", ("u", "e"), {"day": "e"}),
    ],
)
def test_a_member_that_equals_the_key_is_accepted_and_not_stored(
    api: ApiClient, table: str, key: Any, members: dict[str, Any]
) -> None:
    assert api.put(table, key, {"seats": 2, **members}).status_code == 204
    parts = key if isinstance(key, tuple) else (key,)
    assert api.value(table, *parts) == {"seats": 2}
    assert api.update(table, key, {"update": {"$set": members}}).status_code == 204
    assert api.merge(table, key, members).status_code == 204
    assert api.value(table, *parts) == {"seats": 2}
    as_json = list(key) if isinstance(key, tuple) else key
    again = {"op": "update", "key": as_json, "update": {"$inc": {"seats": 1}}, "default": members, "return": True}
    assert api.batch(table, {"op": "delete", "key": as_json}, {**again, "update": {}})[1]["value"] == {}


@pytest.mark.parametrize("member", ["N10157", 1, None, True, ["N10156"], {"a": 1}])
def test_a_member_that_differs_from_the_key_is_refused(api: ApiClient, member: object) -> None:
    key = "N10156"
    api.put("aircraft", key, {"seats": 2})
    for response in (
        api.put("aircraft", key, {"tailnum": member}),
        api.update("aircraft", key, {"update": {"$set": {"tailnum": member}}}),
        api.update("aircraft", key, {"update": {}, "default": {"tailnum": member}}),
    ):
        check_refused(response, 422, "invalid_operation")
    assert api.value("aircraft", key) == {"seats": 2}


def test_without_named_fields_every_member_belongs_to_the_value(api: ApiClient) -> None:
    key = fresh()
    api.put(T, key, {"key": "other", "tailnum": "x"})
    assert api.value(T, key) == {"key": "other", "tailnum": "x"}


# Names of tables


@pytest.mark.parametrize("name", ["a", "0", "A.b_c-d", "x" * 128, "records", "batch", "splits"])
def test_a_table_s_name(api: ApiClient, name: str) -> None:
    assert api.put(name, "k", {"n": 1}).status_code == 204
    assert api.value(name, "k") == {"n": 1}
    assert api.client.get(f"/v1/tables/{name}").json()["name"] == name


@pytest.mark.parametrize(
    "path", ["/v1%2Ftables%2Fkeys", "/v1/tables%2Fkeys", "/v1/tables/keys/records%2Fk", "/v1%2Ftables/keys/records/k"]
)
def test_an_encoded_slash_does_not_separate_segments(api: ApiClient, path: str) -> None:
    check_refused(api.client.get(path), 404, "not_found")


def test_the_path_of_a_key_ends_where_the_query_begins(api: ApiClient) -> None:
    api.put(T, "q?fields=a", {"a": 1, "b": 2})
    assert api.client.get(path_of(T, "q?fields=a") + "?fields=a").json() == {"a": 1}
