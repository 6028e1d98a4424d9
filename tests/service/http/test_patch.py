"""Updates of single records: merge patches, operators, defaults, and rejected updates."""

import pytest

from service.http.api_client import JSON, MERGE_PATCH, ON_EVERY_STORE, ApiClient, check_refused, fresh, path_of

T = "records"
REPRESENTATION = {"Prefer": "return=representation"}


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
def test_an_update_changes_the_record(api: ApiClient, update: object, expected: object) -> None:
    key = fresh()
    api.put(T, key, {"n": 1, "l": [1]})
    assert api.update(T, key, {"update": update}).status_code == 204
    assert api.value(T, key) == expected


@ON_EVERY_STORE
def test_a_repeated_body_changes_each_record_alike(api: ApiClient) -> None:
    update = [
        {"$set": {"a": {"l": [0]}}},
        {"$push": {"a.l": 1}},
        {"$inc": {"n": 1}},
        {"b": {"c": []}},
        {"$push": {"b.c": 2}},
    ]
    for count in (1, 2):
        for key in ("first", "second"):
            if count == 1:
                api.put(T, key, {})
            assert api.update(T, key, {"update": update}).status_code == 204
            assert api.value(T, key) == {"a": {"l": [0, 1]}, "b": {"c": [2]}, "n": count}


@ON_EVERY_STORE
def test_an_update_of_an_absent_record_without_a_default_is_not_found(api: ApiClient) -> None:
    api.put(T, fresh(), {})
    check_refused(api.merge(T, fresh(), {"n": 1}), 404, "record_not_found")
    check_refused(api.update(T, fresh(), {"update": {"$inc": {"n": 1}}}), 404, "record_not_found")


@ON_EVERY_STORE
def test_an_update_returns_the_value_on_request(api: ApiClient) -> None:
    key = fresh()
    api.put(T, key, {"n": 1})
    response = api.update(T, key, {"update": {"$inc": {"n": 1}}}, headers=REPRESENTATION)
    assert response.status_code == 200
    assert response.json() == {"n": 2}
    assert response.headers["Preference-Applied"] == "return=representation"


@ON_EVERY_STORE
def test_if_match_guards_an_update(api: ApiClient) -> None:
    key = fresh()
    etag = api.put(T, key, {"n": 1}).headers["ETag"]
    assert api.merge(T, key, {"n": 2}, headers={"If-Match": etag}).status_code == 204
    check_refused(api.merge(T, key, {"n": 3}, headers={"If-Match": etag}), 412, "precondition_failed")
    assert api.value(T, key) == {"n": 2}


@pytest.mark.parametrize("body", [{}, {"default": {}}, {"update": {}, "other": 1}, [], 7, None])
def test_an_update_request_is_an_object_with_an_update_and_nothing_unknown(api: ApiClient, body: object) -> None:
    check_refused(api.update(T, fresh(), body), 422, "invalid_operation")


def test_the_error_for_a_merge_patch_in_json_names_its_media_type(api: ApiClient) -> None:
    problem = check_refused(api.update(T, fresh(), {"name": "Ada"}), 422, "invalid_operation")
    assert "application/merge-patch+json" in problem["detail"]
    unknown = check_refused(api.update(T, fresh(), {"update": {"$schema": "s"}}), 422, "invalid_operation")
    assert "unknown operator `$schema`" in unknown["detail"]


@ON_EVERY_STORE
def test_a_merge_patch_may_have_members_whose_names_begin_with_a_dollar(api: ApiClient) -> None:
    key, long = fresh(), "x" * 100_000
    api.put(T, key, {"$schema": "old", "$gone": 1})
    assert api.merge(T, key, {"$schema": "new", "$ref": {"$inc": {"n": 1}}, "$gone": None}).status_code == 204
    assert api.value(T, key) == {"$schema": "new", "$ref": {"$inc": {"n": 1}}}
    assert api.merge(T, key, {"$schema": long}).status_code == 204
    assert api.value(T, key)["$schema"] == long


@pytest.mark.parametrize("operator", ["$set", "$rename", "$setOnInsert"])
def test_operators_are_not_stored_as_members_of_a_merge_patch(api: ApiClient, operator: str) -> None:
    key = fresh()
    api.put(T, key, {"n": 1})
    for other in ({}, {"$schema": "s"}, {"n": 2}, {"long": "x" * 100_000}):
        problem = check_refused(api.merge(T, key, {**other, operator: {"n": 1}}), 422, "invalid_operation")
        assert f"`{operator}`: send the update as application/json" in problem["detail"]
    assert api.value(T, key) == {"n": 1}


@pytest.mark.parametrize("patch", [[], 7, None, {"$inc": {"n": 1}}, {"_ts": 1}, {"n": 2**64}])
def test_an_invalid_merge_patch_is_rejected(api: ApiClient, patch: object) -> None:
    key = fresh()
    api.put(T, key, {"n": 1})
    check_refused(api.merge(T, key, patch), 422, "invalid_operation")


@pytest.mark.parametrize("media", ["text/plain", "application/json; charset=latin-1", ""])
def test_the_error_for_another_media_type_lists_the_supported_ones(api: ApiClient, media: str) -> None:
    response = api.client.patch(path_of(T, fresh()), content=b"{}", headers={"Content-Type": media})
    check_refused(response, 415, "unsupported_media_type")
    assert response.headers["Accept-Patch"] == f"{JSON}, {MERGE_PATCH}"
