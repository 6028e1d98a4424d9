"""Tokens of single writes: a write is applied once, with any other headers and parameters."""

import json

import pytest

from documentation.blocks import blocks
from service.http.api_client import ARROW, JSON, ON_EVERY_STORE, ApiClient, check_refused, fresh, path_of, stream

T = "records"
REPRESENTATION = {"Prefer": "return=representation"}


@pytest.mark.parametrize("headers", [{"Tableside-Token": "w/1"}, {"Idempotency-Key": "order-17"}], ids=["token", "key"])
@ON_EVERY_STORE
def test_a_write_with_a_token_is_applied_once(api: ApiClient, headers: dict[str, str]) -> None:
    key, body = fresh(), {"update": {"$inc": {"n": 1}}, "default": {"n": 0}}
    first, again = (api.update(T, key, body, headers=headers) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 204)
    assert "Tableside-Replayed" not in first.headers
    assert again.headers["Tableside-Replayed"] == "true"
    assert again.headers["ETag"] == first.headers["ETag"]
    assert api.value(T, key) == {"n": 1}


@ON_EVERY_STORE
def test_a_replay_returns_the_current_value_on_request(api: ApiClient) -> None:
    key = fresh()
    api.put(T, key, {"n": 1}, headers={"Tableside-Token": "w/1"})
    api.put(T, key, {"n": 2})
    again = api.put(T, key, {"n": 1}, headers={"Tableside-Token": "w/1", **REPRESENTATION})
    assert again.status_code == 200
    assert again.json() == {"n": 2}
    assert again.headers["ETag"] == api.get(T, key).headers["ETag"]


@pytest.mark.parametrize("token", ["w/0", "w/9223372036854775807", "a/b/7", "/x/7", "w" * 128 + "/1", "ü/1"])
def test_a_token_is_divided_by_its_last_slash(api: ApiClient, token: str) -> None:
    key = fresh()
    for replayed in (None, "true"):
        response = api.put(T, key, {}, headers={"Tableside-Token": token.encode()})
        assert response.status_code == 204
        assert response.headers.get("Tableside-Replayed") == replayed
    writer, _, sequence = token.rpartition("/")
    same = {"writer": writer, "sequence": int(sequence)}
    assert api.batch(T, {"op": "delete", "key": key, "token": same})[0]["replayed"] is True


@pytest.mark.parametrize(
    "token", ["", "w", "w/", "/1", "w/x", "w/-1", "w/1.5", "w/9223372036854775808", "w/1e3", "x" * 129 + "/1", "w/+1"]
)
def test_an_invalid_token_header_is_rejected(api: ApiClient, token: str) -> None:
    key = fresh()
    check_refused(api.put(T, key, {}, headers={"Tableside-Token": token}), 422, "invalid_operation")
    check_refused(api.delete(T, key, headers={"Tableside-Token": token}), 422, "invalid_operation")


# Idempotency-Key


@ON_EVERY_STORE
def test_an_idempotency_key_is_the_first_sequence_of_a_writer(api: ApiClient) -> None:
    key = fresh()
    assert "Tableside-Replayed" not in api.put(T, key, {"n": 1}, headers={"Idempotency-Key": "w"}).headers
    assert api.merge(T, key, {"n": 2}, headers={"Tableside-Token": "w/1"}).headers["Tableside-Replayed"] == "true"
    assert api.delete(T, key, headers={"Idempotency-Key": "w"}).headers["Tableside-Replayed"] == "true"
    assert "Tableside-Replayed" not in api.delete(T, key, headers={"Idempotency-Key": "v"}).headers
    check_refused(api.get(T, key), 404, "record_not_found")


@pytest.mark.parametrize(
    ("text", "writer"),
    [
        ("a/b", "a/b"),
        ('"order-17"', "order-17"),
        ('"' + "ü" * 128 + '"', "ü" * 128),
        (r'"say \"hi\" \\o/"', r'say "hi" \o/'),
        ('o"17"', 'o"17"'),
    ],
)
def test_quotes_around_an_idempotency_key_are_not_part_of_it(api: ApiClient, text: str, writer: str) -> None:
    key = fresh()
    for replayed in (None, "true"):
        response = api.put(T, key, {}, headers={"Idempotency-Key": text.encode()})
        assert response.status_code == 204
        assert response.headers.get("Tableside-Replayed") == replayed
    token = {"writer": writer, "sequence": 1}
    assert api.batch(T, {"op": "delete", "key": key, "token": token})[0]["replayed"] is True


@pytest.mark.parametrize("text", ["", '""', "x" * 129, '"' + "x" * 129 + '"', '"', '"a', '"a"b', r'"a\b"', '"a"; p=1'])
def test_an_invalid_idempotency_key_is_refused(api: ApiClient, text: str) -> None:
    key, headers = fresh(), {"Idempotency-Key": text}
    for response in (
        api.put(T, key, {}, headers=headers),
        api.merge(T, key, {}, headers=headers),
        api.delete(T, key, headers=headers),
    ):
        assert "Idempotency-Key" in check_refused(response, 422, "invalid_operation")["detail"]
    check_refused(api.get(T, key), 404, "record_not_found")


@pytest.mark.parametrize("name", ["Idempotency-Key", "Tableside-Token"])
@pytest.mark.parametrize("other", [("Tableside-Token", "w/1"), ("Idempotency-Key", "b"), ("Idempotency-Key", "w/1")])
def test_a_write_has_one_token(api: ApiClient, name: str, other: tuple[str, str]) -> None:
    key, headers = fresh(), [(name, "w/1"), other]
    for method, body in (("PUT", "{}"), ("DELETE", None)):
        response = api.client.request(method, path_of(T, key), content=body, headers=headers)
        check_refused(response, 400, "malformed_request")
    check_refused(api.get(T, key), 404, "record_not_found")


@pytest.mark.parametrize(("name", "text"), [("Idempotency-Key", "a"), ("Tableside-Token", "w/1")])
@pytest.mark.parametrize("media", [JSON, ARROW])
def test_a_batch_refuses_the_tokens_of_single_writes(api: ApiClient, name: str, text: str, media: str) -> None:
    key = fresh()
    api.put(T, fresh(), {})  # creates the table
    put = {"op": "put", "key": key, "value": {}}
    body = json.dumps({"operations": [put]}).encode() if media == JSON else stream({"key": [key], "value": ["{}"]})
    problem = check_refused(api.post(T, body, media, headers={name: text}), 400, "malformed_request")
    assert name in problem["detail"]
    check_refused(api.get(T, key), 404, "record_not_found")


def test_the_request_of_the_documentation_is_applied_once(api: ApiClient) -> None:
    [block] = [block for block in blocks("docs/http.md") if block.language == "http"]
    head, _, body = block.text.partition("\n\n")
    (method, path, _), *lines = (line.split(" ") for line in head.splitlines())
    headers = {name.rstrip(":"): text for name, text in lines}
    answers = [api.client.request(method, path, headers=headers, content=body) for _ in range(2)]
    assert [answer.headers.get("Tableside-Replayed") for answer in answers] == [None, "true"]
    assert api.client.get(path).json() == {"balance": 10}
