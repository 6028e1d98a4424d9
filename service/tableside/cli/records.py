"""The operations of the command line, against a running service."""

import json
from typing import Annotated, Any

import orjson
import typer

from tableside_client.client import TableClient
from tableside_client.errors import TableError

from .client_options import reaching

TableArgument = Annotated[str, typer.Argument(help="The table's name.")]
KeyArgument = Annotated[str, typer.Argument(help="The key; of a composite key a JSON array of its parts.")]


def install(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    for verb in (tables, get, put, update, delete, scan):
        app.command()(verb)


@reaching
def tables(client: TableClient) -> None:
    """List the tables: name, kind of store, key."""
    for table in client.tables():
        parts = [f"{field['name'] or 'key'} {field['type']}" for field in table["key"]]
        typer.echo(f"{table['name']}\t{table['store']['kind']}\t{', '.join(parts)}")


@reaching
def get(client: TableClient, table: TableArgument, key: KeyArgument) -> None:
    """Print a record's value."""
    _print(client.get(table, read_key(client, table, key)).value)


@reaching
def put(
    client: TableClient,
    table: TableArgument,
    key: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="JSON", help="The value, a JSON object.")],
    ttl_s: Annotated[float | None, typer.Option(help="Seconds to live; -1 for no end.")] = None,
) -> None:
    """Make a record's value this one, and print its etag."""
    document = _json(value, "JSON")
    typer.echo(client.put(table, read_key(client, table, key), document, ttl_s=ttl_s).etag)


@reaching
def update(
    client: TableClient,
    table: TableArgument,
    key: KeyArgument,
    change: Annotated[str, typer.Argument(metavar="JSON", help="A merge patch, operators, or an array of these.")],
    default: Annotated[str | None, typer.Option(metavar="JSON", help="The value to start from.")] = None,
    ttl_s: Annotated[float | None, typer.Option(help="Seconds to live; -1 for no end.")] = None,
) -> None:
    """Change a record, and print the value that it has then."""
    document = _json(change, "JSON")
    start = None if default is None else _json(default, "--default")
    found = read_key(client, table, key)
    _print(client.update(table, found, document, default=start, ttl_s=ttl_s, return_=True).value)


@reaching
def delete(client: TableClient, table: TableArgument, key: KeyArgument) -> None:
    """Make a record absent."""
    client.delete(table, read_key(client, table, key))


@reaching
def scan(
    client: TableClient,
    table: TableArgument,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin so.")] = None,
    partition: Annotated[str | None, typer.Option(help="Only this partition of a composite key.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many records.")] = None,
) -> None:
    """Print the records of a table, one JSON object a line."""
    left = limit
    for page in client.scan(table, prefix=prefix, partition=partition, limit=limit and min(limit, 10_000)):
        for row in page.slice(0, left).to_pylist():
            key = list(row["key"].values()) if isinstance(row["key"], dict) else row["key"]
            _print({"key": key, "value": orjson.loads(row["value"]), "etag": row["etag"]})
        left = None if left is None else left - page.num_rows
        if left is not None and left <= 0:
            return


def read_key(client: TableClient, table: str, text: str) -> Any:
    """Return the key that the text is in this table."""
    kinds = key_types(client, table)
    if len(kinds) > 1:
        parts = _json(text, "KEY")
        if not isinstance(parts, list):
            raise typer.BadParameter(f"keys of this table are JSON arrays of {len(kinds)} parts")
        return tuple(parts)
    if kinds[0] == "string":
        return text
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter("keys of this table are integers") from None


def key_types(client: TableClient, table: str) -> list[str]:
    """Return the types of a table's key parts; one string where a write would make the table."""
    try:
        return [field["type"] for field in client.describe(table)["key"]]
    except TableError as error:
        if error.code != "table_not_found":
            raise
        return ["string"]


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise typer.BadParameter(f"{what} is not JSON") from None


def _print(value: object) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))
