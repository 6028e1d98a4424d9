"""After its response, no request with any outcome leaves objects in memory."""

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from types import CoroutineType, FrameType, TracebackType
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from service.http.api_client import application
from support.waiting import WAIT_MAX_S
from tableside.core import MalformedRequest, TooLarge
from tableside.core.values import ELEMENTS_MAX

SETTINGS = {
    "stores": {
        "a": {"kind": "memory"},
        "b": {"kind": "memory"},
        "ab": {"kind": "partitioned", "partitions": ["a", "b"]},
    },
    "tables": {"t": {"store": "a"}, "both": {"store": "ab"}},
    "console": {"enabled": False},
}
REQUESTS = 30
NOISE = 20
"""How many objects of one type the background work may add for a moment. A leak adds one for each request."""

Ask = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


def batch(table: str, *operations: dict[str, Any]) -> Ask:
    return lambda client: client.post(f"/v1/tables/{table}/batch", json={"operations": operations})


ASKED: dict[str, Ask] = {
    "a get of nothing": lambda client: client.get("/v1/tables/t/records/nothing"),
    "no such table": lambda client: client.get("/v1/tables/x/records/a"),
    "no JSON": lambda client: client.put(
        "/v1/tables/t/records/a", content=b"{", headers={"content-type": "text/plain"}
    ),
    "an update that does not fit": lambda client: client.patch(
        "/v1/tables/t/records/a", json={"update": {"$push": {"n": 1}}}
    ),
    "a batch": batch("t", {"op": "put", "key": "a", "value": {"n": 1}}, {"op": "get", "key": "a"}),
    "invalid operations": batch("t", {"op": "put", "key": "a"}, {"op": "get", "key": 1}, {"op": "no", "key": "a"}),
    "operations that fail": batch(
        "t",
        {"op": "update", "key": "a", "update": {"$push": {"n": 1}}},
        {"op": "put", "key": "a", "value": {}, "if_match": "no"},
        {"op": "get", "key": "x"},
    ),
    "some of several partitions": batch(
        "both",
        {"op": "put", "key": "a", "value": {"n": 1}, "partitions": [0]},
        {"op": "update", "key": "a", "update": {"$inc": {"n": 1}}, "partitions": [0, 1]},
    ),
}


@pytest.fixture(scope="module")
def only_new_objects() -> Iterator[None]:
    """Exclude existing objects from garbage collection, since other tests leave millions of them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("only_new_objects")
@pytest.mark.parametrize("asked", ASKED)
async def test_finished_requests_leave_no_objects(asked: str) -> None:
    async with application(SETTINGS) as (_, client):
        await client.put("/v1/tables/t/records/a", json={"n": 1})
        for _ in range(3):
            assert (await ASKED[asked](client)).status_code < 500
        before = counted()
        for _ in range(REQUESTS):
            await ASKED[asked](client)
        grown = {kind: count for kind, count in (counted() - before).items() if count > NOISE}
    assert grown == {}


@pytest.mark.usefixtures("only_new_objects")
@pytest.mark.parametrize(
    ("body", "status"),
    [(b'{"a":[%b1]}' % (b"1," * ELEMENTS_MAX), 413), (b'{"a":"%b' % (b"x" * 2**17), 400)],
    ids=["too many elements", "malformed"],
)
async def test_a_rejected_body_is_freed_without_a_garbage_collection(body: bytes, status: int) -> None:
    async with application(SETTINGS) as (_, client):
        gc.disable()
        try:
            for _ in range(3):
                assert (await client.put("/v1/tables/t/records/a", content=body)).status_code == status
            # The turn of the loop and the thread that raised it refer to an error.
            async with asyncio.timeout(WAIT_MAX_S):
                while any(isinstance(one, TooLarge | MalformedRequest) for one in gc.get_objects()):
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()


def counted() -> Counter[str]:
    """Return the number of reachable objects of requests, by type."""
    gc.collect()
    return Counter(type(one).__qualname__ for one in gc.get_objects() if is_of_a_request(one))


def is_of_a_request(one: object) -> bool:
    kept = (BaseException, FrameType, TracebackType, CoroutineType, asyncio.Task, Request, Response)
    return isinstance(one, kept) or str(type(one).__module__).startswith("tableside.")
