"""`tableside scan`: prints the records of a table, or writes them to a file."""

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from tableside_client import Client, Record

from .record_rows import FACTS, ExportError, Row, RowLayout, document_of, json_text
from .records import TableArgument

COLUMNS_MAX = 1_000


class Format(StrEnum):
    """The formats of a scan."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


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
    try:
        if output is not None and not output.parent.is_dir():
            raise ExportError(f"the directory {output.parent} does not exist")
        source = client.table(table)
        records = source.scan(prefix=prefix, partition=partition, limit=limit, fields=names)
        description = source.describe()
        if format is Format.JSONL:
            partitions = description.get("partitions")
            with _opened(output) as target:
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
    from .row_files import write_csv, write_parquet  # the other commands start faster without pyarrow

    rows: Iterable[Row] = map(layout.row, records)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        if names is None or format is Format.PARQUET:
            rows = spool = Spool(rows, file)
            names = names or [*spool.names]
        if format is Format.CSV:
            with _opened(output) as target:
                write_csv(layout.columns(names), rows, target)
        else:
            with _opened(output, "wb") as target:
                write_parquet(layout.columns(names), rows, target)


class Spool:
    """Rows in a temporary file, which can be read several times. `names` are all columns but `FACTS`, in order."""

    def __init__(self, rows: Iterable[Row], file: IO[str]) -> None:
        self.names: dict[str, None] = {}
        self._file = file
        for row in rows:
            self.names.update(dict.fromkeys(name for name in row if name != FACTS))
            if len(self.names) > COLUMNS_MAX:
                raise ExportError(f"the records have more than {COLUMNS_MAX:,} columns: choose some with --fields")
            file.write(f"{json.dumps(row)}\n")

    def __iter__(self) -> Iterator[Row]:
        self._file.seek(0)
        return map(json.loads, self._file)


@contextmanager
def _opened(output: Path | None, mode: str = "w") -> Iterator[IO[Any]]:
    """Yield a new file, which replaces `output` if it is complete, or standard output if `output` is None."""
    if output is None:
        yield sys.stdout
        return
    is_replaced = not output.exists() or output.is_file()  # unlike a pipe
    part = output.with_name(f".{output.name}.part") if is_replaced else output
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "")
    try:
        with part.open(mode, encoding=encoding, newline=newline) as target:
            yield target
        if is_replaced:
            part.replace(output)
    finally:
        if is_replaced:
            part.unlink(missing_ok=True)
