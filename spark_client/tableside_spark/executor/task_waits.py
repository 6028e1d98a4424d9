"""The time that the requests of one Spark task wait for retries."""

import logging
import threading
from collections.abc import Iterator
from typing import TypeVar

from tableside_client import Client

REPORT_MIN_S = 1.0
"""A shorter wait of a whole task is not logged."""

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class TaskWaits:
    """Measures the waits of a client during a task. Thread-safe.

    Tasks of one Python worker run one after the other, so a worker's client serves one task at a time.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._taken_s = client.waited_s

    def take_ms(self) -> int:
        """Return the milliseconds waited since the last call, or since the start of the task."""
        with self._lock:
            waited_ms = int((self._client.waited_s - self._taken_s) * 1000)
            self._taken_s += waited_ms / 1000
            return waited_ms

    def logged(self, table: str, results: Iterator[Result]) -> Iterator[Result]:
        """Yield the results of the task, and log its waits at its end."""
        try:
            yield from results
        finally:
            waited_s = self.take_ms() / 1000
            if waited_s >= REPORT_MIN_S:
                log.warning("table %s: the task waited %.1f s for retries", table, waited_s)
