"""The commands for tables and single records."""

import sys
from typing import Annotated, Any

import typer

from tableside_client import Client, Table, TableNotFound, Written

from .orders import OrderOption
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
    order: OrderOption = None,
) -> None:
    """Write a record's value, and print its etag."""
    document = _parse_object(value, "the value")
    target = client.table(table)
    written = target.put(_parse_key(target, key), document, ttl_s=ttl_s, order=order)
    _show_written(written, written.etag)


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
    order: OrderOption = None,
) -> None:
    """Update a record, and print the new value."""
    document = _parse_json(change, "the update")
    start = None if default is None else _parse_object(default, "--default")
    target = client.table(table)
    options: dict[str, Any] = {"default": start, "ttl_s": ttl_s, "return_value": True, "order": order}
    written = target.update(_parse_key(target, key), document, **options)
    _show_written(written, None if written.value is None else json_text(written.value))


def delete(
    client: Client,
    table: TableArgument,
    key: Annotated[str | None, typer.Argument(help="The key. A composite key is a JSON array of its parts.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Delete all keys that begin with this text.")] = None,
    partition: Annotated[str | None, typer.Option(help="Delete all composite keys with this first part.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Delete all records of the table.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete many records without asking.")] = False,
    order: OrderOption = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Also remove the tokens and orders of the record, after a wrong order.")
    ] = False,
) -> None:
    """Delete a record, or the records of a prefix, of a partition or of the whole table."""
    if [key, prefix, partition, all_ or None].count(None) != 3 or prefix == "":
        raise typer.BadParameter("name exactly one: a key, --prefix with a text, --partition or --all")
    if (order is not None or forget) and (key is None or (order is not None and forget)):
        raise typer.BadParameter("--order and --forget need a key, and cannot be combined")
    target = client.table(table)
    if key is not None:
        _show_written(target.delete(_parse_key(target, key), order=order, forget=forget))
    elif yes or _confirmed(table, prefix, partition):
        deleted = target.delete_all(prefix=prefix, partition=partition, everything=all_, progress=_show_deleted)
        typer.echo(f"{deleted} records deleted from {table}", err=True)
    else:
        typer.echo("tableside: no record was deleted: confirm with y, or use --yes", err=True)
        raise typer.Exit(1)


def _show_written(written: Written, text: str | None = None) -> None:
    if text is not None:
        typer.echo(text)
    if written.superseded:
        typer.echo("tableside: superseded: writes with higher orders remain", err=True)


def _confirmed(table: str, prefix: str | None, partition: str | None) -> bool:
    """Ask whether to delete. Without a terminal or an answer, the answer is no."""
    chosen = {"prefix": prefix, "partition": partition}
    which = "".join(f" with {name} {text}" for name, text in chosen.items() if text is not None)
    try:
        return sys.stdin.isatty() and typer.confirm(f"Delete all records of {table}{which}?", err=True)
    except typer.Abort:
        return False


def _show_deleted(count: int) -> None:
    if sys.stderr.isatty():
        typer.echo(f"{count} records deleted …", err=True)


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
