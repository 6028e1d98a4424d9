"""Policies: stores that wrap a store to add timeouts, retries, rate limits, coalescing or a cache.

Policies are independent of each other. `catalog.stack` puts them in order. The operations of a call have one kind: all
are gets, or puts, updates or deletes. Imports `core` and `telemetry`.
"""

from .bulkhead import Bulkhead
from .cache import Cache
from .coalesce import UNLIMITED, Coalesce
from .metrics import PolicyMetrics
from .rate_limit import CallerRate, Rate, RateLimit
from .retry import Retry, RetryBudget, RetrySchedule
from .store_calls import StoreCalls
from .timeout import Timeout

__all__ = [
    "UNLIMITED",
    "Bulkhead",
    "Cache",
    "CallerRate",
    "Coalesce",
    "PolicyMetrics",
    "Rate",
    "RateLimit",
    "Retry",
    "RetryBudget",
    "RetrySchedule",
    "StoreCalls",
    "Timeout",
]
