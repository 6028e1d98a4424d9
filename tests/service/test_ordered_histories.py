"""Every key has its newest state, although its events arrive shuffled and repeatedly while services are killed.

A backfill and a stream send the same events at the same time. The backfill sends them shuffled, in large batches, the
stream nearly in sequence, in small ones. Both send a batch again until every write in it is acknowledged.
`TABLESIDE_ORDERED_EVENTS` sets another number of events, such as 1000000, and `TABLESIDE_SOAK_SEED` repeats the same.
"""

import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from contract import same
from support.kinds import REMOTE, kind
from support.naive_orders import Past, assignments, value_after
from support.restarted_service import RestartedService
from support.waiting import WAIT_MAX_S

pytestmark = pytest.mark.server

SEED = int(os.environ.get("TABLESIDE_SOAK_SEED") or random.randrange(10**6))
EVENTS = os.environ.get("TABLESIDE_ORDERED_EVENTS")
FULL = {"rocksdb": 20_000, "redis": 20_000}
USUAL = 3_000
EVENTS_PER_KEY = 100
FIRST_ORDER = 2**62
"""Orders near this one differ although they are the same double."""

KILLS = 3
PAUSE_S = 0.05


@dataclass(frozen=True)
class Event:
    key: str
    past: Past
    operation: dict[str, Any]


def events(count: int, dice: random.Random) -> list[Event]:
    """Return events in the sequence of their orders."""
    keys = max(20, count // EVENTS_PER_KEY)
    return [event(f"k{dice.randrange(keys):05}", FIRST_ORDER + number, dice) for number in range(count)]


def event(key: str, order: int, dice: random.Random) -> Event:
    kind = dice.choices(["put", "update", "delete"], [4, 5, 1])[0]
    members = {name: order for name in "abc" if dice.random() < 0.5}
    if kind == "delete":
        return Event(key, Past(kind, order), {"op": kind})
    if kind == "put":
        return Event(key, Past(kind, order, members), {"op": kind, "value": members})
    removed = dice.choice("abc")
    document = dice.choice([members, {**members, removed: None}, {"$set": members}, {"$unset": [removed]}])
    return Event(key, Past(kind, order, assignments(document)), {"op": kind, "update": document})


def newest(sent: Sequence[Event]) -> dict[str, Any]:
    """Return the value of each key after its events in sequence, None for an absent record."""
    histories = defaultdict[str, list[Past]](list)
    for one in sent:
        histories[one.key].append(one.past)
    return {key: value_after(history) for key, history in histories.items()}


@dataclass
class Sender:
    """Sends batches to the services in turn until every write is acknowledged, and counts what happened."""

    urls: Sequence[str]
    acknowledged: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def send(self, batches: Sequence[Sequence[Event]]) -> None:
        with ExitStack() as stack:
            clients = [stack.enter_context(httpx.Client(base_url=url, timeout=120)) for url in self.urls]
            for number, batch in enumerate(batches):
                left, until = list(batch), time.monotonic() + 2 * WAIT_MAX_S
                while left:
                    assert time.monotonic() < until, f"{len(left)} writes are not acknowledged: {self.counts}"
                    left = self._unacknowledged(clients[number % len(clients)], left)
                self.acknowledged += len(batch)

    def _unacknowledged(self, client: httpx.Client, batch: list[Event]) -> list[Event]:
        try:
            results = self._results(client, batch)
        except httpx.TransportError:
            results = []
        if not results:
            self.counts["failed"] += 1
            time.sleep(PAUSE_S)
            return batch
        self.counts["superseded"] += sum(bool(result.get("superseded")) for result in results)
        left = [one for one, result in zip(batch, results, strict=True) if result["status"] >= 400]
        problems = [result.get("error", result) for result in results if result["status"] >= 400]
        assert all(problem["retriable"] for problem in problems), problems[0]
        return left

    def _results(self, client: httpx.Client, batch: list[Event]) -> list[dict[str, Any]]:
        """Return one result per event, none if the service answers no batches at the moment."""
        operations = [{**one.operation, "key": one.key, "order": one.past.order} for one in batch]
        response = client.post("/v1/tables/t/batch", json={"operations": operations})
        if response.status_code == 503:
            return []
        assert response.status_code == 200, response.text
        found: list[dict[str, Any]] = response.json()["results"]
        return found


def batches(sent: Sequence[Event], size: int) -> list[Sequence[Event]]:
    return [sent[start : start + size] for start in range(0, len(sent), size)]


def nearly_in_sequence(sent: Sequence[Event], dice: random.Random) -> list[Event]:
    """Return the events, each at most some hundred places from its own, and some of them twice."""
    repeated = [*sent, *dice.sample(sent, len(sent) // 10)]
    return sorted(repeated, key=lambda one: (one.past.order or 0) + dice.uniform(0, 300))


@pytest.mark.parametrize(
    "store",
    [
        *("rocksdb", "redis", "postgres"),
        pytest.param("dynamodb", marks=pytest.mark.daily),
        *(pytest.param(store, marks=pytest.mark.daily) for store in ("redis-cluster", "postgres-columns")),
    ],
)
def test_every_key_has_its_newest_state_despite_kills(
    store: str, request: pytest.FixtureRequest, tmp_path: Path, full: bool
) -> None:
    print(f"\n{store}: seed {SEED}", flush=True)
    dice = random.Random(SEED)
    sent = events(int(EVENTS or (FULL.get(store, USUAL) if full else USUAL)), dice)
    used = kind(store, request, tmp_path)
    config = tmp_path / "tableside.yaml"
    config.write_text(json.dumps(used.configuration(deadline_s=60)))
    with ExitStack() as stack:
        replicas = [
            stack.enter_context(RestartedService(tmp_path / f"replica-{number}", config, used.environment))
            for number in range(2 if store in REMOTE else 1)
        ]
        urls = [replica.url for replica in replicas]
        backfill, stream = Sender(urls), Sender(urls[::-1])
        with ThreadPoolExecutor(2) as pool:
            running = [
                pool.submit(backfill.send, batches(dice.sample(sent, len(sent)), 2000)),
                pool.submit(stream.send, batches(nearly_in_sequence(sent, dice), 200)),
            ]
            kill_in_turn(replicas, lambda: (backfill.acknowledged + stream.acknowledged) / (2 * len(sent)), running)
        found = dict(records(urls[-1]))
    print(f"{len(sent)} events, {backfill.counts}, {stream.counts}")
    wanted = newest(sent)
    assert backfill.counts["superseded"] > 0
    assert stream.counts["superseded"] > 0
    assert backfill.counts["failed"] + stream.counts["failed"] > 0, "the kills disturbed nothing"
    assert {key: found.get(key) for key in wanted if not same(found.get(key), wanted[key])} == {}
    assert found.keys() == {key for key, value in wanted.items() if value is not None}


def kill_in_turn(
    replicas: Sequence[RestartedService], progress: Callable[[], float], running: Sequence[Future[None]]
) -> None:
    """Kill a replica and restart it at each third of the work. Return when all of it is done."""
    for number in range(KILLS):
        while progress() < (number + 0.5) / KILLS and not all(one.done() for one in running):
            time.sleep(PAUSE_S)
        replicas[number % len(replicas)].kill_and_restart(PAUSE_S)
    for one in running:
        one.result()


def records(url: str) -> Iterator[tuple[str, Any]]:
    with httpx.Client(base_url=url, timeout=60) as client:
        cursor: dict[str, str] | None = {}
        while cursor is not None:
            page = client.get("/v1/tables/t/records", params={"limit": "1000", **cursor}).json()
            yield from ((record["key"], record["value"]) for record in page["records"])
            cursor = None if page["cursor"] is None else {"cursor": page["cursor"]}
