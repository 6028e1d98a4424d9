"""Rate limits: the operations per second of a table that reach its store, separately for reads and writes.

An operation costs credits, by default one. Calls wait for credits in a fair queue, one for each direction. A call that
needs more credits than there are continues in parts, as credits arrive. An operation that cannot get credits by its
deadline is rejected as soon as that is certain, with the time after which to retry. Every attempt costs credits, so
this policy is inside of `retry`. The cost of a record that a get found is charged afterwards, so later calls wait for
it.

A limit applies to this process, unless its credits are shared by all replicas (`shared`). Each caller can have
limits in operations per second: for one table (`CallerLimit`, the outermost policy), and for all (`CallerRate`). Scans
cost nothing.
"""

from .credits import Rate
from .policy import CallerLimit, CallerRate, Cost, RateLimit

__all__ = ["CallerLimit", "CallerRate", "Cost", "Rate", "RateLimit"]
