"""Partitions of records: the interface for custom partitioners, Kafka's default, and their Arrow task on executors."""

import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from operator import index
from struct import iter_unpack
from typing import Any, Final, SupportsIndex

import pyarrow as pa

from tableside_client.json_writer import in_utc


class Routing(Enum):
    """A partitioner's result other than a list of partitions."""

    BROADCAST = "broadcast"
    """One copy to every partition."""
    DROP = "drop"
    """No copy."""
    DEFAULT = "default"
    """One copy, and Kafka's producer chooses the partition."""


BROADCAST: Final = Routing.BROADCAST
DROP: Final = Routing.DROP
DEFAULT: Final = Routing.DEFAULT

Partitions = Collection[int] | Routing | None
"""The result of a partitioner: a list of partitions, or a `Routing`. A partition that is listed twice gets one copy.

`[]` means `DROP`. `None` and `[-1]` mean `BROADCAST`.
"""

PartitionFunction = Callable[[str, Any, Any, int], Partitions]
"""A plain function with the signature of `StreamPartitioner.partitions`: topic, key, value, number of partitions."""


class StreamPartitioner:
    """Base class for partitioners that send a record to any number of partitions.

    It corresponds to the interface `StreamPartitioner` of Kafka Streams. Subclasses define `partitions`.

    Each Python worker has its own copy, pickled on the driver, so state kept in an instance is not shared. The method
    is called once per record each time a task runs. A repeated task calls it again.

    Example:
        ```python
        class ByRegion(StreamPartitioner):
            def partitions(self, topic, key, value, num_partitions):
                return BROADCAST if key is None else [int(key) % num_partitions]
        ```
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "partition" in cls.__dict__ and cls.partitions is StreamPartitioner.partitions:
            warnings.warn(
                f"{cls.__name__} defines partition(): define partitions(), which returns a list",
                DeprecationWarning,
                stacklevel=2,
            )

    def partitions(self, topic: str, key: Any, value: Any, num_partitions: int) -> Partitions:
        """Return the partitions that get a copy of a record.

        Args:
            topic: The topic's name, or the table's name for a partitioned table.
            key: The record's key, or None.
            value: The record's value, or None. Times are in UTC.
            num_partitions: The number of partitions.

        Returns:
            Indexes from 0 to `num_partitions - 1`, or `BROADCAST`, `DROP` or `DEFAULT`. `[]` means `DROP`. None and
            `[-1]` mean `BROADCAST`.
        """
        partition = self.partition(topic, key, value, num_partitions)
        return DEFAULT if partition is None else [partition]

    def partition(self, topic: str, key: Any, value: Any, num_partitions: int) -> int | None:
        """Return one partition, or None for Kafka's choice. Deprecated: define `partitions`."""
        raise NotImplementedError(f"{type(self).__name__} does not define partitions()")


class DefaultPartitioner(StreamPartitioner):
    """A partitioner that chooses the same partition as Kafka's producer. Records without a key are left to Kafka."""

    def partitions(self, topic: str, key: Any, value: Any, num_partitions: int) -> Partitions:
        """Return the partition of the key's hash, or `DEFAULT` if there is no key."""
        return DEFAULT if key is None else [default_partition(key, num_partitions)]


def default_partition(key: str | bytes, num_partitions: int) -> int:
    """Return the partition that Kafka's producer chooses for a key: murmur2 of its bytes.

    Args:
        key: The key. A string is encoded as UTF-8.
        num_partitions: The number of partitions.

    Raises:
        TypeError: The key is not a string or bytes.
    """
    if not isinstance(key, str | bytes):
        raise TypeError(f"a key must be a string or bytes, not {type(key).__name__}")
    data = key.encode() if isinstance(key, str) else key
    return (murmur2(data) & 0x7FFFFFFF) % num_partitions


def partition_function(partitions: Any) -> PartitionFunction:
    """Return a `StreamPartitioner`'s method, or the given function itself. Raises `TypeError` for anything else."""
    if not isinstance(partitions, StreamPartitioner):
        if isinstance(partitions, type) or not callable(partitions):
            described = (
                f"the class {partitions.__name__}" if isinstance(partitions, type) else type(partitions).__name__
            )
            raise TypeError(f"a partitioner, a function or a column is expected, not {described}")
        return partitions  # type: ignore[no-any-return]  # what it takes and gives shows only when it is called
    kind = type(partitions)
    if kind.partitions is StreamPartitioner.partitions and kind.partition is StreamPartitioner.partition:
        raise TypeError(f"{kind.__name__} does not define partitions()")
    return partitions.partitions


_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_WORD = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit MurmurHash2 of `data` (org.apache.kafka.common.utils.Utils.murmur2), as an unsigned integer."""
    state = _SEED ^ len(data)
    whole = len(data) & ~3
    for (word,) in iter_unpack("<I", data[:whole]):
        word = word * _FACTOR & _WORD
        word = (word ^ word >> 24) * _FACTOR & _WORD
        state = (state * _FACTOR & _WORD) ^ word
    if len(data) > whole:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _WORD
    state = (state ^ state >> 13) * _FACTOR & _WORD
    return state ^ state >> 15


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
