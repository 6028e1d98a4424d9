"""The options of the data source `tableside` for reading."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from tableside_spark.datasource.options import parse_flag
from tableside_spark.executor.mismatch import OnMismatch, require_known
from tableside_spark.plan.table_schema import TableSchema

SPLITS_PER_CPU = 2
SPLITS_DEFAULT_MAX = 32
"""Each split costs a task, about 50 ms of a CPU. Too few splits leave CPUs of a cluster idle."""
SPLITS_MAX = 1024


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The part of a table to read, and how.

    `partition` is the first part of a composite key. `partitions` are indexes of a partitioned table, None for all.
    """

    splits: int
    prefix: str | None = None
    partition: str | None = None
    partitions: tuple[int, ...] | None = None
    on_mismatch: OnMismatch = "fail"
    pushdown: bool = False


def parse_read_options(options: Mapping[str, str], table_schema: TableSchema) -> ReadOptions:
    """Parse the options. Raises `ValueError` for options that are not valid for this table."""
    on_mismatch = options.get("on_mismatch", "fail")
    require_known(on_mismatch)
    partition, partitions = options.get("partition"), options.get("partitions")
    if partition is not None and table_schema.partitions and len(table_schema.key_types) == 1:
        partition, partitions = None, partition
    return ReadOptions(
        splits=_parse_splits(options.get("splits")),
        prefix=options.get("prefix"),
        partition=partition,
        partitions=None if partitions is None else _parse_partitions(partitions, table_schema.partitions),
        on_mismatch=cast("OnMismatch", on_mismatch),
        pushdown=parse_flag(options, "pushdown"),
    )


def default_splits() -> int:
    """Return the default number of splits.

    A data source cannot find out how many tasks Spark runs concurrently, so it is derived from the CPUs of the driver.
    """
    return min(SPLITS_PER_CPU * (os.cpu_count() or 1), SPLITS_DEFAULT_MAX)


def _parse_splits(text: str | None) -> int:
    if text is None:
        return default_splits()
    if not text.isdecimal() or not 1 <= int(text) <= SPLITS_MAX:
        raise ValueError(f"the option splits is a number from 1 to {SPLITS_MAX}, not {text!r}")
    return int(text)


def _parse_partitions(text: str, count: int | None) -> tuple[int, ...]:
    if not count:
        raise ValueError("the option partitions is for a partitioned table")
    indexes = [index.strip() for index in text.split(",")]
    if not all(index.isdecimal() and int(index) < count for index in indexes):
        raise ValueError(f"partitions are numbers from 0 to {count - 1}, separated by commas, not {text!r}")
    return tuple(sorted({int(index) for index in indexes}))
