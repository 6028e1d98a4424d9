"""A cache: what it keeps, the loads that several gets wait for, the writes under way, and the policy over these.

`channel`, by which the caches of several replicas tell each other what was written, is imported where one is used: it
needs the driver of Redis.
"""

from .metrics import Metrics
from .policy import Cache

__all__ = ["Cache", "Metrics"]
