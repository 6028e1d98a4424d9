"""`tableside load`: writes the rows of a file to a table."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tableside_client import Client, Outcome, Retries, Table, TablesideError

from .client_options import RETRIES, client_command
from .json_values import to_json
from .load_progress import LoadProgress, open_progress
from .record_rows import FACTS, document_of_row, key_names
from .records import NEW_TABLE, TableArgument, describe
from .row_files import UNREADABLE, Part, read_parts
from .scanned import is_document, options_of

ERRORS_SHOWN_MAX = 5

LOAD_RETRIES = Retries()
"""Longer than those of other commands: a load may run for an hour, and a restart of the service should not end it."""


@client_command(LOAD_RETRIES)
def load(
    client: Client,
    table: TableArgument,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="CSV, JSON lines or Parquet.")],
    key: Annotated[
        list[str] | None,
        typer.Option(help="The field with the key. Repeat it for each part of a composite key.", show_default=False),
    ] = None,
) -> None:
    """Write every row of a file as a record of a table.

    A file of tableside scan gives the same records, with their expiry and partitions. The default of --key is the name
    of the table's key, or key.

    A load waits up to 120 seconds for a service that restarts.
    """
    # A wrong address fails as in other commands.
    description = describe(client.table(table, deadline_s=RETRIES.total_s))
    kinds = [field["type"] for field in description["key"]]
    if not key or (key == ["key"] and len(kinds) > 1):  # JSON lines of a scan have all parts of a key in this member
        key = key_names(description)
    if len(kinds) != len(key):
        raise typer.BadParameter(f"keys of this table have {len(kinds)} parts", param_hint="--key")
    names = key_names(description)
    if any(field in names and field != name for field, name in zip(key, names, strict=True)):
        raise typer.BadParameter(f"the parts of the key are in the order {', '.join(names)}", param_hint="--key")
    parts = read_parts(file, dict(zip(key, kinds, strict=True)))
    loader = Loader(client.table(table), key, description)
    try:
        with open_progress(file.name) as progress:
            loader.load(parts, progress)
    except UNREADABLE as error:
        loader.fail(f"{file.name} cannot be read any further: {str(error).partition(chr(10))[0]}")
    expired = f", {loader.expired} expired" if loader.expired else ""
    typer.echo(f"{loader.stored} records stored in {table}, {loader.failed} failed{expired}")
    if loader.failed:
        raise typer.Exit(1)


class Loader:
    """Sends rows in batches, and counts the stored, failed and expired rows. `description` is that of the table."""

    def __init__(
        self, table: Table[dict[str, Any]], key: list[str], description: Mapping[str, Any] = NEW_TABLE
    ) -> None:
        self._table, self._key, self._description = table, key, description
        self._row = 0
        self.stored = 0
        self.failed = 0
        self.expired = 0

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
        """Return the row's number and its operation, None if the row is invalid or a record that has expired."""
        self._row += 1
        try:
            if row is None:
                raise ValueError("not a JSON object")
            operation = self._operation(row)
        except ValueError as error:
            self.fail(f"row {self._row}: {error}")
            return None
        if operation is None:
            self.expired += 1
            return None
        return self._row, operation

    def _operation(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """Return the put of a row, None if it is a record that has expired. Raise ValueError if it is invalid."""
        options: dict[str, Any] | None = {}
        if FACTS in row or is_document(row):
            document = document_of_row(row, self._key) if FACTS in row else row
            key, value, options = document["key"], document["value"], options_of(document, self._description)
        else:
            if absent := [field for field in self._key if field not in row]:
                raise ValueError(f"no field {absent[0]!r}")
            key = [row[field] for field in self._key]
            value = {name: member for name, member in row.items() if name not in self._key}
        if options is None:
            return None
        return {"op": "put", "key": self._checked_key(key), "value": to_json(value), **options}

    def _checked_key(self, key: Any) -> str | int | list[str | int]:
        parts = key if isinstance(key, list) else [key]
        fields = self._description["key"]
        if len(parts) != len(fields):
            raise ValueError(f"the key has {len(parts)} parts, not {len(fields)} as in this table")
        for name, field, part in zip(self._key, fields, parts, strict=True):
            _check_part(name, field["type"], part)
        return parts[0] if len(parts) == 1 else parts

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


def _check_part(name: str, kind: str, part: Any) -> None:
    if isinstance(part, bool) or not isinstance(part, str | int):
        raise ValueError(f"the key field {name!r} is neither a string nor an integer")
    if kind == "string" and isinstance(part, int):
        raise ValueError(
            f"the key field {name!r} is an integer, and keys of this table are strings: write it as text, or declare "
            "a table with integer keys in the configuration of the service"
        )


def _is_temporary(outcome: Outcome[Any]) -> bool:
    """Return whether an operation failed for a temporary reason although the client retried it."""
    return outcome.error is not None and outcome.error.retriable
