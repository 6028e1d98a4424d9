"""Tokens of single writes: a write is applied once, whatever the rest of the request."""

import pytest

from service.http.asking import ON_EVERY_STORE, Asking, check_refused, fresh

T = "records"
REPRESENTATION = {"Prefer": "return=representation"}


@ON_EVERY_STORE
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


@ON_EVERY_STORE
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


@ON_EVERY_STORE
def test_a_replay_answers_the_value_of_now_if_asked(asking: Asking) -> None:
    key = fresh()
    asking.put(T, key, {"n": 1}, headers={"Tableside-Token": "w/1"})
    asking.put(T, key, {"n": 2})
    again = asking.put(T, key, {"n": 1}, headers={"Tableside-Token": "w/1", **REPRESENTATION})
    assert again.status_code == 200
    assert again.json() == {"n": 2}
    assert again.headers["ETag"] == asking.get(T, key).headers["ETag"]


@ON_EVERY_STORE
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


@ON_EVERY_STORE
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


@ON_EVERY_STORE
def test_a_record_remembers_eight_writers(asking: Asking) -> None:
    key = fresh()
    for writer in range(9):
        asking.put(T, key, {}, headers={"Tableside-Token": f"w{writer}/1"})
    remembered = asking.put(T, key, {}, headers={"Tableside-Token": "w1/1"})
    assert remembered.headers["Tableside-Replayed"] == "true"
    forgotten = asking.put(T, key, {}, headers={"Tableside-Token": "w0/1"})
    assert "Tableside-Replayed" not in forgotten.headers


@ON_EVERY_STORE
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
