"""Which partitions of a topic a record goes to: what a job's author implements. Knows neither Spark nor Arrow."""

import warnings
from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, Final

from tableside_spark.partitioning.murmur2 import murmur2


class Routing(Enum):
    """What a partitioner says of a record instead of listing partitions."""

    BROADCAST = "broadcast"
    """One copy to every partition."""
    DROP = "drop"
    """No copy at all."""
    DEFAULT = "default"
    """One copy, and Kafka's producer chooses the partition."""


BROADCAST: Final = Routing.BROADCAST
DROP: Final = Routing.DROP
DEFAULT: Final = Routing.DEFAULT

Partitions = Collection[int] | Routing | None
"""A list of partitions, each of which gets one copy however often it is named; or a `Routing`.

`[]` is `DROP`; `None` and `[-1]` are `BROADCAST`.
"""

Partitioning = Callable[[str, Any, Any, int], Partitions]
"""`StreamPartitioner.partitions` as a plain function of topic, key, value and the number of partitions."""


class StreamPartitioner:
    """Sends each record to any number of partitions, as Kafka Streams' partitioner of the same name does.

    A subclass defines `partitions`. Each executor has its own copy, pickled on the driver; it is called once for
    every record each time a task runs, so what it remembers it remembers for one Python worker only.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "partition" in cls.__dict__ and cls.partitions is StreamPartitioner.partitions:
            warnings.warn(
                f"{cls.__name__} defines partition(): define partitions(), which gives a list",
                DeprecationWarning,
                stacklevel=2,
            )

    def partitions(self, topic: str, key: Any, value: Any, num_partitions: int) -> Partitions:
        """The partitions, 0 to `num_partitions - 1`, that get a copy of this record."""
        partition = self.partition(topic, key, value, num_partitions)
        return DEFAULT if partition is None else [partition]

    def partition(self, topic: str, key: Any, value: Any, num_partitions: int) -> int | None:
        """The one partition for this record, or None for Kafka's choice. Deprecated: define `partitions`."""
        raise NotImplementedError(f"{type(self).__name__} does not define partitions()")


class DefaultPartitioner(StreamPartitioner):
    """Every record where Kafka's producer would put it; one without a key is left to the producer."""

    def partitions(self, topic: str, key: Any, value: Any, num_partitions: int) -> Partitions:
        """One partition by the key's hash, or `DEFAULT` where there is no key."""
        return DEFAULT if key is None else [default_partition(key, num_partitions)]


def default_partition(key: str | bytes, num_partitions: int) -> int:
    """The partition that Kafka's producer chooses for this key: by murmur2 of its bytes, UTF-8 for a string."""
    if not isinstance(key, str | bytes):
        raise TypeError(f"a key is placed by its bytes: it is a string or bytes, not {type(key).__name__}")
    data = key.encode() if isinstance(key, str) else key
    return (murmur2(data) & 0x7FFFFFFF) % num_partitions


def partitioning(partitions: Any) -> Partitioning:
    """The function in what a caller gave for a partitioner."""
    if not isinstance(partitions, StreamPartitioner):
        if isinstance(partitions, type) or not callable(partitions):
            raise TypeError(f"a partitioner, a function or a column is expected, not {_described(partitions)}")
        return partitions  # type: ignore[no-any-return]  # what it takes and gives shows only when it is called
    kind = type(partitions)
    if kind.partitions is StreamPartitioner.partitions and kind.partition is StreamPartitioner.partition:
        raise TypeError(f"{kind.__name__} does not define partitions()")
    return partitions.partitions


def _described(given: Any) -> str:
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
