"""A table with a cache over HTTP: the header `Age`, and the directives of `Cache-Control` in requests."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from httpx import AsyncClient, Response

from contract import put
from service.http.api_client import ApiClient, application, check_refused, fresh, path_of
from support.scripted import Scripted
from tableside.catalog.table import Table
from tableside.core.operations import Operation
from tableside.policies.cache import Cache

pytestmark = pytest.mark.server

T = "records"
NO_CACHE = {"Cache-Control": "no-cache"}


class Site:
    """A running application whose table `t` has a cache, its clock, a client, and the store below the cache."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.time_s = 100.0
        self.store = Scripted()
        bounds: dict[str, Any] = {"records_max": 9, "bytes_max": 2**20, "ttl_s": 60, "absent_ttl_s": 60}
        self.cache = Cache(self.store, monotonic=lambda: self.time_s, **bounds)

    async def elsewhere(self, operation: Operation) -> None:
        """Write to the store without the cache, as another replica does."""
        await self.store._inner.apply([operation])

    async def get(self, key: str = "a", headers: Mapping[str, str] | None = None, method: str = "GET") -> Response:
        return await self.client.request(method, path_of("t", key), headers=headers)

    async def batch(self, *keys: str, headers: Mapping[str, str] | None = None) -> Sequence[Any]:
        body = {"operations": [{"op": "get", "key": key} for key in keys]}
        response = await self.client.post("/v1/tables/t/batch", json=body, headers=headers)
        assert response.status_code == 200
        assert "Age" not in response.headers
        return [result.get("value") for result in response.json()["results"]]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with application({"tables": {"t": {"store": "s"}}}) as (app, client):
        site = Site(client)
        app.state.catalog.entry("t").table = Table(site.cache)
        await site.elsewhere(put("a", {"n": 0}))
        yield site


async def test_a_cached_response_states_its_age_in_whole_seconds(site: Site) -> None:
    assert "Age" not in (await site.get()).headers
    for passes_s, age in ((0.0, "0"), (0.9, "0"), (2.0, "2"), (50.0, "52")):
        site.time_s += passes_s
        response = await site.get()
        assert (response.status_code, response.json(), response.headers["Age"]) == (200, {"n": 0}, age)
    site.time_s += 10.0
    assert "Age" not in (await site.get()).headers


async def test_head_and_not_modified_responses_have_the_age_too(site: Site) -> None:
    etag = (await site.get()).headers["ETag"]
    site.time_s += 3.2
    head = await site.get(method="HEAD")
    assert (head.status_code, head.headers["Age"], head.headers["ETag"], head.content) == (200, "3", etag, b"")
    unchanged = await site.get(headers={"If-None-Match": etag})
    assert (unchanged.status_code, unchanged.headers["Age"], unchanged.headers["ETag"]) == (304, "3", etag)
    assert "Age" not in (await site.get(headers={"If-None-Match": etag, **NO_CACHE})).headers


async def test_an_absence_from_the_cache_has_no_age(site: Site) -> None:
    for _ in range(2):
        response = await site.get("b")
        check_refused(response, 404, "record_not_found")
        assert "Age" not in response.headers
    assert len(site.store.calls) == 1


@pytest.mark.parametrize(
    "asked",
    ["no-cache", "No-Cache", "max-age=0", 'max-age="2"', "max-age=2", "no-transform, max-age=2", "max-age=9, no-cache"],
)
async def test_a_request_may_reject_old_records_and_refreshes_the_cache(site: Site, asked: str) -> None:
    await site.get()
    await site.elsewhere(put("a", {"n": 1}))
    site.time_s += 2.5
    assert (await site.get()).json() == {"n": 0}
    response = await site.get(headers={"Cache-Control": asked})
    assert (response.json(), response.headers.get("Age")) == ({"n": 1}, None)
    response = await site.get()
    assert (response.json(), response.headers.get("Age")) == ({"n": 1}, "0")
    assert len(site.store.calls) == 2


@pytest.mark.parametrize(
    "asked", ["max-age=3", "max-age=999999999999999999", "max-stale", "no-transform", "", 'x="no-cach"', "max-age-x=0"]
)
async def test_a_request_with_a_sufficient_max_age_is_answered_from_the_cache(site: Site, asked: str) -> None:
    await site.get()
    site.time_s += 2.5
    assert (await site.get(headers={"Cache-Control": asked})).headers["Age"] == "2"
    assert len(site.store.calls) == 1


async def test_in_a_batch_cache_control_applies_to_every_get(site: Site) -> None:
    ask, old, new = site.batch, {"n": 0}, {"n": 1}
    await site.elsewhere(put("b", {"n": 0}))
    assert await ask("a", "b") == [old, old]
    await site.elsewhere(put("a", {"n": 1}))
    await site.elsewhere(put("b", {"n": 1}))
    site.time_s += 2.5
    assert await ask("a", "b") == [old, old]
    assert await ask("a", "b", headers={"Cache-Control": "max-age=3"}) == [old, old]
    assert await ask("a", headers={"Cache-Control": "max-age=2"}) == [new]
    assert await ask("a", "b") == [new, old]
    assert await ask("b", "a", headers=NO_CACHE) == [new, new]
    assert len(site.store.calls) == 3


async def test_a_batch_of_gets_and_writes_with_no_cache_does_both(site: Site) -> None:
    await site.get()
    await site.elsewhere(put("a", {"n": 1}))
    operations = [{"op": "get", "key": "a"}, {"op": "put", "key": "a", "value": {"n": 2}}, {"op": "get", "key": "a"}, 7]
    response = await site.client.post("/v1/tables/t/batch", json={"operations": operations}, headers=NO_CACHE)
    results = response.json()["results"]
    assert [result["status"] for result in results] == [200, 204, 200, 422]
    assert [results[0]["value"], results[2]["value"]] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("asked", ["max-age", "max-age=", "max-age=x", "max-age=-1", "max-age=1.5"])
def test_an_age_that_is_no_number_is_refused_with_or_without_a_cache(api: ApiClient, asked: str) -> None:
    key, headers = fresh(), {"Cache-Control": asked}
    api.put(T, key, {})
    check_refused(api.get(T, key, headers=headers), 400, "malformed_request")
    check_refused(api.post(T, b'{"operations":[]}', headers=headers), 400, "malformed_request")


def test_a_table_without_a_cache_returns_no_age(api: ApiClient) -> None:
    key = fresh()
    api.put(T, key, {"n": 1})
    for headers in ({}, NO_CACHE, {"Cache-Control": "max-age=5"}):
        response = api.get(T, key, headers=headers)
        assert (response.json(), response.headers.get("Age")) == ({"n": 1}, None)


@pytest.mark.parametrize("cached", [True, False])
async def test_a_replica_whose_cache_may_answer_stays_ready_without_a_store(cached: bool) -> None:
    table = {"store": "away", **({"cache": {"records_max": 9, "ttl_s": 60}} if cached else {})}
    stores = {"away": {"kind": "redis", "url": "redis://127.0.0.1:1/0"}}
    async with application({"stores": stores, "tables": {"t": table}}) as (_, client):
        answer = await client.get("/readyz")
    assert answer.status_code == (200 if cached else 503)
    assert answer.json()["stores"]["away"]["ready"] is False
