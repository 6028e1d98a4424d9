"""A cache: what it keeps, the loads that several gets wait for, the writes under way, and the policy over these.

`invalidation`, the channel between the caches of several replicas, is imported where one is used: it
needs the Redis driver.
"""

from .metrics import CacheMetrics
from .peers import Peers
from .policy import Cache

__all__ = ["Cache", "CacheMetrics", "Peers"]
