"""A caller that floods the service is limited across tables, and the requests of other callers succeed."""

import asyncio
import hashlib
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from support.raw_http import Answer
from support.running import running
from support.served import BATCH, RECORD, connected, served
from support.waiting import eventually, until
from tableside.auth import AuthSettings
from tableside.http.request_context import RequestContext
from tableside.http.request_observers import CALLERS_MAX, CallerMetrics

NAMES = ("loud", "quiet")
AUTH: dict[str, Any] = {
    "tokens": [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "read": ["*"], "write": ["*"]}
        for name in NAMES
    ]
}
LOUD, QUIET = ({"authorization": f"Bearer {name}"} for name in NAMES)

LIMITS: dict[str, Any] = {
    "in_flight_max": 8,
    "operations_in_flight_max": 40,
    "bytes_in_flight_max": 8000,
    "caller_share_max": 0.5,
}
TEN: Any = {"operations": [{"op": "get", "key": f"{number}"} for number in range(10)]}


@pytest.mark.parametrize(
    ("method", "path", "body", "fitting", "what"),
    [
        ("GET", RECORD, None, 4, "requests"),
        ("POST", BATCH, TEN, 2, "operations"),
        ("PUT", RECORD, {"a": "x" * 1900}, 2, "bytes"),
    ],
)
async def test_one_caller_leaves_a_part_of_each_in_flight_limit(
    method: str, path: str, body: object, fitting: int, what: str
) -> None:
    async with served(auth=AUTH, **LIMITS) as service, connected(service, 6) as [quiet, refused, *waiting]:
        gate = service.store.gate = asyncio.Event()
        for one in waiting[:fitting]:
            one.send(method, path, body, **LOUD)
        await service.called(fitting)
        check_refused(await refused.ask(method, path, body, **LOUD), 503, "overloaded", "caller_share_max", what)
        assert service.metric("tableside_shed_total", reason=f"caller_{what}") == 1
        quiet.send(method, path, body, **QUIET)
        await service.called(fitting + 1)
        gate.set()
        answers = [await one.answer() for one in (quiet, *waiting[:fitting])]
        assert {answer.status for answer in answers} <= {200, 204, 404}
        assert (await refused.ask(method, path, body, **LOUD)).status in (200, 204, 404)
        await service.idle()
        limits = service.in_flight
        assert not any(one.callers.in_flight for one in (limits.requests, limits.operations, limits.bytes))


def check_refused(answer: Answer | httpx.Response, status: int, code: str, *words: str) -> None:
    problem = answer.json()
    assert (problem["status"], problem["code"], problem["applied"]) == (status, code, "no")
    assert int(answer.headers["retry-after"]) >= 1
    assert all(word in problem["detail"] for word in ("caller 'loud'", *words)), problem


async def test_a_callers_rate_counts_the_operations_of_batches_in_all_tables() -> None:
    async with served(auth=AUTH, others=["u"], caller_rate_per_s=12) as service, connected(service, 1) as [caller]:
        soon = {**LOUD, "prefer": "wait=0.3"}
        assert (await caller.ask("POST", BATCH, TEN, **soon)).status == 200
        began = time.monotonic()
        answer = await caller.ask("POST", "/v1/tables/u/batch", TEN, **soon)
        statuses = [result["status"] for result in answer.json()["results"]]
        assert 2 <= statuses.count(404) <= 2 + 12 * (time.monotonic() - began) + 1
        assert statuses == sorted(statuses), "the first operations of a batch pass"
        assert statuses[-1] == 429
        refused = await caller.ask("GET", RECORD, None, **{**LOUD, "prefer": "wait=0.001"})
        check_refused(refused, 429, "throttled", "limits.caller_rate_per_s", "12 operations per second")
        for _ in range(5):
            assert (await caller.ask("POST", BATCH, TEN, **{**QUIET, "prefer": "wait=30"})).status == 200
        throttled = service.metric("tableside_caller_rejected_total", caller="loud", code="throttled")
        assert throttled == statuses.count(429) + 1
        assert service.metric("tableside_caller_operations_total", caller="loud") == 21
        assert service.metric("tableside_caller_operations_total", caller="quiet") == 50


def test_callers_with_many_names_do_not_grow_the_metrics() -> None:
    registry = CollectorRegistry()
    metrics = CallerMetrics(registry, AuthSettings.model_validate(AUTH))
    for number in range(1000):
        metrics.request_ended(RequestContext("r", "GET", caller=f"issuer#{number}", code="overloaded"))
    metrics.request_ended(RequestContext("r", "GET", caller="quiet", operations=3, failures={"throttled": 2}))
    metrics.request_ended(RequestContext("r", "GET"))
    samples = {
        (sample.name, *sample.labels.values()): sample.value for each in registry.collect() for sample in each.samples
    }
    assert len(samples) == 3 * (CALLERS_MAX + 1)
    assert samples["tableside_caller_rejected_total", "other", "overloaded"] == 1000 - CALLERS_MAX + len(NAMES)
    assert samples["tableside_caller_operations_total", "quiet"] == 3
    assert samples["tableside_caller_rejected_total", "quiet", "throttled"] == 2


TABLES = ("a", "b", "c")
FLOOD = 40
"""Connections of the loud caller, twice as many as the service serves at a time."""

QUIET_DELAY_MAX_S = 3.0
"""The time for a request of the quiet caller on a busy machine. Without limits it would wait, or be rejected."""


def write(file: Path, **limits: float) -> None:
    tables = {name: {"store": "s", "deadline_s": 20} for name in TABLES}
    document = {"stores": {"s": {"kind": "memory"}}, "tables": tables, "auth": AUTH, "limits": limits}
    file.write_text(json.dumps(document))


async def flood(client: httpx.AsyncClient, seen: Counter[int], number: int) -> None:
    batch = {"operations": [{"op": "put", "key": f"{number}-{key}", "value": {}} for key in range(10)]}
    while True:
        answer = await client.post(f"/{TABLES[number % 3]}/batch", json=batch)
        results = answer.json().get("results", [])
        seen.update([result["status"] for result in results] or [answer.status_code])


async def test_a_flood_of_one_caller_does_not_affect_another_until_the_limits_are_removed(tmp_path: Path) -> None:
    file = tmp_path / "tableside.yaml"
    write(file, in_flight_max=20, caller_share_max=0.5, caller_rate_per_s=50)
    with running(tmp_path, file) as service:
        base, limits = f"{service.url}/v1/tables", httpx.Limits(max_connections=FLOOD)
        async with (
            httpx.AsyncClient(base_url=base, timeout=90, limits=limits, headers=LOUD) as loud,
            httpx.AsyncClient(base_url=base, timeout=90, headers=QUIET) as quiet,
        ):
            seen = Counter[int]()
            floods = [asyncio.create_task(flood(loud, seen, number)) for number in range(FLOOD)]
            await eventually(lambda: seen[503] > FLOOD)
            for number in range(50):
                began = time.monotonic()
                answer = await quiet.put(f"/{TABLES[number % 3]}/records/q", json={})
                assert (answer.status_code, time.monotonic() - began < QUIET_DELAY_MAX_S) == (204, True)
            write(file, in_flight_max=20)
            await asyncio.to_thread(until, lambda: "is applied" in service.log.read_text())
            passed, began = seen[204], time.monotonic()
            await eventually(lambda: seen[204] > passed + 1000)
            assert time.monotonic() - began < 1000 / 50, "faster than the former limit"
            for task in floods:
                task.cancel()
            await asyncio.gather(*floods, return_exceptions=True)
            text = (await quiet.get(service.url + "/metrics")).text
    assert 'tableside_caller_rejected_total{caller="quiet",code="overloaded"} 0.0' in text
    assert 'tableside_caller_rejected_total{caller="quiet",code="throttled"} 0.0' in text
