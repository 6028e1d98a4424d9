"""The updates of a year of flights to the records of their aircraft, in micro-batches, and the expected records."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from examples.demo import flights

Values: TypeAlias = dict[str, dict[str, Any]]
"""Values by key."""

KEY = "tailnum"
DEFAULT = {"flights": 0, "miles": 0}
MICRO_BATCHES_MAX = 10
MICRO_BATCH_ROWS_MIN = 1_000
SHOWN_MAX = 3

_DAY = ("year", "month", "day")


@dataclass(frozen=True)
class Updates:
    """One row for each flight (`tailnum`, `distance`, `arrived`) by day, and the expected records."""

    micro_batches: Sequence[pa.Table]
    expected: Values

    @property
    def rows(self) -> int:
        """Return the number of flights."""
        return sum(map(len, self.micro_batches))


class Different(Exception):
    """The records of a table are not the expected result of its updates."""


def read(folder: Path, rows_max: int) -> Updates:
    """Return the first flights that arrived, which all have an aircraft. Files are unpacked into `folder`."""
    flights.prepare(folder)
    columns = [KEY, "distance", "arr_time", *_DAY]
    table = pyarrow.parquet.read_table(folder / "flights.parquet", columns=columns)
    rows = _arrived(table.filter(pc.field("arr_time").is_valid())).slice(0, rows_max)
    return Updates(_cut(rows), _expected(rows))


def check(expected: Values, actual: Values) -> None:
    """Raise `Different` if records are missing, unexpected or have wrong values."""
    keys = sorted(key for key in expected.keys() | actual.keys() if expected.get(key) != actual.get(key))
    if keys:
        shown = [f"{key} is {actual.get(key)}, not {expected.get(key)}" for key in keys[:SHOWN_MAX]]
        raise Different(f"{len(keys)} of {len(expected)} records differ: {'; '.join(shown)}")


def _arrived(table: pa.Table) -> pa.Table:
    """Return the columns of the updates. A time such as 08:30 on January 1 is 201301010830."""
    year, month, day = (table[name] for name in _DAY)
    date = pc.add(pc.multiply(pc.add(pc.multiply(year, 100), month), 100), day)
    arrived = pc.add(pc.multiply(date, 10_000), table["arr_time"])
    return pa.table({KEY: table[KEY], "distance": table["distance"], "arrived": arrived})


def _cut(rows: pa.Table) -> list[pa.Table]:
    count = max(1, min(MICRO_BATCHES_MAX, len(rows) // MICRO_BATCH_ROWS_MIN))
    edges = [index * len(rows) // count for index in range(count + 1)]
    return [rows.slice(start, end - start) for start, end in pairwise(edges)]


def _expected(rows: pa.Table) -> Values:
    """Return the expected values from Arrow's own aggregation, without Spark and stores."""
    sums = rows.group_by(KEY).aggregate([("distance", "count"), ("distance", "sum"), ("arrived", "max")])
    names = {"distance_count": "flights", "distance_sum": "miles", "arrived_max": "arrived"}
    return {row[KEY]: {name: row[column] for column, name in names.items()} for row in sums.to_pylist()}
