"""The SQL statements of one table.

A statement takes one array for each key column, whose elements are the parts `k0`, `k1`, … of the keys. The alias `t`
is the table, `s` its side table, and `u` the rows sent. Statements that wait for row locks take them in the order of
the keys' bytes, so batches that share keys wait for each other without deadlock, also across replicas.
"""

# ruff: noqa: S608  # the SQL is built from names, which `quoted` quotes; values are parameters

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from ...core import Key
from .columns import UNCHANGED, ValueLayout
from .schema import EXPIRES, VALUE, VERSION, WRITERS, TableDefinition, bytewise, key_parameter, quoted, wire_type

ETAG_SQL = "pg_current_xact_id()::xid::text"
"""The ID of the writing transaction, which becomes the row's `xmin`."""

_EXPIRES, _VERSION, _WRITERS = quoted(EXPIRES), quoted(VERSION), quoted(WRITERS)


class TableSql:
    """The statements of one table, each built when it is first used. Their first parameters are the arrays of keys.

    `delete_memory_s` is how long an absent record is remembered, None if the table remembers no writes. `metadata` are
    the columns of the table itself that store expiry and writers. If `takes_time`, `put` and `unconditional_delete`
    need the time, because it decides what is remembered.

    Expressions: `source` is the table joined with its side table, if there is one. `value` and `expires` are the JSON
    text and the expiry of a row of `source`. `key_order` sorts the rows of `t` by their keys. `named_outputs` are the
    key columns as the driver receives them, named `k0`, `k1`, …
    """

    def __init__(self, table: TableDefinition, layout: ValueLayout, delete_memory_s: float | None) -> None:
        self.has_side_table = table.has_side_table
        self.key_columns = table.key_columns
        self.metadata = [name for name in (EXPIRES, WRITERS) if not table.has_side_table and name in table.names]
        self.takes_time = delete_memory_s is not None and not table.has_side_table
        self._delete_memory_ms = None if delete_memory_s is None else round(1000 * delete_memory_s)
        self.layout = layout
        self._names = [quoted(column.name) for column in table.key_columns]
        self._parts = [f"k{index}" for index in range(len(self._names))]
        self._named_keys = ", ".join(map("t.{} AS {}".format, self._names, self._parts))
        # The arrays of rows are those of key parts, data columns, metadata columns, and etags.
        self._sent_count = len(self._parts) + len(layout.data) + len(self.metadata) + 1
        self._keys_sent = [key_parameter(index + 1, column, "[]") for index, column in enumerate(table.key_columns)]
        self._order_sent = ", ".join(map(bytewise, [f"u.{part}" for part in self._parts], table.key_columns))
        self._same_key = self._equal("u", self._parts)
        self._same_columns = _same_columns(table, layout)
        self._join, self._selected = f" JOIN {self._rows_sent({})} ON {self._same_key}", "true"
        if len(self._names) == 1:
            self._join, self._selected = "", f"t.{self._names[0]} = ANY({self._keys_sent[0]})"
        self.key_order = ", ".join(map(bytewise, [f"t.{name}" for name in self._names], table.key_columns))
        self.named_outputs = ", ".join(map("{} AS {}".format, self._outputs(), self._parts))
        self.table, self._side = table.in_sql, table.side_in_sql
        self.value = layout.value
        self.source = f"{self.table} AS t"
        self.expires = f"t.{_EXPIRES}" if EXPIRES in self.metadata else "NULL::bigint"
        # The table that stores expiry and what records remember, and its column that is NULL in a tombstone
        self._remembering, self._emptied = self.table, quoted(VALUE)
        if table.has_side_table:
            self.source += f" LEFT JOIN {self._side} AS s ON {self._equal('s', self._names)}"
            # An expiry in the side table belongs to the version it was set for.
            self.expires = f"CASE WHEN s.{_VERSION} = t.xmin::text::bigint THEN s.{_EXPIRES} END"
            self._remembering, self._emptied = self._side, _VERSION

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

    def live(self, now: str) -> str:
        """Return the condition that a row of `source` is a record that has not expired at the time `now`."""
        return f"{self.layout.present} AND coalesce({self.expires} > {now}, true) AND {self._same_columns}"

    def _rows_sent(self, columns: Mapping[str, str]) -> str:
        """Return the table expression `u` of the keys sent, and of columns with these types sent after them."""
        types = enumerate(columns.values(), len(self._parts) + 1)
        arrays = ", ".join([*self._keys_sent, *(f"${number}::{kind}[]" for number, kind in types)])
        return f"unnest({arrays}) AS u({', '.join([*self._parts, *columns])})"

    def _equal(self, alias: str, others: Sequence[str]) -> str:
        """Return the condition that the key of `t` equals columns of another row."""
        return " AND ".join(f"t.{name} = {alias}.{other}" for name, other in zip(self._names, others, strict=True))

    def _outputs(self, alias: str = "t") -> list[str]:
        names = self._names if alias == "t" else self._parts
        return [f"{alias}.{name}::{wire_type(column)}" for name, column in zip(names, self.key_columns, strict=True)]

    # Reading

    @cached_property
    def read(self) -> str:
        """Takes a limit in bytes and the time now. Returns `_aggregated` of the live records."""
        live = self.live(f"${len(self._parts) + 2}::bigint")
        return f"{self._aggregated(self.expires)} FROM {self.source}{self._join} WHERE {self._selected} AND {live}"

    @cached_property
    def find(self) -> str:
        """Takes a limit in bytes. Returns `_aggregated` of all rows of the table itself, with their writers."""
        expires = f"t.{_EXPIRES}" if EXPIRES in self.metadata else "NULL::bigint"
        writers = f"t.{_WRITERS}::text" if WRITERS in self.metadata else "NULL::text"
        rows = f"{self.table} AS t{self._join} WHERE {self._selected} AND {self._same_columns}"
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
            f"bool_and({self.layout.is_object}), string_agg(t.xmin::text, ','), "
            f"CASE WHEN count({expires}) > 0 THEN array_agg(coalesce({expires}, 0)) END"
            + (f", CASE WHEN {size} {fits} THEN array_agg({writers}) END" if writers else "")
        )

    # Writing

    @cached_property
    def put(self) -> str:
        """Takes the rows, false, and the time now if `takes_time`. Returns one row, which is transferred faster.

        It has the etag of all rows, how many were written, and the parts of their keys if a trigger ignored some.
        """
        changes = [f"{name} = excluded.{name}" for name in self._assignments if name != _WRITERS]
        if self.takes_time:
            memory_ms = f"CASE WHEN {self._outlived} THEN {self._delete_memory_ms} ELSE 0 END"
            is_forgotten = f"{self.expires} <= ${self._sent_count + 2}::bigint - {memory_ms}"
            changes.append(f"{_WRITERS} = CASE WHEN {is_forgotten} THEN NULL ELSE t.{_WRITERS} END")
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
        names = ", ".join([*self._names, quoted(VALUE), _EXPIRES])
        sent = [*(f"u.{part}" for part in self._parts), "convert_from(u.document, 'UTF8')::jsonb", "u.expires"]
        rows = f"SELECT {', '.join(sent)} FROM {self._rows_sent({'document': 'bytea', 'expires': 'bigint'})}"
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
        changes = [f"{name} = {sent}" for name, sent in self._assignments.items()]
        for index, (name, sent) in enumerate([*self._assignments.items()][: len(self.layout.data)]):
            unchanged = f"decode('{UNCHANGED.hex()}', 'hex')"
            changes[index] = f"{name} = CASE u.d{index} WHEN {unchanged} THEN t.{name} ELSE {sent} END"
        key = self._names[0]
        return self._lock(self._sent, "FOR NO KEY UPDATE"), (
            f"UPDATE {self.table} AS t SET {', '.join(changes or [f'{key} = t.{key}'])} FROM l AS u "
            f"WHERE {self._same_key}{self._returning}"
        )

    @cached_property
    def delete(self) -> str:
        """Takes keys and their etags. Returns the keys of the rows with these etags, which it deletes.

        Rows that other transactions lock are skipped.
        """
        locked = self._lock(self._rows_sent({"etag": "text"}), "FOR UPDATE")
        deleted = f"DELETE FROM {self.table} AS t USING l WHERE {self._equal('l', self._parts)}"
        return f"WITH l AS MATERIALIZED ({locked}), w AS ({deleted}) SELECT {', '.join(self._outputs('l'))} FROM l"

    @cached_property
    def unconditional_delete(self) -> str:
        """Takes keys, whether to forget them, and the time now if `takes_time`. Deletes the records.

        Tombstones are also deleted if they are to be forgotten.
        """
        forget, now = f"${len(self._parts) + 1}::boolean", f"${len(self._parts) + 2}::bigint"
        locked = (
            f"SELECT {self._named_keys}, {self._outlived} AND NOT {forget} AS outlived "
            f"FROM {self.table} AS t{self._join} WHERE {self._selected} AND ({self.layout.present} OR {forget}) "
            f"ORDER BY {self.key_order} FOR UPDATE OF t"
        )
        return f"WITH u AS ({locked}){self._removals(now)} SELECT count(*) FROM u"

    @cached_property
    def sweep(self) -> str:
        """Takes the time now and a limit of rows. Deletes expired rows. It skips locked rows, so it never waits."""
        version = f", t.{_VERSION} AS version" if self.has_side_table else ""
        expired = (
            f"SELECT {self._named_keys}, {self._outlived} AS outlived{version} FROM {self._remembering} AS t "
            f"WHERE t.{_EXPIRES} <= $1::bigint LIMIT $2 FOR UPDATE SKIP LOCKED"
        )
        records = (
            f", gone AS (DELETE FROM {self.table} AS t USING u WHERE {self._same_key} "
            f"AND t.xmin::text::bigint = u.version)"
        )
        removals = (records if self.has_side_table else "") + self._removals("$1::bigint")
        return f"WITH u AS ({expired}){removals} SELECT FROM u"

    @cached_property
    def delete_some(self) -> str:
        """Takes a limit of rows. Deletes any rows."""
        return f"DELETE FROM {self.table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {self.table} LIMIT $1))"

    @property
    def _outlived(self) -> str:
        """The condition that a row of `_remembering` belongs to a record whose memory outlives it: it has orders."""
        if self._delete_memory_ms is None:
            return "false"
        return f"coalesce(jsonb_typeof(t.{_WRITERS} -> 0) = 'object' AND t.{self._emptied} IS NOT NULL, false)"

    def _removals(self, now: str) -> str:
        """Return the subqueries that delete the rows `u` of `_remembering`. Those with `outlived` become tombstones.

        The memory of an expired record begins when it has expired.
        """
        same_key = self._same_key
        removals = f", removed AS (DELETE FROM {self._remembering} AS t USING u WHERE {same_key} AND NOT u.outlived)"
        if self._delete_memory_ms is None:
            return removals
        return removals + (
            f", emptied AS (UPDATE {self._remembering} AS t SET {self._emptied} = NULL, {_EXPIRES} = "
            f"least(t.{_EXPIRES}, {now}) + {self._delete_memory_ms} FROM u WHERE {same_key} AND u.outlived)"
        )

    @property
    def _returning(self) -> str:
        """The key, the etag, and the value if the parameter after the rows is true."""
        value = f"CASE WHEN ${self._sent_count + 1}::boolean THEN convert_to({self.value}, 'UTF8') END"
        return f" RETURNING {', '.join(self._outputs())}, {ETAG_SQL}, {value}"

    @property
    def _sent(self) -> str:
        data = {f"d{index}": "bytea" for index in range(len(self.layout.data))}
        metadata = {name: "bigint" if name == EXPIRES else "text" for name in self.metadata}
        return self._rows_sent({**data, **metadata, "etag": "text"})

    @property
    def _assignments(self) -> dict[str, str]:
        """Return the written columns other than the key, each with the SQL for its new content."""
        data = {
            quoted(column.name): f"convert_from(u.d{index}, 'UTF8')::{column.cast}"
            for index, column in enumerate(self.layout.data)
        }
        return data | {quoted(name): f"u.{name}" + ("::jsonb" if name == WRITERS else "") for name in self.metadata}

    def _insert(self, conflict: str) -> str:
        names = ", ".join([*self._names, *self._assignments])
        sent = ", ".join([*(f"u.{part}" for part in self._parts), *self._assignments.values()])
        rows = f"SELECT {sent} FROM {self._sent} WHERE {self._same_columns} ORDER BY {self._order_sent}"
        key = ", ".join(self._names)
        return f"INSERT INTO {self.table} AS t ({names}) {rows} ON CONFLICT ({key}) {conflict}{self._returning}"

    def _lock(self, rows: str, lock: str) -> str:
        """Return the selection of the rows sent whose rows of `t` have their etag. It locks those, and never waits."""
        condition = f"t.xmin::text = u.etag AND {self._same_columns}"
        joined = f"{self.table} AS t JOIN {rows} ON {self._same_key}"
        return f"SELECT u.* FROM {joined} WHERE {condition} {lock} OF t SKIP LOCKED"

    # The side table

    @cached_property
    def side_find(self) -> str:
        """Takes keys. Returns the rows of the side table, as `side_lock` does."""
        return f"SELECT {self._side_outputs} FROM {self._side} AS t{self._join} WHERE {self._selected}"

    @cached_property
    def side_lock(self) -> str:
        """Takes keys. Returns the locked rows of the side table, which it creates for new keys."""
        names, first = ", ".join(self._names), self._names[0]
        sent = ", ".join(f"u.{part}" for part in self._parts)
        return (
            f"INSERT INTO {self._side} AS t ({names}) "
            f"SELECT {sent} FROM {self._rows_sent({})} ORDER BY {self._order_sent} "
            f"ON CONFLICT ({names}) DO UPDATE SET {first} = excluded.{first} "
            f"RETURNING {self._side_outputs}"
        )

    @property
    def _side_outputs(self) -> str:
        return f"{', '.join(self._outputs())}, t.{_VERSION}, t.{_EXPIRES}, t.{_WRITERS}::text"

    @cached_property
    def side_update(self) -> str:
        """Takes keys, versions, expiries and writers. Writes them to rows of the side table."""
        rows = self._rows_sent({"version": "bigint", "expires": "bigint", "writers": "text"})
        return (
            f"UPDATE {self._side} AS t SET {_VERSION} = u.version, {_EXPIRES} = u.expires, "
            f"{_WRITERS} = u.writers::jsonb FROM {rows} WHERE {self._same_key}"
        )

    @cached_property
    def side_delete(self) -> str:
        """Takes keys. Deletes their rows of the side table."""
        return f"DELETE FROM {self._side} AS t USING {self._rows_sent({})} WHERE {self._same_key}"


def _same_columns(table: TableDefinition, layout: ValueLayout) -> str:
    """Return a condition that is true, and not valid once the table has another number of columns or other types.

    PostgreSQL analyzes a prepared statement again after each change of its tables, so the next use of the statement
    fails. Otherwise a new column would be invisible, and a column with another type could be written inexactly. The
    planner removes the condition.
    """
    types = [f"ARRAY[c.{quoted(column.name)}] = ARRAY[NULL::{column.full_type}]" for column in layout.data]
    where, nulls = " AND ".join(["true", *types]), ", ".join(["NULL"] * len(table.columns))
    return f"(true OR EXISTS (SELECT * FROM {table.in_sql} AS c WHERE {where} UNION ALL SELECT {nulls}))"
