"""Single records: GET, HEAD, PUT and DELETE."""

import pytest

from service.http.api_client import JSON, ON_EVERY_STORE, ApiClient, check_refused, fresh, path_of

T = "records"
REPRESENTATION = {"Prefer": "return=representation"}


# GET and HEAD


@ON_EVERY_STORE
def test_a_record_is_answered_with_its_value_and_etag(api: ApiClient) -> None:
    key = fresh()
    etag = api.put(T, key, {"n": 1, "s": "ü"}).headers["ETag"]
    response = api.get(T, key)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == JSON
    assert response.headers["ETag"] == etag
    assert response.json() == {"n": 1, "s": "ü"}
    assert "Tableside-Expires-At" not in response.headers


def test_head_answers_as_get_without_the_body(api: ApiClient) -> None:
    key = fresh()
    api.put(T, key, {"n": 1}, params={"ttl_s": 1000})
    got, asked = api.get(T, key), api.client.head(path_of(T, key))
    assert asked.status_code == 200
    assert asked.content == b""
    for header in ("ETag", "Content-Type", "Content-Length", "Tableside-Expires-At"):
        assert asked.headers[header] == got.headers[header]
    absent = api.client.head(path_of(T, fresh()))
    assert (absent.status_code, absent.content) == (404, b"")


@pytest.mark.parametrize("form", ['"{0}"', 'W/"{0}"', '"x", "{0}"', '"x" ,W/"{0}"', "*"])
def test_a_known_version_is_not_modified(api: ApiClient, form: str) -> None:
    key = fresh()
    etag = api.put(T, key, {"n": 1}).headers["ETag"]
    response = api.get(T, key, headers={"If-None-Match": form.format(etag.strip('"'))})
    assert response.status_code == 304
    assert response.content == b""
    assert response.headers["ETag"] == etag


def test_a_list_of_etags_can_span_two_header_lines(api: ApiClient) -> None:
    key = fresh()
    old, etag = (api.put(T, key, {"n": n}).headers["ETag"] for n in (1, 2))
    assert api.get(T, key, headers={"If-None-Match": old}).json() == {"n": 2}
    for method, name, status in (("GET", "If-None-Match", 304), ("DELETE", "If-Match", 204)):
        lines = [(name, old), (name, etag)]
        assert api.client.request(method, path_of(T, key), headers=lines).status_code == status


@pytest.mark.parametrize("text", ["", "x", '"x', 'x"', '"a" "b"', '"a",,', '""x'])
@pytest.mark.parametrize("header", ["If-None-Match", "If-Match"])
def test_an_invalid_list_of_etags_is_malformed(api: ApiClient, header: str, text: str) -> None:
    key = fresh()
    api.put(T, key, {"n": 1})
    method = "GET" if header == "If-None-Match" else "DELETE"
    response = api.client.request(method, path_of(T, key), headers={header: text})
    check_refused(response, 400, "malformed_request")
    assert api.value(T, key) == {"n": 1}


def test_fields_choose_top_level_members(api: ApiClient) -> None:
    key, value = fresh(), {"a": 1, "b": {"a": 2}, "c": [1]}
    api.put(T, key, value)
    for fields, names in (("a", "a"), ("a,c", "ac"), ("missing", ""), ("", ""), ("b", "b"), ("a,a", "a")):
        assert api.get(T, key, params={"fields": fields}).json() == {name: value[name] for name in names}


# PUT


@ON_EVERY_STORE
def test_a_put_returns_204_and_the_new_etag_for_new_and_existing_records(api: ApiClient) -> None:
    key = fresh()
    first, second = api.put(T, key, {"n": 1}), api.put(T, key, {"n": 2})
    assert [first.status_code, second.status_code] == [204, 204]
    assert first.content == b""
    assert first.headers["ETag"] != second.headers["ETag"]
    assert api.value(T, key) == {"n": 2}


@ON_EVERY_STORE
def test_if_none_match_star_creates_a_record_once(api: ApiClient) -> None:
    key, only_new = fresh(), {"If-None-Match": "*"}
    made = api.put(T, key, {"n": 1}, headers=only_new)
    assert made.status_code == 201
    assert made.headers["ETag"]
    check_refused(api.put(T, key, {"n": 2}, headers=only_new), 412, "precondition_failed")
    assert api.value(T, key) == {"n": 1}


@pytest.mark.parametrize(
    ("form", "replaces"),
    [
        *(('"{0}"', True), ('"x", "{0}"', True), ("*", True)),
        *(('"x"', False), ('W/"{0}"', False), ('"*"', False), ('"x", "y"', False)),
    ],
)
def test_if_match_replaces_only_that_version(api: ApiClient, form: str, replaces: bool) -> None:
    key = fresh()
    etag = api.put(T, key, {"n": 1}).headers["ETag"].strip('"')
    response = api.put(T, key, {"n": 2}, headers={"If-Match": form.format(etag)})
    if not replaces:
        check_refused(response, 412, "precondition_failed")
    assert api.value(T, key) == {"n": 2 if replaces else 1}


@ON_EVERY_STORE
@pytest.mark.parametrize(("form", "reason"), [('W/"{0}"', "a weak etag (W/)"), ('"{0}"', "quotes")])
def test_the_reason_is_in_the_results_of_a_batch(api: ApiClient, form: str, reason: str) -> None:
    key = fresh()
    given = form.format(api.put(T, key, {"n": 1}).headers["ETag"].strip('"'))
    put = {"op": "put", "key": key, "value": {"n": 2}, "if_match": given}
    [result] = api.batch(T, put)
    [row] = api.rows(T, {"key": [key], "value": ["{}"], "if_match": [given]}, op="put")
    assert (result["status"], row["status"], row["code"]) == (412, 412, "precondition_failed")
    assert reason in result["error"]["detail"]
    assert reason in row["detail"]
    assert api.value(T, key) == {"n": 1}


def test_contradictory_and_useless_conditions_are_rejected(api: ApiClient) -> None:
    key, absent = fresh(), {"If-None-Match": "*"}
    check_refused(api.put(T, key, {}, headers={"If-Match": "*", **absent}), 422, "invalid_operation")
    check_refused(api.merge(T, key, {}, headers=absent), 422, "invalid_operation")
    check_refused(api.delete(T, key, headers=absent), 422, "invalid_operation")


@pytest.mark.parametrize(("headers", "status"), [({}, 200), ({"If-None-Match": "*"}, 201)], ids=["replaces", "makes"])
@ON_EVERY_STORE
def test_a_put_returns_the_value_on_request(api: ApiClient, headers: dict[str, str], status: int) -> None:
    response = api.put(T, fresh(), {"n": 1.0}, headers={**REPRESENTATION, **headers})
    assert response.status_code == status
    assert response.json() == {"n": 1}
    assert response.headers["ETag"]
    assert response.headers["Preference-Applied"] == "return=representation"


def test_return_minimal_and_unknown_preferences_change_nothing(api: ApiClient) -> None:
    response = api.put(T, fresh(), {"n": 1}, headers={"Prefer": "return=minimal, handling=lenient; x=1"})
    assert response.status_code == 204
    assert "Preference-Applied" not in response.headers


# DELETE


@ON_EVERY_STORE
def test_a_delete_returns_204_for_present_and_absent_records(api: ApiClient) -> None:
    key = fresh()
    api.put(T, key, {})
    responses = [api.delete(T, key), api.delete(T, key)]
    assert [response.status_code for response in responses] == [204, 204]
    assert "ETag" not in responses[0].headers
    check_refused(api.get(T, key), 404, "record_not_found")


@ON_EVERY_STORE
def test_if_match_guards_a_delete(api: ApiClient) -> None:
    key = fresh()
    etag = api.put(T, key, {}).headers["ETag"]
    check_refused(api.delete(T, key, headers={"If-Match": '"other"'}), 412, "precondition_failed")
    assert api.delete(T, key, headers={"If-Match": etag}).status_code == 204
