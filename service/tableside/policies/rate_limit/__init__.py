"""Rate limits: the operations per second of a table that reach its store, separately for reads and writes.

An operation costs one credit. Calls wait for credits in a fair queue, one for each direction. A call that needs more
credits than there are continues in parts, as credits arrive. An operation that cannot get credits by its deadline is
rejected as soon as that is certain, with the time after which to retry. Every attempt costs credits, so this policy is
inside of `retry`. Scans cost nothing.

A limit applies to this process, unless its credits are shared by all replicas (`shared`). Each caller can have a limit
for all tables (`CallerRate`), which counts operations that a cache answers too.
"""

from .credits import Rate
from .policy import CallerRate, RateLimit

__all__ = ["CallerRate", "Rate", "RateLimit"]
