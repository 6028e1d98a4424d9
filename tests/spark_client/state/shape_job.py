"""The program that the test of killed drivers runs and kills: a few shapes in parallel, with slowed rows.

Each attempt at a micro-batch writes its rows to a separate file.
"""

import json
import sys
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from pyspark.sql import DataFrame

from spark_client.exactly_once_job import end_with_parent
from spark_client.sessions import session
from spark_client.state.providers import SESSION
from spark_client.state.shape_runs import Run, Trial
from spark_client.state.shapes import named
from spark_client.state.trouble import slow

ROW_MS = 30


@dataclass(frozen=True)
class Job:
    """The parameters of the program: the folder, the shapes with their settings, and the provider's jar."""

    folder: str
    shapes: dict[str, dict[str, str]]
    jar: str

    def text(self) -> str:
        """Return the job as a command-line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a job from a command-line argument."""
        return cls(**json.loads(text))

    @property
    def notes(self) -> Path:
        """The folder for the rows of micro-batches."""
        return Path(self.folder) / "notes"


class Noting(dict[int, list[str]]):
    """Writes the rows of each micro-batch to a file atomically."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def __setitem__(self, batch: int, rows: list[str]) -> None:
        draft = self._folder / f"{uuid.uuid4()}.draft"
        draft.write_text(json.dumps({"batch": batch, "rows": rows}))
        draft.rename(draft.with_suffix(".json"))


def main(job: Job) -> None:
    """Run all shapes to the end of the input."""
    with session("local[2]", {**SESSION, "spark.jars": job.jar}) as spark:
        trial = Trial(spark, Path(job.folder), {}, _slow, more=job.shapes)
        shapes = named(*job.shapes)
        queries = [trial.start(shape, Run(batches=Noting(job.notes / shape.name))) for shape in shapes]
        for query in queries:
            query.awaitTermination()


def _slow(batch: DataFrame) -> DataFrame:
    return slow(batch, ROW_MS)


if __name__ == "__main__":
    end_with_parent()
    main(Job.of(sys.argv[1]))
