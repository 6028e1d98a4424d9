"""Deadlines, request ids, and unknown parameters."""

import pytest

from service.http.asking import ON_EVERY_STORE, Asking, check_refused, fresh, path_of

T = "records"
REPRESENTATION = {"Prefer": "return=representation"}


@ON_EVERY_STORE
def test_an_expired_deadline_ends_every_request(asking: Asking) -> None:
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
def test_a_deadline_in_the_future_changes_nothing(asking: Asking, wait: str) -> None:
    response = asking.put(T, fresh(), {}, headers={"Prefer": f"return=representation, wait={wait}"})
    assert response.status_code == 200


def test_a_request_id_is_echoed_or_generated(asking: Asking) -> None:
    assert asking.client.get("/livez", headers={"X-Request-Id": "mine-7"}).headers["X-Request-Id"] == "mine-7"
    refused = asking.client.get("/nowhere", headers={"X-Request-Id": "mine-8"})
    assert refused.headers["X-Request-Id"] == "mine-8"
    made = {asking.client.get("/livez").headers["X-Request-Id"] for _ in range(3)}
    assert len(made) == 3
    assert all(made)


@pytest.mark.parametrize("bad", ["", "x" * 129, "a b"])
def test_an_invalid_request_id_is_replaced(asking: Asking, bad: str) -> None:
    assert asking.client.get("/livez", headers={"X-Request-Id": bad}).headers["X-Request-Id"] not in ("", bad)


def test_unknown_or_repeated_parameters_are_rejected(asking: Asking) -> None:
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
