"""Deadlines, request ids, and unknown parameters."""

import pytest

from service.http.api_client import ON_EVERY_STORE, ApiClient, check_refused, fresh, path_of
from tableside.core import MalformedRequest
from tableside.http.wire.request_headers import Preferences, parse_preferences
from tableside.server.request_parser import HEAD_BYTES_MAX

T = "records"


@ON_EVERY_STORE
def test_an_expired_deadline_ends_every_request(api: ApiClient) -> None:
    key, now = fresh(), {"Prefer": "wait=0"}
    api.put(T, key, {"n": 1})
    for response in (
        *(api.get(T, key, headers=now), api.put(T, key, {}, headers=now), api.merge(T, key, {}, headers=now)),
        *(api.delete(T, key, headers=now), api.client.get(f"/v1/tables/{T}/records", headers=now)),
        api.client.get(f"/v1/tables/{T}/splits", headers=now),
    ):
        problem = check_refused(response, 504, "deadline_exceeded")
        assert problem["retriable"] is True
        assert problem["applied"] == "no"
    assert api.value(T, key) == {"n": 1}


@pytest.mark.parametrize("wait", ["5", '"5"', "1e2"])
def test_a_deadline_in_the_future_changes_nothing(api: ApiClient, wait: str) -> None:
    response = api.put(T, fresh(), {}, headers={"Prefer": f"return=representation, wait={wait}"})
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("prefer", "expected"),
    [
        ("return=representation", (True, None)),
        ("Return = Representation ; a=b, WAIT=5", (True, 5)),
        ("return=minimal, return=representation, wait=5, wait=0", (False, 5)),
        ("wait=5, wait=x", (False, 5)),
        ('return="representation";x="a,b;c", wait="\\5"', (True, 5)),
        ('x="a, wait=0, return=representation", wait=5', (False, 5)),
        ('x;y="a\\", wait=0", wait=5', (False, 5)),
        ('x="a, wait=0', (False, None)),
        ("respond-async, handling=lenient, , odd=, wait=5,", (False, 5)),
        ("await=0, wait-for=0, x;wait=0", (False, None)),
        ("", (False, None)),
    ],
)
def test_preferences_are_rfc_7240(prefer: str, expected: tuple[bool, float | None]) -> None:
    assert parse_preferences(prefer) == Preferences(*expected)


def test_preferences_in_several_headers_are_one_list(api: ApiClient) -> None:
    headers = [("Prefer", 'x="a, b"'), ("Prefer", "wait=5"), ("Prefer", "return=representation, wait=0")]
    response = api.client.put(path_of(T, fresh()), json={"n": 1}, headers=headers)
    assert (response.status_code, response.json()) == (200, {"n": 1})


@pytest.mark.parametrize("wait", ["wait", "wait=", 'wait="5', 'wait="1,2"', "wait=1 2", "wait=-1", "wait=x, wait=5"])
def test_an_invalid_deadline_is_rejected(wait: str) -> None:
    with pytest.raises(MalformedRequest):
        parse_preferences(wait)


@pytest.mark.parametrize("text", [" ", ",", "a", "a=", 'a="', 'a;"', '"', '"\\', "a,", "\\", ";=", 'a="b" '])
def test_a_preference_list_takes_linear_time(text: str) -> None:
    """A search with backtracking would not end before the timeout of a test."""
    parse_preferences(text * (HEAD_BYTES_MAX // len(text)))


def test_a_request_id_is_echoed_or_generated(api: ApiClient) -> None:
    assert api.client.get("/livez", headers={"X-Request-Id": "mine-7"}).headers["X-Request-Id"] == "mine-7"
    refused = api.client.get("/nowhere", headers={"X-Request-Id": "mine-8"})
    assert refused.headers["X-Request-Id"] == "mine-8"
    invalid = ("", "x" * 129, "a b")
    made = {api.client.get("/livez", headers={"X-Request-Id": one}).headers["X-Request-Id"] for one in invalid}
    assert len(made) == 3
    assert made.isdisjoint(invalid)


def test_unknown_or_repeated_parameters_are_rejected(api: ApiClient) -> None:
    key = fresh()
    api.put(T, key, {})
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
        response = api.client.request(method, path, json=bodies.get(method))
        check_refused(response, 400, "malformed_request")


def test_of_several_invalid_headers_the_first_is_the_error(api: ApiClient) -> None:
    wait, token = ("Prefer", "wait=x"), ("Tableside-Token", "x")
    for headers, error in (([wait, token], (400, "malformed_request")), ([token, wait], (422, "invalid_operation"))):
        check_refused(api.client.put(path_of(T, fresh()), json={}, headers=headers), *error)
