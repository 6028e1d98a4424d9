"""The command line: serve, check a configuration, and the operations against a running service."""

import gc
import os
import tempfile
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import cli_records, cli_token
from . import settings as configuration
from .cli_load import load
from .settings import Settings, SettingsError

if TYPE_CHECKING:
    from fastapi import FastAPI

CONFIG_VARIABLE = "TABLESIDE_CONFIG"
WORKERS_VARIABLE = "TABLESIDE_WORKERS"
ACCEPTED_VARIABLE = "TABLESIDE_ACCEPTED"

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

ConfigOption = Annotated[Path | None, typer.Option(envvar=CONFIG_VARIABLE, help="The configuration file.")]

GARBAGE_MAX = 50_000
"""How many objects may be made before those without a reference are looked for: a batch makes tens of thousands."""


@app.command()
def serve(
    config: ConfigOption = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes; 1 with RocksDB and memory stores.")] = 1,
    insecure: Annotated[bool, typer.Option(help="Listen on other than loopback without authentication.")] = False,
) -> None:
    """Serve the tables. Without a configuration: RocksDB under ./tableside-data, tables made as they are written to."""
    chosen = _settings(config)
    if workers > 1 and chosen.single_process:
        _refuse("--workers above 1 needs stores that several processes can share; one process owns RocksDB or memory")
    if workers > 1 and any(table.cache for table in chosen.tables.values()):
        _refuse("--workers above 1 and a cache do not go together: one worker would not see what another writes")
    if chosen.auth is None and not _is_loopback(host) and not insecure:
        _refuse(f"without auth the service listens on loopback only; say --insecure to listen on {host} all the same")
    _run(chosen, config, host, port, workers)


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The configuration file.")]) -> None:
    """Check a configuration file, and list every fault in it."""
    _load(file)
    typer.echo(f"{file}: no faults")


def worker() -> "FastAPI":
    """Return the application of one of several processes, which finds its configuration in the environment."""
    from .app import create_app
    from .reloading import load_to_join

    file, accepted = Path(os.environ[CONFIG_VARIABLE]), Path(os.environ[ACCEPTED_VARIABLE])
    settings = load_to_join(file, accepted)
    _prepare(settings)
    return create_app(settings, int(os.environ[WORKERS_VARIABLE]), file, accepted)


def _run(chosen: Settings, config: Path | None, host: str, port: int, workers: int) -> None:
    # Only here: the other verbs start in half the time without a server.
    from . import serving
    from .app import create_app
    from .reloading import keep
    from .workers import Workers

    _prepare(chosen)
    limits = chosen.limits
    if workers == 1:
        app = create_app(chosen, file=config)
        serving.Server(serving.configured(app, limits, host=host, port=port), limits).run()
        return
    assert config is not None  # without one, the store is one that a single process owns
    name = f"{__name__}:{worker.__name__}"
    with tempfile.TemporaryDirectory(prefix="tableside-") as folder:
        accepted = Path(folder) / "accepted.yaml"
        keep(config, accepted)
        told = {CONFIG_VARIABLE: str(config), WORKERS_VARIABLE: str(workers), ACCEPTED_VARIABLE: str(accepted)}
        os.environ |= told
        serve = Workers(serving.configured(name, limits, host=host, port=port, workers=workers), limits).serve
        raise typer.Exit(serve())


def _prepare(settings: Settings) -> None:
    """Set up this process: its log, and a garbage collector that a batch does not set off ten times over."""
    from .telemetry import logs

    logs.configure(settings.logs)
    gc.freeze()  # what is imported stays
    gc.set_threshold(GARBAGE_MAX, 20, 100)


def _settings(config: Path | None) -> Settings:
    return configuration.default_settings() if config is None else _load(config)


def _load(file: Path) -> Settings:
    try:
        return configuration.load(file)
    except SettingsError as error:
        for fault in error.faults:
            typer.echo(f"{file}: {fault}", err=True)
        raise typer.Exit(1) from None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False  # a name, which may mean anything


def _refuse(why: str) -> None:
    typer.echo(f"tableside: {why}", err=True)
    raise typer.Exit(2)


cli_records.install(app)
cli_token.install(app)
app.command()(load)
