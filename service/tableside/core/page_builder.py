"""Collects the records of one page of a scan, within the limits of a page."""

from collections.abc import Sequence
from itertools import chain
from typing import cast

import pyarrow as pa

from .columns import COLUMN_BYTES_MAX, KEYS_MIN, KeyedRecords, RecordColumns
from .operations import Key, Outcome, Record, key_bytes
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
        self.records: list[tuple[Key, Record]] = []
        self.complete = False
        self.bytes_left = scan.bytes_max
        self._columns: list[KeyedRecords] = []
        self._left_bytes_min = max(0, scan.bytes_max - COLUMN_BYTES_MAX)  # of a page in columns
        self._limit = scan.limit
        self.skipped = 0

    @property
    def in_columns(self) -> bool:
        """Whether there are records, and all were added in columns."""
        return bool(self._columns)

    @property
    def result(self) -> Sequence[tuple[Key, Record]]:
        """The records, in columns if all were added in columns."""
        return KeyedRecords.joined(self._columns) if self.in_columns else self.records

    def add_columns(self, keys: pa.Array, records: RecordColumns) -> bool:
        """Add records and return True. Add none if one is absent, if not all fit, or if the page cannot be columns."""
        left_bytes = self.bytes_left - records.value_bytes - key_bytes(keys.to_pylist())
        if left_bytes < self._left_bytes_min or len(records) > self.room or records.absent_count:
            return False
        if self.records and not self._enter_columns(keys.type):
            return False
        self._columns.append(KeyedRecords(keys, records))
        self._note_added(left_bytes)
        return True

    def add(self, key: Key, record: Record) -> None:
        """Add a record."""
        self._leave_columns()
        self.records.append((key, record))
        self.bytes_left -= len(record.value) + key_bytes(key)
        self.complete = self.bytes_left < 0 or len(self.records) >= self._limit

    def add_all(self, keys: Sequence[Key], outcomes: Sequence[Outcome]) -> bool:
        """Add the records of these keys and return True. Add none if one is not a record, or if not all fit.

        Records that do not expire are added in columns if all others were.
        """
        if len(outcomes) > self.room or set(map(type, outcomes)) != {Record}:
            return False
        records = cast("Sequence[Record]", outcomes)
        left_bytes = self.bytes_left - sum([len(record.value) for record in records]) - key_bytes(keys)
        if left_bytes < 0:
            return False
        if self.in_columns and left_bytes >= self._left_bytes_min and not any(record.expires_ms for record in records):
            self._columns.append(KeyedRecords.of(keys, records, self._columns[0].keys.type))
        else:
            self._leave_columns()
            self.records += zip(keys, records, strict=True)
        self._note_added(left_bytes)
        return True

    @property
    def count(self) -> int:
        """How many records the page has."""
        return len(self.records) + sum(map(len, self._columns))

    @property
    def room(self) -> int:
        """How many more records the page may have."""
        return self._limit - self.count

    def _note_added(self, left_bytes: int) -> None:
        self.bytes_left = left_bytes
        self.complete = self.room <= 0

    def _enter_columns(self, key_type: pa.DataType) -> bool:
        """Move the records into columns if they are few and do not expire."""
        if len(self.records) > KEYS_MIN or any(record.expires_ms for _, record in self.records):
            return False
        keys, records = zip(*self.records, strict=True)
        self._columns, self.records = [KeyedRecords.of(keys, records, key_type)], []
        return True

    def _leave_columns(self) -> None:
        if self._columns:
            self.records, self._columns = list(chain.from_iterable(self._columns)), []

    def skip(self) -> None:
        """Count a record that has expired."""
        self.skipped += 1
        self.complete = self.skipped >= PAGE_SKIPPED_MAX
