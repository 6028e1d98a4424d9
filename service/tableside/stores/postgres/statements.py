"""Builds the SQL statements of one table once, when the table is opened.

Every statement that locks or inserts rows processes keys in the same order, by their bytes. Batches that share keys
therefore wait for each other without deadlock, also across replicas. The alias `t` is the table, `s` its side
table, and `u` the rows sent, one array for each column.
"""

# ruff: noqa: S608  # the SQL is built from names, which `quoted` quotes; values are parameters

from collections.abc import Sequence

import msgspec

from .column_types import UNCHANGED
from .key_sql import KeySql
from .schema import EXPIRES, VERSION, WRITERS, Column, TableDefinition, quoted, side_table_name

ETAG_SQL = "pg_current_xact_id()::xid::text"
"""The ID of the writing transaction, which becomes the row's `xmin`."""


class ValueSql(msgspec.Struct, frozen=True):
    """The SQL for the values of a table: the columns to write, and an expression for a value's JSON text.

    `present` is the condition that a row has a value, `object` the condition that the value is a JSON object.
    """

    data: tuple[Column, ...]
    value: str
    present: str
    object: str


class Statements(msgspec.Struct, frozen=True):
    """The statements of a table. The first parameters of each are the arrays of key parts.

    `read` and `lock` also take a limit, `read` after the current time. If the values are together larger than the
    limit, both return their size without them. `put`, `insert` and `update` also take the arrays of the data columns
    and of the `metadata` columns, and `put` the current time if `put_takes_time`. These three are pairs: both
    statements return keys and etags, the second also returns values. `unconditional_delete` keeps the rows of deleted
    records that store writers.

    `look` is `lock` without row locks. `replace` is an `update` of one row, with the etag that the row must have.
    """

    read: str
    look: str
    lock: str
    put: tuple[str, str]
    insert: tuple[str, str]
    update: tuple[str, str]
    replace: tuple[str, str]
    delete: str
    unconditional_delete: str
    sweep: str
    sample: str
    page_count: str
    page_columns: str
    page_value: str
    page_from: str
    side_lock: str
    side_update: str
    side_delete: str
    metadata: tuple[str, ...]
    put_takes_time: bool


class StatementBuilder:
    """Builds the SQL of one table."""

    def __init__(self, table: TableDefinition, values: ValueSql) -> None:
        self._values = values
        self._key = KeySql(table.key_columns)
        self._table = f"{quoted(table.schema)}.{quoted(table.name)}"
        side = f"{quoted(table.schema)}.{quoted(side_table_name(table.name))}"
        self._side = side if table.has_side_table else None
        self._same_columns = _same_columns(self._table, table.columns, ())
        self._same_types = _same_columns(self._table, table.columns, values.data)
        self._metadata = [name for name in (EXPIRES, WRITERS) if not self._side and name in table.names]

    def statements(self) -> Statements:
        """Return all statements."""
        returning = self._returning(value=False), self._returning(value=True)
        insert, put, update = self._insert(), self._put(), self._update()
        replace = self._replace(update)
        return Statements(
            read=self._read(),
            look=self._lock(""),
            lock=self._lock(" FOR UPDATE OF t"),
            put=(put + returning[0], put + returning[1]),
            insert=(insert + returning[0], insert + returning[1]),
            update=(update + returning[0], update + returning[1]),
            replace=(replace + returning[0], replace + returning[1]),
            delete=self._delete(self._table),
            unconditional_delete=self._unconditional_delete(),
            sweep=self._sweep(),
            sample=f"SELECT {self._key_outputs()} FROM {self._table} AS t TABLESAMPLE SYSTEM ($1) LIMIT $2",
            page_count=self._page_count(),
            page_columns=f"{self._key.named_outputs()}, t.xmin::text AS etag, {self.expires} AS expires",
            page_value=self._values.value,
            page_from=self._source(),
            side_lock=self._side_lock() if self._side else "",
            side_update=self._side_update(),
            side_delete=self._delete(self._side),
            metadata=tuple(self._metadata),
            put_takes_time=self._put_takes_time,
        )

    # Expressions

    @property
    def _put_takes_time(self) -> bool:
        """Whether a put must check for expiry, because the writers of an expired record expire with it."""
        return self._metadata == [EXPIRES, WRITERS]

    @property
    def expires(self) -> str:
        """Return SQL for the time a record expires."""
        if self._side:
            return f"CASE WHEN s.{quoted(VERSION)} = t.xmin::text::bigint THEN s.{quoted(EXPIRES)} END"
        return f"t.{quoted(EXPIRES)}" if EXPIRES in self._metadata else "NULL::bigint"

    @property
    def writers(self) -> str:
        """Return SQL for the stored writers of a record."""
        return f"t.{quoted(WRITERS)}::text" if WRITERS in self._metadata else "NULL::text"

    def live(self, number: int) -> str:
        """Return the condition that a row is a live record at the time in parameter `number`."""
        live = f"{self._values.present} AND coalesce({self.expires} > ${number}::bigint, true)"
        return f"{live} AND {self._same_columns}"

    def key_order(self) -> str:
        """Return the sort expressions for the table's keys."""
        return self._key.order("t")

    def _source(self) -> str:
        if not self._side:
            return f"{self._table} AS t"
        return f"{self._table} AS t LEFT JOIN {self._side} AS s ON {self._key.equal_columns('s')}"

    def _key_outputs(self) -> str:
        return ", ".join(self._key.outputs())

    def _returning(self, *, value: bool) -> str:
        text = f", convert_to({self._values.value}, 'UTF8')" if value else ""
        return f" RETURNING {self._key_outputs()}, {ETAG_SQL}{text}"

    # Reading

    def _read(self) -> str:
        join, selected = self._key.selection()
        keys = ", ".join(f"array_agg({output})" for output in self._key.outputs())
        lines, number = f"string_agg({self._values.value}, E'\\n')", len(self._key.columns) + 1
        return (
            f"SELECT {keys}, octet_length({lines}), "
            f"CASE WHEN octet_length({lines}) <= ${number + 1}::bigint THEN convert_to({lines}, 'UTF8') END, "
            f"bool_and({self._values.object}), string_agg(t.xmin::text, ','), "
            f"CASE WHEN max({self.expires}) IS NOT NULL THEN array_agg({self.expires}) END "
            f"FROM {self._source()}{join} WHERE {selected} AND {self.live(number)}"
        )

    def _lock(self, locking: str) -> str:
        join, selected = self._key.selection()
        names, size = ", ".join(self._key.parts), "sum(octet_length(value)) OVER ()"
        locked = (
            f"SELECT {self._key.named_outputs()}, {self._values.value} AS value, t.xmin::text AS etag, "
            f"{'NULL::bigint' if self._side else self.expires} AS expires, {self.writers} AS writers "
            f"FROM {self._table} AS t{join} WHERE {selected} AND {self._same_columns} "
            f"ORDER BY {self.key_order()}{locking}"
        )
        bytes_max = f"${len(self._key.columns) + 1}::bigint"
        return (
            f"WITH r AS MATERIALIZED ({locked}) SELECT {names}, "
            f"CASE WHEN {size} <= {bytes_max} THEN convert_to(value, 'UTF8') END, etag, expires, writers, {size} FROM r"
        )

    def _page_count(self) -> str:
        name = self._table.replace("'", "''")
        return f"SELECT greatest(1, pg_relation_size('{name}'::regclass) / 8192)"

    # Writing

    @property
    def _sent_count(self) -> int:
        """Return the number of arrays that `put`, `insert` and `update` take."""
        return len(self._key.columns) + len(self._values.data) + len(self._metadata)

    def _rows_sent(self) -> str:
        arrays, names = [*self._key.arrays], [*self._key.parts]
        for index in range(len(self._values.data)):
            names.append(f"d{index}")
            arrays.append(f"${len(names)}::bytea[]")
        for name in self._metadata:
            names.append(name)
            arrays.append(f"${len(names)}::{'bigint' if name == EXPIRES else 'text'}[]")
        return f"unnest({', '.join(arrays)}) AS u({', '.join(names)})"

    def _assignments(self) -> list[tuple[str, str]]:
        """Return the written columns other than the key, each with the SQL for its new content."""
        data = [
            (quoted(column.name), decoded(f"u.d{index}", column.cast)) for index, column in enumerate(self._values.data)
        ]
        return data + [(quoted(name), f"u.{name}" + ("::jsonb" if name == WRITERS else "")) for name in self._metadata]

    def _insert_into(self) -> str:
        """Return an insert of the rows sent, up to the action for rows that exist already."""
        names = ", ".join([*self._key.names, *(name for name, _ in self._assignments())])
        sent = ", ".join([*(f"u.{part}" for part in self._key.parts), *(sent for _, sent in self._assignments())])
        rows = f"{self._rows_sent()} WHERE {self._same_types}"
        source = f"SELECT {sent} FROM {rows} ORDER BY {self._key.order_sent()}"
        return f"INSERT INTO {self._table} AS t ({names}) {source} ON CONFLICT ({', '.join(self._key.names)}) "

    def _insert(self) -> str:
        return self._insert_into() + "DO NOTHING"

    def _put(self) -> str:
        now = self._sent_count + 1
        changes = [f"{name} = excluded.{name}" for name, _ in self._assignments() if name != quoted(WRITERS)]
        if self._put_takes_time:
            kept = f"CASE WHEN t.{quoted(EXPIRES)} <= ${now}::bigint THEN NULL ELSE t.{quoted(WRITERS)} END"
            changes.append(f"{quoted(WRITERS)} = {kept}")
        key = self._key.names[0]
        return self._insert_into() + f"DO UPDATE SET {', '.join(changes or [f'{key} = excluded.{key}'])}"

    def _update(self) -> str:
        key = self._key.names[0]
        unchanged = f"decode('{UNCHANGED.hex()}', 'hex')"
        changes = [f"{name} = {sent}" for name, sent in self._assignments()] or [f"{key} = t.{key}"]
        for index, (name, sent) in enumerate(self._assignments()[: len(self._values.data)]):
            changes[index] = f"{name} = CASE u.d{index} WHEN {unchanged} THEN t.{name} ELSE {sent} END"
        return (
            f"UPDATE {self._table} AS t SET {', '.join(changes)} FROM {self._rows_sent()} "
            f"WHERE {self._key.equal_parts('u')} AND {self._same_types}"
        )

    def _replace(self, update: str) -> str:
        """Return an update of one row that has the etag. It skips a row that another transaction has locked."""
        join, selected = self._key.selection()
        locked = (
            f"SELECT FROM {self._table} AS t{join} WHERE {selected} AND t.xmin::text = ${self._sent_count + 1}::text "
            "FOR UPDATE OF t SKIP LOCKED"
        )
        return f"WITH l AS MATERIALIZED ({locked}) {update} AND EXISTS (SELECT FROM l)"

    def _delete(self, table: str | None) -> str:
        return f"DELETE FROM {table} AS t USING {self._key.rows_sent()} WHERE {self._key.equal_parts('u')}"

    def _unconditional_delete(self) -> str:
        """Return the delete of records. Rows without a value stay, as they store a deleted record's writers."""
        join, selected = self._key.selection()
        locked = (
            f"SELECT {self._key.named_columns()} FROM {self._table} AS t{join} "
            f"WHERE {selected} AND {self._values.present} ORDER BY {self.key_order()} FOR UPDATE OF t"
        )
        return f"WITH u AS ({locked}) DELETE FROM {self._table} AS t USING u WHERE {self._key.equal_parts('u')}"

    def _sweep(self) -> str:
        """Return the delete of some expired rows. It skips locked rows, so it never waits."""
        swept, names, same_key = self._side or self._table, self._key.named_columns(), self._key.equal_parts("u")
        expired = f"t.{quoted(EXPIRES)} <= $1::bigint LIMIT $2 FOR UPDATE SKIP LOCKED"
        if not self._side:
            return (
                f"WITH u AS (SELECT {names} FROM {swept} AS t WHERE {expired}) "
                f"DELETE FROM {swept} AS t USING u WHERE {same_key}"
            )
        return (
            f"WITH u AS (SELECT {names}, t.{quoted(VERSION)} AS version FROM {swept} AS t WHERE {expired}), "
            f"gone AS (DELETE FROM {self._table} AS t USING u "
            f"WHERE {same_key} AND t.xmin::text::bigint = u.version) "
            f"DELETE FROM {swept} AS t USING u WHERE {same_key}"
        )

    # The side table

    def _side_lock(self) -> str:
        names, first = ", ".join(self._key.names), self._key.names[0]
        sent = ", ".join(f"u.{part}" for part in self._key.parts)
        return (
            f"INSERT INTO {self._side} AS t ({names}) "
            f"SELECT {sent} FROM {self._key.rows_sent()} ORDER BY {self._key.order_sent()} "
            f"ON CONFLICT ({names}) DO UPDATE SET {first} = excluded.{first} "
            f"RETURNING {self._key_outputs()}, t.{quoted(VERSION)}, t.{quoted(EXPIRES)}, t.{quoted(WRITERS)}::text"
        )

    def _side_update(self) -> str:
        count = len(self._key.columns)
        arrays = [*self._key.arrays, f"${count + 1}::bigint[]", f"${count + 2}::bigint[]", f"${count + 3}::text[]"]
        names = [*self._key.parts, "version", "expires", "writers"]
        return (
            f"UPDATE {self._side} AS t SET {quoted(VERSION)} = u.version, {quoted(EXPIRES)} = u.expires, "
            f"{quoted(WRITERS)} = u.writers::jsonb FROM unnest({', '.join(arrays)}) AS u({', '.join(names)}) "
            f"WHERE {self._key.equal_parts('u')}"
        )


def _same_columns(table: str, columns: Sequence[Column], typed: Sequence[Column]) -> str:
    """Return a condition that is true, and not valid once the table has another number of columns or other types.

    PostgreSQL analyzes a prepared statement again after each change of its tables, so the next use of the statement
    fails. Otherwise a new column would be invisible, and a column with another type could be written inexactly. The
    planner removes the condition.
    """
    types = [f"ARRAY[c.{quoted(column.name)}] = ARRAY[NULL::{column.full_type}]" for column in typed]
    nulls = ", ".join(["NULL"] * len(columns))
    return (
        f"(true OR EXISTS (SELECT * FROM {table} AS c WHERE {' AND '.join(['true', *types])} UNION ALL SELECT {nulls}))"
    )


def decoded(sent: str, cast: str) -> str:
    """Return SQL for the content of a data column of type `cast`, which is sent as the UTF-8 bytes of its text."""
    return f"convert_from({sent}, 'UTF8')::{cast}"


def input_sql(full_type: str) -> str:
    """Return a query that fails if a column of this type does not accept the text in `$1`.

    It converts the text as an assignment does: an explicit cast would truncate it to the type's length.
    """
    return f"SELECT FROM json_to_record(json_build_object('text', $1::text)) AS r(text {full_type})"
