"""The program that the exactly-once test runs and kills: streams of events from Kafka, counted per key.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkConf, SparkContext, TaskContext
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

EVENT = "k string, n long, to string"
NOTHING_YET = {"count": 0, "sum": 0, "to": []}
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


MASTER = "127.0.0.1"
WORKERS = ("127.0.0.2", "127.0.0.3")
CORES, MEMORY_MB, ANY_PORT = 1, 1024, 0


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
    checkpoints: dict[str, str]
    """The checkpoint of each stream, by the name of its table."""
    without_tokens: str
    """The table of the stream that writes without tokens."""
    notes: str
    directory: str
    jars: list[str]


@dataclass(frozen=True)
class Noting:
    """Appends events to a file, from any number of processes. Each line contains the number of the run."""

    path: str
    run: int

    def __call__(self, what: str, **facts: int | str) -> None:
        """Append one line atomically."""
        with Path(self.path).open("ab", buffering=0) as file:
            file.write(json.dumps({"run": self.run, "what": what, **facts}).encode() + b"\n")


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
        facts: dict[str, int | str] = {**at, "table": self.sending.spec.table}
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


def counting(spark: SparkSession, job: Job, table: Table) -> StreamWrite:
    """Return a stream that counts every event once, or at least once, in the record of its key."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", job.kafka)
    source = source.option("subscribe", job.topic).option("startingOffsets", "earliest")
    loaded = source.option("maxOffsetsPerTrigger", job.offsets_max).load()
    events = loaded.select(F.from_json(col("value").cast("string"), EVENT).alias("event")).select("event.*")
    update = {"$inc": {"count": lit(1), "sum": col("n")}, "$max": {"max": col("n")}, "$addToSet": {"to": col("to")}}
    at_least_once = table.name == job.without_tokens
    counted = table.update(events, "k", update, default=NOTHING_YET, at_least_once=at_least_once)
    assert isinstance(counted, StreamWrite)
    return counted


def main(job: Job) -> None:
    """Count all available events, until all queries have ended or one has failed."""
    noting = Noting(job.notes, job.run)
    writes.WriteTask = faulty(job, noting)  # type: ignore[assignment,attr-defined]
    set_environment()
    spark = two_hosts_session(settings(job), Path(job.directory))
    queries: list[StreamingQuery] = []
    for name, checkpoint in job.checkpoints.items():
        write = counting(spark, job, Table(name, job.url, retries=PATIENT))
        queries.append(write.start(checkpoint, availableNow=True))
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


def two_hosts_session(settings: dict[str, str], directory: Path) -> SparkSession:
    """Start a session on a cluster of two hosts inside the driver's JVM, since speculation needs two hosts.

    `local-cluster[2,1,1024]` differs only in the names of its workers, which all have the same host, so that it never
    speculates. The executors are separate processes in the driver's kernel session, with their files in the directory.
    """
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    SparkContext._ensure_initialized(conf=conf)
    builder = SparkSession.builder.master(started_cluster(SparkContext._jvm, settings, directory))
    for name, setting in settings.items():
        builder = builder.config(name, setting)
    return builder.getOrCreate()


def started_cluster(jvm: Any, settings: dict[str, str], directory: Path) -> str:
    """Start a master and its workers, and return the address of the master."""
    conf = jvm.org.apache.spark.SparkConf(False)
    for name, setting in settings.items():
        conf.set(name, setting)
    deploy, option = jvm.org.apache.spark.deploy, jvm.scala.Option
    port = deploy.master.Master.startRpcEnvAndEndpoint(MASTER, ANY_PORT, ANY_PORT, conf)._1().address().port()
    masters = SparkContext._gateway.new_array(jvm.java.lang.String, 1)  # type: ignore[union-attr]
    masters[0] = f"spark://{MASTER}:{port}"
    for number, host in enumerate(WORKERS):
        place = (str(directory), option.apply(number), conf, option.empty())
        deploy.worker.Worker.startRpcEnvAndEndpoint(host, ANY_PORT, ANY_PORT, CORES, MEMORY_MB, masters, *place)
    return str(masters[0])


def end_with_parent() -> None:
    """End this process when the test process ends, since that closes the other end of standard input."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    end_with_parent()
    main(Job(**json.loads(sys.argv[1])))
