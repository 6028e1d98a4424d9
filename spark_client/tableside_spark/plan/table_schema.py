"""A table as `Table` describes it, and its schema, which the plan depends on."""

from dataclasses import dataclass

from tableside_client.chunks import ChunkSize
from tableside_client.connection import Connection
from tableside_client.errors import TableError
from tableside_client.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class Target:
    """A table as `Table` describes it: the connection, the name, and the limits on requests."""

    connection: Connection
    table: str
    in_flight_max: int
    chunk: ChunkSize


def fetch_table_schema(connection: Connection, table: str, *, must_exist: bool = False) -> TableSchema:
    """Fetch the schema of a table.

    For a table that does not exist yet, return the defaults, because the first write may create it, or raise
    `TableError` if it must exist.
    """
    with connection.open() as client:
        try:
            description = client.table(table).describe()
        except TableError as error:
            if must_exist or error.code != "table_not_found":
                raise
            return TableSchema()
    return TableSchema.from_description(description)
