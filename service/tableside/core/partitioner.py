"""Choose an operation's partitions: the ones that it names, or that of its key, as Kafka's default partitioner does."""

from collections.abc import Collection
from struct import iter_unpack
from typing import TypeAlias

from .errors import InvalidOperation
from .operations import Get, Key, Operation

Partitions: TypeAlias = tuple[int, ...] | None
"""Indexes in rising order. None is the partition of the key."""

ALL_PARTITIONS = -1
"""As the only index in a list: all partitions."""

_FACTOR = 0x5BD1E995
_WORD = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit MurmurHash2 (org.apache.kafka.common.utils.Utils.murmur2) as an unsigned integer."""
    state = 0x9747B28C ^ len(data)  # Kafka's seed
    whole = len(data) & ~3
    for (word,) in iter_unpack("<I", data[:whole]):
        word = word * _FACTOR & _WORD
        word = (word ^ word >> 24) * _FACTOR & _WORD
        state = (state * _FACTOR & _WORD) ^ word
    if len(data) > whole:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _WORD
    state = (state ^ state >> 13) * _FACTOR & _WORD
    return state ^ state >> 15


def default_partition(key: Key, count: int) -> int:
    """Return the partition of a key, 0 to `count` - 1. Only the first part of a composite key matters."""
    part = key[0] if isinstance(key, tuple) else key
    return (murmur2(str(part).encode()) & 0x7FFFFFFF) % count


def parse_partitions(raw: object, count: int) -> Partitions:
    """Parse the member `partitions` of a request to a table with `count` partitions.

    `"all"`, None and `[-1]` mean all partitions, `[]` none, `[None]` and `"default"` the partition of the key. Raise
    InvalidOperation if the member is not valid.
    """
    if raw is None or raw == "all":
        return tuple(range(count))
    if raw == "default":
        return None
    if not isinstance(raw, (list, tuple)):
        raise InvalidOperation(f"partitions must be a list of indexes below {count}, or all, or default")
    if len(raw) == 1 and raw[0] is None:
        return None
    indexes = set(map(_index, raw))
    if indexes == {ALL_PARTITIONS}:
        return tuple(range(count))
    if not all(0 <= index < count for index in indexes):
        raise InvalidOperation(_outside(indexes, count))
    return tuple(sorted(indexes))


def target_partitions(operation: Operation, count: int) -> tuple[int, ...]:
    """Return the partitions that an operation is sent to. Raise InvalidOperation if they are not valid for it.

    A get needs exactly one partition, and `if_match` at most one, because an etag belongs to one partition's record.
    """
    indexes = operation.partitions
    if indexes is None:
        return (default_partition(operation.key, count),)
    if indexes and not 0 <= indexes[0] <= indexes[-1] < count:
        raise InvalidOperation(_outside(indexes, count))
    if isinstance(operation, Get):
        if len(indexes) != 1:
            raise InvalidOperation(f"a get needs exactly one partition, not {len(indexes)} of {count}")
    elif operation.if_match is not None and len(indexes) > 1:
        raise InvalidOperation(f"if_match allows only one partition, not {len(indexes)} of {count}")
    return indexes


def _index(raw: object) -> int:
    if raw is None:
        raise InvalidOperation("null in partitions must be the only element; it means the partition of the key")
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise InvalidOperation("an index in partitions must be an integer")
    return raw


def _outside(indexes: Collection[int], count: int) -> str:
    if ALL_PARTITIONS in indexes:
        return f"-1 in partitions must be the only element; it means all {count}"
    wrong = min(index for index in indexes if not 0 <= index < count)
    return f"there is no partition {wrong}: this table has partitions 0 to {count - 1}"
