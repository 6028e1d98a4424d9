"""The commands that read and write records of a running service."""

import json
from typing import Annotated, Any

import orjson
import typer

from tableside_client.client import TableClient
from tableside_client.errors import TableError

from .client_options import client_command

TableArgument = Annotated[str, typer.Argument(help="The table's name.")]
KeyArgument = Annotated[str, typer.Argument(help="The key. A composite key is a JSON array of its parts.")]


def install(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (tables, get, put, update, delete, scan):
        app.command()(command)


@client_command
def tables(client: TableClient) -> None:
    """List the tables with their kind of store and key."""
    for table in client.tables():
        parts = [f"{field['name'] or 'key'} {field['type']}" for field in table["key"]]
        typer.echo(f"{table['name']}\t{table['store']['kind']}\t{', '.join(parts)}")


@client_command
def get(client: TableClient, table: TableArgument, key: KeyArgument) -> None:
    """Print a record's value."""
    _print_json(client.get(table, parse_key(client, table, key)).value)


@client_command
def put(
    client: TableClient,
    table: TableArgument,
    key: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="JSON", help="The value, a JSON object.")],
    ttl_s: Annotated[float | None, typer.Option(help="Seconds until the record expires; -1 for never.")] = None,
) -> None:
    """Write a record's value, and print its etag."""
    document = _parse_json(value, "JSON")
    typer.echo(client.put(table, parse_key(client, table, key), document, ttl_s=ttl_s).etag)


@client_command
def update(
    client: TableClient,
    table: TableArgument,
    key: KeyArgument,
    change: Annotated[
        str, typer.Argument(metavar="JSON", help="A merge patch, an object of operators, or an array of these.")
    ],
    default: Annotated[
        str | None, typer.Option(metavar="JSON", help="The value to update if there is no record.")
    ] = None,
    ttl_s: Annotated[float | None, typer.Option(help="Seconds until the record expires; -1 for never.")] = None,
) -> None:
    """Update a record, and print the new value."""
    document = _parse_json(change, "JSON")
    start = None if default is None else _parse_json(default, "--default")
    parsed = parse_key(client, table, key)
    _print_json(client.update(table, parsed, document, default=start, ttl_s=ttl_s, return_=True).value)


@client_command
def delete(client: TableClient, table: TableArgument, key: KeyArgument) -> None:
    """Delete a record."""
    client.delete(table, parse_key(client, table, key))


@client_command
def scan(
    client: TableClient,
    table: TableArgument,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin with this text.")] = None,
    partition: Annotated[str | None, typer.Option(help="Only composite keys with this first part.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The maximum number of records.")] = None,
) -> None:
    """Print the records of a table, one JSON object per line.

    The records of a partitioned table have the index of their partition.
    """
    remaining = limit
    for page in client.scan(table, prefix=prefix, partition=partition, limit=limit and min(limit, 10_000)):
        for row in page.slice(0, remaining).to_pylist():
            _print_json(_scanned(row))
        remaining = None if remaining is None else remaining - page.num_rows
        if remaining is not None and remaining <= 0:
            return


def _scanned(row: dict[str, Any]) -> dict[str, Any]:
    """Return the printed members of a scanned record, with the partition if the table is partitioned."""
    key = list(row["key"].values()) if isinstance(row["key"], dict) else row["key"]
    partition = {"partition": row["partition"]} if "partition" in row else {}
    return {"key": key, **partition, "value": orjson.loads(row["value"]), "etag": row["etag"]}


def parse_key(client: TableClient, table: str, text: str) -> Any:
    """Parse a key of this table. Raise BadParameter if its type is wrong."""
    kinds = key_types(client, table)
    if len(kinds) > 1:
        parts = _parse_json(text, "KEY")
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
    """Return the types of a table's key parts. A table that does not exist yet has one string."""
    try:
        return [field["type"] for field in client.describe(table)["key"]]
    except TableError as error:
        if error.code != "table_not_found":
            raise
        return ["string"]


def _parse_json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise typer.BadParameter(f"{what} is not JSON") from None


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))
