"""`tableside scan`: prints the records of a table, or writes them to a file."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from tableside_client import Client, Record

from .client_options import client_command
from .csv_export import write_csv
from .record_rows import ExportError, RowLayout, json_text, spooled
from .records import TableArgument
from .scanned import document_of


class Format(StrEnum):
    """The formats of a scan."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


@client_command()
def scan(
    client: Client,
    table: TableArgument,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin with this text.")] = None,
    partition: Annotated[str | None, typer.Option(help="Only composite keys with this first part.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The maximum number of records.")] = None,
    fields: Annotated[str | None, typer.Option(help="Only these members of values, separated by commas.")] = None,
    format: Annotated[Format, typer.Option(help="The format of the output.")] = Format.JSONL,  # noqa: A002 - the option
    output: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write to this file. Required for Parquet.")
    ] = None,
) -> None:
    """Print the records of a table, one JSON object per line.

    The records of a partitioned table have the index of their partition. CSV and Parquet have a column for each part of
    the key and for each member of the values. tableside load reads each format.
    """
    names = None if fields is None else fields.split(",")
    if format is Format.PARQUET and output is None:
        raise typer.BadParameter("Parquet cannot be printed", param_hint="--output")
    if output is not None and not output.parent.is_dir():
        typer.echo(f"tableside: the directory {output.parent} does not exist", err=True)
        raise typer.Exit(1)
    source = client.table(table)
    records = source.scan(prefix=prefix, partition=partition, limit=limit, fields=names)
    description = source.describe()
    try:
        if format is Format.JSONL:
            partitions = description.get("partitions")
            with _text(output) as target:
                target.writelines(f"{json_text(document_of(record, partitions))}\n" for record in records)
        else:
            _export(format, RowLayout(description), records, names, output)
    except (ExportError, OSError) as error:
        typer.echo(f"tableside: {error}", err=True)
        raise typer.Exit(1) from None


def _export(
    format: Format,  # noqa: A002 - the option
    layout: RowLayout,
    records: Iterable[Record[dict[str, Any]]],
    names: list[str] | None,
    output: Path | None,
) -> None:
    """Write records as rows. Without `names`, the columns are known only after the whole scan."""
    if format is Format.CSV and names is not None:
        with _text(output) as target:
            write_csv(layout.columns(names), map(layout.row, records), target)
        return
    with spooled(map(layout.row, records)) as spool:
        columns = layout.columns(names or spool.names)
        if format is Format.CSV:
            with _text(output) as target:
                write_csv(columns, spool, target)
        elif output is not None:
            from .parquet_export import write_parquet  # other formats work without pyarrow

            with _replacing(output) as path:
                write_parquet(columns, spool, path)


@contextmanager
def _text(output: Path | None) -> Iterator[TextIO]:
    if output is None:
        yield sys.stdout
        return
    with _replacing(output) as path, path.open("w", encoding="utf-8", newline="") as target:
        yield target


@contextmanager
def _replacing(output: Path) -> Iterator[Path]:
    """Yield the path of a new file, which replaces `output` if it is complete."""
    if output.exists() and not output.is_file():  # such as a pipe
        yield output
        return
    part = output.with_name(f".{output.name}.part")
    try:
        yield part
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
