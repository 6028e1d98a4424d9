"""Keys are refreshed in the background, and tokens that name unknown keys cause few requests to the issuer."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from unittest.mock import patch

import pytest
from prometheus_client import CollectorRegistry

from support.issuing import SigningKey
from support.virtual_time import in_virtual_time, now
from tableside.auth.key_source import (
    FETCH_INTERVAL_MIN_S,
    RETRY_MAX_S,
    STALE_MAX_S,
    WAIT_MAX_S,
    WAITERS_MAX,
    IssuerMetrics,
    KeySource,
)
from tableside.auth.keys import FetchFailed, KeysLocation, PublicKeySet, parse_key_set
from tableside.core import StoreUnavailable
from tableside.core.errors import Overloaded

REFRESH_S = 300.0


def keys(*kids: str) -> PublicKeySet:
    return parse_key_set(json.dumps({"keys": [SigningKey(kid).jwk() for kid in kids]}).encode())


FIRST, SECOND = keys("first"), keys("first", "second")


class FakeIssuer:
    """An issuer in this process: its response, the times of its requests, and a key source that fetches from it."""

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.answer: PublicKeySet | Exception = FIRST
        self.takes_s = 0.0
        self.at: list[float] = []
        self.changes = 0
        self.registry = CollectorRegistry()
        metrics = IssuerMetrics(self.registry)
        self.source = KeySource(KeysLocation("https://id.example"), REFRESH_S, self.changed, metrics)

    def changed(self) -> None:
        self.changes += 1

    async def fetch(self, place: KeysLocation) -> PublicKeySet:
        self.at.append(now())
        await asyncio.sleep(self.takes_s)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"issuer": "https://id.example", **labels})

    async def waiting(self, count: int) -> list[object]:
        """Wait for a refresh in this many concurrent tasks, and return their results or exceptions."""
        return await asyncio.gather(*(self.source.refreshed() for _ in range(count)), return_exceptions=True)


@asynccontextmanager
async def running() -> AsyncIterator[FakeIssuer]:
    asked = FakeIssuer()
    with patch("tableside.auth.key_source.fetch_keys", asked.fetch):
        async with asyncio.TaskGroup() as group:
            asked.task = group.create_task(asked.source.run())
            yield asked
            asked.task.cancel()


def gaps(times: Sequence[float]) -> list[float]:
    return [round(later - earlier, 3) for earlier, later in pairwise(times)]


@in_virtual_time
async def test_keys_are_fetched_immediately_and_then_periodically() -> None:
    async with running() as asked:
        await asyncio.sleep(1)
        assert asked.source.keys is FIRST
        await asyncio.sleep(3 * REFRESH_S)
        assert gaps(asked.at) == [REFRESH_S] * 3
        assert asked.metric("tableside_issuer_fetches_total", outcome="fetched") == 4
        assert asked.metric("tableside_issuer_fetches_total", outcome="failed") == 0
        assert asked.metric("tableside_issuer_keys") == 1


@in_virtual_time
async def test_a_request_for_a_new_key_waits_only_for_the_next_fetch() -> None:
    async with running() as asked:
        await asyncio.sleep(100)
        asked.answer, asked.takes_s = SECOND, 0.5
        began = now()
        assert await asked.waiting(10) == [None] * 10
        assert (now() - began, asked.source.keys) == (0.5, SECOND)
        assert len(asked.at) == 2
        await asked.waiting(1)
        assert gaps(asked.at)[-1] == FETCH_INTERVAL_MIN_S


@in_virtual_time
async def test_a_flood_of_unknown_keys_causes_a_fetch_every_few_seconds() -> None:
    async with running() as asked:
        await asyncio.sleep(1)
        asked.takes_s = 0.1
        until = now() + 60
        while now() < until:
            for told in await asked.waiting(WAITERS_MAX + 100):
                assert told is None or isinstance(told, Overloaded)
        assert len(asked.at) <= 60 / FETCH_INTERVAL_MIN_S + 2
        assert min(gaps(asked.at)) >= FETCH_INTERVAL_MIN_S


@in_virtual_time
async def test_waiting_requests_are_limited_and_others_are_rejected_immediately() -> None:
    async with running() as asked:
        await asyncio.sleep(100)
        asked.takes_s = 3
        told: list[tuple[float, float | None]] = []

        async def one() -> None:
            try:
                await asked.source.refreshed()
            except Overloaded as overloaded:
                told.append((now(), overloaded.retry_after_s))

        began = now()
        await asyncio.gather(*(one() for _ in range(WAITERS_MAX + 7)))
        assert told == [(began, FETCH_INTERVAL_MIN_S)] * 7
        assert now() == began + 3
        assert await asked.waiting(WAITERS_MAX) == [None] * WAITERS_MAX


@in_virtual_time
async def test_an_issuer_that_was_never_reached_fails_immediately_and_is_retried_soon() -> None:
    async with running() as asked:
        asked.answer = FetchFailed("away")
        await asyncio.sleep(1)
        began = now()
        [told] = await asked.waiting(1)
        assert isinstance(told, StoreUnavailable)
        assert (told.code, told.retriable, told.retry_after_s) == ("store_unavailable", True, FETCH_INTERVAL_MIN_S)
        assert now() == began
        assert asked.source.keys is None
        assert asked.metric("tableside_issuer_keys") == 0
        assert asked.metric("tableside_issuer_fetches_total", outcome="failed") == 1
        asked.answer = FIRST
        await asyncio.sleep(FETCH_INTERVAL_MIN_S)
        assert asked.source.keys is FIRST


@in_virtual_time
async def test_keys_of_an_unreachable_issuer_expire_eventually(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as asked:
        await asyncio.sleep(1)
        asked.answer = FetchFailed("away")
        await asyncio.sleep(STALE_MAX_S - 10)
        assert (asked.source.keys, asked.changes) == (FIRST, 1)
        await asyncio.sleep(RETRY_MAX_S + 20)
        assert (asked.source.keys, asked.changes) == (None, 2)
        assert asked.metric("tableside_issuer_keys") == 0
        assert "too old" in caplog.text
        asked.answer = FIRST
        await asyncio.sleep(RETRY_MAX_S)
        assert (asked.source.keys, asked.changes) == (FIRST, 3)


@in_virtual_time
async def test_waiting_for_keys_has_a_timeout() -> None:
    async with running() as asked:
        await asyncio.sleep(100)
        asked.takes_s = 1000
        began = now()
        [told] = await asked.waiting(1)
        assert isinstance(told, StoreUnavailable)
        assert now() - began == WAIT_MAX_S


@in_virtual_time
async def test_a_cancelled_request_frees_its_slot() -> None:
    async with running() as asked:
        await asyncio.sleep(100)
        asked.takes_s = 1000
        tasks = [asyncio.create_task(asked.source.refreshed()) for _ in range(WAITERS_MAX)]
        await asyncio.sleep(0)
        assert [type(told) for told in await asked.waiting(1)] == [Overloaded]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(told) for told in await asked.waiting(1)] == [StoreUnavailable]


@in_virtual_time
async def test_an_exception_in_a_fetch_is_logged_and_fetching_continues(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as asked:
        asked.answer = ZeroDivisionError("a fault")
        await asyncio.sleep(1)
        asked.answer = FIRST
        await asyncio.sleep(FETCH_INTERVAL_MIN_S)
        assert asked.source.keys is FIRST
        assert "ZeroDivisionError" in caplog.text


@in_virtual_time
async def test_waiting_requests_end_when_the_source_closes() -> None:
    """As after the issuer is removed from the configuration: the caller is then looked up at the other issuers."""
    async with running() as asked:
        await asyncio.sleep(100)
        asked.takes_s = 1000
        waiting = asyncio.create_task(asked.waiting(2))
        await asyncio.sleep(1)
        began = now()
        asked.task.cancel()
        assert await waiting == [None, None]
        assert now() == began
        assert await asked.waiting(1) == [None]
        assert now() == began
