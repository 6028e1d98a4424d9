"""The errors of operations: a small closed hierarchy, independent of HTTP and of drivers.

An error is both a value (an outcome) and an exception: stores return it as an outcome, the HTTP layer raises it.
"""

from collections.abc import Collection
from itertools import islice
from typing import Any, ClassVar, Literal

import msgspec

from .memory import NO_MEMORY, Memory

Applied = Literal["no", "unknown"]


class TableError(Exception):
    """The outcome of an operation that failed.

    `retriable`: whether a retry may succeed. `applied`: whether a write may have been applied. `retry_after_s`: how
    long to wait before a retry, if known. `retry_hint_s`: the same, but without the default of the class. `detail`
    names the table, operation and limit, never a value or a secret. `partitions`: for a write to a partitioned table,
    its outcome (`operations.PartitionOutcome`) in each partition that it was sent to.
    """

    code: ClassVar[str] = "internal"
    partitions: tuple[Any, ...] | None = None
    retriable: bool = False
    retry_after_default_s: ClassVar[float | None] = None

    def __init__(
        self,
        detail: str,
        *,
        applied: Applied = "no",
        retry_after_s: float | None = None,
        retriable: bool | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.applied: Applied = applied
        self.retry_hint_s = retry_after_s
        self.retry_after_s = retry_after_s if retry_after_s is not None else self.retry_after_default_s
        if retriable is not None:
            self.retriable = retriable

    def of_scan(self, key: object) -> "TableError":
        """Return the error that ends a scan at the record with this key."""
        return self

    def not_attempted(self) -> "TableError":
        """Return the same error for an operation that was not sent because of this error."""
        return type(self)(
            f"not attempted: an earlier operation on the same key failed: {self.detail}",
            retry_after_s=self.retry_after_s,
            retriable=self.retriable,
        )


class RecordNotFound(TableError):
    """No record has this key."""

    code = "record_not_found"


class TableNotFound(TableError):
    """No table has this name."""

    code = "table_not_found"


class GenerationNotFound(TableError):
    """The table has no such generation, or it was removed."""

    code = "generation_not_found"


class GenerationSealed(TableError):
    """A write names a generation that is complete. Only one that loads takes writes by its number."""

    code = "generation_sealed"


class MalformedRequest(TableError):
    """The request cannot be parsed, or has the wrong structure."""

    code = "malformed_request"


class InvalidOperation(TableError):
    """The operation can be parsed, but its key, value, update or members are not valid."""

    code = "invalid_operation"


class TooLarge(TableError):
    """A limit on a size or a count is exceeded."""

    code = "too_large"


class PreconditionFailed(TableError):
    """The record does not have the version or the state that the operation requires."""

    code = "precondition_failed"


class Unsupported(TableError):
    """The store, or this table in it, lacks a capability. The detail names it."""

    code = "unsupported"


class RecordUnreadable(TableError):
    """The record was not written by Tableside, and it is not a JSON object.

    `memory` is as in `Stored`, if the store keeps it apart from the value.
    """

    code = "record_unreadable"
    memory: Memory = NO_MEMORY

    def of_scan(self, key: object) -> TableError:
        """Return the same error with the key, which the caller of a scan does not know."""
        text = key if isinstance(key, str) else msgspec.json.encode(key).decode()
        return RecordUnreadable(f"the scan cannot continue at the key {quoted(text)}: {self.detail}")


class Contended(TableError):
    """Other writers changed the record during every attempt. Nothing was applied."""

    code = "contended"
    retriable = True


class Overloaded(TableError):
    """The service sheds load, or is shutting down."""

    code = "overloaded"
    retriable = True
    retry_after_default_s = 1.0


class Throttled(TableError):
    """A rate limit of the service or of the store is reached."""

    code = "throttled"
    retriable = True
    retry_after_default_s = 1.0


class StoreUnavailable(TableError):
    """The store could not be reached, or did not respond."""

    code = "store_unavailable"
    retriable = True
    retry_after_default_s: ClassVar[float | None] = 1.0


class WritesRejected(StoreUnavailable):
    """The store accepts no writes now: its disk is full, or it is read-only."""


class StoreMisconfigured(StoreUnavailable):
    """The store rejects the service's user, rights, database or TLS settings. The detail says which, and what to do."""

    retriable = False
    retry_after_default_s = None


class DeadlineExceeded(TableError):
    """The operation's deadline passed."""

    code = "deadline_exceeded"
    retriable = True


class Internal(TableError):
    """A bug in the service. The log contains the exception."""

    code = "internal"


NAME_CHARACTERS_MAX = 80
"""Messages contain only the start of a longer name or path."""

NAMES_MAX = 5
"""A message lists at most so many names."""


def quoted(name: str) -> str:
    """Return a name in backticks. Characters that cannot be printed are escaped, and a long name is cut."""
    cut = name if len(name) <= NAME_CHARACTERS_MAX else name[: NAME_CHARACTERS_MAX - 1] + "…"
    return f"`{cut if cut.isprintable() else ''.join(map(_printable, cut))}`"


def quoted_list(names: Collection[str]) -> str:
    """Return the first names in backticks, and how many more there are."""
    listed = ", ".join(quoted(name) for name in islice(names, NAMES_MAX))
    return listed if len(names) <= NAMES_MAX else f"{listed} and {len(names) - NAMES_MAX} more"


def _printable(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]
