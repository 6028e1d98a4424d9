"""Runs shapes on a state store provider: in parallel, with a stop half-way, and records each micro-batch."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_client.state.inputs import FILES, HALF, Inputs
from spark_client.state.providers import Settings, configured, unload
from spark_client.state.shapes import Rows, Shape

ENDS_S = 120


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
        """Run shapes over all files. The JVM unloads its state half-way, or after each file for endless shapes."""
        endless = [shape for shape in shapes if shape.endless]
        runs = self.halves([shape for shape in shapes if not shape.endless])
        if endless:
            runs |= replace(self, folder=self.folder / "endless").single_files(endless)
        return runs

    def halves(self, shapes: Sequence[Shape]) -> dict[str, Run]:
        """Run shapes over the first half of the files, unload the JVM's state, and run them over the second half."""
        runs = {shape.name: Run() for shape in shapes}
        for first, end in ((0, HALF), (HALF, FILES)):
            self.files(first, end, shapes, runs)
        return runs

    def single_files(self, shapes: Sequence[Shape]) -> dict[str, Run]:
        """Restart shapes for each file, and unload the state in between."""
        runs = {shape.name: Run() for shape in shapes}
        for number in range(FILES):
            self.files(number, number + 1, shapes, runs)
        return runs

    def files(self, first: int, end: int, shapes: Sequence[Shape], runs: Runs) -> None:
        """Run shapes over the next files, and unload the state."""
        self.inputs.give(first, end)
        self.go(shapes, runs)
        unload(self.spark)

    @property
    def inputs(self) -> Inputs:
        """The input of the shapes."""
        return self.reads or Inputs(self.folder / "inputs")

    def checkpoint(self, shape: Shape) -> Path:
        """Return the checkpoint of a query."""
        return self.folder / "checkpoints" / shape.name.replace(" ", "-")

    def go(self, shapes: Iterable[Shape], runs: Runs) -> None:
        """Run shapes in parallel until each has read all files, or has failed."""
        queries = [(self.start(shape, runs[shape.name]), runs[shape.name]) for shape in shapes]
        for query, run in queries:
            _end(query, run)

    def start(self, shape: Shape, run: Run) -> StreamingQuery:
        """Start a shape, and record its micro-batches."""
        with configured(self.spark, {**self.settings, **self.more.get(shape.name, {})}):
            return self._started(shape, run)

    def _started(self, shape: Shape, run: Run) -> StreamingQuery:

        def note(batch: DataFrame, number: int) -> None:
            run.batches[number] = shape.taken(self.trouble(batch))

        frame = shape.query(self.inputs.frame(self.spark, "events"), self.inputs.frame(self.spark, "others"))
        writer = frame.writeStream.outputMode(shape.mode).foreachBatch(note)
        writer = writer.option("checkpointLocation", str(self.checkpoint(shape)))
        return (writer.trigger(once=True) if shape.endless else writer.trigger(availableNow=True)).start()


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
