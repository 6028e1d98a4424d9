"""The program that the test of killed drivers runs and kills: a few shapes in parallel, with slowed rows.

Its argument is JSON: a folder, shapes with their settings, and the provider's jar. Each attempt at a micro-batch writes
its rows to a separate file.
"""

import json
import sys
import uuid
from functools import partial
from pathlib import Path

from spark_client.exactly_once_job import end_with_parent
from spark_client.sessions import session
from spark_client.state.providers import SESSION
from spark_client.state.shape_runs import Run, Trial, slow
from spark_client.state.shapes import named

ROW_MS = 30


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


def main(folder: str, shapes: dict[str, dict[str, str]], jar: str) -> None:
    """Run all shapes to the end of the input."""
    with session("local[2]", {**SESSION, "spark.jars": jar}) as spark:
        trial = Trial(spark, Path(folder), {}, partial(slow, row_ms=ROW_MS), more=shapes)
        runs = {name: Run(batches=Noting(Path(folder) / "notes" / name)) for name in shapes}
        queries = [trial.start(shape, runs[shape.name]) for shape in named(*shapes)]
        for query in queries:
            query.awaitTermination()


if __name__ == "__main__":
    end_with_parent()
    main(**json.loads(sys.argv[1]))
