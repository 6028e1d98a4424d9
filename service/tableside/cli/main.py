"""The command line: the commands `serve` and `check`. Installs the commands of the other modules."""

import gc
import os
import signal
import sys
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
from .scan import scan

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ..server import ListenAddress, TlsFiles

CONFIG_VARIABLE = "TABLESIDE_CONFIG"
WORKERS_VARIABLE = "TABLESIDE_WORKERS"
ACCEPTED_VARIABLE = "TABLESIDE_ACCEPTED"
LOCAL_VARIABLE = "TABLESIDE_LOCAL"
PASSWORD_VARIABLE = "TABLESIDE_SSL_KEYFILE_PASSWORD"  # noqa: S105  # the name, not a password
# There is no TABLESIDE_PORT: Kubernetes sets it to an address if there is a service named `tableside`.

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

ConfigOption = Annotated[Path | None, typer.Option(envvar=CONFIG_VARIABLE, help="The configuration file.")]

GC_THRESHOLD = 50_000
"""Allocations between garbage collections. A batch allocates tens of thousands of objects."""

SWITCH_INTERVAL_S = 0.0005
"""How long the event loop waits for the interpreter's lock while a thread computes. Python's default is 5 ms."""


def _option(text: str, **more: Any) -> Any:
    return typer.Option(help=text, **more)


def _print_version(requested: bool) -> None:
    if requested:
        from .. import __version__  # the look-up takes time

        typer.echo(f"tableside {__version__}")
        raise typer.Exit


@app.callback()
def tableside(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read and write records of tables, and serve them."""


@app.command()
def serve(
    config: ConfigOption = None,
    host: Annotated[str, _option("The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, _option("The port to listen on.", min=0, max=65535)] = 8080,
    probes_port: Annotated[
        int | None, _option("A second port, for probes and metrics only, without TLS.", min=0, max=65535)
    ] = None,
    workers: Annotated[
        int, _option("The number of worker processes. RocksDB and memory stores need 1.", min=1, max=64)
    ] = 1,
    ssl_certfile: Annotated[
        Path | None, _option("PEM file of the certificate and its intermediate certificates.")
    ] = None,
    ssl_keyfile: Annotated[Path | None, _option("PEM file of the private key, if not in the same file.")] = None,
    ssl_keyfile_password: Annotated[
        str | None,
        _option(
            "The password of the private key. Prefer the variable: other users can read command lines.",
            envvar=PASSWORD_VARIABLE,
        ),
    ] = None,
    ssl_ca_certs: Annotated[
        Path | None, _option("PEM file of certificate authorities. Clients must present a certificate of one of them.")
    ] = None,
    insecure: Annotated[
        bool, _option("Allow listening on any address without authentication, and accept any host name.")
    ] = False,
) -> None:
    """Serve the tables. The default configuration is RocksDB in ./tableside-data, and tables are created on write."""
    settings = _settings(config)
    if (fault := settings.workers_fault(workers)) is not None:
        _usage_error(f"--workers {workers}: {fault}")
    local = _is_loopback(host)
    if settings.auth is None and not local and not insecure:
        _usage_error(f"without auth the service listens on loopback only; use --insecure to listen on {host}")
    from ..server import ListenAddress  # the server package is imported only when needed

    tls = _tls(ssl_certfile, ssl_keyfile, ssl_ca_certs, ssl_keyfile_password)
    pages = ("/docs", *(("/console",) if settings.console.enabled else ()))
    address = ListenAddress(host, port, probes_port, tls, pages)
    _run(settings, config, address, workers, local=settings.auth is None and local and not insecure)


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The configuration file.")]) -> None:
    """Check a configuration file, and list all of its errors."""
    _load(file)
    typer.echo(f"{file}: no errors")


def create_worker_app() -> "FastAPI":
    """Return the application of one worker process. Its configuration is in environment variables."""
    from ..app import create_app
    from ..catalog import load_for_joining_process

    file, accepted = Path(os.environ[CONFIG_VARIABLE]), Path(os.environ[ACCEPTED_VARIABLE])
    settings = load_for_joining_process(file, accepted)
    _configure_process(settings)
    local = LOCAL_VARIABLE in os.environ
    return create_app(settings, int(os.environ[WORKERS_VARIABLE]), file, accepted, local=local)


def _run(settings: Settings, config: Path | None, address: "ListenAddress", workers: int, *, local: bool) -> None:
    # The first process of a container ignores signals that have no handler.
    signal.signal(signal.SIGTERM, _exit_on_signal)
    # Imported here because the other commands start in half the time without the server.
    from ..app import create_app
    from ..catalog import save_accepted
    from ..server import Supervisor, server

    _configure_process(settings)
    _make_metrics_directory()
    if workers == 1:
        app = create_app(settings, file=config, local=local)
        server.Server(server.ServerConfig(app, settings.limits, address)).run()
        return
    assert config is not None  # the default configuration allows a single process only
    name = f"{__name__}:{create_worker_app.__name__}"
    with tempfile.TemporaryDirectory(prefix="tableside-") as folder:
        accepted = Path(folder) / "accepted.yaml"
        save_accepted(configuration.read_text(config), accepted)
        variables = {CONFIG_VARIABLE: str(config), WORKERS_VARIABLE: str(workers), ACCEPTED_VARIABLE: str(accepted)}
        os.environ |= variables | ({LOCAL_VARIABLE: "1"} if local else {})
        raise typer.Exit(Supervisor(server.ServerConfig(name, settings.limits, address, workers)).serve())


def _make_metrics_directory() -> None:
    """Make the directory for the files of metrics, if the environment names one that does not exist."""
    from ..telemetry import DIRECTORY_VARIABLE

    if (directory := os.environ.get(DIRECTORY_VARIABLE)) is None:
        return
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _usage_error(f"{DIRECTORY_VARIABLE}: {directory} is not a directory and cannot be made: {error.strerror}")
    if not os.access(directory, os.W_OK):
        _usage_error(f"{DIRECTORY_VARIABLE}: files in {directory} cannot be written")


def _tls(
    certificate: Path | None, key: Path | None, authorities: Path | None, password: str | None
) -> "TlsFiles | None":
    from ..server import TlsError, TlsFiles

    if certificate is None:
        if key or authorities:
            _usage_error("--ssl-keyfile and --ssl-ca-certs need --ssl-certfile")
        return None
    tls = TlsFiles(certificate, key, authorities, password)
    try:
        tls.load()
    except TlsError as error:
        _usage_error(str(error))
    return tls


def _exit_on_signal(sig: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + sig)


def _configure_process(settings: Settings) -> None:
    """Configure this process: its logs, fewer garbage collections during batches, and short waits for threads."""
    from ..telemetry import logs

    logs.configure(settings.logs)
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


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
        return False  # a host name, which may resolve to any address


def _usage_error(message: str) -> NoReturn:
    typer.echo(f"tableside: {message}", err=True)
    raise typer.Exit(2)


records.install(app)
token.install(app)
app.command()(scan)
app.command()(load)
