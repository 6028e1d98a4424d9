"""A client disconnects during a request: reads are cancelled down to the store, writes are finished."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.served import BATCH, POLICIES, RECORD, Served, connected, served
from support.waiting import eventually

LONG_S = 20.0
SHORT_S = 0.3
ROUTE = "/v1/tables/{table}/records/{key:path}"

READS: dict[str, tuple[str, str, Any]] = {
    "get": ("GET", RECORD, None),
    "head": ("HEAD", RECORD, None),
    "scan": ("GET", "/v1/tables/t/records", None),
    "batch of gets": ("POST", BATCH, {"operations": [{"op": "get", "key": "a"}, {"op": "get", "key": "b"}]}),
}

WRITES: dict[str, tuple[str, str, Any]] = {
    "put": ("PUT", RECORD, {"n": 2}),
    "batch": ("POST", BATCH, {"operations": [{"op": "get", "key": "b"}, {"op": "put", "key": "a", "value": {"n": 1}}]}),
}


@pytest.fixture(params=list(POLICIES))
async def service(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    async with served(POLICIES[request.param], drain_s=0) as running:
        yield running


async def test_a_read_is_cancelled_in_the_store(service: Served) -> None:
    service.store.takes_s = lambda operations: LONG_S
    for count, (read, (method, path, document)) in enumerate(READS.items(), 1):
        async with connected(service, 1) as [caller]:
            caller.send(method, path, document)
            await service.called()
            assert service.under_way[:2] == (1, 2 if read.startswith("batch") else 1), read
            caller.abort()
            await service.idle()
        assert service.store.cancelled == count, read
        route = {RECORD: ROUTE, BATCH: "/v1/tables/{table}/batch"}.get(path, "/v1/tables/{table}/records")
        assert service.metric("tableside_http_requests_total", route=route, method=method, status="499") == 1, read


async def test_a_write_is_finished(service: Served) -> None:
    for write, (method, path, document) in WRITES.items():
        service.store.takes_s = lambda operations: SHORT_S
        async with connected(service, 2) as [caller, other]:
            caller.send(method, path, document)
            await service.called()
            caller.abort()
            await service.idle()
            assert service.store.cancelled == 0, write
            service.store.takes_s = lambda operations: 0
            assert (await other.ask("GET", RECORD)).json() == {"n": 2 if write == "put" else 1}, write
        route, status = (ROUTE, "204") if method == "PUT" else ("/v1/tables/{table}/batch", "200")
        assert service.metric("tableside_http_requests_total", route=route, method=method, status=status) == 1, write


@pytest.fixture
async def plain() -> AsyncIterator[Served]:
    async with served(drain_s=0) as running:
        yield running


async def test_a_disconnect_before_the_body_causes_no_store_call(plain: Served) -> None:
    async with connected(plain, 1) as [caller]:
        caller.send("PUT", RECORD, None, content_length="1000")
        await eventually(lambda: plain.under_way == (1, 0, 1000))
        caller.abort()
        await plain.idle()
    assert plain.store.calls == []
    assert plain.metric("tableside_http_requests_total", route=ROUTE, method="PUT", status="499") == 1


async def test_a_disconnect_after_the_response_cancels_nothing(plain: Served) -> None:
    for _ in range(20):
        async with connected(plain, 1) as [caller]:
            assert (await caller.ask("GET", RECORD)).status == 404
            caller.abort()
    await plain.idle()
    assert plain.store.cancelled == 0
    assert plain.metric("tableside_http_requests_total", route=ROUTE, method="GET", status="404") == 20
