"""Policies: stores that wrap a store to add timeouts, retries, rate limits, coalescing or a cache.

Policies are independent of each other. `catalog.stack` puts them in order. The operations of a call have one kind: all
are gets, or puts, updates or deletes. Imports `core` and `telemetry`. An import with `as` exports its name.
"""

from .bulkhead import Bulkhead as Bulkhead
from .cache import Cache as Cache
from .coalesce import UNLIMITED as UNLIMITED, Coalesce as Coalesce
from .metrics import PolicyMetrics as PolicyMetrics
from .rate_limit import CallerRate as CallerRate, Rate as Rate, RateLimit as RateLimit
from .retry import Retry as Retry, RetryBudget as RetryBudget, RetrySchedule as RetrySchedule
from .store_calls import StoreCalls as StoreCalls
from .timeout import Timeout as Timeout
