"""A partitioner, as it runs on an executor: a batch of keys and values in, their partitions out. Knows no Spark.

The partitions of a record are a list of integers: none is a drop, a null list (or -1 alone) is a broadcast, a
null alone is Kafka's choice. A column of such lists may also come from elsewhere; what is said here, the plan
holds it to.
"""

from dataclasses import dataclass

import pyarrow as pa

from tableside_spark.partitioning.partitioner import BROADCAST, DEFAULT, DROP, PartitionFunction, Partitions

PARTITIONS = pa.list_(pa.int32())


@dataclass(frozen=True, slots=True)
class PartitionTask:
    """One partitioner at work on one topic, or on one table, whose name then stands for the topic's.

    `where` is what complaints call it.
    """

    partitioning: PartitionFunction
    topic: str
    num_partitions: int
    where: str

    def __call__(self, keys: pa.Array, values: pa.Array) -> pa.Array:
        """The partitions of every record. What the partitioner raises fails the task."""
        topic, count, ask = self.topic, self.num_partitions, self.partitioning
        answers = (
            ask(topic, key, value, count) for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)
        )
        return pa.array([self._listed(answer) for answer in answers], PARTITIONS)

    def _listed(self, answer: Partitions) -> list[int] | list[None] | None:
        if answer is None or answer is BROADCAST:
            return None
        if answer is DEFAULT:
            return [None]
        if answer is DROP:
            return []
        if not isinstance(answer, list | tuple | set | frozenset | range):
            kind = type(answer).__name__
            raise TypeError(f"{self.where}: a partitioner gives a list, BROADCAST, DROP or DEFAULT, not {kind}")
        return [self._checked(partition) for partition in answer]

    def _checked(self, partition: object) -> int:
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise TypeError(f"{self.where}: a partition is an int, not {type(partition).__name__}")
        if not -1 <= partition < self.num_partitions:
            raise ValueError(f"{range_error_text(self.where, self.num_partitions)} {partition}")
        return partition


def range_error_text(where: str, num_partitions: int) -> str:
    """The beginning of the complaint about partitions that there are not, which ends with them."""
    return f"{where}: partitions are 0 to {num_partitions - 1}, or -1 alone for all of them; a record is for"
