"""Single records: what GET, HEAD, PUT, PATCH and DELETE promise."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from service.http.asking import JSON, MERGE_PATCH, Asking, check_refused, fresh, path_of

T = "records"
REPRESENTATION = {"Prefer": "return=representation"}


# GET and HEAD


def test_a_record_is_answered_with_its_value_and_etag(asking: Asking) -> None:
    key = fresh()
    etag = asking.put(T, key, {"n": 1, "s": "ü"}).headers["ETag"]
    response = asking.get(T, key)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == JSON
    assert response.headers["ETag"] == etag
    assert response.json() == {"n": 1, "s": "ü"}
    assert "Tableside-Expires-At" not in response.headers


def test_an_absent_record_is_not_found(asking: Asking) -> None:
    asking.put(T, fresh(), {})
    assert check_refused(asking.get(T, fresh()), 404, "record_not_found")["retriable"] is False


def test_head_answers_as_get_without_the_body(asking: Asking) -> None:
    key = fresh()
    asking.put(T, key, {"n": 1}, params={"ttl_s": 1000})
    got, asked = asking.get(T, key), asking.client.head(path_of(T, key))
    assert asked.status_code == 200
    assert asked.content == b""
    for header in ("ETag", "Content-Type", "Content-Length", "Tableside-Expires-At"):
        assert asked.headers[header] == got.headers[header]


def test_head_of_an_absent_record_is_404_without_a_body(asking: Asking) -> None:
    response = asking.client.head(path_of(T, fresh()))
    assert response.status_code == 404
    assert response.content == b""


@pytest.mark.parametrize("form", ['"{0}"', 'W/"{0}"', '"x", "{0}"', '"x" ,W/"{0}"', "*"])
def test_a_known_version_is_not_sent_again(asking: Asking, form: str) -> None:
    key = fresh()
    etag = asking.put(T, key, {"n": 1}).headers["ETag"]
    response = asking.get(T, key, headers={"If-None-Match": form.format(etag.strip('"'))})
    assert response.status_code == 304
    assert response.content == b""
    assert response.headers["ETag"] == etag


def test_another_version_is_sent(asking: Asking) -> None:
    key = fresh()
    old = asking.put(T, key, {"n": 1}).headers["ETag"]
    asking.put(T, key, {"n": 2})
    assert asking.get(T, key, headers={"If-None-Match": old}).json() == {"n": 2}


def test_a_list_of_etags_may_stand_in_two_header_lines(asking: Asking) -> None:
    key = fresh()
    etag = asking.put(T, key, {"n": 1}).headers["ETag"]
    for method, status in (("GET", 304), ("DELETE", 204)):
        name = "If-None-Match" if method == "GET" else "If-Match"
        lines = [(name, '"other"'), (name, etag)]
        assert asking.client.request(method, path_of(T, key), headers=lines).status_code == status


@pytest.mark.parametrize("text", ["", "x", '"x', 'x"', '"a" "b"', '"a",,', '""x'])
@pytest.mark.parametrize("header", ["If-None-Match", "If-Match"])
def test_what_is_no_list_of_etags_is_malformed(asking: Asking, header: str, text: str) -> None:
    key = fresh()
    asking.put(T, key, {"n": 1})
    method = "GET" if header == "If-None-Match" else "DELETE"
    response = asking.client.request(method, path_of(T, key), headers={header: text})
    check_refused(response, 400, "malformed_request")
    assert asking.value(T, key) == {"n": 1}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("a", {"a": 1}),
        ("a,c", {"a": 1, "c": [1]}),
        ("missing", {}),
        ("", {}),
        ("b", {"b": {"a": 2}}),
        ("a,a", {"a": 1}),
    ],
)
def test_fields_choose_top_level_members(asking: Asking, fields: str, expected: dict[str, Any]) -> None:
    key = fresh()
    asking.put(T, key, {"a": 1, "b": {"a": 2}, "c": [1]})
    assert asking.get(T, key, params={"fields": fields}).json() == expected


# PUT


def test_a_put_answers_204_and_the_new_etag_whether_or_not_the_record_was_there(asking: Asking) -> None:
    key = fresh()
    first, second = asking.put(T, key, {"n": 1}), asking.put(T, key, {"n": 2})
    assert [first.status_code, second.status_code] == [204, 204]
    assert first.content == b""
    assert first.headers["ETag"] != second.headers["ETag"]
    assert asking.value(T, key) == {"n": 2}


def test_a_put_replaces_all_of_the_value(asking: Asking) -> None:
    key = fresh()
    asking.put(T, key, {"a": 1})
    asking.put(T, key, {"b": 1})
    assert asking.value(T, key) == {"b": 1}


def test_an_etag_never_comes_again(asking: Asking) -> None:
    key, etags = fresh(), []
    for number in range(5):
        etags.append(asking.put(T, key, {"n": number % 2}).headers["ETag"])
        asking.delete(T, key)
    assert len(set(etags)) == 5


def test_if_none_match_star_makes_a_record_once(asking: Asking) -> None:
    key, only_new = fresh(), {"If-None-Match": "*"}
    made = asking.put(T, key, {"n": 1}, headers=only_new)
    assert made.status_code == 201
    assert made.headers["ETag"]
    check_refused(asking.put(T, key, {"n": 2}, headers=only_new), 412, "precondition_failed")
    assert asking.value(T, key) == {"n": 1}


@pytest.mark.parametrize("form", ['"{0}"', '"x", "{0}"', "*"])
def test_if_match_replaces_that_version(asking: Asking, form: str) -> None:
    key = fresh()
    etag = asking.put(T, key, {"n": 1}).headers["ETag"].strip('"')
    response = asking.put(T, key, {"n": 2}, headers={"If-Match": form.format(etag)})
    assert response.status_code == 204
    assert asking.value(T, key) == {"n": 2}


@pytest.mark.parametrize("form", ['"x"', 'W/"{0}"', '"*"', '"x", "y"'])
def test_if_match_refuses_another_version_a_weak_etag_and_a_quoted_star(asking: Asking, form: str) -> None:
    key = fresh()
    etag = asking.put(T, key, {"n": 1}).headers["ETag"].strip('"')
    response = asking.put(T, key, {"n": 2}, headers={"If-Match": form.format(etag)})
    check_refused(response, 412, "precondition_failed")
    assert asking.value(T, key) == {"n": 1}


@pytest.mark.parametrize("etag", ["*", '"x"'])
def test_no_version_of_an_absent_record_matches(asking: Asking, etag: str) -> None:
    key = fresh()
    for response in (
        asking.put(T, key, {}, headers={"If-Match": etag}),
        asking.merge(T, key, {}, headers={"If-Match": etag}),
        asking.update(T, key, {"update": {}, "default": {}}, headers={"If-Match": etag}),
        asking.delete(T, key, headers={"If-Match": etag}),
    ):
        check_refused(response, 412, "precondition_failed")
    check_refused(asking.get(T, key), 404, "record_not_found")


def test_conditions_that_cannot_both_hold_are_refused(asking: Asking) -> None:
    both = {"If-Match": "*", "If-None-Match": "*"}
    check_refused(asking.put(T, fresh(), {}, headers=both), 422, "invalid_operation")


def test_if_none_match_means_nothing_to_an_update_or_a_delete(asking: Asking) -> None:
    only_new = {"If-None-Match": "*"}
    check_refused(asking.merge(T, fresh(), {}, headers=only_new), 422, "invalid_operation")
    check_refused(asking.delete(T, fresh(), headers=only_new), 422, "invalid_operation")


@pytest.mark.parametrize(("headers", "status"), [({}, 200), ({"If-None-Match": "*"}, 201)], ids=["replaces", "makes"])
def test_a_put_answers_the_value_if_asked(asking: Asking, headers: dict[str, str], status: int) -> None:
    response = asking.put(T, fresh(), {"n": 1.0}, headers={**REPRESENTATION, **headers})
    assert response.status_code == status
    assert response.json() == {"n": 1}
    assert response.headers["ETag"]
    assert response.headers["Preference-Applied"] == "return=representation"


def test_return_minimal_and_unknown_preferences_change_nothing(asking: Asking) -> None:
    response = asking.put(T, fresh(), {"n": 1}, headers={"Prefer": "return=minimal, handling=lenient; x=1"})
    assert response.status_code == 204
    assert "Preference-Applied" not in response.headers


# PATCH


@pytest.mark.parametrize(
    ("value", "patch", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": None, "c": 3}, {"b": 2, "c": 3}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": [1]}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
    ],
)
def test_a_merge_patch_is_rfc_7396(asking: Asking, value: object, patch: object, expected: object) -> None:
    key = fresh()
    asking.put(T, key, value)
    response = asking.merge(T, key, patch)
    assert response.status_code == 204
    assert response.headers["ETag"]
    assert asking.value(T, key) == expected


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ({"$inc": {"n": 2}}, {"n": 3, "l": [1]}),
        ({"$set": {"a.b": 1}}, {"n": 1, "l": [1], "a": {"b": 1}}),
        ({"$unset": ["n"]}, {"l": [1]}),
        ({"$unset": {"n": ""}}, {"l": [1]}),
        ({"$min": {"n": 0}, "$push": {"l": 2}}, {"n": 0, "l": [1, 2]}),
        ({"$max": {"n": 0}, "$addToSet": {"l": {"$each": [1, 2]}}}, {"n": 1, "l": [1, 2]}),
        ([{"$inc": {"n": 1}}, {"l": None}, {"$inc": {"n": 1}}], {"n": 3}),
        ({"m": 1}, {"n": 1, "l": [1], "m": 1}),
        ([], {"n": 1, "l": [1]}),
    ],
)
def test_an_update_changes_the_record(asking: Asking, update: object, expected: object) -> None:
    key = fresh()
    asking.put(T, key, {"n": 1, "l": [1]})
    assert asking.update(T, key, {"update": update}).status_code == 204
    assert asking.value(T, key) == expected


@pytest.mark.parametrize(
    "update",
    [
        {"$inc": {"s": 1}},
        {"$inc": {"n": 2**63 - 1}},
        {"$set": {"l.a": 1}},
        {"$push": {"n": 1}},
        {"$min": {"n": "a"}},
        {"$set": {"n": 1}, "m": 1},
        {"$what": {"n": 1}},
        {"$set": {"n": 1}, "$inc": {"n": 1}},
        {"$set": {"a": 1, "a.b": 1}},
        {"$push": {"l": {"$each": [1], "$slice": 1}}},
        {"$set": {"_ts": 1}},
        [{"$inc": {"n": 1}}, {"$inc": {"s": 1}}],
        7,
        "text",
        [7],
        None,
    ],
)
def test_an_update_that_does_not_fit_leaves_the_record_as_it_was(asking: Asking, update: object) -> None:
    key, value = fresh(), {"n": 1, "s": "", "l": [1]}
    etag = asking.put(T, key, value).headers["ETag"]
    check_refused(asking.update(T, key, {"update": update}), 422, "invalid_operation")
    assert asking.get(T, key).json() == value
    assert asking.get(T, key).headers["ETag"] == etag


def test_an_update_of_an_absent_record_without_a_default_is_not_found(asking: Asking) -> None:
    asking.put(T, fresh(), {})
    check_refused(asking.merge(T, fresh(), {"n": 1}), 404, "record_not_found")
    check_refused(asking.update(T, fresh(), {"update": {"$inc": {"n": 1}}}), 404, "record_not_found")


def test_a_default_is_where_an_absent_record_starts(asking: Asking) -> None:
    key, body = fresh(), {"update": {"$inc": {"n": 1}}, "default": {"n": 10}}
    assert asking.update(T, key, body).status_code == 201
    assert asking.update(T, key, body).status_code == 204
    assert asking.value(T, key) == {"n": 12}


def test_an_empty_update_inserts_the_default(asking: Asking) -> None:
    key = fresh()
    made = asking.update(T, key, {"update": {}, "default": {"n": 1}}, headers=REPRESENTATION)
    assert made.status_code == 201
    assert made.json() == {"n": 1}


@pytest.mark.parametrize("default", [{"_ts": 1}, [], 1, {"": 1}, {"n": 2**64}, {"n": "x"}])
def test_a_default_that_cannot_be_written_is_the_outcome(asking: Asking, default: object) -> None:
    key = fresh()
    response = asking.update(T, key, {"update": {"$inc": {"n": 1}}, "default": default})
    check_refused(response, 422, "invalid_operation")
    check_refused(asking.get(T, key), 404, "record_not_found")


def test_an_update_answers_the_value_if_asked(asking: Asking) -> None:
    key = fresh()
    asking.put(T, key, {"n": 1})
    response = asking.update(T, key, {"update": {"$inc": {"n": 1}}}, headers=REPRESENTATION)
    assert response.status_code == 200
    assert response.json() == {"n": 2}
    assert response.headers["Preference-Applied"] == "return=representation"


def test_if_match_guards_an_update(asking: Asking) -> None:
    key = fresh()
    etag = asking.put(T, key, {"n": 1}).headers["ETag"]
    assert asking.merge(T, key, {"n": 2}, headers={"If-Match": etag}).status_code == 204
    check_refused(asking.merge(T, key, {"n": 3}, headers={"If-Match": etag}), 412, "precondition_failed")
    assert asking.value(T, key) == {"n": 2}


@pytest.mark.parametrize("body", [{}, {"default": {}}, {"update": {}, "other": 1}, [], 7, None])
def test_an_update_request_is_an_object_with_an_update_and_nothing_unknown(asking: Asking, body: object) -> None:
    check_refused(asking.update(T, fresh(), body), 422, "invalid_operation")


@pytest.mark.parametrize("patch", [[], 7, None, {"$inc": {"n": 1}}, {"_ts": 1}, {"n": 2**64}])
def test_what_is_no_merge_patch_is_refused(asking: Asking, patch: object) -> None:
    key = fresh()
    asking.put(T, key, {"n": 1})
    check_refused(asking.merge(T, key, patch), 422, "invalid_operation")


@pytest.mark.parametrize("media", ["text/plain", "application/xml", "application/json; charset=latin-1", ""])
def test_an_update_in_another_media_type_is_told_which_there_are(asking: Asking, media: str) -> None:
    response = asking.client.patch(path_of(T, fresh()), content=b"{}", headers={"Content-Type": media})
    check_refused(response, 415, "unsupported_media_type")
    assert response.headers["Accept-Patch"] == f"{JSON}, {MERGE_PATCH}"


@pytest.mark.parametrize(
    "media", ["application/JSON", "application/json; charset=UTF-8", "application/json;charset=utf-8"]
)
def test_a_media_type_may_be_written_in_several_ways(asking: Asking, media: str) -> None:
    response = asking.client.put(path_of(T, fresh()), content=b"{}", headers={"Content-Type": media})
    assert response.status_code == 204


# DELETE


def test_a_delete_answers_204_whether_or_not_the_record_was_there(asking: Asking) -> None:
    key = fresh()
    asking.put(T, key, {})
    responses = [asking.delete(T, key), asking.delete(T, key)]
    assert [response.status_code for response in responses] == [204, 204]
    assert "ETag" not in responses[0].headers
    check_refused(asking.get(T, key), 404, "record_not_found")


def test_if_match_guards_a_delete(asking: Asking) -> None:
    key = fresh()
    etag = asking.put(T, key, {}).headers["ETag"]
    check_refused(asking.delete(T, key, headers={"If-Match": '"other"'}), 412, "precondition_failed")
    assert asking.delete(T, key, headers={"If-Match": etag}).status_code == 204


# Values


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b'{"n":1.0}', b'{"n":1}'),
        (b'{"n":-0.0}', b'{"n":0}'),
        (b'{"n":1e3}', b'{"n":1000}'),
        (b'{"n":9223372036854775807}', b'{"n":9223372036854775807}'),
        (b'{"n":-9223372036854775808}', b'{"n":-9223372036854775808}'),
        (b'{"n":-9223372036854775808.0}', b'{"n":-9223372036854775808}'),
        (b'{"n":0.1}', b'{"n":0.1}'),
        (b'{"n":1e-400}', b'{"n":0}'),
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b'{"a":null,"b":true}', b'{"a":null,"b":true}'),
        (b'{"a":{"_ts":1}}', b'{"a":{"_ts":1}}'),
        (b'{"a":"\\u00fc\\ud83d\\ude00"}', '{"a":"ü😀"}'.encode()),
        (b" {} ", b"{}"),
        (b'{"a":' * 29 + b"{}" + b"}" * 29, b'{"a":' * 29 + b"{}" + b"}" * 29),
    ],
)
def test_a_value_is_kept(asking: Asking, sent: bytes, read: bytes) -> None:
    key = fresh()
    response = asking.client.put(path_of(T, key), content=sent)
    assert response.status_code == 204, response.text
    assert asking.get(T, key).content == read


@pytest.mark.parametrize("number", [1e20, 1.5e300, 5e-324, 1.7976931348623157e308, 9223372036854775808.0])
def test_a_double_is_kept_exactly(asking: Asking, number: float) -> None:
    key = fresh()
    asking.client.put(path_of(T, key), content=b'{"n":%s}' % repr(number).encode())
    assert asking.value(T, key) == {"n": number}


@pytest.mark.parametrize(
    "body",
    [
        b'{"n":9223372036854775808}',
        b'{"n":-9223372036854775809}',
        b'{"n":' + b"9" * 300 + b"}",
        b'{"a":"\\u0000"}',
        b'{"a\\u0000":1}',
        b'{"":1}',
        b'{"a":{"":1}}',
        b'{"_ts":1}',
        b'{"_tsanything":1}',
        b"[]",
        b"1",
        b'"a"',
        b"null",
        b"true",
        b'{"a":' * 30 + b"{}" + b"}" * 30,
        b'{"a":' + b"[" * 30 + b"]" * 30 + b"}",
    ],
)
def test_a_value_that_is_not_legal_is_refused(asking: Asking, body: bytes) -> None:
    key = fresh()
    check_refused(asking.client.put(path_of(T, key), content=body), 422, "invalid_operation")
    check_refused(asking.get(T, key), 404, "record_not_found")


# Expiry


def expires_in_s(text: str) -> float:
    assert text.endswith("Z")
    return (datetime.fromisoformat(text) - datetime.now(UTC)).total_seconds()


def test_ttl_s_sets_the_expiry_and_reads_show_it(asking: Asking) -> None:
    key = fresh()
    assert asking.put(T, key, {}, params={"ttl_s": "100.5"}).status_code == 204
    assert 95 < expires_in_s(asking.get(T, key).headers["Tableside-Expires-At"]) < 101
    [result] = asking.batch(T, {"op": "get", "key": key})
    assert 95 < expires_in_s(result["expires_at"]) < 101
    [record] = asking.walk(T, prefix=key)
    assert record["expires_at"] == result["expires_at"]


def test_the_table_s_default_holds_where_a_put_gives_no_ttl(asking: Asking) -> None:
    key = fresh()
    for ttl_s in (None, "null"):
        given = {} if ttl_s is None else {"ttl_s": None}
        [result] = asking.batch("hour", {"op": "put", "key": key, "value": {}, **given})
        assert result["status"] == 204
        assert 3590 < expires_in_s(asking.get("hour", key).headers["Tableside-Expires-At"]) < 3601


def test_minus_one_is_no_expiry(asking: Asking) -> None:
    key = fresh()
    asking.put("hour", key, {}, params={"ttl_s": "-1"})
    assert "Tableside-Expires-At" not in asking.get("hour", key).headers


def test_a_put_without_ttl_takes_an_expiry_away(asking: Asking) -> None:
    key = fresh()
    asking.put(T, key, {}, params={"ttl_s": 100})
    asking.put(T, key, {})
    assert "Tableside-Expires-At" not in asking.get(T, key).headers


def test_an_update_keeps_the_expiry_unless_it_gives_one(asking: Asking) -> None:
    key = fresh()
    asking.put(T, key, {}, params={"ttl_s": 100})
    before = asking.get(T, key).headers["Tableside-Expires-At"]
    asking.merge(T, key, {"n": 1})
    asking.update(T, key, {"update": {"n": 2}, "ttl_s": None})
    assert asking.get(T, key).headers["Tableside-Expires-At"] == before
    asking.update(T, key, {"update": {}, "ttl_s": 500})
    assert 490 < expires_in_s(asking.get(T, key).headers["Tableside-Expires-At"]) < 501
    asking.update(T, key, {"update": {}, "ttl_s": -1})
    assert "Tableside-Expires-At" not in asking.get(T, key).headers


def test_a_record_made_from_a_default_gets_the_table_s_expiry(asking: Asking) -> None:
    key = fresh()
    asking.update("hour", key, {"update": {}, "default": {}})
    assert 3590 < expires_in_s(asking.get("hour", key).headers["Tableside-Expires-At"]) < 3601
    other = fresh()
    asking.update("hour", other, {"update": {}, "default": {}, "ttl_s": 50})
    assert 40 < expires_in_s(asking.get("hour", other).headers["Tableside-Expires-At"]) < 51


@pytest.mark.parametrize("ttl_s", ["0", "-2", "-0.5", "x", "", "NaN", "inf", "0x1"])
def test_a_ttl_is_above_0_or_minus_one(asking: Asking, ttl_s: str) -> None:
    check_refused(asking.put(T, fresh(), {}, params={"ttl_s": ttl_s}), 422, "invalid_operation")


@pytest.mark.parametrize(
    "ttl_s", ["0.30000000000000004", "1e3", "5e-324", "100000000000000", "1.7976931348623157e+308"]
)
def test_a_ttl_may_be_any_double_above_0(asking: Asking, ttl_s: str) -> None:
    assert asking.put(T, fresh(), {}, params={"ttl_s": ttl_s}).status_code == 204


def test_an_expired_record_is_absent_for_reads_preconditions_and_defaults(asking: Asking) -> None:
    keys = [fresh() for _ in range(6)]
    for key in keys:
        asking.put(T, key, {"n": 5}, params={"ttl_s": 0.05})
    time.sleep(0.15)
    check_refused(asking.get(T, keys[0]), 404, "record_not_found")
    assert asking.put(T, keys[1], {}, headers={"If-None-Match": "*"}).status_code == 201
    check_refused(asking.put(T, keys[2], {}, headers={"If-Match": "*"}), 412, "precondition_failed")
    check_refused(asking.merge(T, keys[3], {}), 404, "record_not_found")
    made = asking.update(T, keys[4], {"update": {"$inc": {"n": 1}}, "default": {"n": 0}}, headers=REPRESENTATION)
    assert made.status_code == 201
    assert made.json() == {"n": 1}
    assert asking.walk(T, prefix=keys[5]) == []


def test_a_value_that_is_answered_after_a_write_shows_its_expiry(asking: Asking) -> None:
    response = asking.put(T, fresh(), {}, params={"ttl_s": 100}, headers=REPRESENTATION)
    assert 95 < expires_in_s(response.headers["Tableside-Expires-At"]) < 101


# Tokens


def test_a_write_with_a_token_is_applied_once(asking: Asking) -> None:
    key, body = fresh(), {"update": {"$inc": {"n": 1}}, "default": {"n": 0}}
    first = asking.update(T, key, body, headers={"Tableside-Token": "w/1"})
    again = asking.update(T, key, body, headers={"Tableside-Token": "w/1"})
    assert first.status_code == 201
    assert "Tableside-Replayed" not in first.headers
    assert again.status_code == 204
    assert again.headers["Tableside-Replayed"] == "true"
    assert again.headers["ETag"] == first.headers["ETag"]
    assert asking.value(T, key) == {"n": 1}


def test_a_lower_sequence_is_a_replay_and_a_higher_one_or_another_writer_is_not(asking: Asking) -> None:
    key = fresh()
    for token, replayed in (
        ("w/5", False),
        ("w/4", True),
        ("w/5", True),
        ("w/6", False),
        ("v/1", False),
        ("w/6", True),
    ):
        response = asking.put(T, key, {"token": token}, headers={"Tableside-Token": token})
        assert (response.headers.get("Tableside-Replayed") == "true") is replayed
    assert asking.value(T, key) == {"token": "v/1"}


def test_a_replay_answers_the_value_of_now_if_asked(asking: Asking) -> None:
    key = fresh()
    asking.put(T, key, {"n": 1}, headers={"Tableside-Token": "w/1"})
    asking.put(T, key, {"n": 2})
    again = asking.put(T, key, {"n": 1}, headers={"Tableside-Token": "w/1", **REPRESENTATION})
    assert again.status_code == 200
    assert again.json() == {"n": 2}
    assert again.headers["ETag"] == asking.get(T, key).headers["ETag"]


def test_the_token_is_looked_at_before_preconditions_absence_and_the_update(asking: Asking) -> None:
    key, token = fresh(), {"Tableside-Token": "w/1"}
    asking.put(T, key, {"s": ""}, headers=token)
    replays = [
        asking.put(T, key, {}, headers={**token, "If-None-Match": "*"}),
        asking.put(T, key, {}, headers={**token, "If-Match": '"other"'}),
        asking.update(T, key, {"update": {"$inc": {"s": 1}}}, headers=token),
        asking.delete(T, key, headers={**token, "If-Match": '"other"'}),
    ]
    assert [response.status_code for response in replays] == [204] * 4
    assert all(response.headers["Tableside-Replayed"] == "true" for response in replays)
    assert asking.value(T, key) == {"s": ""}


def test_a_delete_with_a_token_keeps_the_memory(asking: Asking) -> None:
    key = fresh()
    asking.put(T, key, {"n": 1}, headers={"Tableside-Token": "w/1"})
    assert asking.delete(T, key, headers={"Tableside-Token": "w/2"}).status_code == 204
    check_refused(asking.get(T, key), 404, "record_not_found")
    assert asking.walk(T, prefix=key) == []
    for response in (
        asking.put(T, key, {"n": 1}, headers={"Tableside-Token": "w/1", **REPRESENTATION}),
        asking.delete(T, key, headers={"Tableside-Token": "w/2"}),
        asking.update(T, key, {"update": {}}, headers={"Tableside-Token": "w/2"}),
    ):
        assert response.status_code == 204
        assert response.headers["Tableside-Replayed"] == "true"
        assert "ETag" not in response.headers
    check_refused(asking.get(T, key), 404, "record_not_found")
    made = asking.put(T, key, {"n": 3}, headers={"Tableside-Token": "w/3", "If-None-Match": "*"})
    assert made.status_code == 201


def test_a_record_remembers_eight_writers(asking: Asking) -> None:
    key = fresh()
    for writer in range(9):
        asking.put(T, key, {}, headers={"Tableside-Token": f"w{writer}/1"})
    remembered = asking.put(T, key, {}, headers={"Tableside-Token": "w1/1"})
    assert remembered.headers["Tableside-Replayed"] == "true"
    forgotten = asking.put(T, key, {}, headers={"Tableside-Token": "w0/1"})
    assert "Tableside-Replayed" not in forgotten.headers


def test_a_write_that_failed_is_not_remembered(asking: Asking) -> None:
    key, token = fresh(), {"Tableside-Token": "w/1"}
    check_refused(asking.put(T, key, {}, headers={**token, "If-Match": "*"}), 412, "precondition_failed")
    assert "Tableside-Replayed" not in asking.put(T, key, {}, headers=token).headers


@pytest.mark.parametrize(
    "token", ["w/0", "w/9223372036854775807", "a/b/7", "/x/7", "w" * 128 + "/1", "spark job 7/1", "ü/1"]
)
def test_a_token_is_divided_by_its_last_slash(asking: Asking, token: str) -> None:
    key = fresh()
    for replayed in (None, "true"):
        response = asking.put(T, key, {}, headers={"Tableside-Token": token.encode()})
        assert response.status_code == 204
        assert response.headers.get("Tableside-Replayed") == replayed
    writer, _, sequence = token.rpartition("/")
    same = {"writer": writer, "sequence": int(sequence)}
    assert asking.batch(T, {"op": "delete", "key": key, "token": same})[0]["replayed"] is True


@pytest.mark.parametrize(
    "token", ["", "w", "w/", "/1", "w/x", "w/-1", "w/1.5", "w/9223372036854775808", "w/1e3", "x" * 129 + "/1", "w/+1"]
)
def test_what_is_no_token_is_refused(asking: Asking, token: str) -> None:
    key = fresh()
    for response in (
        asking.put(T, key, {}, headers={"Tableside-Token": token}),
        asking.delete(T, key, headers={"Tableside-Token": token}),
    ):
        check_refused(response, 422, "invalid_operation")


# Preferences, request ids, parameters


def test_a_deadline_that_is_over_ends_every_request(asking: Asking) -> None:
    key, now = fresh(), {"Prefer": "wait=0"}
    asking.put(T, key, {"n": 1})
    for response in (
        asking.get(T, key, headers=now),
        asking.put(T, key, {}, headers=now),
        asking.merge(T, key, {}, headers=now),
        asking.delete(T, key, headers=now),
        asking.client.get(f"/v1/tables/{T}/records", headers=now),
        asking.client.get(f"/v1/tables/{T}/splits", headers=now),
    ):
        problem = check_refused(response, 504, "deadline_exceeded")
        assert problem["retriable"] is True
        assert problem["applied"] == "no"
    assert asking.value(T, key) == {"n": 1}


@pytest.mark.parametrize("wait", ["5", "0.5", '"5"', "1e2"])
def test_a_deadline_that_is_not_over_changes_nothing(asking: Asking, wait: str) -> None:
    response = asking.put(T, fresh(), {}, headers={"Prefer": f"return=representation, wait={wait}"})
    assert response.status_code == 200


def test_a_request_id_is_echoed_or_made(asking: Asking) -> None:
    assert asking.client.get("/livez", headers={"X-Request-Id": "mine-7"}).headers["X-Request-Id"] == "mine-7"
    refused = asking.client.get("/nowhere", headers={"X-Request-Id": "mine-8"})
    assert refused.headers["X-Request-Id"] == "mine-8"
    made = {asking.client.get("/livez").headers["X-Request-Id"] for _ in range(3)}
    assert len(made) == 3
    assert all(made)


@pytest.mark.parametrize("bad", ["", "x" * 129, "a b"])
def test_a_request_id_that_is_no_id_is_replaced(asking: Asking, bad: str) -> None:
    assert asking.client.get("/livez", headers={"X-Request-Id": bad}).headers["X-Request-Id"] not in ("", bad)


def test_parameters_that_are_not_known_or_stand_twice_are_refused(asking: Asking) -> None:
    key = fresh()
    asking.put(T, key, {})
    paths = [
        ("GET", f"{path_of(T, key)}?field=a"),
        ("GET", f"{path_of(T, key)}?fields=a&fields=b"),
        ("PUT", f"{path_of(T, key)}?ttl=1"),
        ("PATCH", f"{path_of(T, key)}?fields=a"),
        ("DELETE", f"{path_of(T, key)}?ttl_s=1"),
        ("GET", f"/v1/tables/{T}/records?prefx=a"),
        ("GET", f"/v1/tables/{T}/splits?limit=1"),
        ("POST", f"/v1/tables/{T}/batch?op=get"),
        ("GET", "/v1/tables?x="),
        ("GET", f"/v1/tables/{T}?x="),
    ]
    bodies: dict[str, object] = {"PUT": {}, "PATCH": {"update": {}}, "POST": {"operations": []}}
    for method, path in paths:
        response = asking.client.request(method, path, json=bodies.get(method))
        check_refused(response, 400, "malformed_request")
