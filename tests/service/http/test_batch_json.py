"""Batches as JSON."""

import json
from typing import Any

import pytest

from service.http.api_client import ON_EVERY_STORE, ApiClient, check_problem, check_refused, fresh, statuses

T = "batches"


@ON_EVERY_STORE
def test_one_result_per_operation_in_its_order_as_the_single_request_would_answer(api: ApiClient) -> None:
    a, b, c, d, e = (fresh() for _ in range(5))
    api.put(T, a, {"n": 1, "m": 2})
    etag = api.put(T, b, {"n": 0}).headers["ETag"].strip('"')
    token = {"writer": "w", "sequence": 7}
    results = api.batch(
        T,
        {"op": "get", "key": a, "fields": ["n"]},
        {"op": "put", "key": b, "value": {"n": 1}, "if_match": etag, "ttl_s": 60},
        {"op": "put", "key": e, "value": {"n": 1}, "if_absent": True},
        {"op": "update", "key": c, "update": {"$inc": {"n": 1}}, "default": {"n": 0}, "token": token, "return": True},
        {"op": "delete", "key": d},
    )
    assert statuses(results) == [200, 204, 201, 201, 204]
    assert results[0]["value"] == {"n": 1}
    assert results[3]["value"] == {"n": 1}
    assert results[4] == {"status": 204}
    assert all(result["etag"] and '"' not in result["etag"] for result in results[:4])
    assert api.get(T, e).headers["ETag"] == f'"{results[2]["etag"]}"'


def test_an_empty_batch_has_no_results(api: ApiClient) -> None:
    api.put(T, fresh(), {})
    assert api.batch(T) == []


def test_an_operation_of_too_many_elements_is_refused_alone(api: ApiClient) -> None:
    large = {"op": "put", "key": "b", "value": {"a": [[]] * 50_000}}
    first, refused, last = api.batch(T, PUT, large, PUT)
    assert "elements_max" in refused["error"]["detail"]
    check_problem(refused["error"], 413, "too_large")
    assert statuses([first, last]) == [204, 204]


@ON_EVERY_STORE
def test_failures_are_at_their_positions_and_do_not_affect_others(api: ApiClient) -> None:
    key, absent = fresh(), fresh()
    results = api.batch(
        T,
        {"op": "put", "key": key, "value": {"n": 1}},
        {"op": "get", "key": absent},
        {"op": "put", "key": absent, "value": {}, "if_match": "x"},
        {"op": "update", "key": absent, "update": {"n": 1}},
        {"op": "update", "key": key, "update": {"$inc": {"n": "x"}}},
        {"op": "put", "key": key, "value": {}, "if_absent": True},
        {"op": "get", "key": key},
    )
    assert statuses(results) == [204, 404, 412, 404, 422, 412, 200]
    codes = ["record_not_found", "precondition_failed", "record_not_found", "invalid_operation", "precondition_failed"]
    for result, code in zip(results[1:6], codes, strict=True):
        assert result.keys() == {"status", "error"}
        check_problem(result["error"], result["status"], code)


def nested(depth: int) -> Any:
    return {"a": nested(depth - 1)} if depth > 1 else {}


GET = {"op": "get", "key": "a"}
PUT = {"op": "put", "key": "a", "value": {}}
UPDATE = {"op": "update", "key": "a", "update": {}}
INVALID: list[Any] = [
    *(7, None, [], {}, {"op": "get"}, {"key": "a"}, {"op": "steal", "key": "a"}, {"op": ["get"], "key": "a"}),
    *({**GET, "value": {}}, {**GET, "return": True}, {**GET, "fields": "n"}, {**GET, "fields": [""]}),
    *({"op": "put", "key": "a"}, {**PUT, "value": None}, {**PUT, "value": "{}"}, {**PUT, "value": {"_ts": 1}}),
    *({**PUT, "value": {"n": 2**63}}, {**PUT, "value": {"n": "\0"}}, {**PUT, "value": nested(31)}),
    *({**PUT, "default": {}}, {**PUT, "ttl": 60}, {**PUT, "if_match": "x", "if_absent": True}),
    *({**PUT, "if_match": 7}, {**PUT, "if_absent": 1}, {**PUT, "return": "true"}),
    *({**PUT, "ttl_s": 0}, {**PUT, "ttl_s": -2}, {**PUT, "ttl_s": "60"}, {**PUT, "ttl_s": True}),
    *({**PUT, "token": "w/1"}, {**PUT, "token": {"writer": "w"}}, {**PUT, "token": {"writer": "", "sequence": 1}}),
    *({**PUT, "token": {"writer": "w" * 129, "sequence": 1}}, {**PUT, "token": {"writer": 7, "sequence": 1}}),
    *({**PUT, "token": {"writer": "w", "sequence": wrong}} for wrong in (-1, 2**63, 1.5, True)),
    *({**PUT, "token": {"writer": "w", "sequence": 1, "more": 1}}, {"op": "update", "key": "a"}),
    *({**UPDATE, "update": None}, {**UPDATE, "update": {"$set": {"a": 1}, "b": 1}}, {**UPDATE, "default": []}),
    *({**UPDATE, "default": {"_ts": 1}}, {**UPDATE, "if_absent": True}, {**UPDATE, "value": {}}),
    *({"op": "delete", "key": "a", "ttl_s": 60}, {"op": "delete", "key": "a", "if_absent": True}),
]


@pytest.mark.parametrize("operation", INVALID, ids=lambda operation: str(operation)[:50])
def test_an_invalid_operation_fails_alone(api: ApiClient, operation: object) -> None:
    key = fresh()
    before, refused, after = api.batch(
        T, {"op": "put", "key": key, "value": {"n": 1}}, operation, {"op": "get", "key": key}
    )
    assert [before["status"], refused["status"], after["status"]] == [204, 422, 200]
    check_problem(refused["error"], 422, "invalid_operation")
    assert api.batch(T, operation) == [refused]  # operations of one kind are decoded in columns


def test_null_members_equal_absent_ones(api: ApiClient) -> None:
    key = fresh()
    nothing = {"if_match": None, "ttl_s": None, "token": None, "return": None, "fields": None}
    results = api.batch(
        T,
        {"op": "put", "key": key, "value": {"n": 1}, "if_absent": None, **nothing},
        {"op": "update", "key": key, "update": {"$inc": {"n": 1}}, "default": None, **nothing},
        {"op": "get", "key": key, "fields": None},
    )
    assert statuses(results) == [204, 204, 200]
    assert results[2]["value"] == {"n": 2}


ONE = b'{"operations":[{"op":"put","key":"a","value":%b}]}'


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"null", b"{}", b'{"operations":{}}', b'{"operations":[],"more":1}', b'{"ops":[]}'),
        *(b'{"oper\xe6tions":[]}', b"\xef\xbb\xbf" + b'{"operations":[]}', b'{"operations":[]} x', b"[" * 200_000),
        *(ONE % b'{"n":-1e400}', ONE % b'{"n":NaN}', ONE % b'{"n":01}', ONE % b'{"n":1,}', ONE % b'{"n":"\xff"}'),
        *(ONE % b'{"n":"\\udc00\\ud800"}', ONE % b'{"n":"\xed\xa0\x80"}', ONE % (b'{"a":' * 40_000 + b"}" * 40_000)),
    ],
    ids=range(20),
)
def test_invalid_json_or_a_wrong_shape_is_malformed_as_a_whole(api: ApiClient, body: bytes) -> None:
    api.put(T, fresh(), {})
    problem = check_refused(api.post(T, body), 400, "malformed_request")
    assert (problem["applied"], problem["retriable"]) == ("no", False)


TEXT = b'{"op":"put","key":"a","value":{"a":[1,{"b":"],"}]}}'


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"operations":[%b,%b,{"op":x}]}' % (TEXT, TEXT), "125: unexpected character"),
        (b' { "operations" : [ %b , {"n":1e400} ] }' % TEXT, "79, in operation 1: number is infinity"),
        (b'{"operations":[%b,{"n":"\xff"}]}' % TEXT, "73, in operation 1: invalid UTF-8"),
        (b'{"operations":[%b %b]}' % (TEXT, TEXT), "67: unexpected character, expected ',' or ']'"),
        (b'{"operations" x', "14: unexpected character, expected ':'"),
        (b'{"operations":[%b{]}' % (b" " * 2**17), "131088: unexpected character"),
    ],
    ids=range(6),
)
def test_a_body_that_is_not_json_names_the_byte(api: ApiClient, body: bytes, detail: str) -> None:
    problem = check_refused(api.post(T, body), 400, "malformed_request")
    assert problem["detail"].startswith(f"not JSON at byte {detail}")


@pytest.mark.parametrize("digits", [20, 4000])
def test_a_huge_integer_fails_only_its_operation(api: ApiClient, digits: int) -> None:
    wrong = b'{"op":"put","key":"a","value":{"n":%b}}' % (b"9" * digits)
    response = api.post(T, b'{"operations":[%b,%b]}' % (wrong, TEXT))
    assert statuses(response.json()["results"]) == [422, 204]


# Operations on one key


@ON_EVERY_STORE
def test_operations_on_one_key_take_effect_in_their_order_and_see_the_earlier(api: ApiClient) -> None:
    key = fresh()
    increment = {"op": "update", "key": key, "update": {"$inc": {"n": 1}}, "default": {"n": 0}}
    results = api.batch(
        T,
        {"op": "get", "key": key},
        increment,
        increment,
        {**increment, "return": True},
        {"op": "get", "key": key},
        {"op": "put", "key": key, "value": {"n": 10}},
        {"op": "put", "key": key, "value": {"n": 20}},
        {"op": "get", "key": key},
        {"op": "delete", "key": key},
        {"op": "get", "key": key},
        {"op": "put", "key": key, "value": {"n": 30}, "if_absent": True},
        {"op": "put", "key": key, "value": {"n": 40}, "if_absent": True},
    )
    assert statuses(results) == [404, 201, 204, 200, 200, 204, 204, 200, 204, 404, 201, 412]
    assert [results[index]["value"]["n"] for index in (3, 4, 7)] == [3, 3, 20]
    assert results[3]["etag"] == results[4]["etag"]
    assert api.value(T, key) == {"n": 30}


@ON_EVERY_STORE
def test_replays_in_a_batch_are_marked(api: ApiClient) -> None:
    key, token = fresh(), {"writer": "w", "sequence": 1}
    increment = {"op": "update", "key": key, "update": {"$inc": {"n": 1}}, "default": {"n": 0}, "token": token}
    first, second, third = api.batch(T, increment, increment, {**increment, "return": True})
    assert [first["status"], second["status"], third["status"]] == [201, 204, 200]
    assert "replayed" not in first
    assert second["replayed"] is True
    assert third["value"] == {"n": 1}
    assert first["etag"] == second["etag"] == third["etag"]
    again = api.put(T, key, {}, headers={"Tableside-Token": "w/1"})
    assert again.headers["Tableside-Replayed"] == "true"


def test_fields_choose_the_members_of_any_value_that_is_answered(api: ApiClient) -> None:
    key = fresh()
    results = api.batch(
        T,
        {"op": "put", "key": key, "value": {"a": 1, "b": 2}, "return": True, "fields": ["a"]},
        {"op": "update", "key": key, "update": {"c": 3}, "return": True, "fields": ["b", "c", "d"]},
        {"op": "get", "key": key, "fields": []},
        {"op": "get", "key": key},
    )
    assert [result["value"] for result in results] == [{"a": 1}, {"b": 2, "c": 3}, {}, {"a": 1, "b": 2, "c": 3}]


# The batch as a whole


@ON_EVERY_STORE
def test_an_expired_deadline_ends_each_operation_with_status_200_for_the_batch(api: ApiClient) -> None:
    key = fresh()
    results = api.batch(
        T,
        {"op": "get", "key": key},
        {"op": "put", "key": key, "value": {}},
        {"op": "nonsense"},
        {"op": "delete", "key": key},
        headers={"Prefer": "wait=0"},
    )
    assert statuses(results) == [504, 504, 422, 504]
    for index in (0, 1, 3):
        check_problem(results[index]["error"], 504, "deadline_exceeded")
        assert results[index]["error"]["retriable"] is True
        assert results[index]["error"]["applied"] == "no"
    check_refused(api.get(T, key), 404, "record_not_found")


def test_the_number_of_operations_in_a_batch_is_limited(api: ApiClient) -> None:
    api.put(T, fresh(), {})
    get = {"op": "get", "key": fresh()}
    assert len(api.batch(T, *[get] * 200)) == 200
    response = api.client.post(f"/v1/tables/{T}/batch", json={"operations": [get] * 201})
    assert "200" in check_refused(response, 413, "too_large")["detail"]


@ON_EVERY_STORE
def test_gets_beyond_the_response_limit_are_too_large_and_retriable(api: ApiClient) -> None:
    keys = [fresh() for _ in range(4)]
    for key in keys:
        api.put(T, key, {"text": "x" * 20_000})
    results = api.batch(T, *({"op": "get", "key": key} for key in keys))
    assert statuses(results) == [200, 200, 200, 413]
    check_problem(results[3]["error"], 413, "too_large")
    assert results[3]["error"]["retriable"] is True
    assert api.batch(T, {"op": "get", "key": keys[3]})[0]["status"] == 200


@ON_EVERY_STORE
def test_a_write_whose_value_exceeds_the_response_limit_is_applied_without_the_value(api: ApiClient) -> None:
    length = 10_000 if api.partitioned else 20_000  # the result of the partition repeats the value
    puts = [{"op": "put", "key": fresh(), "value": {"t": "x" * length}, "return": True} for _ in range(4)]
    results = api.batch(T, *puts)
    assert statuses(results) == [200, 200, 200, 204]
    assert "value" not in results[3]
    assert results[3]["etag"]


@pytest.mark.parametrize("media", ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON"])
def test_the_media_type_is_json(api: ApiClient, media: str) -> None:
    response = api.post(T, b'{"operations":[{"op":"delete","key":"a"}]}', media)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("media", ["text/plain", "application/x-ndjson", "application/json; charset=utf-16"])
def test_another_media_type_is_refused(api: ApiClient, media: str) -> None:
    check_refused(api.post(T, b'{"operations":[]}', media), 415, "unsupported_media_type")


def test_an_unacceptable_media_type_is_rejected_before_any_operation(api: ApiClient) -> None:
    key = fresh()
    body = b'{"operations":[{"op":"put","key":"%s","value":{}}]}' % key.encode()
    check_refused(api.post(T, body, headers={"Accept": "text/html"}), 406, "not_acceptable")
    check_refused(api.get(T, key), 404, "record_not_found")


def test_a_batch_from_a_browser_requires_a_content_type(api: ApiClient) -> None:
    """Otherwise a page of any site could send a batch, without a preflight, to a service on the same machine."""
    key = fresh()
    body = json.dumps({"operations": [{"op": "put", "key": key, "value": {}}]})
    path = f"/v1/tables/{T}/batch"
    for given in ({"Origin": "https://elsewhere.example"}, {"Origin": "null", "Content-Type": ""}):
        response = api.client.post(path, content=body, headers=given)
        check_refused(response, 415, "unsupported_media_type")
    assert api.get(T, key).status_code == 404
    assert api.client.post(path, content=body).json()["results"][0]["status"] == 204
    said = {"Origin": "https://elsewhere.example", "Content-Type": "application/json"}
    assert api.client.post(path, content=body, headers=said).status_code == 200
