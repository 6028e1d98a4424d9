"""Every event of a topic counts once, although processes of all kinds are killed in between.

Streams of one program count the same events, each in a separate table: in two stores, or daily in four, and in one of
them again without tokens. A normal run has enough events and kills to kill every kind of process at least once. A full
run has more of each. `TABLESIDE_SOAK_SEED` repeats the same kills.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from servers.kafka import spark_kafka_jars
from spark_client.disturbance import Disturbed
from spark_client.driver_process import Checkpoint, Notes
from spark_client.exactly_once_job import Job
from spark_client.sessions import stored
from support.kafka_topics import Received, create_topic, send
from support.kinds import kind
from support.restarted_service import RestartedService

pytestmark = [pytest.mark.daily, pytest.mark.jvm, pytest.mark.filterwarnings("ignore::ResourceWarning")]

MICRO_BATCHES, MICRO_BATCHES_FULL = 6, 14
EVENTS_OF_A_BATCH = 600
TARGETS = ["service", "executor", "python worker", "driver"]
TARGETS_FULL = [*TARGETS, "python worker", "driver", "service", "driver", "python worker", "driver"]
ROUGH = 0.2
"""The share of task attempts that fail after they have sent. Half as many are delayed before that."""

STORES = ("rocksdb", "redis")
MORE_STORES = ("postgres", "dynamodb")
EVERY_STORE = [*STORES, *(pytest.param(store, marks=pytest.mark.daily) for store in MORE_STORES)]
WITHOUT_TOKENS = "without_tokens"
"""The table of the additional stream, in the first of the stores."""

TOPIC_PARTITIONS, KEYS = 4, 300
Counts = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Trial:
    """The results of the disturbed streams: the kills, and the content of the tables."""

    events: int
    targets: list[str]
    disturbed: Disturbed
    expected: Counts
    counted: dict[str, Counts]

    def counts(self, table: str) -> int:
        """Return the number of events that a table counted."""
        return sum(record["count"] for record in self.counted[table].values())


@pytest.fixture(scope="module")
def trial(
    full: bool, kafka_address: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trial]:
    """Run every stream to its end, each with a separate table, while processes are killed."""
    directory = tmp_path_factory.mktemp("exactly-once")
    micro_batches, targets = (MICRO_BATCHES_FULL, TARGETS_FULL) if full else (MICRO_BATCHES, TARGETS)
    seed = int(os.environ.get("TABLESIDE_SOAK_SEED") or random.randrange(10**6))
    print(f"\nseed {seed}", flush=True)
    events = drawn_events(micro_batches * EVENTS_OF_A_BATCH)
    stores = STORES + MORE_STORES if request.config.getoption("daily") else STORES
    kinds = {store: kind(store, request, directory) for store in stores}
    stores_of_tables = {**{store: store for store in stores}, WITHOUT_TOKENS: STORES[0]}
    tables = {
        table: {**kinds[store].configuration()["tables"]["t"], "store": store}
        for table, store in stores_of_tables.items()
    }
    config = directory / "tableside.yaml"
    config.write_text(json.dumps({"stores": {name: used.store for name, used in kinds.items()}, "tables": tables}))
    environment = {name: each for used in kinds.values() for name, each in used.environment.items()}
    with RestartedService(directory / "service", config, environment) as service:
        job = Job(
            run=0,
            seed=seed,
            rough=ROUGH,
            url=service.url,
            kafka=kafka_address,
            topic=filled_topic(kafka_address, events),
            offsets_max=EVENTS_OF_A_BATCH,
            checkpoints={table: str(directory / "checkpoints" / table) for table in tables},
            without_tokens=WITHOUT_TOKENS,
            notes=str(directory / "notes"),
            directory=str(directory),
            jars=list(map(str, spark_kafka_jars())),
        )
        disturbed = run_disturbed(targets, micro_batches, job, service)
        counted = {table: counts_in(service, table) for table in tables}
        yield Trial(len(events), targets, disturbed, counts_of(events), counted)


def drawn_events(count: int) -> list[dict[str, Any]]:
    chance = random.Random(11)
    return [
        {"k": f"k{chance.randrange(KEYS)}", "n": chance.randrange(3_000), "to": f"t{chance.randrange(100)}"}
        for _ in range(count)
    ]


def filled_topic(address: str, events: list[dict[str, Any]]) -> str:
    topic = create_topic(address, TOPIC_PARTITIONS)
    messages = (json.dumps(event).encode() for event in events)
    send(address, topic, (Received(at % TOPIC_PARTITIONS, None, message) for at, message in enumerate(messages)))
    return topic


def run_disturbed(targets: list[str], micro_batches: int, job: Job, service: RestartedService) -> Disturbed:
    """Run the streams to their end. All random numbers depend only on the seed."""

    def argument(run: int, rough: bool) -> str:
        directory = str(Path(job.directory) / f"run-{run}")
        return json.dumps(asdict(replace(job, run=run, rough=job.rough if rough else 0.0, directory=directory)))

    checkpoints = {table: Checkpoint(Path(path)) for table, path in job.checkpoints.items()}
    notes, dice = Notes(Path(job.notes)), random.Random(job.seed)
    disturbed = Disturbed(argument, Path(job.directory), service, notes, checkpoints, dice)
    disturbed.run(targets, micro_batches)
    return disturbed


def counts_of(events: list[dict[str, Any]]) -> Counts:
    """Return the records in which every event counts once."""
    found: Counts = {}
    for event in events:
        record = found.setdefault(event["k"], {"count": 0, "sum": 0, "max": 0, "to": []})
        record["count"] += 1
        record["sum"] += event["n"]
        record["max"] = max(record["max"], event["n"])
        record["to"] = sorted({*record["to"], event["to"]})
    return found


def counts_in(service: RestartedService, table: str) -> Counts:
    """Return the records of a table, with sorted sets."""
    return {key: {**record, "to": sorted(record["to"])} for key, record in stored(service, table).items()}


def test_every_kind_of_process_was_killed_and_tasks_failed_after_sending(trial: Trial) -> None:
    dealt = trial.disturbed.dealt
    assert all(dealt[target] == count for target, count in Counter(trial.targets).items())
    failed = {note["table"] for note in trial.disturbed.notes.all() if note["what"] == "failed"}
    assert failed == trial.counted.keys()


@pytest.mark.parametrize("store", EVERY_STORE)
def test_every_event_counts_once_despite_kills(trial: Trial, store: str) -> None:
    assert trial.counts(store) == trial.events
    assert trial.counted[store] == trial.expected


def test_without_tokens_the_same_counts_some_events_again(trial: Trial) -> None:
    assert trial.counts(WITHOUT_TOKENS) > trial.events
    for key, record in trial.counted[WITHOUT_TOKENS].items():
        assert record["count"] >= trial.expected[key]["count"]
        assert record["to"] == trial.expected[key]["to"]
