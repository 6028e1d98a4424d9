"""The commands of `tableside` that read and write records. `tableside.cli` adds those of the service."""

from typing import Annotated

import typer

from .client_command import client_command
from .load import LOAD_RETRIES, load
from .records import activate, delete, generations, get, put, runs, tables, update
from .scan import scan

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version  # the look-up takes time

        typer.echo(f"tableside {version('tableside')}")
        raise typer.Exit


@app.callback()
def tableside(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read and write records of tables, and serve them."""


for _function in (tables, get, put, update, delete, scan, runs, generations, activate):
    app.command()(client_command(_function))
app.command()(client_command(load, LOAD_RETRIES))
