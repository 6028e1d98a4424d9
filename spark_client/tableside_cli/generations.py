"""`tableside generations` and `tableside activate`: the complete contents of a table, and which one is current."""

from dataclasses import astuple
from typing import Annotated

import typer

from tableside_client import Client

from .record_rows import json_text
from .records import TableArgument


def generations(client: Client, table: TableArgument) -> None:
    """List the generations of a table, which are its complete contents, by number.

    Each line has the number, the state, the times at which the generation was created and became current, about the
    number of its records and its size in bytes, and its note, separated by tabs. What is unknown or absent is a hyphen.
    """
    for generation in client.table(table).generations():
        typer.echo("\t".join("-" if member is None else _text(member) for member in astuple(generation)))


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


def _text(member: object) -> str:
    text = str(member)
    return text if text.isprintable() else json_text(text)
