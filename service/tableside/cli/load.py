"""`tableside load`: writes the rows of a file to a table."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from tableside_client import Client, Outcome, Retries, Table, TablesideError

from .client_options import RETRIES, client_command
from .json_values import to_json
from .load_progress import LoadProgress, open_progress
from .records import TableArgument, key_types
from .row_files import UNREADABLE, Part, read_parts

ERRORS_SHOWN_MAX = 5

LOAD_RETRIES = Retries()
"""Longer than those of other commands: a load may run for an hour, and a restart of the service should not end it."""


@client_command(LOAD_RETRIES)
def load(
    client: Client,
    table: TableArgument,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="CSV, JSON lines or Parquet.")],
    key: Annotated[list[str], typer.Option(help="The field with the key. Repeat it for each part of a composite key.")],
) -> None:
    """Write every row of a file as a record of a table.

    A load waits up to 120 seconds for a service that restarts.
    """
    kinds = key_types(client.table(table, deadline_s=RETRIES.total_s))  # a wrong address fails as in other commands
    if len(kinds) != len(key):
        raise typer.BadParameter(f"keys of this table have {len(kinds)} parts", param_hint="--key")
    parts = read_parts(file, dict(zip(key, kinds, strict=True)))
    loader = Loader(client.table(table), key)
    try:
        with open_progress(file.name) as progress:
            loader.load(parts, progress)
    except UNREADABLE as error:
        loader.fail(f"{file.name} cannot be read any further: {str(error).partition(chr(10))[0]}")
    typer.echo(f"{loader.stored} records stored in {table}, {loader.failed} failed")
    if loader.failed:
        raise typer.Exit(1)


class Loader:
    """Sends rows in batches, and counts the stored and failed rows."""

    def __init__(self, table: Table[dict[str, Any]], key: list[str]) -> None:
        self._table, self._key = table, key
        self._row = 0
        self.stored = 0
        self.failed = 0

    def load(self, parts: Iterable[Part], progress: LoadProgress) -> None:
        """Send all rows, or those before a failure that outlasts the client's retries."""
        for part in parts:
            if not self._send([put for row in part.rows if (put := self._put(row)) is not None]):
                return
            progress.show(self._row, part.fraction)

    def fail(self, message: str, rows: int = 1) -> None:
        """Count failed rows, and print the first `ERRORS_SHOWN_MAX` messages."""
        if self.failed < ERRORS_SHOWN_MAX:
            typer.echo(f"tableside: {message}", err=True)
        self.failed += rows

    def _put(self, row: dict[str, Any] | None) -> tuple[int, dict[str, Any]] | None:
        """Return the row's number and its operation, None if the row is invalid."""
        self._row += 1
        try:
            if row is None:
                raise ValueError("not a JSON object")
            parts = [_key_part(row, field) for field in self._key]
            value = {name: to_json(member) for name, member in row.items() if name not in self._key}
        except ValueError as error:
            self.fail(f"row {self._row}: {error}")
            return None
        return self._row, {"op": "put", "key": parts[0] if len(parts) == 1 else parts, "value": value}

    def _send(self, puts: list[tuple[int, dict[str, Any]]]) -> bool:
        """Send operations. Return False if the load cannot continue."""
        try:
            outcomes = self._table.batch(operation for _, operation in puts)
        except TablesideError as error:
            self.fail(f"rows {puts[0][0]} to {puts[-1][0]}: {error}; later rows were not sent", len(puts))
            return False
        for (row, _), outcome in zip(puts, outcomes, strict=True):
            self._count(row, outcome)
        if lost := [row for (row, _), outcome in zip(puts, outcomes, strict=True) if _is_temporary(outcome)]:
            typer.echo(f"tableside: the service did not recover: rows after {puts[-1][0]} were not sent", err=True)
        return not lost

    def _count(self, row: int, outcome: Outcome[Any]) -> None:
        if outcome.error is None:
            self.stored += 1
        else:
            self.fail(f"row {row}: {outcome.error.code}: {outcome.error.detail}")


def _key_part(row: dict[str, Any], field: str) -> str | int:
    if field not in row:
        raise ValueError(f"no field {field!r}")
    part = row[field]
    if isinstance(part, bool) or not isinstance(part, str | int):
        raise ValueError(f"the key field {field!r} is neither a string nor an integer")
    return part


def _is_temporary(outcome: Outcome[Any]) -> bool:
    """Return whether an operation failed for a temporary reason although the client retried it."""
    return outcome.error is not None and outcome.error.retriable
