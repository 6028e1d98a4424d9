"""The errors of operations: a small closed hierarchy, independent of HTTP and of drivers.

An error is both a value (an outcome) and an exception: stores return it as an outcome, the HTTP layer raises it.
"""

from collections.abc import Collection
from itertools import islice
from typing import Any, ClassVar, Literal

import msgspec

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

    def __init_subclass__(cls, **attributes: str | float | None) -> None:
        """Set attributes of the class: `code`, `retriable` and `retry_after_default_s`."""
        for name, value in attributes.items():
            setattr(cls, name, value)

    def __init__(
        self, detail: str, *, applied: Applied = "no", retry_after_s: float | None = None, retriable: bool | None = None
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
        detail = f"not attempted: an earlier operation on the same key failed: {self.detail}"
        return type(self)(detail, retry_after_s=self.retry_after_s, retriable=self.retriable)


class RecordNotFound(TableError, code="record_not_found"):
    """No record has this key."""


class TableNotFound(TableError, code="table_not_found"):
    """No table has this name."""


class GenerationNotFound(TableError, code="generation_not_found"):
    """The table has no such generation, or it was removed."""


class GenerationSealed(TableError, code="generation_sealed"):
    """A write names a generation that is complete. Only one that loads takes writes by its number."""


class MalformedRequest(TableError, code="malformed_request"):
    """The request cannot be parsed, or has the wrong structure."""


class InvalidOperation(TableError, code="invalid_operation"):
    """The operation can be parsed, but its key, value, update or members are not valid."""


class TooLarge(TableError, code="too_large"):
    """A limit on a size or a count is exceeded."""


class PreconditionFailed(TableError, code="precondition_failed"):
    """The record does not have the version or the state that the operation requires."""


class Unsupported(TableError, code="unsupported"):
    """The store, or this table in it, lacks a capability. The detail names it."""


class RecordUnreadable(TableError, code="record_unreadable"):
    """The record was not written by Tableside, and it is not a JSON object.

    `memory` is as in `Stored`, if the store keeps it apart from the value, else None.
    """

    memory: Any = None

    def of_scan(self, key: object) -> TableError:
        """Return the same error with the key, which the caller of a scan does not know."""
        text = key if isinstance(key, str) else msgspec.json.encode(key).decode()
        return RecordUnreadable(f"the scan cannot continue at the key {quoted(text)}: {self.detail}")


class Contended(TableError, code="contended", retriable=True):
    """Other writers changed the record during every attempt. Nothing was applied."""


class Overloaded(TableError, code="overloaded", retriable=True, retry_after_default_s=1.0):
    """The service sheds load, or is shutting down."""


class Throttled(TableError, code="throttled", retriable=True, retry_after_default_s=1.0):
    """A rate limit of the service or of the store is reached."""


class StoreUnavailable(TableError, code="store_unavailable", retriable=True, retry_after_default_s=1.0):
    """The store could not be reached, or did not respond."""


class WritesRejected(StoreUnavailable):
    """The store accepts no writes now: its disk is full, or it is read-only."""


class StoreMisconfigured(StoreUnavailable, retriable=False, retry_after_default_s=None):
    """The store rejects the service's user, rights, database or TLS settings. The detail says which, and what to do."""


class DeadlineExceeded(TableError, code="deadline_exceeded", retriable=True):
    """The operation's deadline passed."""


class Internal(TableError, code="internal"):
    """A bug in the service. The log contains the exception."""


NAME_CHARACTERS_MAX = 80
"""Messages contain only the start of a longer name or path."""

NAMES_MAX = 5
"""A message lists at most so many names."""


def quoted(name: str) -> str:
    """Return a name in backticks. Characters that cannot be printed are escaped, and a long name is cut."""
    cut = name if len(name) <= NAME_CHARACTERS_MAX else name[: NAME_CHARACTERS_MAX - 1] + "…"
    return f"`{''.join(one if one.isprintable() else ascii(one)[1:-1] for one in cut)}`"


def quoted_list(names: Collection[str]) -> str:
    """Return the first names in backticks, and how many more there are."""
    listed = ", ".join(quoted(name) for name in islice(names, NAMES_MAX))
    return listed if len(names) <= NAMES_MAX else f"{listed} and {len(names) - NAMES_MAX} more"
