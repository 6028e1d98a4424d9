"""Collects the records of one page of a scan, within the limits of a page."""

from .operations import Key, Record
from .store import Scan

PAGE_SKIPPED_MAX = 10_000
"""How many expired records one page skips before it ends early. The next page continues there."""

PAGE_SEARCH_S = 0.25
"""How long one page asks other processes for records before it ends early, with the records found so far."""


class PageBuilder:
    """The records of one page. `complete`: the page has reached a limit of the scan, or has skipped too many."""

    def __init__(self, scan: Scan) -> None:
        self.records: list[tuple[Key, Record]] = []
        self.complete = False
        self._limit, self._bytes_left = scan.limit, scan.bytes_max
        self._skips_left = PAGE_SKIPPED_MAX

    def add(self, key: Key, record: Record) -> None:
        """Add a record."""
        self.records.append((key, record))
        self._bytes_left -= len(record.value)
        self.complete = self._bytes_left < 0 or len(self.records) >= self._limit

    def skip(self) -> None:
        """Count a record that has expired."""
        self._skips_left -= 1
        self.complete = self._skips_left <= 0
