"""The commands for tables and single records."""

from typing import Annotated, Any

import typer

from tableside_client import Client, Table, TableNotFound

from .record_rows import json_text, parse_json

TableArgument = Annotated[str, typer.Argument(help="The table's name.")]
KeyArgument = Annotated[str, typer.Argument(help="The key. A composite key is a JSON array of its parts.")]
TtlOption = Annotated[float | None, typer.Option(help="Seconds until the record expires, or -1 for never.")]

NEW_TABLE: dict[str, Any] = {"key": [{"name": None, "type": "string"}], "policies": {"ttl_s": None}}
"""The description of a table that its first write creates, as far as the commands use it."""


def tables(client: Client) -> None:
    """List the tables with their kind of store and key."""
    for table in client.tables():
        parts = [f"{field['name'] or 'key'} {field['type']}" for field in table["key"]]
        typer.echo(f"{table['name']}\t{table['store']['kind']}\t{', '.join(parts)}")


def get(client: Client, table: TableArgument, key: KeyArgument) -> None:
    """Print a record's value."""
    target = client.table(table)
    typer.echo(json_text(target.record(_parse_key(target, key)).value))


def put(
    client: Client,
    table: TableArgument,
    key: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="JSON", help="The value, a JSON object.")],
    ttl_s: TtlOption = None,
) -> None:
    """Write a record's value, and print its etag."""
    document = _parse_object(value, "the value")
    target = client.table(table)
    typer.echo(target.put(_parse_key(target, key), document, ttl_s=ttl_s).etag)


def update(
    client: Client,
    table: TableArgument,
    key: KeyArgument,
    change: Annotated[
        str, typer.Argument(metavar="JSON", help="A merge patch, an object of operators, or an array of these.")
    ],
    default: Annotated[
        str | None, typer.Option(metavar="JSON", help="The value to update if there is no record.")
    ] = None,
    ttl_s: TtlOption = None,
) -> None:
    """Update a record, and print the new value."""
    document = _parse_json(change, "the update")
    start = None if default is None else _parse_object(default, "--default")
    target = client.table(table)
    written = target.update(_parse_key(target, key), document, default=start, ttl_s=ttl_s, return_value=True)
    typer.echo(json_text(written.value))


def delete(client: Client, table: TableArgument, key: KeyArgument) -> None:
    """Delete a record."""
    target = client.table(table)
    target.delete(_parse_key(target, key))


def describe(table: Table[Any]) -> dict[str, Any]:
    """Return the description of a table. A table that does not exist yet has one string as its key."""
    try:
        return table.describe()
    except TableNotFound:
        return NEW_TABLE


def _parse_key(table: Table[Any], text: str) -> Any:
    """Return the key that a text means in this table. Raise BadParameter if its type is wrong."""
    kinds = [field["type"] for field in describe(table)["key"]]
    if len(kinds) > 1:
        parts = _parse_json(text, "the key")
        if not isinstance(parts, list):
            raise typer.BadParameter(f"keys of this table are JSON arrays of {len(kinds)} parts: {', '.join(kinds)}")
        return tuple(parts)
    if kinds[0] == "string":
        return text
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter("keys of this table are integers") from None


def _parse_json(text: str, what: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise typer.BadParameter(f"{what} is not JSON: {error}") from None


def _parse_object(text: str, what: str) -> Any:
    document = _parse_json(text, what)
    if not isinstance(document, dict):
        raise typer.BadParameter(f"{what} must be a JSON object")
    return document
