"""The program that the test of counting once runs, and kills: streams of flights from Kafka, counted per aircraft.

Each counts the same topic in a table of its own.
Tasks fail and dawdle on purpose after they have sent. What tasks do and what has been counted is noted in a file, one
JSON object a line, which outlives this process. What executors run is here, in the main module, since that travels.
"""

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
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
    "spark.sql.adaptive.coalescePartitions.enabled": "false",  # several tasks that send, side by side
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",  # for so few rows, compiling takes longer than it saves
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
    """Where one stream counts: its table, where it keeps how far it is, and whether it does without tokens."""

    table: str
    checkpoint: str
    at_least_once: bool


@dataclass(frozen=True)
class Job:
    """What one run of the program is told; `rough` is the share of task attempts that fail; half as many dawdle.

    Unless it is 0, the first attempt at the first task of each micro-batch always fails.
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
        """The job as one argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        """The job that an argument says."""
        given = json.loads(text)
        streams = tuple(Stream(**each) for each in given["streams"])
        return cls(**{**given, "streams": streams, "jars": tuple(given["jars"])})


@dataclass(frozen=True)
class Noting:
    """Appends what happens to a file, also from several processes; each line says in which run it was."""

    path: str
    run: int

    def __call__(self, what: str, **facts: int | str) -> None:
        """Append one line, whole."""
        line = json.dumps({"run": self.run, "what": what, **facts}) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


@dataclass(frozen=True)
class Faulty:
    """`WriteTask`, some attempts of which dawdle, and some fail, when all has been sent."""

    sending: WriteTask
    noting: Noting
    seed: int
    share: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send every operation, then draw lots."""
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
        if dice.random() < self.share or (self.share and at["partition"] == at["attempt"] == 0):
            self.noting("failed", **facts)
            raise RuntimeError("failed on purpose, after sending")
        self.noting("ended", **facts)


def faulty(job: Job, noting: Noting) -> Callable[..., Faulty]:
    """Return what replaces `WriteTask` in this process."""
    return lambda *arguments, **named: Faulty(WriteTask(*arguments, **named), noting, job.seed, job.rough)


def counting(spark: SparkSession, job: Job, table: Table, *, at_least_once: bool) -> StreamWrite:
    """Every event counts once in the record of its aircraft, or at least once."""
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
    """Count what there is to read, and note after each micro-batch what became of the rows so far."""
    from spark_client.two_hosts import two_hosts_session

    noting = Noting(job.notes, job.run)
    writes.WriteTask = faulty(job, noting)  # type: ignore[assignment,attr-defined]
    set_environment()
    spark = two_hosts_session(settings(job), Path(job.directory))
    queries: list[tuple[StreamingQuery, Table]] = []
    for stream in job.streams:
        table = Table(stream.table, job.url, retries=PATIENT)
        write = counting(spark, job, table, at_least_once=stream.at_least_once)
        queries.append((write.start(stream.checkpoint, availableNow=True), table))
    follow(queries, noting)
    noting("finished")
    spark.stop()


def settings(job: Job) -> dict[str, str]:
    """What Spark is told: executors share the disk, so the connector's jars are where they are."""
    jars = ":".join(job.jars)
    places = {"spark.local.dir": job.directory, "spark.sql.warehouse.dir": f"{job.directory}/warehouse"}
    classes = {"spark.driver.extraClassPath": jars, "spark.executor.extraClassPath": jars}
    return {**CALM, **(ROUGH if job.rough else {}), **places, **classes}


def follow(queries: Sequence[tuple[StreamingQuery, Table]], noting: Noting) -> None:
    """Note what has been counted whenever that has changed, until all queries have ended or one has failed."""
    told = dict.fromkeys((table.name for _, table in queries), 0)
    going = True
    while going:
        time.sleep(ASK_INTERVAL_S)
        going = all(query.isActive or query.exception() is None for query, _ in queries)
        going = going and any(query.isActive for query, _ in queries)
        for _, table in queries:
            stats = table.stats
            if stats.writes != told[table.name]:
                told[table.name] = stats.writes
                counts = {"applied": stats.applied, "replayed": stats.replayed, "retried": stats.retried}
                noting("counted", table=table.name, writes=stats.writes, **counts)
    for query, _ in queries:
        query.awaitTermination()  # raises what it ended with


def end_with_parent() -> None:
    """End when the test does, however it ends: it holds the other end of our standard input."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    end_with_parent()
    main(Job.of(sys.argv[1]))
