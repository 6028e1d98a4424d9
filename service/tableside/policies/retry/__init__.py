"""Tries again what failed in a way that may pass, and only that: never what succeeded, never for long, never in floods.

What is tried again: errors that are `retriable`, save two. DeadlineExceeded says that the caller's time is over (an
attempt that was cut is StoreUnavailable, see `timeout`); Overloaded says that the service sheds work, which more work
would not help. Throttled, Contended and StoreUnavailable are tried again, each after a pause.

Which writes: what was surely not applied, and what carries a token, whose repetition the record recognises. A write
without a token that may have been applied is never repeated, not even an unconditional put or delete: between its two
applications another's acknowledged write would be lost, and an attempt that was given up may still arrive after the
repetition was acknowledged, and undo what the caller wrote next. So its repetition can change the outcome.

What is told: the last attempt's outcome. Where an earlier attempt may have been applied, an error stays "unknown",
whatever the last one says. A write with a token whose first attempt was applied unseen comes back `replayed`, and is
left so: it is in the record once, its etag and value are the record's now (perhaps another's since), and whether an
attempt of ours or an earlier request of the caller applied it cannot be told.

Knows nothing of what a store does to try again by itself. Scans are not tried again.
"""

from .backoff import BackoffKind, RetrySchedule
from .budget import RetryBudget
from .metrics import RetryMetrics
from .policy import Retry

__all__ = ["BackoffKind", "Retry", "RetryBudget", "RetryMetrics", "RetrySchedule"]
