"""The task of a driver process. The task and its result are passed in JSON files."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

PARTITIONS = 4


@dataclass(frozen=True)
class Task:
    """A query with its files and the settings of Spark, including the state store.

    With `again`, the query has run before and restarts in a process without its state.
    """

    folder: str
    settings: Mapping[str, str]
    heap_mib: int
    maintenance_s: float
    batches: int
    service_pid: int | None
    payload: bool
    again: bool = False

    @property
    def name(self) -> str:
        """The name of the task in its folder."""
        return "again" if self.again else "first"

    @property
    def input(self) -> str:
        """The input folder of the query."""
        return str(Path(self.folder) / "input")

    @property
    def warm_input(self) -> str:
        """The input folder of the warm-up query."""
        return str(Path(self.folder) / "warm-input")

    @property
    def checkpoint(self) -> str:
        """The folder where Spark stores the query's progress, and where Spark's own providers store the state."""
        return str(Path(self.folder) / "checkpoint")

    def write(self, file: Path) -> None:
        """Write the task to a file."""
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a task from a file."""
        return cls(**json.loads(file.read_text()))
