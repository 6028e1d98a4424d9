"""The input of the queries: two streams of few rows in files, one per micro-batch, that add and expire state.

Most rows are on time, some are later than any watermark allows, some occur in two files, some have no key. One
file of each stream is empty. Every call gives the same rows.
"""

import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

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
