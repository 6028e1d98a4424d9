"""The command line: serve, check a configuration, and the operations against a running service."""

import gc
import os
import signal
import tempfile
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from .. import settings as configuration
from ..settings import Settings, SettingsError
from . import records, token
from .load import load

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ..server import Place, Tls

CONFIG_VARIABLE = "TABLESIDE_CONFIG"
WORKERS_VARIABLE = "TABLESIDE_WORKERS"
ACCEPTED_VARIABLE = "TABLESIDE_ACCEPTED"
LOCAL_VARIABLE = "TABLESIDE_LOCAL"
PASSWORD_VARIABLE = "TABLESIDE_SSL_KEYFILE_PASSWORD"  # noqa: S105  # its name
# There is no TABLESIDE_PORT: Kubernetes sets one, to an address, where a service is called `tableside`.

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

ConfigOption = Annotated[Path | None, typer.Option(envvar=CONFIG_VARIABLE, help="The configuration file.")]

GARBAGE_MAX = 50_000
"""How many objects may be made before those without a reference are looked for: a batch makes tens of thousands."""


def _option(text: str, **more: Any) -> Any:
    return typer.Option(help=text, **more)


@app.command()
def serve(
    config: ConfigOption = None,
    host: Annotated[str, _option("The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, _option("The port to listen on.", min=0, max=65535)] = 8080,
    probes_port: Annotated[
        int | None, _option("Another port, for probes and metrics only, without TLS.", min=0, max=65535)
    ] = None,
    workers: Annotated[int, _option("Processes; 1 with RocksDB and memory stores.", min=1, max=64)] = 1,
    ssl_certfile: Annotated[
        Path | None, _option("PEM file of the certificate, and of what leads to its authority.")
    ] = None,
    ssl_keyfile: Annotated[Path | None, _option("PEM file of its key, if that is in another.")] = None,
    ssl_keyfile_password: Annotated[
        str | None, _option("The key's password; a command line is seen by others.", envvar=PASSWORD_VARIABLE)
    ] = None,
    ssl_ca_certs: Annotated[
        Path | None, _option("PEM file of authorities; clients must show a certificate of one.")
    ] = None,
    insecure: Annotated[
        bool, _option("Listen on other than loopback without authentication, and be asked by any name.")
    ] = False,
) -> None:
    """Serve the tables. Without a configuration: RocksDB under ./tableside-data, tables made as they are written to."""
    chosen = _settings(config)
    if workers > 1 and chosen.single_process:
        _refuse("--workers above 1 needs stores that several processes can share; one process owns RocksDB or memory")
    if workers > 1 and any(table.cache for table in chosen.tables.values()):
        _refuse("--workers above 1 and a cache do not go together: one worker would not see what another writes")
    local = _is_loopback(host)
    if chosen.auth is None and not local and not insecure:
        _refuse(f"without auth the service listens on loopback only; say --insecure to listen on {host} all the same")
    from ..server import Place  # like all of the server only where it is needed

    tls = _tls(ssl_certfile, ssl_keyfile, ssl_ca_certs, ssl_keyfile_password)
    place = Place(host, port, probes_port, tls)
    _run(chosen, config, place, workers, local=chosen.auth is None and local and not insecure)


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The configuration file.")]) -> None:
    """Check a configuration file, and list every fault in it."""
    _load(file)
    typer.echo(f"{file}: no faults")


def worker() -> "FastAPI":
    """Return the application of one of several processes, which finds its configuration in the environment."""
    from ..app import create_app
    from ..catalog import load_for_joining_process

    file, accepted = Path(os.environ[CONFIG_VARIABLE]), Path(os.environ[ACCEPTED_VARIABLE])
    settings = load_for_joining_process(file, accepted)
    _prepare(settings)
    local = LOCAL_VARIABLE in os.environ
    return create_app(settings, int(os.environ[WORKERS_VARIABLE]), file, accepted, local=local)


def _run(chosen: Settings, config: Path | None, place: "Place", workers: int, *, local: bool) -> None:
    # No signal that nobody handles ends the first process of a container.
    signal.signal(signal.SIGTERM, _end_before_it_began)
    # Only here: the other verbs start in half the time without a server.
    from ..app import create_app
    from ..catalog import save_accepted
    from ..server import Workers, server

    _prepare(chosen)
    if workers == 1:
        app = create_app(chosen, file=config, local=local)
        server.Server(server.Config(app, chosen.limits, place)).run()
        return
    assert config is not None  # without one, the store is one that a single process owns
    name = f"{__name__}:{worker.__name__}"
    with tempfile.TemporaryDirectory(prefix="tableside-") as folder:
        accepted = Path(folder) / "accepted.yaml"
        save_accepted(config, accepted)
        told = {CONFIG_VARIABLE: str(config), WORKERS_VARIABLE: str(workers), ACCEPTED_VARIABLE: str(accepted)}
        os.environ |= told | ({LOCAL_VARIABLE: "1"} if local else {})
        raise typer.Exit(Workers(server.Config(name, chosen.limits, place, workers)).serve())


def _tls(certificate: Path | None, key: Path | None, authorities: Path | None, password: str | None) -> "Tls | None":
    from ..server import Tls, TlsError

    if certificate is None:
        if key or authorities:
            _refuse("--ssl-keyfile and --ssl-ca-certs need --ssl-certfile")
        return None
    tls = Tls(certificate, key, authorities, password)
    try:
        tls.check()
    except TlsError as error:
        _refuse(str(error))
    return tls


def _end_before_it_began(sig: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + sig)


def _prepare(settings: Settings) -> None:
    """Set up this process: its log, and a garbage collector that a batch does not set off ten times over."""
    from ..telemetry import logs

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


def _refuse(why: str) -> NoReturn:
    typer.echo(f"tableside: {why}", err=True)
    raise typer.Exit(2)


records.install(app)
token.install(app)
app.command()(load)
