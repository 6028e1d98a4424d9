"""What a table in PostgreSQL is: asked of the catalogue, and made where the configuration says so.

Knows names, types and keys, and nothing of records.
"""

from collections.abc import Sequence

import asyncpg
import msgspec

from ...core import InvalidOperation, KeyField, KeySchema, PartType, StoreUnavailable, TableSpec, Unsupported
from .pool import Connection

NAME_BYTES_MAX = 63
"""PostgreSQL cuts longer names off."""

KEY, VALUE, EXPIRES, WRITERS, VERSION = "key", "value", "_ts_expires", "_ts_writers", "_ts_version"
SIDE_PREFIX = "_ts_"

_PART_TYPES: dict[str, PartType] = {
    **dict.fromkeys(("text", "varchar", "uuid"), "string"),
    **dict.fromkeys(("int2", "int4", "int8"), "integer"),
}
_MADE_ALREADY = (asyncpg.DuplicateTableError, asyncpg.UniqueViolationError, asyncpg.DuplicateObjectError)
_MAKE_ATTEMPTS = 5


class Column(msgspec.Struct, frozen=True):
    """A column: `type` is its type's name (of a domain, that of the type below), `cast` how SQL names the type."""

    name: str
    type: str
    cast: str
    full_type: str
    element: str | None
    length: int | None
    not_null: bool
    generated: bool
    bytewise: bool
    """Whether two values are equal only if their bytes are."""


class Shape(msgspec.Struct, frozen=True):
    """A table: its columns, those that are its key in order, and whether a side table remembers for it."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    keys: tuple[Column, ...]
    side: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all columns."""
        return frozenset(column.name for column in self.columns)

    def column(self, name: str) -> Column | None:
        """Return the column of that name."""
        return next((column for column in self.columns if column.name == name), None)


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL writes it."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'" if "\\" not in escaped else "E'" + escaped.replace("\\", "\\\\") + "'"


def checked_name(name: str) -> str:
    """Return a table's name. Raise Unsupported if PostgreSQL would cut it off."""
    if len(name.encode()) > NAME_BYTES_MAX:
        raise Unsupported(f"a name in PostgreSQL has at most {NAME_BYTES_MAX} bytes: give the table a shorter `name`")
    return name


async def find(connection: Connection, schema: str, name: str, spec: TableSpec) -> Shape | None:
    """Return what a table is; None if there is none. Raise Unsupported if its rows have no key that can be used."""
    found = await connection.fetchrow(_RELATION, schema, name)
    if found is None:
        return None
    if found["kind"] not in ("r", "p"):
        raise Unsupported("it is no table in PostgreSQL, but a view, a foreign table or the like")
    columns = tuple(_column(row) for row in await connection.fetch(_COLUMNS, found["oid"]))
    indexes = await connection.fetch(_UNIQUES, found["oid"])
    uniques = [tuple(row["names"]) for row in indexes]
    keys = _keys(columns, uniques, spec, primary=any(row["primary"] for row in indexes))
    for key in keys:
        if key.type not in _PART_TYPES or not key.bytewise or not key.not_null:
            kinds = ", ".join(_PART_TYPES)
            raise Unsupported(f"key column {key.name!r} is not NOT NULL, of {kinds}, with a deterministic collation")
    return Shape(schema, name, columns, keys)


def key_schema(shape: Shape, spec: TableSpec) -> KeySchema:
    """Return the keys of a table. Raise Unsupported if they are not what the configuration says."""
    types = {column.name: _PART_TYPES[column.type] for column in shape.keys}
    if not spec.key_given:
        if [*types] == [KEY]:
            return KeySchema((KeyField(None, types[KEY]),))
        return KeySchema(tuple(KeyField(name, kind) for name, kind in types.items()))
    for field, column in zip(spec.key.fields, shape.keys, strict=True):
        if types[column.name] != field.type:
            raise Unsupported(f"key column {column.name!r} holds {types[column.name]}s, not {field.type}s")
    return spec.key


async def make(connection: Connection, statements: Sequence[str]) -> None:
    """Make a table with what belongs to it; another replica may be about to do the same."""
    for _ in range(_MAKE_ATTEMPTS):
        try:
            async with connection.transaction():
                for statement in statements:
                    await connection.execute(statement)
        except asyncpg.DuplicateTableError:
            return
        except _MADE_ALREADY:
            continue
        return
    raise StoreUnavailable("others are making the table")


def document_table(schema: str, name: str, key: KeySchema) -> list[str]:
    """Return the statements that make a table for documents."""
    table = f"{quoted(schema)}.{quoted(name)}"
    fields = [(field.name or KEY, field.type) for field in key.fields]
    if taken := {field for field, _ in fields} & {VALUE, EXPIRES, WRITERS}:
        raise InvalidOperation(f"a key field may not be named {min(taken)!r}: the table has a column of that name")
    columns = [f"{quoted(field)} {_KEY_TYPES[kind]} NOT NULL" for field, kind in fields]
    rest = f"{quoted(VALUE)} jsonb, {quoted(EXPIRES)} bigint, {quoted(WRITERS)} jsonb"
    keys = ", ".join(quoted(field) for field, _ in fields)
    return [
        f"CREATE TABLE {table} ({', '.join(columns)}, {rest}, PRIMARY KEY ({keys}))",
        f"CREATE INDEX ON {table} ({quoted(EXPIRES)}) WHERE {quoted(EXPIRES)} IS NOT NULL",
    ]


def side_table(shape: Shape) -> list[str]:
    """Return the statements that make the table which remembers for a table of columns."""
    table = f"{quoted(shape.schema)}.{quoted(side_name(shape.name))}"
    keys = ", ".join(quoted(column.name) for column in shape.keys)
    columns = [f"{quoted(key.name)} {_side_type(key)} NOT NULL" for key in shape.keys]
    rest = f"{quoted(VERSION)} bigint, {quoted(EXPIRES)} bigint, {quoted(WRITERS)} jsonb"
    return [
        f"CREATE TABLE {table} ({', '.join(columns)}, {rest}, PRIMARY KEY ({keys}))",
        f"CREATE INDEX ON {table} ({quoted(EXPIRES)}) WHERE {quoted(EXPIRES)} IS NOT NULL",
    ]


def side_name(name: str) -> str:
    """Return the name of the table that remembers for a table of columns."""
    return SIDE_PREFIX + name


_KEY_TYPES = {"string": 'text COLLATE "C"', "integer": "bigint"}


def _side_type(column: Column) -> str:
    return _KEY_TYPES["string"] if column.type in ("text", "varchar") else column.type


def _keys(
    columns: tuple[Column, ...], uniques: list[tuple[str, ...]], spec: TableSpec, *, primary: bool
) -> tuple[Column, ...]:
    """Return the key's columns: those that are named if they are unique, else the primary key, or the only one."""
    by_name = {column.name: column for column in columns}
    if spec.key_given:
        wanted = [field.name or KEY for field in spec.key.fields]
        if not any(set(unique) == set(wanted) for unique in uniques):
            raise Unsupported(f"the columns {', '.join(map(repr, wanted))} have no primary key or unique index")
        return tuple(by_name[name] for name in wanted)
    if len(uniques) != 1 and not primary:
        raise Unsupported("the table has no primary key: name its `key`, columns that have a unique index")
    return tuple(by_name[name] for name in uniques[0])


def _column(row: asyncpg.Record) -> Column:
    return Column(
        name=row["name"],
        type=row["type"],
        cast=row["cast"],
        full_type=row["full_type"],
        element=row["element"],
        length=row["typmod"] - 4 if row["type"] in ("varchar", "bpchar") and row["typmod"] > 4 else None,
        not_null=row["not_null"],
        generated=row["generated"],
        bytewise=row["bytewise"],
    )


_RELATION = """
SELECT c.oid::bigint AS oid, c.relkind::text AS kind
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2
"""

_COLUMNS = """
SELECT a.attname::text AS name, b.typname::text AS type, e.typname::text AS element, a.atttypmod AS typmod,
       quote_ident(n.nspname) || '.' || quote_ident(t.typname) AS cast,
       format_type(a.atttypid, a.atttypmod) AS full_type,
       a.attnotnull AS not_null, a.attgenerated <> '' OR a.attidentity = 'a' AS generated,
       coalesce(l.collisdeterministic, true) AS bytewise
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_catalog.pg_type e ON e.oid = b.typelem AND b.typcategory = 'A'
LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
WHERE a.attrelid = $1::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

_UNIQUES = """
SELECT ARRAY(SELECT a.attname::text
             FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k(number, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
             ORDER BY k.place) AS names, i.indisprimary AS "primary"
FROM pg_catalog.pg_index i
WHERE i.indrelid = $1::bigint::oid AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indisprimary DESC, i.indexrelid
"""
