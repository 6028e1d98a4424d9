"""Policies: stores that wrap a store to add timeouts, retries, rate limits, coalescing or a cache.

Policies are independent of each other. `catalog.stack` puts them in order. Imports `core` and `telemetry`.
"""

from .cache import Cache
from .retry import RetryBudget

__all__ = ["Cache", "RetryBudget"]
