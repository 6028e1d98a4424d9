"""Logs when the service stops being ready and when it is ready again, once each.

Probes ask every few seconds. A line for each failing probe would hide the other lines of the log.
"""

import logging
from collections.abc import Mapping

from ..core import TableError

log = logging.getLogger(__name__)


class ReadinessLog:
    """Remembers whether the last check found a store that can be reached."""

    def __init__(self) -> None:
        self._ready = True

    def checked(self, stores: Mapping[str, TableError | None]) -> bool:
        """Return whether any store can be reached. `stores` has the error of each. Log a change since the last call."""
        ready = None in stores.values()
        if ready != self._ready:
            self._ready = ready
            if ready:
                log.info("ready again")
            else:
                reasons = {name: error.detail for name, error in stores.items() if error is not None}
                log.error("not ready: no store can be reached", extra={"stores": reasons})
        return ready
