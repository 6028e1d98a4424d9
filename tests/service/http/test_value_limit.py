"""`limits.value_bytes_max` bounds every value that is written, in every format."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import orjson
import pytest

from service.http.api_client import ARROW, read, stream
from support.served import served

LIMIT = 2000
DETAIL = f"a value may have at most {LIMIT} bytes (value_bytes_max)"
LONG_BODY_BYTES = 2**17
"""More than a body that is decoded in one step."""


def of_size(size_bytes: int) -> dict[str, Any]:
    """Return a value whose text has this size."""
    return {"s": "x" * (size_bytes - len('{"s":""}'))}


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with (
        served(others=["m"], value_bytes_max=LIMIT) as service,
        httpx.AsyncClient(base_url=f"{service.url}/v1/tables/m", timeout=30) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (orjson.dumps(of_size(LIMIT)), 204),
        (orjson.dumps(of_size(LIMIT + 1)), 413),
        (b'{"n":1}' + b" " * LIMIT, 413),
        (b'{"not":JSON' + b" " * LIMIT, 413),  # It is not parsed.
        (b'{"a":[%b]}' % b",".join([b"1e18"] * 300), 413),  # It is longer once 1e18 is an integer.
    ],
)
async def test_a_put_is_limited_before_and_after_its_value_is_parsed(
    http: httpx.AsyncClient, text: bytes, status: int
) -> None:
    answer = await http.put("/records/a", content=text, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    if status == 413:
        assert (answer.json()["code"], answer.json()["detail"]) == ("too_large", DETAIL)
        assert (await http.get("/records/a")).status_code == 404


async def test_an_update_may_not_make_a_record_longer_than_a_value(http: httpx.AsyncClient) -> None:
    assert (await http.get(str(http.base_url).rstrip("/"))).json()["limits"]["value_bytes_max"] == LIMIT
    await http.put("/records/a", json=of_size(LIMIT - 10))
    growing = [
        ({"b": "0123456789"}, "application/merge-patch+json"),
        ({"update": {"$set": {"b": "0123456789"}}}, "application/json"),
    ]
    for document, media in growing:
        answer = await http.patch("/records/a", content=orjson.dumps(document), headers={"Content-Type": media})
        assert (answer.status_code, answer.json()["detail"]) == (413, DETAIL)
    assert (await http.get("/records/a")).json() == of_size(LIMIT - 10)
    # The update may be longer than the value that it leaves.
    shrinking = {"update": [{"$set": {"s": "y" * LIMIT}}, {"$set": {"s": ""}}]}
    assert (await http.patch("/records/a", json=shrinking)).status_code == 204


async def test_a_default_is_limited_like_a_value(http: httpx.AsyncClient) -> None:
    for default, update in ((of_size(LIMIT + 1), {}), (of_size(LIMIT - 10), {"b": "0123456789"})):
        answer = await http.patch("/records/a", json={"update": update, "default": default})
        assert (answer.status_code, answer.json()["detail"]) == (413, DETAIL)
    assert (await http.get("/records/a")).status_code == 404


def cases() -> dict[str, Sequence[dict[str, Any]]]:
    """Return operations of one kind: the first is within the limit, the second is not."""
    sizes = [LIMIT, LIMIT + 1]
    return {
        "puts": [{"op": "put", "key": f"p{size}", "value": of_size(size)} for size in sizes],
        "puts with an expiry": [
            {"op": "put", "key": f"e{size}", "value": of_size(size), "ttl_s": 60} for size in sizes
        ],
        "defaults": [{"op": "update", "key": f"d{size}", "update": {}, "default": of_size(size)} for size in sizes],
        "results": [
            {"op": "update", "key": f"r{size}", "update": {"$set": of_size(size)}, "default": {}} for size in sizes
        ],
    }


@pytest.mark.parametrize("long", [False, True], ids=["a short body", "a long body"])
@pytest.mark.parametrize("media", ["json", "arrow"])
async def test_a_batch_rejects_only_the_values_beyond_the_limit(
    http: httpx.AsyncClient, media: str, long: bool
) -> None:
    for kind, operations in cases().items():
        filling = [{**operations[0], "key": f"f{number}"} for number in range(LONG_BODY_BYTES // LIMIT if long else 0)]
        statuses, details = await (as_json if media == "json" else as_arrow)(http, [*operations, *filling])
        assert [status // 100 for status in statuses] == [2, 4, *[2] * len(filling)], kind
        assert (statuses[1], details[1]) == (413, DETAIL)


async def as_json(http: httpx.AsyncClient, operations: Sequence[dict[str, Any]]) -> tuple[list[int], list[str | None]]:
    results = (await http.post("/batch", json={"operations": operations})).json()["results"]
    return [one["status"] for one in results], [one.get("error", {}).get("detail") for one in results]


async def as_arrow(http: httpx.AsyncClient, operations: Sequence[dict[str, Any]]) -> tuple[list[int], list[str | None]]:
    columns = {
        name: [orjson.dumps(one[name]) if name in ("value", "update", "default") else one[name] for one in operations]
        for name in operations[0]
        if name != "op"
    }
    headers = {"Content-Type": ARROW}
    answer = await http.post(f"/batch?op={operations[0]['op']}", content=stream(columns), headers=headers)
    found = read(answer.content)
    return found.column("status").to_pylist(), found.column("detail").to_pylist()
