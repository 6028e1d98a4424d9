"""Bounds how many operations of a table reach its store in a second, reads and writes apart.

An operation costs one credit. Calls wait for theirs in a fair line, each direction in its own; a call that wants more
than there are passes in parts, as credits come. What cannot have its credit by the deadline is refused as soon as that
is known, with the time after which there is one. Every attempt pays, so this stands within whoever tries again.

The limit is this process's: knows nothing of other workers and replicas. Scans are free.
"""

from .metrics import Metrics
from .policy import Rate, RateLimit

__all__ = ["Metrics", "Rate", "RateLimit"]
