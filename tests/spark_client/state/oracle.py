"""What Spark's own provider makes of the shapes: computed once in a test run, for all who compare with it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from spark_client.state.providers import HDFS
from spark_client.state.shape_runs import Run, Trial
from spark_client.state.shapes import Shape


@dataclass(frozen=True)
class Oracle:
    """Knows what each shape gives; it has the shapes run that nobody has asked for yet."""

    folder: Path
    known: dict[str, Run] = field(default_factory=dict)
    checkpoints: dict[str, Path] = field(default_factory=dict)
    """Where each that has run keeps how far it is, and its state."""

    def asked(self, spark: SparkSession, shapes: Sequence[Shape]) -> dict[str, Run]:
        """Return what these give, by their names."""
        new = [shape for shape in shapes if shape.name not in self.known]
        if new:
            trial = Trial(spark, self.folder / f"{len(self.known)}", HDFS)
            self.known.update(trial.run(new))
            self.checkpoints.update({shape.name: trial.checkpoint(shape) for shape in new})
        return {shape.name: self.known[shape.name] for shape in shapes}
