"""What the driver asks the service about a table before it plans: its key fields, and whether it keeps tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from tableside_client.connection import Connection
from tableside_client.errors import TableError


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's key fields (a name of None is an unnamed key), what it can do, and how many partitions it has."""

    key_names: tuple[str | None, ...] = (None,)
    key_types: tuple[str, ...] = ("string",)
    tokens: bool = True
    partitions: int | None = None


def fetch_table_schema(connection: Connection, table: str) -> TableSchema:
    """The facts; those of a new table where there is none yet, since a first write may make it."""
    with connection.open() as client:
        try:
            description = client.describe(table)
        except TableError as error:
            if error.code != "table_not_found":
                raise
            return TableSchema()
    fields = description["key"]
    return TableSchema(
        tuple(field.get("name") for field in fields),
        tuple(field["type"] for field in fields),
        bool(description["capabilities"].get("tokens", False)),
        description.get("partitions"),
    )


def wire_keys(facts: TableSchema, columns: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The key columns in the order of the key, and the key's names for them.

    Columns named as the key's fields are matched by name, others by position.
    """
    names = facts.key_names
    if len(columns) == 1 or len(names) != len(columns) or None in names:
        return tuple(columns), tuple(columns)
    if set(columns) == set(names):
        columns = [name for name in names if name is not None]
    return tuple(columns), tuple(str(name) for name in names)
