"""`tableside load`: writes the rows of a file to a table."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from tableside_client import Client, Retries, Table, TablesideError
from tableside_client.errors import ends_load

from .client_command import RETRIES
from .record_rows import Expired, Row, key_names, put_of_row
from .records import TableArgument, describe, parse_order

ERRORS_SHOWN_MAX = 5

LOAD_RETRIES = Retries()
"""Longer than those of other commands: a load may run for an hour, and a restart of the service should not end it."""

LINE_INTERVAL_S = 10.0
"""The time between two lines of progress if standard error is not a terminal, in seconds."""


def load(
    client: Client,
    table: TableArgument,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="CSV, JSON lines or Parquet.")],
    key: Annotated[
        list[str] | None,
        typer.Option(help="The field with the key. Repeat it for each part of a composite key.", show_default=False),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="The field with the order of each row: an integer, or a time, which is in microseconds. It stays a "
            "member of the value.",
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Replace the whole table. Readers see the old records until all rows are stored. If a row fails, the "
            "old records stay.",
        ),
    ] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Let --replace make the table empty, if the file has no rows.")
    ] = False,
) -> None:
    """Write every row of a file as a record of a table.

    A file of tableside scan gives the same records, with their expiry and partitions. The default of --key is the name
    of the table's key, or key.

    A load waits up to 120 seconds for a service that restarts.
    """
    from .row_files import UNREADABLE, read_parts  # the other commands start faster without pyarrow

    if allow_empty and not replace:
        raise typer.BadParameter("--allow-empty needs --replace")
    # A wrong address fails as in other commands.
    description = describe(client.table(table, deadline_s=RETRIES.total_s))
    keys = _key_fields(key or [], description)
    parts = read_parts(file, dict(zip(keys, (field["type"] for field in description["key"]), strict=True)))
    target = client.table(table)
    with target.replacement(file.name) if replace else nullcontext(target) as loading:
        loader = Loader(loading, keys, description, order)
        try:
            with shown_progress(file.name) as show:
                for rows, fraction in parts:
                    if not loader.load(rows):
                        break
                    show(loader.rows, fraction)
        except UNREADABLE as error:
            loader.fail(f"{file.name} cannot be read any further: {str(error).partition(chr(10))[0]}")
        if replace:
            _require_complete(loader, table, allow_empty=allow_empty)
    others = {"superseded": loader.superseded, "expired": loader.expired}
    counts = "".join(f", {count} {name}" for name, count in others.items() if count)
    typer.echo(f"{loader.stored} records stored in {table}, {loader.failed} failed{counts}")
    if loader.failed:
        raise typer.Exit(1)


def _require_complete(loader: "Loader", table: str, *, allow_empty: bool) -> None:
    """Exit if a row has failed, or if the table would be empty: the replacement is then not activated."""
    if loader.failed:
        typer.echo(f"tableside: {loader.failed} rows failed, so {table} keeps its old records", err=True)
        raise typer.Exit(1)
    if not (loader.stored or loader.superseded or allow_empty):
        typer.echo(f"tableside: no row is stored, so {table} keeps its old records; see --allow-empty", err=True)
        raise typer.Exit(1)


def _key_fields(given: list[str], description: Mapping[str, Any]) -> list[str]:
    """Return the fields with the parts of the key. Raise BadParameter if these are too many, too few or exchanged."""
    names = key_names(description)
    # JSON lines of a scan have all parts of a key in the member `key`.
    if not given or (given == ["key"] and len(names) > 1):
        return names
    if len(names) != len(given):
        raise typer.BadParameter(f"keys of this table have {len(names)} parts", param_hint="--key")
    if any(field in names and field != name for field, name in zip(given, names, strict=True)):
        raise typer.BadParameter(f"the parts of the key are in the order {', '.join(names)}", param_hint="--key")
    return given


class Loader:
    """Sends rows, and counts those that it has seen, and the stored, failed, superseded and expired ones."""

    def __init__(
        self, table: Table[dict[str, Any]], keys: Sequence[str], description: Mapping[str, Any], order: str | None
    ) -> None:
        self._table, self._keys, self._description, self._order = table, keys, description, order
        self.rows = self.stored = self.failed = self.superseded = self.expired = 0

    def load(self, rows: Sequence[Row | None]) -> bool:
        """Send rows as one batch. Return False if a failure has outlasted the client's retries."""
        puts = [(self.rows, put) for row in rows if (put := self._put(row)) is not None]
        try:
            outcomes = self._table.batch(put for _, put in puts)
        except TablesideError as error:
            self.fail(f"rows {puts[0][0]} to {puts[-1][0]}: {error}; later rows were not sent", len(puts))
            return False
        failed = [(row, outcome.error) for (row, _), outcome in zip(puts, outcomes, strict=True) if outcome.error]
        superseded = sum(outcome.superseded for outcome in outcomes)
        self.superseded += superseded
        self.stored += len(puts) - len(failed) - superseded
        for row, why in failed:
            self.fail(f"row {row}: {why.code}: {why.detail}")
        if is_away := ends_load(failed):
            typer.echo(f"tableside: the load stopped: rows after {puts[-1][0]} were not sent", err=True)
        return not is_away

    def fail(self, message: str, rows: int = 1) -> None:
        """Count failed rows, and print the first `ERRORS_SHOWN_MAX` messages."""
        if self.failed < ERRORS_SHOWN_MAX:
            typer.echo(f"tableside: {message}", err=True)
        self.failed += rows

    def _put(self, row: Row | None) -> dict[str, Any] | None:
        """Count a row, and return its operation, None if the row is invalid or a record that has expired."""
        self.rows += 1
        try:
            if row is None:
                raise ValueError("not a JSON object")
            put = put_of_row(row, self._keys, self._description)
            if self._order is not None:
                put["order"] = parse_order(put["value"].get(self._order), f"the field {self._order!r}")
            return put
        except Expired:
            self.expired += 1
        except ValueError as error:
            self.fail(f"row {self.rows}: {error}")
        return None


@contextmanager
def shown_progress(
    file: str, console: Console | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int, float], None]]:
    """Show the rows and the rate of a load: a bar if the console is a terminal, otherwise a line at intervals.

    Yields a function that takes the number of rows so far, and the fraction of the file, from 0 to 1.
    """
    console = console or Console(stderr=True)
    texts = [TextColumn("{task.fields[rows]:,} rows"), TextColumn("{task.fields[rate]:,.0f} rows/s")]
    columns = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *texts, TimeRemainingColumn()]
    started_s = printed_s = clock()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(file, total=1.0, rows=0, rate=0.0)

        def show(rows: int, fraction: float) -> None:
            nonlocal printed_s
            now_s = clock()
            rate = rows / max(now_s - started_s, 1e-9)
            bar.update(task, completed=fraction, rows=rows, rate=rate)
            if bar.disable and now_s - printed_s >= LINE_INTERVAL_S:
                printed_s = now_s
                typer.echo(f"tableside: {rows:,} rows sent, {fraction:.0%} of {file}, {rate:,.0f} rows/s", err=True)

        yield show
