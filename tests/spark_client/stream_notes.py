"""The files of a driver that may have been killed: the notes of its runs, and the checkpoint of its query."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Note = dict[str, Any]


class Notes:
    """The lines of a file that several processes append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._notes: list[Note] = []

    def all(self) -> list[Note]:
        """Return all notes so far, of all runs."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                whole, ended, _ = file.read().rpartition(b"\n")
            self._read += len(whole) + len(ended)
            self._notes += [json.loads(line) for line in whole.splitlines()]
        return self._notes

    def of(self, run: int, *whats: str) -> list[Note]:
        """Return the notes of these kinds from one run."""
        return [note for note in self.all() if note["run"] == run and note["what"] in whats]

    def about(self, table: str) -> list[Note]:
        """Return the notes of the stream that writes to a table."""
        return [note for note in self.all() if note.get("table") == table]

    def times(self, table: str) -> Counter[str]:
        """Return the number of notes of each kind for a stream, in all runs."""
        return Counter(note["what"] for note in self.about(table))


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of a streaming query: its planned and its completed micro-batches."""

    path: Path

    @property
    def planned(self) -> int:
        """The number of the last planned micro-batch, -1 before the first."""
        return self._last("offsets")

    @property
    def committed(self) -> int:
        """The number of the last completed micro-batch, -1 before the first."""
        return self._last("commits")

    def offsets(self, batch: int) -> Any:
        """Return the end offsets of a micro-batch, for each partition of the topic."""
        return json.loads((self.path / "offsets" / str(batch)).read_text().splitlines()[-1])

    def _last(self, log: str) -> int:
        return max((int(path.name) for path in (self.path / log).glob("[0-9]*")), default=-1)
