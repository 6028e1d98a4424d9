"""A read-through cache: what it keeps, the loads that several gets wait for, the policy over both, and metrics."""

from .metrics import Metrics
from .policy import Cache

__all__ = ["Cache", "Metrics"]
