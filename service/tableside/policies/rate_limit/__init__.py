"""Bounds how many operations of a table reach its store in a second, reads and writes apart.

An operation costs credits, one if nothing else is said. Calls wait for theirs in a fair line, each direction in its
own; a call that wants more than there are passes in parts, as credits come. What cannot have its credit by the deadline
is refused as soon as that is known, with the time after which there is one. Every attempt pays, so this stands within
whoever tries again. What a get has found is paid when it is known: who comes next waits for that.

The limit is this process's, unless it is given credits that all replicas share (`shared`). Callers have limits of their
own, by name, each in operations as they were asked (`callers`), which stand outside of everything. Scans are free.
"""

from .credits import Cost
from .metrics import CallerLimitMetrics, RateLimitMetrics
from .per_caller import CallerLimit
from .policy import CreditSource, Rate, RateLimit

__all__ = ["CallerLimit", "CallerLimitMetrics", "Cost", "CreditSource", "Rate", "RateLimit", "RateLimitMetrics"]
