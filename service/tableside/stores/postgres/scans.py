"""Reads pages of a table in key order, and splits a table into key ranges.

A page starts after the last key that the page before it examined, and examines a bounded number of rows, so every page
costs the same.
"""

# ruff: noqa: S608  # the SQL is built from names, which `quoted` quotes; values are parameters

from typing import Any

from ...core import (
    PAGE_SKIPPED_MAX,
    Clock,
    InvalidOperation,
    Key,
    KeySchema,
    MalformedRequest,
    Page,
    Part,
    Range,
    Record,
    RecordUnreadable,
    Scan,
    Yielder,
    even_splits,
)
from .connections import Connection
from .reads import canonical
from .schema import bytewise, key_parameter, literal, quoted
from .statements import TableSql

SAMPLED_BYTES = 256 * 8192  # 256 pages on disk
SAMPLED_ROWS_MAX = 20_000
CODE_POINT_MAX = 0x10FFFF


class Scanner:
    """Reads pages of one table. Each method runs on one connection."""

    def __init__(self, key: KeySchema, sql: TableSql, clock: Clock) -> None:
        self._key = key
        self._sql = sql
        self._clock = clock

    async def page(self, connection: Connection, scan: Scan) -> Page:
        """Read a page. Raise RecordUnreadable if a row of it is not a valid record."""
        examined_max, where = scan.limit + PAGE_SKIPPED_MAX, _Conditions(self._sql, self._clock())
        if scan.partition is not None:
            where.compare("=", scan.partition)
        where.prefix(self._key, scan)
        split = Range() if scan.split is None else Range.from_split(scan.split)
        if split.low:
            where.compare(">=", *self._decoded(split.low, "split"))
        if split.high is not None:
            where.compare("<", *self._decoded(split.high, "split"))
        if scan.position is not None:
            where.compare(">", *self._decoded(scan.position, "position"))
        limits = examined_max, scan.limit + 1, scan.bytes_max
        rows = await connection.fetch(self._page_sql(where), *where.parameters, *limits)
        page = rows[: scan.limit]
        records, yielder = list[tuple[Key, Record]](), Yielder()
        for row in page:
            if yielder.due:
                await yielder.maybe_yield()
            if row["found"]:
                records.append(self._record(row))
        more = bool(rows) and (rows[-1]["total"] > len(page) or page[-1]["place"] == examined_max)
        return Page(records, self._key.encode(self._sql.key_of(page[-1])) if more else None)

    async def splits(self, connection: Connection, count_max: int) -> list[bytes]:
        """Return key ranges with similar numbers of records, from a sample of the table's disk pages."""
        table = self._sql.table
        size_bytes = await connection.fetchval(f"SELECT pg_relation_size({literal(table)}::regclass)")
        percentage = min(100.0, 100.0 * SAMPLED_BYTES / max(1, size_bytes))
        sample = f"SELECT {self._sql.named_outputs} FROM {table} AS t TABLESAMPLE SYSTEM ($1) LIMIT $2"
        rows = await connection.fetch(sample, percentage, SAMPLED_ROWS_MAX)
        return even_splits(sorted({self._key.encode(self._sql.key_of(row)) for row in rows}), count_max)

    def _page_sql(self, where: "_Conditions") -> str:
        """Return SQL for a page that ends with the first row beyond the size limit.

        The rows are the records found among the first rows in the order of keys. If the page has examined as many rows
        as it may, it contains the last one in any case, for the position of the next page.
        """
        order, count = self._sql.key_order, len(where.parameters)
        examined_max, limit, size = (f"${count + index}::bigint" for index in (1, 2, 3))
        names = ", ".join(f"k{index}" for index in range(len(self._sql.key_columns)))
        found = " AND ".join(where.found)
        examined = (
            f"SELECT {self._sql.named_outputs}, t.xmin::text AS etag, {self._sql.expires} AS expires, "
            f"{found} AS found, CASE WHEN {found} THEN {self._sql.value} END AS value, "
            f"row_number() OVER (ORDER BY {order}) AS place FROM {self._sql.source} "
            f"WHERE {' AND '.join(where.texts)} ORDER BY {order} LIMIT {examined_max}"
        )
        page = f"SELECT * FROM ({examined}) AS examined WHERE found OR place = {examined_max} LIMIT {limit}"
        sized = (
            f"SELECT *, count(*) OVER () AS total, coalesce(sum(octet_length(value)) OVER "
            f"(ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM ({page}) AS page"
        )
        return (
            f"SELECT {names}, found, place, convert_to(value, 'UTF8') AS value, etag, expires, total "
            f"FROM ({sized}) AS sized WHERE before <= {size} ORDER BY place"
        )

    def _decoded(self, text: bytes, word: str) -> tuple[Part, ...]:
        """Return the parts of an encoded key. Raise MalformedRequest for a key that this store did not encode."""
        try:
            key = self._key.decode(text)
        except UnicodeDecodeError:
            key = ""
        parts = key if isinstance(key, tuple) else (key,)
        if self._key.encode(key) != text or any(isinstance(part, str) and "\0" in part for part in parts):
            raise MalformedRequest(f"not a {word} of this table")
        return parts

    def _record(self, row: Any) -> tuple[Key, Record]:
        """Return a row's key and record. Raise RecordUnreadable also for a key that no operation has, such as ''."""
        key = self._sql.key_of(row)
        try:
            key = self._key.from_json(key)
        except InvalidOperation as error:
            raise RecordUnreadable(f"another tool wrote the row: {error.detail}").of_scan(key) from None
        value = canonical(row["value"])
        if isinstance(value, RecordUnreadable):
            raise value.of_scan(key)
        return key, Record(value, row["etag"], row["expires"] or 0)


class _Conditions:
    """The conditions on the rows of a page, with their parameters.

    `texts` limit the rows that a page examines, `found` those of them that it returns.
    """

    def __init__(self, sql: TableSql, now_ms: int) -> None:
        self._columns = sql.key_columns
        self.texts = ["true"]
        self.found = [sql.live("$1::bigint")]
        self.parameters: list[Part] = [now_ms]

    def prefix(self, key: KeySchema, scan: Scan) -> None:
        """Select the keys with the prefix, in the first part, or in the second part within a partition."""
        key.bounds(scan.partition, scan.prefix)  # rejects a prefix that the key cannot have
        if not scan.prefix:
            return
        index = 0 if scan.partition is None else min(1, len(self._columns) - 1)
        if self._columns[index].type == "uuid":
            self.parameters.append(scan.prefix)
            text = f"t.{quoted(self._columns[index].name)}::text"
            self.found.append(f"starts_with({text}, ${len(self.parameters)}::text)")
            return
        self.compare(">=", scan.prefix, first=index)
        if (end := _prefix_end(scan.prefix)) is not None:
            self.compare("<", end, first=index)

    def compare(self, comparison: str, *parts: Part, first: int = 0) -> None:
        """Compare some parts of the key, beginning with the part `first`."""
        references, sent = list[str](), list[str]()
        for column, part in zip(self._columns[first:], parts, strict=False):
            references.append(bytewise(f"t.{quoted(column.name)}", column))
            self.parameters.append(part)
            sent.append(key_parameter(len(self.parameters), column))
        self.texts.append(f"({', '.join(references)}) {comparison} ({', '.join(sent)})")


def _prefix_end(prefix: str) -> str | None:
    """Return the least text greater than every text with the prefix, or None if there is none."""
    stem = prefix.rstrip(chr(CODE_POINT_MAX))
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
