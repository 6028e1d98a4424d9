"""What a driver process is asked to do. It crosses to that process, and the answer back, as JSON in files."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

PARTITIONS = 4


@dataclass(frozen=True)
class Task:
    """One query with its state in one place: where its files are, and what Spark is set to.

    `again` says that the query has run before, and begins anew in a process that knows nothing of its state.
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
        """What it is called among those of its folder."""
        return "again" if self.again else "first"

    @property
    def input(self) -> str:
        """Where the query reads its rows."""
        return str(Path(self.folder) / "input")

    @property
    def warm_input(self) -> str:
        """Where a query reads that only warms the process up."""
        return str(Path(self.folder) / "warm-input")

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps the query's progress, and its own providers its state."""
        return str(Path(self.folder) / "checkpoint")

    def write(self, file: Path) -> None:
        """Write it down for the process."""
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what was written down."""
        return cls(**json.loads(file.read_text()))
