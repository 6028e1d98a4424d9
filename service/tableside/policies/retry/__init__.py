"""Retries: repeats operations that failed with a transient error, within limits of time, attempts and a budget.

Errors: operations with a `retriable` error are retried, with two exceptions. DeadlineExceeded means that the caller's
deadline has passed (an attempt that timed out is StoreUnavailable, see `timeout`). Overloaded means that the service
sheds load, and retries would add load. Throttled, Contended and StoreUnavailable are retried, each after a pause.

Writes: a write is retried if it was certainly not applied, or if it has a token that lets the record recognize the
repetition. A write without a token that may have been applied is never retried, not even an unconditional put or
delete. An acknowledged write of another caller between the two applications would be lost. An abandoned attempt may
also arrive after the repetition was acknowledged, and undo the caller's next write.

Outcomes: the last attempt gives the outcome. If an earlier attempt may have been applied, an error has `applied`
"unknown". A write with a token whose first attempt was applied, but whose response was lost, has the outcome
`replayed`. The write is in the record once. Its etag and value are the record's current ones, which may come from a
later write. Whether a retry or an earlier request of the caller applied it cannot be determined.

Scans are not retried.
"""

from .backoff import BackoffKind, RetrySchedule
from .budget import RetryBudget
from .metrics import RetryMetrics
from .policy import Retry

__all__ = ["BackoffKind", "Retry", "RetryBudget", "RetryMetrics", "RetrySchedule"]
