"""The cache policy: its entries, the loads that several gets share, and the writes in flight.

`channel`, which connects the caches of several replicas, is imported only when one is used: it needs the Redis driver.
"""

from .policy import Cache

__all__ = ["Cache"]
