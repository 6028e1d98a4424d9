"""The SQL statements of one table.

A statement takes one array for each key column, whose elements are the parts `k0`, `k1`, … of the keys. The alias `t`
is the table, `s` its side table, and `u` the rows sent. Statements that wait for row locks take them in the order of
the keys' bytes, so batches that share keys wait for each other without deadlock, also across replicas.
"""

# ruff: noqa: S608  # the SQL is built from names, which `quoted` quotes; values are parameters

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

from ...core import Key
from .schema import (
    EXPIRES,
    VALUE,
    VERSION,
    WRITERS,
    Column,
    TableDefinition,
    bytewise,
    key_parameter,
    qualified,
    quoted,
    side_table_name,
    wire_type,
)
from .value_sql import UNCHANGED, ValueSql

ETAG_SQL = "pg_current_xact_id()::xid::text"
"""The ID of the writing transaction, which becomes the row's `xmin`."""


_HAS_ORDERS_SQL = "jsonb_typeof({} -> 0) = 'object'"
"""The condition that a column of writers contains orders, which outlive the record. It may be NULL."""


class TableSql:
    """The statements of one table, each built when it is first used. Their first parameters are the arrays of keys.

    `delete_memory_s` is how long an absent record is remembered, None if the table remembers no writes. `table` is the
    table's name in SQL. `metadata` are the columns of the table itself that store expiry and writers. If `takes_time`,
    `put` and `unconditional_delete` need the time, because it decides what is remembered.
    """

    def __init__(self, table: TableDefinition, values: ValueSql, delete_memory_s: float | None) -> None:
        self.has_side_table = table.has_side_table
        self.key_columns = table.key_columns
        self.value = values.value
        self.metadata = [name for name in (EXPIRES, WRITERS) if not table.has_side_table and name in table.names]
        self.takes_time = delete_memory_s is not None and not table.has_side_table
        self._delete_memory_ms = None if delete_memory_s is None else round(1000 * delete_memory_s)
        self._values = values
        self.table = qualified(table.schema, table.name)
        self._side = qualified(table.schema, side_table_name(table.name))
        self._same_columns = _same_columns(self.table, table.columns, values.data)
        self._names = [quoted(column.name) for column in table.key_columns]
        self._parts = [f"k{index}" for index in range(len(self._names))]

    # Keys

    def key_arrays(self, keys: Sequence[Key]) -> list[list[Any]]:
        """Return one array for each part of the keys."""
        if len(self._parts) == 1:
            return [list(keys)]
        return [list(column) for column in zip(*cast("Sequence[tuple[Any, ...]]", keys), strict=True)]

    def key_of(self, row: Any) -> Key:
        """Return the key in the first columns of a row."""
        return cast("Key", row[0] if len(self._parts) == 1 else tuple(row[: len(self._parts)]))

    # Expressions

    @property
    def source(self) -> str:
        """The rows of the table, joined with the side table if there is one."""
        side = f" LEFT JOIN {self._side} AS s ON {self._equal('s', self._names)}" if self.has_side_table else ""
        return f"{self.table} AS t{side}"

    @property
    def expires(self) -> str:
        """The time a row of `source` expires. An expiry in the side table belongs to the version it was set for."""
        if self.has_side_table:
            return f"CASE WHEN s.{quoted(VERSION)} = t.xmin::text::bigint THEN s.{quoted(EXPIRES)} END"
        return f"t.{quoted(EXPIRES)}" if EXPIRES in self.metadata else "NULL::bigint"

    @property
    def key_order(self) -> str:
        """The sort expressions for the keys of `t`."""
        return ", ".join(map(bytewise, [f"t.{name}" for name in self._names], self.key_columns))

    @property
    def named_outputs(self) -> str:
        """The key columns as the driver receives them, named `k0`, `k1`, …"""
        return ", ".join(f"{output} AS {part}" for output, part in zip(self._outputs(), self._parts, strict=True))

    def live(self, now: str) -> str:
        """Return the condition that a row of `source` is a record that has not expired at the time `now`."""
        return f"{self._values.present} AND coalesce({self.expires} > {now}, true) AND {self._same_columns}"

    @property
    def _keys_sent(self) -> list[str]:
        return [key_parameter(index + 1, column, "[]") for index, column in enumerate(self.key_columns)]

    @property
    def _order_sent(self) -> str:
        return ", ".join(map(bytewise, [f"u.{part}" for part in self._parts], self.key_columns))

    def _rows_sent(self, columns: Sequence[str] = (), types: Sequence[str] = ()) -> str:
        """Return the table expression `u` of the keys sent, and of columns of these types sent after them."""
        arrays = [*self._keys_sent, *(f"${len(self._parts) + 1 + at}::{kind}[]" for at, kind in enumerate(types))]
        return f"unnest({', '.join(arrays)}) AS u({', '.join([*self._parts, *columns])})"

    def _equal(self, alias: str, others: Sequence[str]) -> str:
        """Return the condition that the key of `t` equals columns of another row."""
        return " AND ".join(f"t.{name} = {alias}.{other}" for name, other in zip(self._names, others, strict=True))

    def _selection(self) -> tuple[str, str]:
        """Return the join and the condition that select the rows of `t` with the keys sent."""
        if len(self._names) == 1:
            return "", f"t.{self._names[0]} = ANY({self._keys_sent[0]})"
        return f" JOIN {self._rows_sent()} ON {self._equal('u', self._parts)}", "true"

    def _outputs(self, alias: str = "t") -> list[str]:
        names = self._names if alias == "t" else self._parts
        return [f"{alias}.{name}::{wire_type(column)}" for name, column in zip(names, self.key_columns, strict=True)]

    # Reading

    @cached_property
    def read(self) -> str:
        """Takes a limit in bytes and the time now. Returns `_aggregated` of the live records."""
        join, selected = self._selection()
        live = self.live(f"${len(self._parts) + 2}::bigint")
        return f"{self._aggregated(self.expires)} FROM {self.source}{join} WHERE {selected} AND {live}"

    @cached_property
    def find(self) -> str:
        """Takes a limit in bytes. Returns `_aggregated` of all rows of the table itself, with their writers."""
        join, selected = self._selection()
        expires = f"t.{quoted(EXPIRES)}" if EXPIRES in self.metadata else "NULL::bigint"
        writers = f"t.{quoted(WRITERS)}::text" if WRITERS in self.metadata else "NULL::text"
        rows = f"{self.table} AS t{join} WHERE {selected} AND {self._same_columns}"
        return f"{self._aggregated(expires, writers)} FROM {rows}"

    def _aggregated(self, expires: str, writers: str = "") -> str:
        """Return the outputs of a statement that returns one row, because many rows take longer to transfer.

        They are an array for each key part, the size of the values, the values (one a line), whether all are objects,
        the etags with commas, the array of expiries, or NULL if there are none, and the array of `writers` if it is
        given. If values and writers are together larger than the limit, they are NULL.
        """
        lines, fits = f"string_agg(coalesce({self.value}, ''), E'\\n')", f"<= ${len(self._parts) + 1}::bigint"
        size = f"octet_length({lines})" + (f" + coalesce(sum(octet_length({writers})), 0)" if writers else "")
        return (
            f"SELECT {', '.join(f'array_agg({output})' for output in self._outputs())}, {size}, "
            f"CASE WHEN {size} {fits} THEN convert_to({lines}, 'UTF8') END, "
            f"bool_and({self._values.object}), string_agg(t.xmin::text, ','), "
            f"CASE WHEN count({expires}) > 0 THEN array_agg(coalesce({expires}, 0)) END"
            + (f", CASE WHEN {size} {fits} THEN array_agg({writers}) END" if writers else "")
        )

    # Writing

    @cached_property
    def put(self) -> str:
        """Takes the rows, false, and the time now if `takes_time`. Returns one row, which is transferred faster.

        It has the etag of all rows, how many were written, and the parts of their keys if a trigger ignored some.
        """
        changes = [f"{name} = excluded.{name}" for name, _ in self._assignments() if name != quoted(WRITERS)]
        if self.takes_time:
            memory_ms = f"CASE WHEN {self._outlived} THEN {self._delete_memory_ms} ELSE 0 END"
            is_forgotten = f"{self.expires} <= ${self._sent_count + 2}::bigint - {memory_ms}"
            changes.append(f"{quoted(WRITERS)} = CASE WHEN {is_forgotten} THEN NULL ELSE t.{quoted(WRITERS)} END")
        key = self._names[0]
        written = self._insert(f"DO UPDATE SET {', '.join(changes or [f'{key} = excluded.{key}'])}")
        all_written = f"count(*) = cardinality({self._keys_sent[0]})"
        keys = ", ".join(f"CASE WHEN NOT {all_written} THEN array_agg({part}) END" for part in self._parts)
        return (
            f"WITH w({', '.join(self._parts)}, etag, value) AS ({written}) SELECT {ETAG_SQL}, count(*), {keys} FROM w"
        )

    @cached_property
    def load(self) -> str:
        """Takes keys, documents and expiries. Returns the row that `put` returns. Fails if one of the keys exists."""
        names = ", ".join([*self._names, quoted(VALUE), quoted(EXPIRES)])
        sent = [*(f"u.{part}" for part in self._parts), "convert_from(u.document, 'UTF8')::jsonb", "u.expires"]
        rows = f"SELECT {', '.join(sent)} FROM {self._rows_sent(['document', 'expires'], ['bytea', 'bigint'])}"
        written = f"{ETAG_SQL}, cardinality({self._keys_sent[0]}){', NULL' * len(self._parts)}"
        return f"WITH w AS (INSERT INTO {self.table} ({names}) {rows} ORDER BY {self._order_sent}) SELECT {written}"

    @cached_property
    def insert(self) -> str:
        """Takes the rows and whether to return values. Returns `_returning`, for rows that did not exist."""
        return self._insert("DO NOTHING")

    @cached_property
    def update(self) -> str:
        """Takes the rows and whether to return values. Returns `_returning`.

        A row that no longer has its etag, or that another transaction locks, is skipped.
        """
        locked, updated = self._update()
        return f"WITH l AS MATERIALIZED ({locked}) {updated}"

    @cached_property
    def update_or_match(self) -> str:
        """Is `update`, but returns first all keys that match. A trigger left those unchanged that are not repeated."""
        locked, updated = self._update()
        keys = ", ".join(self._outputs("l"))
        return f"WITH l AS MATERIALIZED ({locked}), w AS ({updated}) SELECT {keys}, NULL, NULL FROM l UNION ALL TABLE w"

    def _update(self) -> tuple[str, str]:
        """Return the selection of the rows to update, and their update."""
        changes = [f"{name} = {sent}" for name, sent in self._assignments()]
        for index, (name, sent) in enumerate(self._assignments()[: len(self._values.data)]):
            unchanged = f"decode('{UNCHANGED.hex()}', 'hex')"
            changes[index] = f"{name} = CASE u.d{index} WHEN {unchanged} THEN t.{name} ELSE {sent} END"
        key = self._names[0]
        return self._lock(self._sent(), "FOR NO KEY UPDATE"), (
            f"UPDATE {self.table} AS t SET {', '.join(changes or [f'{key} = t.{key}'])} FROM l AS u "
            f"WHERE {self._equal('u', self._parts)}{self._returning}"
        )

    @cached_property
    def delete(self) -> str:
        """Takes keys and their etags. Returns the keys of the rows with these etags, which it deletes.

        Rows that other transactions lock are skipped.
        """
        locked = self._lock(self._rows_sent(["etag"], ["text"]), "FOR UPDATE")
        deleted = f"DELETE FROM {self.table} AS t USING l WHERE {self._equal('l', self._parts)}"
        return f"WITH l AS MATERIALIZED ({locked}), w AS ({deleted}) SELECT {', '.join(self._outputs('l'))} FROM l"

    @cached_property
    def unconditional_delete(self) -> str:
        """Takes keys, whether to forget them, and the time now if `takes_time`. Deletes the records.

        Tombstones are also deleted if they are to be forgotten.
        """
        join, selected = self._selection()
        forget, now = f"${len(self._parts) + 1}::boolean", f"${len(self._parts) + 2}::bigint"
        locked = (
            f"SELECT {self._named_keys}, {self._outlived} AND NOT {forget} AS outlived FROM {self.table} AS t{join} "
            f"WHERE {selected} AND ({self._values.present} OR {forget}) ORDER BY {self.key_order} FOR UPDATE OF t"
        )
        return f"WITH u AS ({locked}){self._removals(now)} SELECT count(*) FROM u"

    @cached_property
    def sweep(self) -> str:
        """Takes the time now and a limit of rows. Deletes expired rows. It skips locked rows, so it never waits."""
        version = f", t.{quoted(VERSION)} AS version" if self.has_side_table else ""
        expired = (
            f"SELECT {self._named_keys}, {self._outlived} AS outlived{version} FROM {self._remembering} AS t "
            f"WHERE t.{quoted(EXPIRES)} <= $1::bigint LIMIT $2 FOR UPDATE SKIP LOCKED"
        )
        records = (
            f", gone AS (DELETE FROM {self.table} AS t USING u WHERE {self._equal('u', self._parts)} "
            f"AND t.xmin::text::bigint = u.version)"
        )
        removals = (records if self.has_side_table else "") + self._removals("$1::bigint")
        return f"WITH u AS ({expired}){removals} SELECT FROM u"

    @cached_property
    def delete_some(self) -> str:
        """Takes a limit of rows. Deletes any rows."""
        return f"DELETE FROM {self.table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {self.table} LIMIT $1))"

    @property
    def _remembering(self) -> str:
        """The table that stores expiry and what records remember."""
        return self._side if self.has_side_table else self.table

    @property
    def _emptied(self) -> str:
        """The column of `_remembering` that is NULL in a tombstone."""
        return quoted(VERSION if self.has_side_table else VALUE)

    @property
    def _outlived(self) -> str:
        """The condition that a row of `_remembering` belongs to a record whose memory outlives it."""
        if self._delete_memory_ms is None:
            return "false"
        return f"coalesce({_HAS_ORDERS_SQL.format(f't.{quoted(WRITERS)}')} AND t.{self._emptied} IS NOT NULL, false)"

    def _removals(self, now: str) -> str:
        """Return the subqueries that delete the rows `u` of `_remembering`. Those with `outlived` become tombstones.

        The memory of an expired record begins when it has expired.
        """
        same_key, expires = self._equal("u", self._parts), quoted(EXPIRES)
        removals = f", removed AS (DELETE FROM {self._remembering} AS t USING u WHERE {same_key} AND NOT u.outlived)"
        if self._delete_memory_ms is None:
            return removals
        return removals + (
            f", emptied AS (UPDATE {self._remembering} AS t SET {self._emptied} = NULL, "
            f"{expires} = least(t.{expires}, {now}) + {self._delete_memory_ms} FROM u WHERE {same_key} AND u.outlived)"
        )

    @property
    def _named_keys(self) -> str:
        return ", ".join(f"t.{name} AS {part}" for name, part in zip(self._names, self._parts, strict=True))

    @property
    def _returning(self) -> str:
        """The key, the etag, and the value if the parameter after the rows is true."""
        value = f"CASE WHEN ${self._sent_count + 1}::boolean THEN convert_to({self.value}, 'UTF8') END"
        return f" RETURNING {', '.join(self._outputs())}, {ETAG_SQL}, {value}"

    @property
    def _sent_count(self) -> int:
        """The number of arrays of rows: of key parts, data columns, metadata columns, and etags."""
        return len(self._parts) + len(self._values.data) + len(self.metadata) + 1

    def _sent(self) -> str:
        names = [*(f"d{index}" for index in range(len(self._values.data))), *self.metadata, "etag"]
        kinds = (
            ["bytea"] * len(self._values.data)
            + ["bigint" if name == EXPIRES else "text" for name in self.metadata]
            + ["text"]
        )
        return self._rows_sent(names, kinds)

    def _assignments(self) -> list[tuple[str, str]]:
        """Return the written columns other than the key, each with the SQL for its new content."""
        data = [
            (quoted(column.name), f"convert_from(u.d{index}, 'UTF8')::{column.cast}")
            for index, column in enumerate(self._values.data)
        ]
        return data + [(quoted(name), f"u.{name}" + ("::jsonb" if name == WRITERS else "")) for name in self.metadata]

    def _insert(self, conflict: str) -> str:
        names = ", ".join([*self._names, *(name for name, _ in self._assignments())])
        sent = ", ".join([*(f"u.{part}" for part in self._parts), *(sent for _, sent in self._assignments())])
        rows = f"SELECT {sent} FROM {self._sent()} WHERE {self._same_columns} ORDER BY {self._order_sent}"
        key = ", ".join(self._names)
        return f"INSERT INTO {self.table} AS t ({names}) {rows} ON CONFLICT ({key}) {conflict}{self._returning}"

    def _lock(self, rows: str, lock: str) -> str:
        """Return the selection of the rows sent whose rows of `t` have their etag. It locks those, and never waits."""
        condition = f"t.xmin::text = u.etag AND {self._same_columns}"
        key = self._equal("u", self._parts)
        return f"SELECT u.* FROM {self.table} AS t JOIN {rows} ON {key} WHERE {condition} {lock} OF t SKIP LOCKED"

    # The side table

    @cached_property
    def side_find(self) -> str:
        """Takes keys. Returns the rows of the side table, as `side_lock` does."""
        join, selected = self._selection()
        return f"SELECT {self._side_outputs} FROM {self._side} AS t{join} WHERE {selected}"

    @cached_property
    def side_lock(self) -> str:
        """Takes keys. Returns the locked rows of the side table, which it creates for new keys."""
        names, first = ", ".join(self._names), self._names[0]
        sent = ", ".join(f"u.{part}" for part in self._parts)
        return (
            f"INSERT INTO {self._side} AS t ({names}) "
            f"SELECT {sent} FROM {self._rows_sent()} ORDER BY {self._order_sent} "
            f"ON CONFLICT ({names}) DO UPDATE SET {first} = excluded.{first} "
            f"RETURNING {self._side_outputs}"
        )

    @property
    def _side_outputs(self) -> str:
        metadata = f"t.{quoted(VERSION)}, t.{quoted(EXPIRES)}, t.{quoted(WRITERS)}::text"
        return f"{', '.join(self._outputs())}, {metadata}"

    @cached_property
    def side_update(self) -> str:
        """Takes keys, versions, expiries and writers. Writes them to rows of the side table."""
        rows = self._rows_sent(["version", "expires", "writers"], ["bigint", "bigint", "text"])
        return (
            f"UPDATE {self._side} AS t SET {quoted(VERSION)} = u.version, {quoted(EXPIRES)} = u.expires, "
            f"{quoted(WRITERS)} = u.writers::jsonb FROM {rows} WHERE {self._equal('u', self._parts)}"
        )

    @cached_property
    def side_delete(self) -> str:
        """Takes keys. Deletes their rows of the side table."""
        return f"DELETE FROM {self._side} AS t USING {self._rows_sent()} WHERE {self._equal('u', self._parts)}"


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
