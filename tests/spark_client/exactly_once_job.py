"""The program that the exactly-once test runs and kills: streams of flights from Kafka, counted per aircraft.

Each stream counts the same topic in a separate table.
Some tasks fail or delay their end on purpose after sending. A file records the tasks' events, one JSON object per line,
and outlives this process. The code of executors is in this module, since Spark ships __main__.
"""

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import (
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit
from pyspark.sql.streaming.query import StreamingQuery

from spark_client.sessions import LEAN, set_environment
from tableside_client.retries import Retries
from tableside_spark import Table
from tableside_spark.executor.write_task import WriteTask
from tableside_spark.write import job as writes
from tableside_spark.write.stream import StreamWrite

EVENT = "id long, tailnum string, distance long, air_time long, dest string, at string"
NOTHING_YET = {"flights": 0, "miles": 0, "destinations": []}
PATIENT = Retries(attempts_max=100, longest_s=1.0, total_s=60.0)
ASK_INTERVAL_S = 0.05
DAWDLE_S = 0.7

CALM = {
    **LEAN,
    "spark.executor.memory": "1g",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.master.rest.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",  # several tasks send in parallel
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",  # for so few rows, compilation takes longer than it saves
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
ROUGH = {
    "spark.task.maxFailures": "1000",
    "spark.stage.maxConsecutiveAttempts": "100",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "50ms",
}


@dataclass(frozen=True)
class Stream:
    """One stream: its table, its checkpoint, and whether it writes without tokens."""

    table: str
    checkpoint: str
    at_least_once: bool


@dataclass(frozen=True)
class Job:
    """The parameters of one run. `rough` is the share of task attempts that fail, and half as many are delayed.

    The first attempt at the first task of each micro-batch always fails.
    """

    run: int
    seed: int
    rough: float
    url: str
    kafka: str
    topic: str
    offsets_max: int
    streams: tuple[Stream, ...]
    notes: str
    directory: str
    jars: tuple[str, ...]

    def text(self) -> str:
        """Return the job as a command-line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a job from a command-line argument."""
        given = json.loads(text)
        streams = tuple(Stream(**each) for each in given["streams"])
        return cls(**{**given, "streams": streams, "jars": tuple(given["jars"])})


@dataclass(frozen=True)
class Noting:
    """Appends events to a file, from any number of processes. Each line contains the number of the run."""

    path: str
    run: int

    def __call__(self, what: str, **facts: int | str) -> None:
        """Append one line atomically."""
        line = json.dumps({"run": self.run, "what": what, **facts}) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


@dataclass(frozen=True)
class Faulty:
    """A `WriteTask` that delays some attempts, and fails others, after everything has been sent."""

    sending: WriteTask
    noting: Noting
    seed: int
    share: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send every operation, then delay or fail: at random, and always in the first attempt at the first task."""
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        at = {"batch": batch, "partition": context.partitionId(), "attempt": context.attemptNumber()}
        facts: dict[str, int | str] = {
            **at,
            "table": self.sending.spec.table,
            "stage": context.stageId(),
            "task": context.taskAttemptId(),
        }
        self.noting("begun", **facts)
        yield from self.sending(batches)
        self.noting("sent", **facts)
        dice = random.Random(f"{self.seed} {self.noting.run} {self.sending.spec.table} {at}")
        if dice.random() < self.share / 2:
            time.sleep(DAWDLE_S)
        if dice.random() < self.share or at["partition"] == at["attempt"] == 0:
            self.noting("failed", **facts)
            raise RuntimeError("failed on purpose, after sending")
        self.noting("ended", **facts)


def faulty(job: Job, noting: Noting) -> Callable[..., Faulty]:
    """Return the replacement of `WriteTask` in this process."""
    return lambda *arguments, **named: Faulty(WriteTask(*arguments, **named), noting, job.seed, job.rough)


def counting(spark: SparkSession, job: Job, table: Table, *, at_least_once: bool) -> StreamWrite:
    """Return a stream that counts every event once, or at least once, in the record of its aircraft."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", job.kafka)
    source = source.option("subscribe", job.topic).option("startingOffsets", "earliest")
    events = source.option("maxOffsetsPerTrigger", job.offsets_max).load()
    flights = events.select(F.from_json(col("value").cast("string"), EVENT).alias("event")).select("event.*")
    update = {
        "$inc": {"flights": lit(1), "miles": col("distance")},
        "$max": {"latest": col("at"), "longest_min": col("air_time")},
        "$addToSet": {"destinations": col("dest")},
    }
    counted = table.update(flights, "tailnum", update, default=NOTHING_YET, at_least_once=at_least_once)
    assert isinstance(counted, StreamWrite)
    return counted


def main(job: Job) -> None:
    """Count all available events, until all queries have ended or one has failed."""
    from spark_client.two_hosts import two_hosts_session

    noting = Noting(job.notes, job.run)
    writes.WriteTask = faulty(job, noting)  # type: ignore[assignment,attr-defined]
    set_environment()
    spark = two_hosts_session(settings(job), Path(job.directory))
    queries: list[StreamingQuery] = []
    for stream in job.streams:
        table = Table(stream.table, job.url, retries=PATIENT)
        write = counting(spark, job, table, at_least_once=stream.at_least_once)
        queries.append(write.start(stream.checkpoint, availableNow=True))
    while any(query.isActive for query in queries) and not any(query.exception() for query in queries):
        time.sleep(ASK_INTERVAL_S)
    for query in queries:
        query.awaitTermination()  # raises the failure of the query
    spark.stop()


def settings(job: Job) -> dict[str, str]:
    """Return Spark's settings. Executors share the disk, so they load the connector's jars from their own paths."""
    jars = ":".join(job.jars)
    places = {"spark.local.dir": job.directory, "spark.sql.warehouse.dir": f"{job.directory}/warehouse"}
    classes = {"spark.driver.extraClassPath": jars, "spark.executor.extraClassPath": jars}
    return {**CALM, **(ROUGH if job.rough else {}), **places, **classes}


def end_with_parent() -> None:
    """End this process when the test process ends, since that closes the other end of standard input."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    end_with_parent()
    main(Job.of(sys.argv[1]))
