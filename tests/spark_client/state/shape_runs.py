"""Runs shapes on a state store provider: in parallel, with a stop half-way, and records each micro-batch.

The input is two streams of few rows in files, one per micro-batch, that add and expire state. Most rows are on time,
some are later than any watermark allows, some occur in two files, some have no key. One file of each stream is empty.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_client.state.providers import HDFS, Settings, configured, unload
from spark_client.state.shapes import Rows, Shape

ENDS_S = 120

STREAMS = ("events", "others")
SCHEMA = "k string, n long, at timestamp"
FILES, ROWS, KEYS = 5, 12, 8
EMPTY = {"events": 2, "others": 1}
HALF = 3
"""The number of files of each stream that the queries read before their stop."""

FILE_S, LATE_S = 20, 90
"""The event time that a file covers, and the delay of its late rows."""


@dataclass(frozen=True)
class Inputs:
    """The folder with the files of both streams, and the number of the empty file of each stream."""

    folder: Path
    empty: Mapping[str, int] = field(default_factory=lambda: EMPTY)

    def give(self, first: int, end: int) -> None:
        """Write the files of these numbers. Their modification times give their order."""
        for stream in STREAMS:
            (self.folder / stream).mkdir(parents=True, exist_ok=True)
            for number in range(first, end):
                path = self.folder / stream / f"{number}.json"
                path.write_text("\n".join(json.dumps(row) for row in self._rows(stream, number)))
                os.utime(path, (number + 1, number + 1))

    def frame(self, spark: SparkSession, stream: str) -> DataFrame:
        """Return a stream with one file per micro-batch."""
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder / stream))

    def _rows(self, stream: str, number: int) -> list[dict[str, str | int | None]]:
        if number == self.empty.get(stream):
            return []
        again = _own_rows(stream, number - 1)[:2] if number else []
        return [*_own_rows(stream, number), *again]


def _own_rows(stream: str, number: int) -> list[dict[str, str | int | None]]:
    dice = random.Random(f"{stream} {number}")
    return [_row(dice, number, late=at < 2 and number > 1) for at in range(ROWS)]


def _row(dice: random.Random, number: int, *, late: bool) -> dict[str, str | int | None]:
    key = dice.randrange(KEYS + 1)
    second = 100 + number * FILE_S + dice.randrange(FILE_S) - (LATE_S if late else 0)
    at = f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
    return {"k": f"k{key}" if key < KEYS else None, "n": dice.randrange(100), "at": at}


@dataclass
class Run:
    """The results of a query: the rows of each micro-batch, and its failure if it failed."""

    batches: dict[int, Rows] = field(default_factory=dict)
    failure: str = ""
    metrics: Counter[str] = field(default_factory=Counter, compare=False)
    """The sums of the metrics of its state stores."""


Runs = Mapping[str, Run]


def _none(batch: DataFrame) -> DataFrame:
    return batch


def slow(batch: DataFrame, row_ms: int) -> DataFrame:
    """Return the same rows with a delay for each, by an expression: no worker, no shipped code."""
    return batch.where(f"coalesce(reflect('java.lang.Thread', 'sleep', {row_ms}L), 'null') = 'null'")


@dataclass(frozen=True)
class Trial:
    """Shapes that run over the same input, each with a separate checkpoint in a folder."""

    spark: SparkSession
    folder: Path
    settings: Settings
    trouble: Callable[[DataFrame], DataFrame] = _none
    """A change of each micro-batch before it is collected, in the stage that keeps the state."""
    reads: Inputs | None = None
    """The input of the shapes, if it is not in the folder."""
    more: Mapping[str, Settings] = field(default_factory=dict)
    """Additional settings of single shapes."""

    def run(self, shapes: Sequence[Shape]) -> dict[str, Run]:
        """Run shapes over all files. The JVM unloads its state half-way."""
        runs = {shape.name: Run() for shape in shapes}
        for first, end in ((0, HALF), (HALF, FILES)):
            self.files(first, end, shapes, runs)
        return runs

    def files(self, first: int, end: int, shapes: Sequence[Shape], runs: Runs) -> None:
        """Run shapes over the next files, in parallel until each ends or fails, and unload the state."""
        self.inputs.give(first, end)
        for query, run in [(self.start(shape, runs[shape.name]), runs[shape.name]) for shape in shapes]:
            _end(query, run)
        unload(self.spark)

    @property
    def inputs(self) -> Inputs:
        """The input of the shapes."""
        return self.reads or Inputs(self.folder / "inputs")

    def checkpoint(self, shape: Shape) -> Path:
        """Return the checkpoint of a query."""
        return self.folder / "checkpoints" / shape.name.replace(" ", "-")

    def start(self, shape: Shape, run: Run) -> StreamingQuery:
        """Start a shape, and record its micro-batches."""

        def note(batch: DataFrame, number: int) -> None:
            run.batches[number] = shape.taken(self.trouble(batch))

        with configured(self.spark, {**self.settings, **self.more.get(shape.name, {})}):
            frame = shape.query(self.inputs.frame(self.spark, "events"), self.inputs.frame(self.spark, "others"))
            writer = frame.writeStream.outputMode(shape.mode).foreachBatch(note).trigger(availableNow=True)
            return writer.option("checkpointLocation", str(self.checkpoint(shape))).start()


@dataclass(frozen=True)
class Oracle:
    """The reference results, with Spark's own provider. A shape runs once, when its result is first requested."""

    folder: Path
    known: dict[str, Run] = field(default_factory=dict)
    checkpoints: dict[str, Path] = field(default_factory=dict)

    def asked(self, spark: SparkSession, shapes: Sequence[Shape]) -> dict[str, Run]:
        """Return the results of these shapes by name."""
        new = [shape for shape in shapes if shape.name not in self.known]
        if new:
            trial = Trial(spark, self.folder / f"{len(self.known)}", HDFS)
            self.known.update(trial.run(new))
            self.checkpoints.update({shape.name: trial.checkpoint(shape) for shape in new})
        return {shape.name: self.known[shape.name] for shape in shapes}


def _end(query: StreamingQuery, run: Run) -> None:
    try:
        assert query.awaitTermination(ENDS_S), "a query does not end"
    except Exception as failure:  # noqa: BLE001 - tests check the failure
        run.failure = str(failure)
    finally:
        query.stop()
    for progress in query.recentProgress:
        for operator in progress.stateOperators:
            run.metrics.update(operator.customMetrics)
