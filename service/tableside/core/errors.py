"""What can go wrong with an operation, as a small closed tree. Knows nothing of HTTP or of any driver.

    TableError
    ├── RecordNotFound
    ├── TableNotFound
    ├── MalformedRequest        a parser refuses it, or the whole has the wrong shape
    ├── InvalidOperation        readable, but no legal key, value, update or operation
    ├── TooLarge                beyond a limit; for a get in a batch, asking again alone may help
    ├── PreconditionFailed
    ├── Unsupported             the store or the table lacks the capability
    ├── RecordUnreadable        a record that another tool wrote, and no JSON object
    ├── Contended               compare-and-set gave up; retriable
    ├── Overloaded              shed, or draining; retriable
    ├── Throttled               a rate limit, ours or the store's; retriable
    ├── StoreUnavailable        the store could not be asked, or did not answer; retriable
    ├── DeadlineExceeded        retriable
    └── Internal                a fault of ours

An error is a value (an outcome) as well as an exception: stores answer with it, the edge raises it.
"""

from typing import Any, ClassVar, Literal

Applied = Literal["no", "unknown"]


class TableError(Exception):
    """What became of an operation that did not succeed.

    `retriable` says whether asking again may help; `applied` whether a write may have happened; `retry_after_s`
    how long to wait first, where known, and `retry_hint_s` the same where it was said and is not the default of the
    class. `detail` names table, operation and limit, never a value or a secret. `partitions` are the outcomes
    (`operations.PartitionOutcome`) of a write to a partitioned table in each partition that it went to.
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

    def not_attempted(self) -> "TableError":
        """Return the same error for an operation that was held back because of this one."""
        return type(self)(
            f"not attempted: an earlier operation on the same key ended so: {self.detail}",
            retry_after_s=self.retry_after_s,
            retriable=self.retriable,
        )


class RecordNotFound(TableError):
    """No record has that key."""

    code = "record_not_found"


class TableNotFound(TableError):
    """No table has that name."""

    code = "table_not_found"


class MalformedRequest(TableError):
    """A parser refuses the text, or the whole of it has the wrong shape."""

    code = "malformed_request"


class InvalidOperation(TableError):
    """The operation can be read, but its key, value, update or members are not legal."""

    code = "invalid_operation"


class TooLarge(TableError):
    """A limit in bytes or in number is exceeded."""

    code = "too_large"


class PreconditionFailed(TableError):
    """The record is not in the version, or not in the state, that the operation asked for."""

    code = "precondition_failed"


class Unsupported(TableError):
    """The store, or this table in it, cannot do what was asked; the detail names the capability."""

    code = "unsupported"


class RecordUnreadable(TableError):
    """What the store holds under the key is not ours, and no JSON object either."""

    code = "record_unreadable"


class Contended(TableError):
    """Others changed the record each time; nothing was applied."""

    code = "contended"
    retriable = True


class Overloaded(TableError):
    """The service has too much to do, or is about to stop."""

    code = "overloaded"
    retriable = True
    retry_after_default_s = 1.0


class Throttled(TableError):
    """A rate limit is reached, the service's or the store's."""

    code = "throttled"
    retriable = True
    retry_after_default_s = 1.0


class StoreUnavailable(TableError):
    """The store could not be asked, or did not answer."""

    code = "store_unavailable"
    retriable = True
    retry_after_default_s = 1.0


class DeadlineExceeded(TableError):
    """The time given for the operation was over."""

    code = "deadline_exceeded"
    retriable = True


class Internal(TableError):
    """A fault of the service's own; the log has what happened."""

    code = "internal"
