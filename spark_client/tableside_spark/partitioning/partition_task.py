"""The executor side of a partitioner: Arrow columns of keys and values in, a column of partition lists out.

A list of partitions is empty for a dropped record, null (or `[-1]`) for a broadcast, and `[null]` for Kafka's choice.
The plan checks these lists again, because they may also come from a column.
"""

from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex

import pyarrow as pa

from tableside_client.json_writer import in_utc
from tableside_spark.partitioning.partitioner import BROADCAST, DEFAULT, DROP, PartitionFunction, Partitions

PARTITIONS = pa.list_(pa.int32())


@dataclass(frozen=True, slots=True)
class PartitionTask:
    """Applies a partitioner to the records of a topic, or of a table, whose name then replaces the topic's.

    Error messages begin with `where`.
    """

    partitioning: PartitionFunction
    topic: str
    num_partitions: int
    where: str

    def __call__(self, keys: pa.Array, values: pa.Array) -> pa.Array:
        """Return the partitions of every record. An exception of the partitioner fails the task."""
        topic, count, call = self.topic, self.num_partitions, self.partitioning
        pairs = zip(self._for_python(keys), self._for_python(values), strict=True)
        results = (call(topic, key, value, count) for key, value in pairs)
        return pa.array([self._listed(result) for result in results], PARTITIONS)

    def _for_python(self, column: pa.Array) -> list[Any]:
        try:
            values: list[Any] = in_utc(column).to_pylist()
        except OverflowError as error:
            raise ValueError(
                f"{self.where}: a partitioner cannot receive a time outside of the years 1 to 9999 in UTC"
            ) from error
        return values

    def _listed(self, result: Partitions) -> list[int] | list[None] | None:
        if result is None or result is BROADCAST:
            return None
        if result is DEFAULT:
            return [None]
        if result is DROP:
            return []
        if not isinstance(result, list | tuple | set | frozenset | range):
            kind = type(result).__name__
            raise TypeError(f"{self.where}: a partitioner returns a list, BROADCAST, DROP or DEFAULT, not {kind}")
        return [self._checked(partition) for partition in result]

    def _checked(self, partition: object) -> int:
        if isinstance(partition, bool) or not isinstance(partition, SupportsIndex):
            raise TypeError(f"{self.where}: a partition is an int, not {type(partition).__name__}")
        found = index(partition)
        if not -1 <= found < self.num_partitions:
            raise ValueError(f"{range_error_text(self.where, self.num_partitions)} {found}")
        return found


def range_error_text(where: str, num_partitions: int) -> str:
    """Return the beginning of the error message for invalid partitions. The caller appends them."""
    return f"{where}: partitions are 0 to {num_partitions - 1}, or -1 alone for all of them; a record is for"
