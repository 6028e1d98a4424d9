"""`tableside runs`: lists the batch writes of Spark that a table remembers by their token."""

from collections.abc import Iterable
from operator import attrgetter

import typer

from tableside_client import Client, TableNotFound
from tableside_client.runs import RUNS, Run, scan_runs

from .record_rows import json_text
from .records import TableArgument


def runs(client: Client, table: TableArgument) -> None:
    """List the runs of a table, which are batch writes of Spark with a token, in the order of their starts.

    Each line has the token, the operation, the times at which the run started and finished, and its number of rows,
    separated by tabs. A run that has not finished has hyphens as the last two.
    """
    for run in _runs_of(client, table):
        typer.echo("\t".join(_columns(run)))


def _runs_of(client: Client, table: str) -> Iterable[Run]:
    try:
        return sorted(scan_runs(client.table(table + RUNS)), key=attrgetter("first_event"))
    except TableNotFound:  # the store has no place for runs until the first one starts
        client.table(table).describe()  # raises TableNotFound for a table that does not exist
        return ()


def _columns(run: Run) -> tuple[str, ...]:
    token = run.token if run.token.isprintable() else json_text(run.token)
    return token, run.operation, run.started, run.finished or "-", "-" if run.rows is None else str(run.rows)
