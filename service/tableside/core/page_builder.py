"""Collects the records of one page of a scan, within the limits of a page."""

from collections.abc import Sequence
from typing import Any

from .batch import KeyedRecords, Results
from .operations import Key, Record, key_bytes
from .store import Scan

PAGE_SKIPPED_MAX = 10_000
"""How many expired records one page skips before it ends early. The next page continues there."""

PAGE_SEARCH_S = 0.25
"""How long one page asks other processes for records before it ends early, with the records found so far."""


class PageBuilder:
    """The records of one page.

    `complete`: the page has reached a limit of the scan, or has `skipped` too many expired records.
    """

    def __init__(self, scan: Scan) -> None:
        self.complete = False
        self.bytes_left = scan.bytes_max
        self.skipped = 0
        self._limit = scan.limit
        self._keys: list[Key] = []
        self._values: list[bytes] = []
        self._etags: list[str] = []
        self._expiries_ms: list[int] = []

    @property
    def records(self) -> KeyedRecords:
        """The records, in columns."""
        columns: dict[str, Sequence[Any]] = {"value": self._values, "etag": self._etags}
        if any(self._expiries_ms):
            columns["expires_ms"] = self._expiries_ms
        return KeyedRecords(self._keys, Results(Record, columns))

    def add(self, key: Key, record: Record) -> None:
        """Add a record."""
        self._keys.append(key)
        self._values.append(record.value)
        self._etags.append(record.etag)
        self._expiries_ms.append(record.expires_ms)
        self.bytes_left -= len(record.value) + key_bytes(key)
        self.complete = self.bytes_left < 0 or self.room <= 0

    def add_all(self, keys: Sequence[Key], results: Results) -> bool:
        """Add the records of these keys and return True. Add none if one is absent or an error, or if not all fit."""
        values = results.cells("value")
        if results.failed or None in values or len(keys) > self.room:
            return False
        left_bytes = self.bytes_left - results.value_bytes - key_bytes(keys)
        if left_bytes < 0:
            return False
        self._keys += keys
        self._values += values
        self._etags += results.cells("etag")
        self._expiries_ms += results.cells("expires_ms")
        self.bytes_left = left_bytes
        self.complete = self.room <= 0
        return True

    @property
    def count(self) -> int:
        """How many records the page has."""
        return len(self._keys)

    @property
    def room(self) -> int:
        """How many more records the page may have."""
        return self._limit - self.count

    def skip(self) -> None:
        """Count a record that has expired."""
        self.skipped += 1
        self.complete = self.skipped >= PAGE_SKIPPED_MAX
