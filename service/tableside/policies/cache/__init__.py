"""The cache policy: its entries, the loads that several gets share, and the writes in flight.

`invalidation`, the channel between the caches of several replicas, is imported only when one is used: it needs the
Redis driver.
"""

from .metrics import CacheMetrics
from .peers import Peers
from .policy import Cache

__all__ = ["Cache", "CacheMetrics", "Peers"]
