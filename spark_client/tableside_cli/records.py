"""The commands for tables, their generations and runs, and single records."""

import re
import sys
from dataclasses import astuple
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

import typer

from tableside_client import Client, Table, TableNotFound, Written
from tableside_client.json_batch import check_order, microseconds
from tableside_client.runs import RUNS, scan_runs

from .record_rows import json_text, parse_json

TableArgument = Annotated[str, typer.Argument(help="The table's name.")]
KeyArgument = Annotated[str, typer.Argument(help="The key. A composite key is a JSON array of its parts.")]
TtlOption = Annotated[float | None, typer.Option(help="Seconds until the record expires, or -1 for never.")]

_INTEGER = re.compile("[+-]?[0-9]{1,19}")


def parse_order(order: Any, what: str = "the order") -> int:
    """Return an order: an integer, or text with an integer or a time, in UTC without an offset. Raises ValueError."""
    try:
        if isinstance(order, str):
            order = int(order) if _INTEGER.fullmatch(order) else microseconds(datetime.fromisoformat(order))
        check_order(order)
    except (TypeError, ValueError):
        order = None
    if order is None:
        raise ValueError(f"{what} is neither an integer within 64 bits nor a time such as 2026-11-20T08:00:00Z")
    return int(order)


def _option(text: str) -> int:
    try:
        return parse_order(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


OrderOption = Annotated[
    int | None,
    typer.Option(
        parser=_option,
        metavar="ORDER",
        help="An integer, or a time such as 2026-11-20T08:00:00Z, which is in microseconds. Only members that no write "
        "with a higher order has written are changed.",
    ),
]

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


def runs(client: Client, table: TableArgument) -> None:
    """List the runs of a table, which are batch writes of Spark with a token, in the order of their starts.

    Each line has the token, the operation, the times at which the run started and finished, and its number of rows,
    separated by tabs. A run that has not finished has hyphens as the last two.
    """
    try:
        found = sorted(scan_runs(client.table(table + RUNS)), key=attrgetter("first_event"))
    except TableNotFound:  # the store has no place for runs until the first one starts
        client.table(table).describe()  # raises TableNotFound for a table that does not exist
        return
    for run in found:
        _print_columns(run.token, run.operation, run.started, run.finished, run.rows)


def _print_columns(*columns: object) -> None:
    texts = ["-" if column is None else str(column) for column in columns]
    typer.echo("\t".join(text if text.isprintable() else json_text(text) for text in texts))


def generations(client: Client, table: TableArgument) -> None:
    """List the generations of a table, which are its complete contents, by number.

    Each line has the number, the state, the times at which the generation was created and became current, about the
    number of its records and its size in bytes, and its note, separated by tabs. What is unknown or absent is a hyphen.
    """
    for generation in client.table(table).generations():
        _print_columns(*astuple(generation))


def activate(
    client: Client,
    table: TableArgument,
    number: Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="The number of the generation.")],
    expected: Annotated[
        int | None, typer.Option(min=1, help="Only if this generation is current. The default is any.")
    ] = None,
) -> None:
    """Make a generation of a table current, for example a kept one to roll back."""
    client.table(table).activate(number, expected=expected)
    typer.echo(f"generation {number} of {table} is current")
