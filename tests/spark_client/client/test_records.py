"""The clients for Python with a real service."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from spark_client.client.both import batches
from spark_client.client.script import Script, reply
from support.running import Service
from tableside_client import (
    AccessDenied,
    AsyncClient,
    InvalidOperation,
    LoadError,
    PreconditionFailed,
    RecordNotFound,
    TableNotFound,
)

pytestmark = pytest.mark.server


async def test_a_record_is_written_read_and_deleted(people: Any) -> None:
    await people.put("grace", {"name": "Grace"})
    assert await people.get("ada") is None
    written = await people.put("ada", {"name": "Ada", "n": 2**63 - 1})
    assert await people.get("ada") == {"name": "Ada", "n": 2**63 - 1}
    assert await people.get("ada", fields=["n"]) == {"n": 2**63 - 1}
    record = await people.record("ada")
    assert (record.key, record.etag, record.expires_at) == ("ada", written.etag, None)
    await people.delete("ada")
    with pytest.raises(RecordNotFound) as caught:
        await people.record("ada")
    assert (caught.value.code, caught.value.status, caught.value.retriable) == ("record_not_found", 404, False)
    assert caught.value.applied == "no"


@pytest.mark.parametrize("key", ["a/b", "ü", "%2F", "a b", "a?b#c", "x" * 1024, "🛩", ".", ".."])
async def test_every_legal_key_works(people: Any, key: str) -> None:
    etag = (await people.put(key, {"n": 1})).etag
    updated = await people.update(key, {"$inc": {"n": 1}}, if_match=etag, return_value=True)
    assert updated.value == {"n": 2}
    assert (await people.record(key)).value == {"n": 2}
    await people.delete(key)
    assert await people.get(key) is None


async def test_preconditions_are_checked(people: Any) -> None:
    first = await people.put("a", {"n": 1}, if_absent=True)
    assert first.created
    for attempt in (
        people.put("a", {"n": 2}, if_absent=True),
        people.put("a", {"n": 2}, if_match="another"),
        people.update("a", {"n": 2}, if_match="another"),
        people.delete("a", if_match="another"),
    ):
        with pytest.raises(PreconditionFailed):
            await attempt
    assert await people.get("a") == {"n": 1}
    await people.put("a", {"n": 3}, if_match=first.etag)
    assert await people.get("a") == {"n": 3}


async def test_an_update_starts_from_its_default(people: Any) -> None:
    with pytest.raises(RecordNotFound):
        await people.update("a", {"$inc": {"n": 1}})
    created = await people.update("a", {"$inc": {"n": 1}}, default={"n": 5}, return_value=True)
    assert (created.created, created.value) == (True, {"n": 6})
    assert (await people.update("a", [{"x": 1}, {"$inc": {"n": 1}}], return_value=True)).value == {"n": 7, "x": 1}


async def test_a_token_counts_once(people: Any) -> None:
    for replayed in (False, True):
        for token in ("order-17", ("writer/ü", 7)):
            written = await people.update("a", {"$inc": {"n": 1}}, default={"n": 0}, token=token)
            assert written.replayed == replayed
    assert await people.get("a") == {"n": 2}
    assert (await people.put("a", {"n": 9}, token="order-17")).replayed
    assert (await people.delete("a", token=("writer/ü", 7))).replayed
    with pytest.raises(ValueError, match="128"):
        await people.delete("a", token="x" * 129)


async def test_a_record_expires(people: Any) -> None:
    await people.put("a", {"n": 1}, ttl_s=3600)
    assert (await people.record("a")).expires_at is not None
    await people.update("a", {"n": 2}, ttl_s=-1)
    assert (await people.record("a")).expires_at is None


async def test_many_records_are_read_in_batches(people: Any) -> None:
    assert await people.load((f"k{number}", {"n": number}) for number in range(2_500)) == 2_500
    keys = [f"k{number}" for number in range(0, 5_000, 2)]
    found = await people.get_many([*keys, *keys[:10]], fields=["n"])
    assert found == {f"k{number}": {"n": number} for number in range(0, 2_500, 2)}
    assert await people.get_many([]) == {}


async def test_concurrent_gets_share_batches(opened: Callable[..., Any], service: Service, name: str) -> None:
    table = (await opened(coalesce=True)).table(name)
    await table.load((f"k{number}", {"n": number}) for number in range(300))
    before = batches(service.url)
    values = await asyncio.gather(*(table.get(f"k{number}") for number in range(600)))
    assert values == [{"n": number} for number in range(300)] + [None] * 300
    assert 0 < batches(service.url) - before < 600
    with pytest.raises(InvalidOperation):
        await table.get("")
    assert await table.get("k1", fields=["absent"]) == {}


async def test_a_batch_returns_failures_as_outcomes(people: Any) -> None:
    outcomes = await people.batch(
        [
            {"op": "put", "key": "a", "value": {"n": 1}},
            {"op": "update", "key": "b", "update": {"$inc": {"n": 1}}},
            {"op": "update", "key": "a", "update": {"$inc": {"n": 1}}, "token": "once", "return": True},
            {"op": "update", "key": "a", "update": {"$inc": {"n": 1}}, "token": ("once", 1)},
            {"op": "get", "key": "a"},
            {"op": "get", "key": 1},
            {"op": "nonsense", "key": "a"},
        ]
    )
    assert [outcome.status for outcome in outcomes] == [204, 404, 200, 204, 200, 422, 422]
    assert [outcome.ok for outcome in outcomes] == [True, False, True, True, True, False, False]
    assert isinstance(outcomes[1].error, RecordNotFound)
    assert (outcomes[2].value, outcomes[3].replayed, outcomes[4].value) == ({"n": 2}, True, {"n": 2})
    assert outcomes[0].etag
    assert await people.batch([]) == []


async def test_load_raises_with_the_records_that_failed(people: Any) -> None:
    pairs = [("", {"n": 1}), ("b", {"n": 1}), ("bad", [1]), (b"c", {}), ("d", {"_ts": 1})]
    with pytest.raises(LoadError, match="4 records were not written; the first has the key") as caught:
        await people.load(pairs)
    failures = {key: str(failure) for key, failure in caught.value.failures}
    assert failures.keys() == {"", "bad", b"c", "d"}
    assert "a value must be a mapping, not list" in failures["bad"]
    assert (caught.value.written, await people.get("b")) == (1, {"n": 1})


async def test_a_record_that_is_too_large_is_one_failure_of_a_batch(people: Any) -> None:
    count: dict[str, Any] = {"op": "update", "key": "a", "update": {"$inc": {"n": 1}}, "default": {"n": 0}}
    large = {"text": "x" * 17_000_000}
    outcomes = await people.batch([count, {"op": "put", "key": "large", "value": large}, count])
    assert [outcome.status for outcome in outcomes] == [201, 413, 204]
    assert await people.get("a") == {"n": 2}
    [alone] = await people.batch([{"op": "put", "key": "large", "value": large}])
    assert isinstance(alone.error, InvalidOperation)
    with pytest.raises(LoadError) as caught:
        await people.load([("b", {"n": 1}), ("large", large), ("c", {"n": 1})])
    assert ([key for key, _ in caught.value.failures], caught.value.written) == (["large"], 2)
    assert set(await people.get_many(["b", "large", "c"])) == {"b", "c"}


def json_reply(status: bytes, document: dict[str, Any]) -> bytes:
    return reply(json.dumps(document).encode(), b"Content-Type: application/json", status=status)


async def test_a_rejected_request_is_an_exception_only_if_none_was_sent_before(
    opened: Callable[..., Any], script: Callable[..., Script]
) -> None:
    puts = [{"op": "put", "key": key, "value": {}} for key in "ab"]
    busy = {"code": "overloaded", "detail": "busy", "applied": "no", "retriable": True}
    half = json_reply(b"200 OK", {"results": [{"status": 503, "error": busy}, {"status": 204}]})
    problem = {"code": "forbidden", "status": 403, "detail": "no", "applied": "no", "retriable": False}
    forbidden = json_reply(b"403 Forbidden", problem)
    table = (await opened(script([forbidden], [half], [forbidden]).url)).table("t")
    with pytest.raises(AccessDenied):
        await table.batch(puts)
    first, second = await table.batch(puts)
    assert (first.status, first.error.code, second.status) == (403, "forbidden", 204)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda table: table.get("ada", fields="name"), "fields must be a sequence of names, such as ['name']"),
        (lambda table: table.get_many("ada"), "keys must be an iterable of keys, such as ['ada']"),
        (lambda table: table.get(b"ada"), "a key must be a string, an integer or a sequence of these, not b'ada'"),
        (lambda table: table.get(5.0), "a key must be"),
        (lambda table: table.put("ada", [["a", 1]]), "a value must be a mapping, not list"),
    ],
)
async def test_arguments_of_wrong_types_are_errors(people: Any, call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        await call(people)


async def test_load_accepts_an_asynchronous_iterable(service: Service, name: str) -> None:
    async def pairs() -> AsyncIterator[tuple[str, dict[str, int]]]:
        for number in range(1_001):
            yield f"k{number}", {"n": number}

    async with AsyncClient(service.url) as client:
        assert await client.table(name).load(pairs()) == 1_001
        assert await client.table(name).get("k1000") == {"n": 1000}


async def test_a_scan_returns_records_in_pages(people: Any) -> None:
    await people.load((f"{letter}{number:04}", {"n": number}) for letter in "ab" for number in range(1_500))
    records = [record async for record in people.scan(prefix="a")]
    assert {record.key: record.value for record in records} == {f"a{n:04}": {"n": n} for n in range(1_500)}
    assert records[0].etag
    assert len([record async for record in people.scan(limit=1_200)]) == 1_200
    splits = await people.splits(3)
    keys = [record.key for split in splits for record in [record async for record in people.scan(split=split)]]
    assert len(set(keys)) == 3_000
    async for _ in people.scan():
        break  # The next page is in flight.


async def test_many_records_are_deleted_in_pages(people: Any) -> None:
    await people.load((f"{letter}{number:04}", {"n": number}) for letter in "ab" for number in range(1_500))
    counts: list[int] = []
    assert await people.delete_all(prefix="a", progress=counts.append) == 1_500
    assert counts
    assert max(counts) < 1_500
    assert {record.key[0] for record in [record async for record in people.scan()]} == {"b"}
    assert await people.delete_all(everything=True) >= 1_500
    for choice in ({}, {"prefix": ""}, {"prefix": "a", "everything": True}, {"everything": False}):
        with pytest.raises(ValueError, match="exactly one"):
            await people.delete_all(**choice)


async def test_integer_and_composite_keys(opened: Callable[..., Any], keyed_url: str) -> None:
    client = await opened(keyed_url)
    numbers, pairs = client.table("numbers"), client.table("pairs")
    await numbers.load([(1, {"n": 1}), (-2, {"n": 2})])
    assert await numbers.get_many([1, -2, 3]) == {1: {"n": 1}, -2: {"n": 2}}
    await pairs.put(("u1", 5), {"n": 1})
    await pairs.batch([{"op": "put", "key": ("u1", 7), "value": {"n": 2}}])
    assert await pairs.get(["u1", 7]) == {"n": 2}
    assert await pairs.get_many([("u1", 5), ("u1", 6)]) == {("u1", 5): {"n": 1}}
    assert [record.key async for record in pairs.scan(partition="u1")] == [("u1", 5), ("u1", 7)]
    assert [table["name"] for table in await client.tables()] == ["numbers", "pairs"]
    assert (await pairs.describe())["key"][1]["type"] == "integer"
    with pytest.raises(TableNotFound):
        await client.table("absent").put("a", {"n": 1})
    with pytest.raises(InvalidOperation):
        await pairs.put("u1", {"n": 1})
