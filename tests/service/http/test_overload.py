"""Load shedding: a request above a limit is rejected immediately and does not affect admitted requests."""

import asyncio
import json
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

from service.http.api_client import ARROW, stream
from support.raw_http import Answer, Connection
from support.served import BATCH, RECORD, Served, connected, served
from support.waiting import eventually

BYTES_MAX = 10_000
PROBES = ("/livez", "/readyz", "/metrics")


@pytest.fixture
async def service() -> AsyncIterator[Served]:
    async with served(in_flight_max=3, operations_in_flight_max=20, bytes_in_flight_max=BYTES_MAX, drain_s=0) as one:
        yield one


def value(size_bytes: int) -> dict[str, str]:
    """Return a value whose body has this many bytes."""
    return {"a": "x" * (size_bytes - len('{"a": ""}'))}


def gets(count: int) -> dict[str, object]:
    return {"operations": [{"op": "get", "key": f"k{number}"} for number in range(count)]}


def send_chunked(connection: Connection, size_bytes: int) -> None:
    """Send a put without the length of its body."""
    connection.send("PUT", RECORD, None, content_length="", transfer_encoding="chunked")
    body = json.dumps(value(size_bytes)).encode()
    for start in range(0, len(body), 1000):
        chunk = body[start : start + 1000]
        connection.writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
    connection.writer.write(b"0\r\n\r\n")


def check_shed(answer: Answer) -> None:
    assert answer.status == 503, answer
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"]
    problem = answer.json()
    assert (problem["code"], problem["retriable"], problem["applied"]) == ("overloaded", True, "no")


async def until_under_way(service: Served, expected: tuple[int, int, int]) -> None:
    await eventually(lambda: service.under_way == expected)


async def test_requests_above_the_limit_are_rejected_and_probes_are_not(service: Served) -> None:
    service.store.takes_s = lambda operations: 0.5
    async with connected(service, 6) as [*waiting, refused, another, probe]:
        for caller in waiting:
            caller.send("GET", RECORD)
        await service.called(3)
        check_shed(await refused.ask("GET", RECORD))
        check_shed(await another.ask("GET", "/v1/tables"))
        for path in PROBES:
            assert (await probe.ask("GET", path)).status == 200
        assert service.metric("tableside_in_flight", what="requests") == 3
        assert service.metric("tableside_shed_total", reason="requests") == 2
        assert [(await caller.answer()).status for caller in waiting] == [404] * 3
        assert (await refused.ask("GET", RECORD)).status == 404
    await service.idle()
    assert service.metric("tableside_in_flight", what="requests") == 0


async def test_a_client_that_retries_too_early_is_served_only_after_the_delay(service: Served) -> None:
    service.store.takes_s = lambda operations: 0.3
    async with connected(service, 4) as [*waiting, refused]:
        for caller in waiting:
            caller.send("GET", RECORD)
        await service.called(3)
        refused.send("GET", RECORD)
        refused.send("GET", RECORD)
        refused.send("GET", RECORD)
        started = asyncio.get_running_loop().time()
        check_shed(await refused.answer())
        refused.send("GET", RECORD)
        answers = [await refused.answer() for _ in range(3)]
        assert asyncio.get_running_loop().time() - started >= 1
        assert answers[-1].status == 404
        assert service.metric("tableside_shed_total", reason="requests") < 4


async def test_operations_above_the_limit_are_rejected_before_any_is_attempted(service: Served) -> None:
    service.store.takes_s = lambda operations: 0.5
    async with connected(service, 2) as [large, other]:
        large.send("POST", BATCH, gets(15))
        await service.called()
        check_shed(await other.ask("POST", BATCH, gets(6)))
        assert service.metric("tableside_shed_total", reason="operations") == 1
        assert len(service.store.calls) == 1
        other.send("POST", BATCH, gets(5))
        await service.called(2)
        assert (await large.answer()).status == 200
        assert (await other.answer()).status == 200


async def test_a_body_is_neither_read_nor_decoded_while_no_operation_can_be_admitted(service: Served) -> None:
    service.store.takes_s = lambda operations: 0.5
    async with connected(service, 3) as [large, late, other]:
        late.send("POST", BATCH, None, content_length="9")
        await until_under_way(service, (1, 0, 9))
        large.send("POST", BATCH, gets(20))
        await service.called()
        other.send("POST", BATCH, None, content_length="5000")
        check_shed(await other.answer())
        late.writer.write(b"not JSON!")
        check_shed(await late.answer())
        assert (await large.answer()).status == 200


async def test_a_declared_length_above_the_limit_is_rejected_before_the_body(service: Served) -> None:
    async with connected(service, 2) as [slow, other]:
        slow.send("PUT", RECORD, None, content_length="8000")
        await until_under_way(service, (1, 0, 8000))
        assert service.metric("tableside_in_flight", what="bytes") == 8000
        other.send("PUT", f"{RECORD}b", None, content_length="4000")
        check_shed(await other.answer())
        assert service.metric("tableside_shed_total", reason="bytes") == 1
        # The client sends the body anyway, and it is not part of the next request.
        other.writer.write(b'{"a":"%b"}' % (b"x" * 3992))
        assert (await other.ask("PUT", f"{RECORD}c", value(1500))).status == 204
        slow.writer.write(b'{"a":"%b"}' % (b"y" * 7992))
        assert (await slow.answer()).status == 204
        assert (await other.ask("PUT", f"{RECORD}b", value(4000))).status == 204
        assert (await other.ask("GET", f"{RECORD}b")).json() == value(4000)
    await service.idle()
    assert service.metric("tableside_in_flight", what="bytes") == 0


async def test_bytes_without_a_declared_length_count_on_arrival(service: Served) -> None:
    async with connected(service, 2) as [slow, other]:
        slow.send("PUT", RECORD, None, content_length="8000")
        await until_under_way(service, (1, 0, 8000))
        send_chunked(other, 4000)
        check_shed(await other.answer())
        assert service.under_way == (1, 0, 8000)
        send_chunked(other, 1500)
        assert (await other.answer()).status == 204
        slow.abort()
        await service.idle()
        send_chunked(other, 4000)
        assert (await other.answer()).status == 204


async def test_the_decompressed_rows_of_an_arrow_batch_are_in_flight(service: Served) -> None:
    service.store.takes_s = lambda operations: 0.5
    values = pa.array(['{"a":"%s"}' % ("x" * 4000)] * 2).dictionary_encode()
    body = stream({"key": ["a", "b"], "value": values}, "zstd")
    assert len(body) < 1000
    async with connected(service, 2) as [large, other]:
        large.send("POST", f"{BATCH}?op=put", body, content_type=ARROW)
        await service.called()
        assert service.under_way[2] > 8000
        check_shed(await other.ask("POST", f"{BATCH}?op=put", body, content_type=ARROW))
        assert service.metric("tableside_shed_total", reason="bytes") == 1
        assert len(service.store.calls) == 1
        assert (await large.answer()).status == 200
    await service.idle()


async def test_a_rejected_client_that_expects_100_continue_is_disconnected(service: Served) -> None:
    """Otherwise the service could not know whether the next bytes are the body."""
    async with connected(service, 2) as [slow, other]:
        slow.send("PUT", RECORD, None, content_length="8000")
        await until_under_way(service, (1, 0, 8000))
        other.send("PUT", RECORD, None, content_length="4000", expect="100-continue")
        answer = await other.answer()
        check_shed(answer)
        assert answer.last
        assert await other.reader.read() == b""


async def test_slow_bodies_occupy_no_slot(service: Served) -> None:
    async with connected(service, 7) as [*slow, caller]:
        for number, one in enumerate(slow):
            one.send("PUT", f"{RECORD}{number}", None, content_length="2000")
            one.writer.write(b" ")
            if number % 3 == 2:
                await until_under_way(service, (0, 0, number + 1))
        assert (await caller.ask("PUT", RECORD, value(4000))).status == 204
        slow[0].writer.write(b'{"a":"%b"}' % (b"y" * 1991))
        assert (await slow[0].answer()).status == 204
        service.store.takes_s = lambda operations: 0.5
        for one in slow[1:]:
            one.writer.write(b'{"a":"%b"}' % (b"y" * 1991))
        statuses = [(await one.answer()).status for one in slow[1:]]
        assert sorted(statuses) == [204, 204, 204, 503, 503], "complete, they count again"
    await service.idle()


async def test_a_declared_length_above_the_limit_reserves_no_bytes() -> None:
    async with served(bytes_in_flight_max=2**27, drain_s=0) as service, connected(service, 1) as [caller]:
        caller.send("PUT", RECORD, None, content_length=str(2**40))
        assert (await caller.answer()).status == 413
        await service.idle()


async def test_under_overload_every_request_is_answered_and_all_is_released(full: bool) -> None:
    """Far more clients than `in_flight_max` send requests for a second, or for ten seconds in a full run."""
    async with served(in_flight_max=8, drain_s=0) as service:
        service.store.takes_s = lambda operations: 0.002
        async with connected(service, 64) as callers:
            until = asyncio.get_running_loop().time() + (10 if full else 1)
            statuses = await asyncio.gather(*(insist(caller, number, until) for number, caller in enumerate(callers)))
            await service.idle()
            assert {200, 503} <= set().union(*statuses) <= {200, 204, 503}
            service.store.takes_s = lambda operations: 0
            for number, caller in enumerate(callers):
                written = 204 in statuses[number]
                answer = await caller.ask("GET", f"{RECORD}{number}")
                assert (answer.status, answer.json().get("number")) == ((200, number) if written else (404, None))
        assert service.metric("tableside_shed_total", reason="requests") > 0


async def insist(caller: Connection, number: int, until: float) -> set[int]:
    """Put a record, then send two batches of gets, and more until the time has passed. Return the statuses."""
    statuses: list[int] = []
    answer = await caller.ask("PUT", f"{RECORD}{number}", {"number": number})
    while len(statuses) < 2 or asyncio.get_running_loop().time() < until:
        statuses.append(answer.status)
        if answer.status == 503:
            check_shed(answer)
        answer = await caller.ask("POST", BATCH, gets(10))
    return {*statuses, answer.status}
