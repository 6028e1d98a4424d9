"""The four operations and their outcomes, as immutable values.

An operation on a partitioned table may name partitions. Its outcome then contains one outcome for each of them.

The classes are msgspec structs rather than dataclasses because creating them is four times as fast, which matters for
batches of thousands of operations.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from .errors import InvalidOperation, TableError
from .updates import Changes
from .values import INTEGER_MAX

Part: TypeAlias = str | int
Key: TypeAlias = str | int | tuple[Part, ...]
"""A string or a signed 64-bit integer. A composite key is the tuple of its parts."""

ANY_ETAG = "*"
"""In `if_match`: any version, provided that the record exists."""

NO_EXPIRY = -1.0
"""As `ttl_s`: the record does not expire, even if the table has a default expiry."""


class Token(msgspec.Struct, frozen=True, gc=False):
    """Identifies one write of one writer, so that a repetition of the write is recognized."""

    writer: str
    sequence: int


WRITER_CHARACTERS_MAX = 128


def checked_token(writer: object, sequence: object) -> Token:
    """Return a token. Raise InvalidOperation if it is invalid."""
    if not isinstance(writer, str) or not 1 <= len(writer) <= WRITER_CHARACTERS_MAX or "\0" in writer:
        raise InvalidOperation(f"a token's writer must have 1 to {WRITER_CHARACTERS_MAX} characters")
    if isinstance(sequence, float) and sequence.is_integer():
        sequence = int(sequence)
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= INTEGER_MAX:
        raise InvalidOperation("a token's sequence must be an integer from 0 to 2^63-1")
    return Token(writer, sequence)


class Get(msgspec.Struct, frozen=True, gc=False):
    """Read a record.

    `max_age_s` limits the age of a cached record, in seconds: None allows the maximum age of the table's cache, 0
    bypasses the cache.

    `partitions`, here and in the other operations, are the indexes, in rising order, of the partitions of a partitioned
    table that the operation is sent to. None is the partition of its key. An empty tuple is no partition.
    """

    key: Key
    max_age_s: float | None = None
    partitions: tuple[int, ...] | None = None


class Put(msgspec.Struct, frozen=True):
    """Create or replace a record.

    `value` is canonical JSON text (see `values`). `if_match` lists the etags of the versions that may be replaced.
    `ttl_s` is in seconds. None is the table's default. `returning` includes the value in the outcome. `order`, here and
    in the other writes, lets the write change only what no write with a higher order has written (see `orders`).
    """

    key: Key
    value: bytes
    if_match: tuple[str, ...] | None = None
    if_absent: bool = False
    ttl_s: float | None = None
    token: Token | None = None
    returning: bool = False
    order: int | None = None
    partitions: tuple[int, ...] | None = None


class Update(msgspec.Struct, frozen=True):
    """Change a record, starting from `default` (canonical JSON text) if there is none.

    With `ttl_s` None, an existing record keeps its expiry, and a record created from the default gets the table's.
    """

    key: Key
    changes: Changes
    default: bytes | None = None
    if_match: tuple[str, ...] | None = None
    ttl_s: float | None = None
    token: Token | None = None
    returning: bool = False
    order: int | None = None
    partitions: tuple[int, ...] | None = None


class Delete(msgspec.Struct, frozen=True):
    """Delete a record. Succeeds if there is none. `forget` also removes what the store remembers of its writes."""

    key: Key
    if_match: tuple[str, ...] | None = None
    token: Token | None = None
    order: int | None = None
    forget: bool = False
    partitions: tuple[int, ...] | None = None


Write: TypeAlias = Put | Update | Delete
Operation: TypeAlias = Get | Put | Update | Delete


def is_remembered(write: Write) -> bool:
    """Return whether the record remembers a write, by its token or its order."""
    return write.token is not None or write.order is not None


def size_bytes(operation: Operation) -> int:
    """Return how many bytes of values and updates an operation sends."""
    if isinstance(operation, Put):
        return len(operation.value)
    if isinstance(operation, Update):
        return len(operation.changes.text) + len(operation.default or b"")
    return 0


_CONTROL_CHARACTERS = bytes(range(32))


def key_bytes(keys: Key | Sequence[Key]) -> int:
    """Return about the size of a key or of several keys in JSON, where a control character takes six bytes."""
    text = msgspec.msgpack.encode(keys)
    return len(text) + 5 * (len(text) - len(text.translate(None, _CONTROL_CHARACTERS)))


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record that was found: canonical JSON text, its version, and when it expires (Unix ms, 0 is never).

    `age_s` is None if the record was read from the store for this operation. Otherwise it is the number of seconds
    since the read that cached the record began.
    """

    value: bytes
    etag: str
    expires_ms: int = 0
    age_s: float | None = None


class Written(msgspec.Struct, frozen=True):
    """A write that was acknowledged.

    `etag` is None if no record remains. `created` means that `if_absent` created the record, or that an update used its
    default. `replayed` means that the token had been applied before, and nothing was applied now. `superseded` means
    that all members of an ordered write have higher orders. `value` is present only with `returning`. `partitions` are
    the outcomes in the partitions of a partitioned table that the write was sent to. If it is empty, the write was
    dropped.
    """

    etag: str | None
    created: bool = False
    replayed: bool = False
    value: bytes | None = None
    expires_ms: int = 0
    superseded: bool = False
    partitions: "tuple[PartitionOutcome, ...] | None" = None


FLAGS = ("superseded", "replayed", "created")
"""The fields of `Written` that tell one kind of outcome from another, with the one that counts first."""


class PartitionOutcome(msgspec.Struct, frozen=True):
    """The outcome of a write in one partition, identified by its index."""

    partition: int
    outcome: Written | TableError


Outcome: TypeAlias = Record | Written | TableError | None
"""The outcome of one operation. None is the outcome of a Get that found no record."""
