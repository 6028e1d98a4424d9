"""Reads table definitions from PostgreSQL's system catalogs, and creates tables if the configuration allows it."""

from collections.abc import Iterator, Sequence

import msgspec

from ...core import InvalidOperation, KeyField, KeySchema, PartType, TableError, TableSpec, Unsupported
from .connections import Connection

NAME_BYTES_MAX = 63
"""PostgreSQL truncates longer names."""

KEY, VALUE, EXPIRES, WRITERS, VERSION = "key", "value", "_ts_expires", "_ts_writers", "_ts_version"
SIDE_PREFIX = "_ts_"

LOCK_WAIT_MAX_S = 5.0
"""How long a change or removal of a table waits for transactions that use it. Later transactions wait behind it."""

_TEXT_TYPES = ("text", "varchar")
_PART_TYPES: dict[str, PartType] = {
    **dict.fromkeys((*_TEXT_TYPES, "uuid"), "string"),
    **dict.fromkeys(("int2", "int4", "int8"), "integer"),
}
_KEY_TYPES = {"string": 'text COLLATE "C"', "integer": "bigint"}
_METADATA_TYPES = {EXPIRES: "bigint", WRITERS: "jsonb"}


class Column(msgspec.Struct, frozen=True):
    """A column.

    `type` is the name of its type, `cast` the qualified name in SQL, and `element` the type of an array's elements.
    Each is the base type of a domain. `full_type` is the declared type in SQL.
    """

    name: str
    type: str
    cast: str
    full_type: str
    element: str | None
    modifier: int | None
    """The type's modifier in the catalog's encoding, such as the length of a `varchar`, also that of elements."""
    not_null: bool
    generated: bool
    deterministic: bool
    """Whether values are equal only if their bytes are equal (a deterministic collation)."""


class TableDefinition(msgspec.Struct, frozen=True):
    """A table: its columns, its key columns in key order, and whether a side table stores its metadata."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]
    has_side_table: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all columns."""
        return frozenset(column.name for column in self.columns)

    @property
    def in_sql(self) -> str:
        """Return the quoted name with the schema."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def side_in_sql(self) -> str:
        """Return the quoted name of the side table with the schema."""
        return f"{quoted(self.schema)}.{quoted(SIDE_PREFIX + self.name)}"

    def key_schema(self, spec: TableSpec) -> KeySchema:
        """Return the key schema. Raise Unsupported if it differs from the configuration."""
        types = {column.name: _PART_TYPES[column.type] for column in self.key_columns}
        if not spec.key_given:
            return KeySchema(tuple(KeyField(None if [*types] == [KEY] else name, kind) for name, kind in types.items()))
        for field, column in zip(spec.key.fields, self.key_columns, strict=True):
            if types[column.name] != field.type:
                raise Unsupported(f"key column {column.name!r} has type {types[column.name]}, not {field.type}")
        return spec.key

    def metadata_ddl(self) -> str:
        """Return the statements that add columns for expiry and writers to documents, or no text if it has both."""
        lacking = {name: kind for name, kind in _METADATA_TYPES.items() if name not in self.names}
        if not lacking:
            return ""
        added = ", ".join(f"ADD COLUMN {quoted(name)} {kind}" for name, kind in lacking.items())
        index = f"; {_index_ddl(self.in_sql)}" if EXPIRES in lacking else ""
        return f"SET LOCAL lock_timeout = '{LOCK_WAIT_MAX_S:g}s'; ALTER TABLE {self.in_sql} {added}{index}"

    def side_table_ddl(self) -> str:
        """Return the statements that create the side table of a table of columns."""
        keys = [(key.name, _KEY_TYPES["string"] if key.type in _TEXT_TYPES else key.type) for key in self.key_columns]
        return _table_ddl(self.side_in_sql, keys, f"{quoted(VERSION)} bigint")

    def drop_ddl(self) -> str:
        """Return the statements that remove a table, and its side table."""
        dropped = self.in_sql + (f", {self.side_in_sql}" if self.has_side_table else "")
        return f"SET LOCAL lock_timeout = '{LOCK_WAIT_MAX_S:g}s'; DROP TABLE IF EXISTS {dropped}"


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def bytewise(expression: str, key: Column) -> str:
    """Return SQL for a key part that sorts by its bytes or by its number."""
    return f'{expression} COLLATE "C"' if key.type in _TEXT_TYPES else expression


def key_parameter(number: int, key: Column, array: str = "") -> str:
    """Return SQL for a key part passed as a parameter, or for an array of them with `array` as `[]`."""
    sent = f"${number}::{wire_type(key)}{array}"
    return f"({sent})::uuid{array}" if key.type == "uuid" else sent


def wire_type(key: Column) -> str:
    """Return the type that a key part has as a parameter and in results."""
    return "bigint" if key.type.startswith("int") else "text"


def literal(text: str) -> str:
    """Return a text as an SQL string literal."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'" if "\\" not in escaped else "E'" + escaped.replace("\\", "\\\\") + "'"


def table_faults(spec: TableSpec, *, document: bool) -> Iterator[TableError]:
    """Return the reasons why PostgreSQL can never have a table with this layout."""
    if len(spec.name_in_store.encode()) > NAME_BYTES_MAX:
        name = repr(spec.name_in_store)
        yield Unsupported(
            f"{name}: a name in PostgreSQL has at most {NAME_BYTES_MAX} bytes: give the table a shorter `name`"
        )
    if not document and spec.key_given and any(field.name is None for field in spec.key.fields):
        yield InvalidOperation("the key fields of a table with layout columns need names")
    reserved = {VALUE if document else VERSION, EXPIRES, WRITERS}
    for name in sorted(spec.key.names):
        if name in reserved:
            yield InvalidOperation(f"a key field may not be named {name!r}: the table has a column of that name")
        if len(name.encode()) > NAME_BYTES_MAX:
            yield InvalidOperation(f"a key field's name in PostgreSQL has at most {NAME_BYTES_MAX} bytes")


async def find_table(connection: Connection, schema: str, spec: TableSpec, *, side: bool) -> TableDefinition | None:
    """Return a table's definition, or None if it does not exist. Raise Unsupported if it has no usable key.

    The key's columns are the configured ones if they are unique, else the primary key or the only unique index.
    `side`: look for the table's side table too.
    """
    name, side_name = spec.name_in_store, SIDE_PREFIX + spec.name_in_store
    relations = {row["name"]: row for row in await connection.fetch(_RELATIONS, schema, [name, side_name])}
    if (found := relations.get(name)) is None:
        return None
    if found["kind"] not in ("r", "p"):
        raise Unsupported("the name belongs to a view, a foreign table or another relation that is not a table")
    columns = {row["name"]: Column(**row) for row in await connection.fetch(_COLUMNS, found["oid"])}
    indexes = await connection.fetch(_UNIQUE_INDEXES, found["oid"])
    if spec.key_given:
        names = [field.name or KEY for field in spec.key.fields]
        if not any(set(index["names"]) == set(names) for index in indexes):
            raise Unsupported(f"no primary key or unique index has the columns {', '.join(map(repr, names))}")
    elif len(indexes) == 1 or any(index["primary"] for index in indexes):
        names = indexes[0]["names"]
    else:
        raise Unsupported("the table has no primary key: set its `key` to columns with a unique index")
    keys = tuple(columns[name] for name in names)
    for key in keys:
        if key.type not in _PART_TYPES or not key.deterministic or not key.not_null:
            kinds = ", ".join(_PART_TYPES)
            raise Unsupported(f"key column {key.name!r} must be NOT NULL, of {kinds}, with a deterministic collation")
    return TableDefinition(schema, name, tuple(columns.values()), keys, side and side_name in relations)


async def document_tables(connection: Connection, schema: str) -> list[str]:
    """Return the names of the document tables with one string key, the kind that `create` creates."""
    return [row["name"] for row in await connection.fetch(_DOCUMENT_TABLES, schema, [VALUE, EXPIRES, WRITERS])]


def document_table_ddl(schema: str, name: str, key: KeySchema) -> str:
    """Return the statements that create a table of documents."""
    keys = [(field.name or KEY, _KEY_TYPES[field.type]) for field in key.fields]
    return _table_ddl(f"{quoted(schema)}.{quoted(name)}", keys, f"{quoted(VALUE)} jsonb")


def _table_ddl(table: str, keys: Sequence[tuple[str, str]], column: str) -> str:
    """Return the statements that create a table with keys, a column, and metadata. All or none of them take effect."""
    metadata = (f"{quoted(name)} {kind}" for name, kind in _METADATA_TYPES.items())
    columns = [*(f"{quoted(name)} {kind} NOT NULL" for name, kind in keys), column, *metadata]
    primary_key = ", ".join(quoted(name) for name, _ in keys)
    return f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({primary_key})); {_index_ddl(table)}"


def _index_ddl(table: str) -> str:
    return f"CREATE INDEX ON {table} ({quoted(EXPIRES)}) WHERE {quoted(EXPIRES)} IS NOT NULL"


_RELATIONS = """
SELECT c.relname::text AS name, c.oid::bigint AS oid, c.relkind::text AS kind
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = ANY($2::text[])
"""

_COLUMNS = """
SELECT a.attname::text AS name, b.typname::text AS type, e.typname::text AS element, nullif(r.modifier, -1) AS modifier,
       quote_ident(n.nspname) || '.' || quote_ident(b.typname) AS cast,
       format_type(a.atttypid, a.atttypmod) AS full_type,
       a.attnotnull OR r.not_null AS not_null, a.attgenerated <> '' OR a.attidentity = 'a' AS generated,
       coalesce(l.collisdeterministic, true) AS deterministic
FROM pg_catalog.pg_attribute a
CROSS JOIN LATERAL (  -- from a domain to its base type, and from an array to its elements
    WITH RECURSIVE chain(oid, modifier, step, in_array, not_null) AS (
        SELECT a.atttypid, a.atttypmod, 0, false, false
        UNION ALL
        SELECT CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END,
               CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE c.modifier END,
               c.step + 1, c.in_array OR t.typtype <> 'd', NOT c.in_array AND t.typnotnull
        FROM chain c JOIN pg_catalog.pg_type t ON t.oid = c.oid
        WHERE t.typtype = 'd' OR (t.typcategory = 'A' AND NOT c.in_array)
    )
    SELECT (array_agg(oid ORDER BY step DESC) FILTER (WHERE NOT in_array))[1] AS base,
           (array_agg(oid ORDER BY step DESC) FILTER (WHERE in_array))[1] AS element,
           (array_agg(modifier ORDER BY step DESC))[1] AS modifier, bool_or(not_null) AS not_null
    FROM chain
) r
JOIN pg_catalog.pg_type b ON b.oid = r.base
JOIN pg_catalog.pg_namespace n ON n.oid = b.typnamespace
LEFT JOIN pg_catalog.pg_type e ON e.oid = r.element
LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
WHERE a.attrelid = $1::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

ESTIMATE = """
SELECT nullif(reltuples, -1)::bigint, pg_catalog.pg_total_relation_size(oid)
FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass($1) AND relkind = 'r'
"""
"""Takes the name of a table in SQL. Returns about how many rows it has, NULL if that is not known yet, and its size."""

_UNIQUE_INDEXES = """
SELECT ARRAY(SELECT a.attname::text
             FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k(number, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
             ORDER BY k.place) AS names, i.indisprimary AS "primary"
FROM pg_catalog.pg_index i
WHERE i.indrelid = $1::bigint::oid AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indisprimary DESC, i.indexrelid
"""

_DOCUMENT_TABLES = """
SELECT c.relname::text AS name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary AND i.indnkeyatts = 1
JOIN pg_catalog.pg_attribute k ON k.attrelid = c.oid AND k.attnum = i.indkey[0] AND k.attname = 'key'
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND k.atttypid = 'text'::regtype
  AND (SELECT count(*) FROM pg_catalog.pg_attribute a
       WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attname = ANY($2::text[])) = 3
ORDER BY 1
"""
