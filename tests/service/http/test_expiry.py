"""Expiry: which operations set it, which keep it, and that an expired record is absent."""

from datetime import UTC, datetime

import pytest

from service.http.api_client import ON_EVERY_STORE, ApiClient, check_refused, fresh
from tableside.http.endpoints.routing import SHORT_BODY_BYTES_MAX

T = "records"
REPRESENTATION = {"Prefer": "return=representation"}


def expires_in_s(text: str) -> float:
    assert text.endswith("Z")
    return (datetime.fromisoformat(text) - datetime.now(UTC)).total_seconds()


@ON_EVERY_STORE
def test_ttl_s_sets_the_expiry_and_reads_show_it(api: ApiClient) -> None:
    key = fresh()
    assert api.put(T, key, {}, params={"ttl_s": "100.5"}).status_code == 204
    assert 95 < expires_in_s(api.get(T, key).headers["Tableside-Expires-At"]) < 101
    [result] = api.batch(T, {"op": "get", "key": key})
    assert 95 < expires_in_s(result["expires_at"]) < 101
    [record] = api.walk(T, prefix=key)
    assert record["expires_at"] == result["expires_at"]


@ON_EVERY_STORE
def test_the_tables_default_applies_to_puts_without_a_ttl(api: ApiClient) -> None:
    key = fresh()
    for ttl_s in (None, "null"):
        given = {} if ttl_s is None else {"ttl_s": None}
        [result] = api.batch("hour", {"op": "put", "key": key, "value": {}, **given})
        assert result["status"] == 204
        assert 3590 < expires_in_s(api.get("hour", key).headers["Tableside-Expires-At"]) < 3601


@pytest.mark.parametrize("ttl_s", [-1, 100, 100.0, 200])
@pytest.mark.parametrize("size", [1, 2 * SHORT_BODY_BYTES_MAX])
def test_a_ttl_in_the_query_and_in_the_body_is_rejected(api: ApiClient, ttl_s: float, size: int) -> None:
    key, update = fresh(), {"s": "x" * size}
    api.put(T, key, {"n": 1})
    response = api.update(T, key, {"update": update, "ttl_s": ttl_s}, params={"ttl_s": 100})
    check_refused(response, 400, "malformed_request")
    assert api.value(T, key) == {"n": 1}
    assert api.update(T, key, {"update": update, "ttl_s": None}, params={"ttl_s": 100}).status_code == 204
    assert 90 < expires_in_s(api.get(T, key).headers["Tableside-Expires-At"]) < 101


def test_a_ttl_is_a_number_above_0_or_minus_one(api: ApiClient) -> None:
    for ttl_s in ("0", "-2", "-0.5", "x", "", "NaN", "inf", "0x1"):
        check_refused(api.put(T, fresh(), {}, params={"ttl_s": ttl_s}), 422, "invalid_operation")
    for ttl_s in ("-1", "0.30000000000000004", "1e3", "5e-324", "100000000000000", "1.7976931348623157e+308"):
        assert api.put(T, fresh(), {}, params={"ttl_s": ttl_s}).status_code == 204


@ON_EVERY_STORE
def test_a_value_that_is_answered_after_a_write_shows_its_expiry(api: ApiClient) -> None:
    response = api.put(T, fresh(), {}, params={"ttl_s": 100}, headers=REPRESENTATION)
    assert 95 < expires_in_s(response.headers["Tableside-Expires-At"]) < 101
