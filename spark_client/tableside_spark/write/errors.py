"""`TableWriteError`, which names the failed rows of a write and states whether running it again is safe."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tableside_spark.executor.operation_batch import ROWS
from tableside_spark.executor.write_task import CODE, DETAIL
from tableside_spark.write.summary import WriteSummary

KEY_CHARACTERS_MAX = 200
"""The maximum length of a key in a message."""

_PARTLY_APPLIED = "Part of the write may have been applied"
_ADVICE = 'To make running a write again harmless, give each run a token, such as token="load/2026-11-20".'


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Rows that failed for the same reason: the code, the detail, the number of rows, and the first key as JSON."""

    code: str
    detail: str
    rows: int
    key: str


class TableWriteError(Exception):
    """A write with failed rows.

    Attributes:
        table: The name of the table.
        code: The most frequent problem code.
        detail: The most frequent cause with this code, in words.
        alike: The number of rows that failed with this code and detail.
        key: The key of the first of these rows, as JSON.
        counts: The number of failed rows by code, the most frequent first.
        failed: The number of all failed rows.
        summary: The `WriteSummary`. Rows that it does not count as applied or replayed may be written again.
    """

    def __init__(
        self, table: str, groups: Sequence[FailureGroup], summary: WriteSummary, *, is_repeatable: bool = True
    ) -> None:
        self.table = table
        self.counts = _rows_by_code(groups)
        first = max((group for group in groups if group.code == next(iter(self.counts))), key=lambda group: group.rows)
        self.code, self.detail, self.alike, self.key = first.code, first.detail, first.rows, first.key
        self.failed = summary.failed
        self.summary = summary
        message = f"table {table}: {_counts_text(self.counts)}; the first has the key {self.key}: {self.detail}"
        applied = f"{_PARTLY_APPLIED}: {summary.applied} rows were applied, {summary.unsent} were not sent."
        super().__init__(message if is_repeatable else f"{message}. {applied} {_ADVICE}")


def failure_groups(outcomes: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> list[FailureGroup]:
    """Return the failures among outcome rows, by code and detail. Each outcome has the key of its first row."""
    groups: dict[tuple[str, str], FailureGroup] = {}
    for row in outcomes:
        if row[CODE] is not None:
            reason = (row[CODE], row[DETAIL] or "")
            before = groups.get(reason)
            rows, key = (0, _key_text([row[name] for name in keys])) if before is None else (before.rows, before.key)
            groups[reason] = FailureGroup(*reason, rows + row[ROWS], key)
    return list(groups.values())


@contextmanager
def rerun_advice(*, is_repeatable: bool) -> Iterator[None]:
    """Add a note to errors of a write that must not be run again without care."""
    try:
        yield
    except TableWriteError:
        raise
    except Exception as error:
        if not is_repeatable:
            error.add_note(f"{_PARTLY_APPLIED}. {_ADVICE}")
        raise


def _key_text(parts: Sequence[Any]) -> str:
    text = json.dumps(parts[0] if len(parts) == 1 else list(parts), ensure_ascii=False)
    return text if len(text) <= KEY_CHARACTERS_MAX else f"{text[:KEY_CHARACTERS_MAX]}…"


def _rows_by_code(groups: Sequence[FailureGroup]) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for group in groups:
        rows[group.code] += group.rows
    return dict(rows.most_common())


def _counts_text(counts: Mapping[str, int]) -> str:
    """Return a text like "3 rows failed with too_large, 2 with throttled"."""
    (code, rows), *others = counts.items()
    noun = "row" if rows == 1 else "rows"
    return ", ".join([f"{rows} {noun} failed with {code}", *(f"{count} with {other}" for other, count in others)])
