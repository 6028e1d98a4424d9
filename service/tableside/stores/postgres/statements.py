"""The SQL of one table, made once when it is opened.

Every statement that locks or inserts rows goes through its keys in one order, that of their bytes: so batches that
share keys wait for each other and never in a circle, whichever replica sends them. `t` is the table, `s` its side
table, `u` the rows that are sent, an array for each column. Knows nothing of operations.
"""

# ruff: noqa: S608  # the SQL is put together from names, which `quoted` quotes; values are parameters

from collections.abc import Sequence

import msgspec

from .column_types import KEPT
from .schema import EXPIRES, VERSION, WRITERS, Column, Shape, quoted, side_name

ETAG = "pg_current_xact_id()::xid::text"
"""The number of the transaction that writes, which the row has as `xmin` from then on."""


class Form(msgspec.Struct, frozen=True):
    """How the values of a table are kept: which columns are written, and SQL for a value's text.

    `present` says in SQL whether there is a value, `object` whether what is there is an object. Columns with a name in
    `kept` stay as they are where an update sends KEPT.
    """

    data: tuple[Column, ...]
    value: str
    present: str
    object: str
    kept: frozenset[str] = frozenset()


class Statements(msgspec.Struct, frozen=True):
    """What can be said about a table; each takes arrays of the keys' parts first.

    `read` takes the time too; `put`, `insert` and `update` take arrays for the data columns and for what is remembered
    (`memory`), `put` perhaps the time. They answer keys, etag and, as the second of a pair, the value.
    """

    read: str
    lock: str
    put: tuple[str, str]
    insert: tuple[str, str]
    update: tuple[str, str]
    delete: str
    remove: str
    sweep: str
    sample: str
    count: str
    page_columns: str
    page_from: str
    side_lock: str
    side_update: str
    side_delete: str
    memory: tuple[str, ...]
    put_takes_time: bool


class Writer:
    """Writes the SQL of one table."""

    def __init__(self, shape: Shape, form: Form) -> None:
        self._shape = shape
        self._form = form
        self._table = f"{quoted(shape.schema)}.{quoted(shape.name)}"
        self._side = f"{quoted(shape.schema)}.{quoted(side_name(shape.name))}" if shape.side else None
        self._memory = [name for name in (EXPIRES, WRITERS) if not shape.side and name in shape.names]

    def statements(self) -> Statements:
        """Return all of it."""
        returning = self._returning(value=False), self._returning(value=True)
        insert, put, update = self._insert(), self._put(), self._update()
        return Statements(
            read=self._read(),
            lock=self._lock(),
            put=(put + returning[0], put + returning[1]),
            insert=(insert + returning[0], insert + returning[1]),
            update=(update + returning[0], update + returning[1]),
            delete=f"DELETE FROM {self._table} AS t USING {self._keys_sent()} WHERE {self._same('u')}",
            remove=self._remove(),
            sweep=self._sweep(),
            sample=self._sample(),
            count=f"SELECT greatest(1, pg_relation_size('{self._escaped()}'::regclass) / 8192)",
            page_columns=f"{self._named_keys()}, {self._form.value} AS value, t.xmin::text AS etag, "
            f"{self.expires} AS expires",
            page_from=self._source(),
            side_lock=self._side_lock() if self._side else "",
            side_update=self._side_update(),
            side_delete=f"DELETE FROM {self._side} AS t USING {self._keys_sent()} WHERE {self._same('u')}",
            memory=tuple(self._memory),
            put_takes_time=self._put_takes_time,
        )

    # Pieces

    @property
    def _put_takes_time(self) -> bool:
        """Whether a put has to see if a record has expired, since what is remembered of it has then too."""
        return self._memory == [EXPIRES, WRITERS]

    @property
    def expires(self) -> str:
        """Return SQL for when a record expires."""
        if self._side:
            return f"CASE WHEN s.{quoted(VERSION)} = t.xmin::text::bigint THEN s.{quoted(EXPIRES)} END"
        return f"t.{quoted(EXPIRES)}" if EXPIRES in self._memory else "NULL::bigint"

    @property
    def writers(self) -> str:
        """Return SQL for who is remembered."""
        return f"t.{quoted(WRITERS)}::text" if WRITERS in self._memory else "NULL::text"

    def live(self, number: int) -> str:
        """Return the condition that a record is there at the time that a parameter gives."""
        return f"{self._form.present} AND coalesce({self.expires} > ${number}::bigint, true)"

    def ordered(self, alias: str) -> str:
        """Return the order of all statements."""
        return ", ".join(by_bytes(f"{alias}.{quoted(key.name)}", key) for key in self._shape.keys)

    def _source(self) -> str:
        if not self._side:
            return f"{self._table} AS t"
        return f"{self._table} AS t LEFT JOIN {self._side} AS s ON {self._same('s', own=True)}"

    def _same(self, alias: str, *, own: bool = False) -> str:
        """Return the condition that a row has the key of another; `own` is: under the key's own names."""
        names = [quoted(key.name) if own else f"k{index}" for index, key in enumerate(self._shape.keys)]
        pairs = zip(self._shape.keys, names, strict=True)
        return " AND ".join(f"t.{quoted(key.name)} = {alias}.{name}" for key, name in pairs)

    def _key_arrays(self) -> list[str]:
        return [_array(key, index + 1) for index, key in enumerate(self._shape.keys)]

    def _keys_sent(self) -> str:
        names = ", ".join(f"k{index}" for index in range(len(self._shape.keys)))
        return f"unnest({', '.join(self._key_arrays())}) AS u({names})"

    def _shown(self, alias: str) -> str:
        return ", ".join(shown(f"{alias}.{quoted(key.name)}", key) for key in self._shape.keys)

    def _named_keys(self) -> str:
        keys = enumerate(self._shape.keys)
        return ", ".join(f"{shown(f't.{quoted(key.name)}', key)} AS k{index}" for index, key in keys)

    def _returning(self, *, value: bool) -> str:
        text = f", convert_to({self._form.value}, 'UTF8')" if value else ""
        return f" RETURNING {self._shown('t')}, {ETAG}{text}"

    def _chosen(self) -> tuple[str, str]:
        """Return what to join with, and the condition, for the rows whose keys are sent."""
        if len(self._shape.keys) == 1:
            return "", f"t.{quoted(self._shape.keys[0].name)} = ANY({self._key_arrays()[0]})"
        return f" JOIN {self._keys_sent()} ON {self._same('u')}", "true"

    # Reading

    def _read(self) -> str:
        join, chosen = self._chosen()
        keys = ", ".join(f"array_agg({shown(f't.{quoted(key.name)}', key)})" for key in self._shape.keys)
        return (
            f"SELECT {keys}, convert_to(string_agg({self._form.value}, E'\\n'), 'UTF8'), "
            f"bool_and({self._form.object}), string_agg(t.xmin::text, ','), "
            f"CASE WHEN max({self.expires}) IS NOT NULL THEN array_agg({self.expires}) END "
            f"FROM {self._source()}{join} WHERE {chosen} AND {self.live(len(self._shape.keys) + 1)}"
        )

    def _lock(self) -> str:
        join, chosen = self._chosen()
        return (
            f"SELECT {self._shown('t')}, convert_to({self._form.value}, 'UTF8'), t.xmin::text, "
            f"{'NULL::bigint' if self._side else self.expires}, {self.writers} "
            f"FROM {self._table} AS t{join} WHERE {chosen} "
            f"ORDER BY {self.ordered('t')} FOR UPDATE OF t"
        )

    def _sample(self) -> str:
        return f"SELECT {self._shown('t')} FROM {self._table} AS t TABLESAMPLE SYSTEM ($1) LIMIT $2"

    def _escaped(self) -> str:
        return self._table.replace("'", "''")

    # Writing

    def _rows_sent(self) -> str:
        count = len(self._shape.keys)
        arrays = self._key_arrays()
        names = [f"k{index}" for index in range(count)]
        for index in range(len(self._form.data)):
            arrays.append(f"${count + 1 + index}::text[]")
            names.append(f"d{index}")
        count += len(self._form.data)
        for index, name in enumerate(self._memory):
            arrays.append(f"${count + 1 + index}::{'bigint' if name == EXPIRES else 'text'}[]")
            names.append(name)
        return f"unnest({', '.join(arrays)}) AS u({', '.join(names)})"

    def _sent(self) -> list[tuple[str, str]]:
        """Return the columns that are written beside the key, and SQL for what each gets."""
        data = [(quoted(column.name), f"u.d{index}::{column.cast}") for index, column in enumerate(self._form.data)]
        return data + [(quoted(name), f"u.{name}" + ("::jsonb" if name == WRITERS else "")) for name in self._memory]

    def _inserting(self) -> str:
        keys = [quoted(key.name) for key in self._shape.keys]
        names = ", ".join([*keys, *(name for name, _ in self._sent())])
        given = ", ".join([*(f"u.k{index}" for index in range(len(keys))), *(given for _, given in self._sent())])
        order = ", ".join(by_bytes(f"u.k{index}", key) for index, key in enumerate(self._shape.keys))
        source = f"SELECT {given} FROM {self._rows_sent()} ORDER BY {order}"
        return f"INSERT INTO {self._table} AS t ({names}) {source} ON CONFLICT ({', '.join(keys)}) "

    def _insert(self) -> str:
        return self._inserting() + "DO NOTHING"

    def _put(self) -> str:
        now = len(self._shape.keys) + len(self._form.data) + len(self._memory) + 1
        changes = [f"{name} = excluded.{name}" for name, _ in self._sent() if name != quoted(WRITERS)]
        if self._put_takes_time:
            kept = f"CASE WHEN t.{quoted(EXPIRES)} <= ${now}::bigint THEN NULL ELSE t.{quoted(WRITERS)} END"
            changes.append(f"{quoted(WRITERS)} = {kept}")
        key = quoted(self._shape.keys[0].name)
        return self._inserting() + f"DO UPDATE SET {', '.join(changes or [f'{key} = excluded.{key}'])}"

    def _update(self) -> str:
        key = quoted(self._shape.keys[0].name)
        changes = [f"{name} = {given}" for name, given in self._sent()] or [f"{key} = t.{key}"]
        for index, column in enumerate(self._form.data):
            if column.name in self._form.kept:
                own = quoted(column.name)
                changes[index] = (
                    f"{own} = CASE u.d{index} WHEN '{KEPT}' THEN t.{own} ELSE u.d{index}::{column.cast} END"
                )
        return f"UPDATE {self._table} AS t SET {', '.join(changes)} FROM {self._rows_sent()} WHERE {self._same('u')}"

    def _remove(self) -> str:
        """Remove records, and not what a delete with a token left to remember it by."""
        join, chosen = self._chosen()
        names = ", ".join(f"t.{quoted(key.name)} AS k{index}" for index, key in enumerate(self._shape.keys))
        locked = (
            f"SELECT {names} FROM {self._table} AS t{join} WHERE {chosen} AND {self._form.present} "
            f"ORDER BY {self.ordered('t')} FOR UPDATE OF t"
        )
        return f"WITH u AS ({locked}) DELETE FROM {self._table} AS t USING u WHERE {self._same('u')}"

    def _sweep(self) -> str:
        """Remove some of what has expired, passing by whatever is locked: it waits for nobody."""
        own = self._side or self._table
        names = ", ".join(f"t.{quoted(key.name)} AS k{index}" for index, key in enumerate(self._shape.keys))
        expired = f"t.{quoted(EXPIRES)} <= $1::bigint LIMIT $2 FOR UPDATE SKIP LOCKED"
        if not self._side:
            return (
                f"WITH u AS (SELECT {names} FROM {own} AS t WHERE {expired}) "
                f"DELETE FROM {own} AS t USING u WHERE {self._same('u')}"
            )
        return (
            f"WITH u AS (SELECT {names}, t.{quoted(VERSION)} AS version FROM {own} AS t WHERE {expired}), "
            f"gone AS (DELETE FROM {self._table} AS t USING u "
            f"WHERE {self._same('u')} AND t.xmin::text::bigint = u.version) "
            f"DELETE FROM {own} AS t USING u WHERE {self._same('u')}"
        )

    # The side table

    def _side_lock(self) -> str:
        keys = [quoted(key.name) for key in self._shape.keys]
        order = ", ".join(by_bytes(f"u.k{index}", key) for index, key in enumerate(self._shape.keys))
        given = ", ".join(f"u.k{index}" for index in range(len(keys)))
        return (
            f"INSERT INTO {self._side} AS t ({', '.join(keys)}) "
            f"SELECT {given} FROM {self._keys_sent()} ORDER BY {order} "
            f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {keys[0]} = excluded.{keys[0]} "
            f"RETURNING {self._shown('t')}, t.{quoted(VERSION)}, t.{quoted(EXPIRES)}, t.{quoted(WRITERS)}::text"
        )

    def _side_update(self) -> str:
        count = len(self._shape.keys)
        arrays = [*self._key_arrays(), f"${count + 1}::bigint[]", f"${count + 2}::bigint[]", f"${count + 3}::text[]"]
        names = [*(f"k{index}" for index in range(count)), "version", "expires", "writers"]
        return (
            f"UPDATE {self._side} AS t SET {quoted(VERSION)} = u.version, {quoted(EXPIRES)} = u.expires, "
            f"{quoted(WRITERS)} = u.writers::jsonb FROM unnest({', '.join(arrays)}) AS u({', '.join(names)}) "
            f"WHERE {self._same('u')}"
        )


def by_bytes(expression: str, key: Column) -> str:
    """Return SQL for a part of a key that sorts by its bytes, or by its number."""
    return f'{expression} COLLATE "C"' if key.type in ("text", "varchar") else expression


def shown(expression: str, key: Column) -> str:
    """Return SQL for a part of a key as the driver is to give it."""
    return f"{expression}::{'bigint' if key.type.startswith('int') else 'text'}"


def one(number: int, key: Column) -> str:
    """Return SQL for a part of a key that is a parameter."""
    if key.type == "uuid":
        return f"(${number}::text)::uuid"
    return f"${number}::{'bigint' if key.type.startswith('int') else 'text'}"


def _array(key: Column, number: int) -> str:
    if key.type == "uuid":
        return f"(${number}::text[])::uuid[]"
    return f"${number}::{'bigint' if key.type.startswith('int') else 'text'}[]"


def arrays(rows: Sequence[Sequence[object]], width: int) -> list[list[object]]:
    """Return the columns of rows."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
