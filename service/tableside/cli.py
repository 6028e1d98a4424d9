"""The command line `tableside`: the client's commands, and those that serve, check, back up, restore and create tokens.

Each command of the service imports its packages when it runs. The client's commands then start in a third of the time,
and need none of the service's dependencies.
"""

import asyncio
import gc
import json
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer

from tableside_cli import app

if TYPE_CHECKING:
    from fastapi import FastAPI

    from .auth import AuthSettings, Caller
    from .server import ListenAddress
    from .settings import Settings
    from .stores.rocksdb import RocksdbSettings

__all__ = ["app"]

CONFIG_VARIABLE = "TABLESIDE_CONFIG"
PASSWORD_VARIABLE = "TABLESIDE_SSL_KEYFILE_PASSWORD"  # noqa: S105  # the name, not a password
# There is no TABLESIDE_PORT: Kubernetes sets it to an address if there is a service named `tableside`.


def _option(text: str, **more: Any) -> Any:
    return typer.Option(help=text, **more)


@app.command()
def serve(
    config: Annotated[Path | None, _option("The configuration file.", envvar=CONFIG_VARIABLE)] = None,
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
    settings = _load(config)
    if (fault := settings.workers_fault(workers)) is not None:
        _usage_error(f"--workers {workers}: {fault}")
    local = _is_loopback(host)
    if settings.auth is None and not local and not insecure:
        _usage_error(f"without auth the service listens on loopback only; use --insecure to listen on {host}")
    from .server import ListenAddress, TlsError, TlsFiles

    if ssl_certfile is None and (ssl_keyfile or ssl_ca_certs):
        _usage_error("--ssl-keyfile and --ssl-ca-certs need --ssl-certfile")
    tls = None
    if ssl_certfile is not None:
        tls = TlsFiles(ssl_certfile, ssl_keyfile, ssl_ca_certs, ssl_keyfile_password)
        try:
            tls.load()
        except TlsError as error:
            _usage_error(str(error))
    pages = ("/docs", *(("/console",) if settings.console.enabled else ()))
    address = ListenAddress(host, port, probes_port, tls, pages)
    _run(settings, config, address, workers, local=settings.auth is None and local and not insecure)


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The configuration file.")]) -> None:
    """Check a configuration file, and list all of its errors."""
    _load(file)
    typer.echo(f"{file}: no errors")


ConfigOption = Annotated[Path | None, _option("The configuration file of the service.", envvar=CONFIG_VARIABLE)]
StoreOption = Annotated[str, _option("The name of a RocksDB store of the configuration.")]


@app.command()
def backup(
    folder: Annotated[Path, typer.Argument(help="The folder for the backups of one store.")],
    store: StoreOption,
    config: ConfigOption = None,
    keep: Annotated[int | None, _option("Remove all but this number of backups afterwards.", min=1)] = None,
) -> None:
    """Copy a RocksDB store to a new directory in a folder, also while a service uses it, and verify the copy."""
    from .stores.rocksdb import back_up, remove_older

    with _printed_errors():
        started = time.monotonic()
        path, inventory = back_up(_rocksdb(store, config), folder)
        took_s = time.monotonic() - started
        typer.echo(f"{path}: {inventory.entries} entries, {inventory.size_bytes} bytes, {took_s:.1f} s")
        for older in remove_older(folder, keep) if keep else ():
            typer.echo(f"{older}: removed")


@app.command()
def restore(
    path: Annotated[Path, typer.Argument(metavar="BACKUP", help="The directory of one backup.")],
    store: StoreOption,
    config: ConfigOption = None,
) -> None:
    """Copy a verified backup to the directory of a RocksDB store, which must be absent or empty."""
    from .stores.rocksdb import restore

    with _printed_errors():
        inventory = restore(path, settings := _rocksdb(store, config))
        typer.echo(f"{settings.directory}: {inventory.entries} entries, {inventory.size_bytes} bytes")


def _rocksdb(store: str, config: Path | None) -> "RocksdbSettings":
    found = _load(config).stores.get(store)
    if found is None or found.kind != "rocksdb":
        _usage_error(f"--store {store}: the configuration has no RocksDB store with this name")
    return cast("RocksdbSettings", found.options)


@contextmanager
def _printed_errors() -> Iterator[None]:
    """Print an error of a store or of the file system as one line, and exit."""
    from .core import TableError

    try:
        yield
    except (TableError, OSError) as error:
        typer.echo(f"tableside: {error}", err=True)
        raise typer.Exit(1) from None


def create_worker_app(file: Path, accepted: Path, workers: int, *, local: bool) -> "FastAPI":
    """Return the application of one of several worker processes."""
    from .app import create_app
    from .catalog import load_for_joining_process

    settings = load_for_joining_process(file, accepted)
    _configure_process(settings)
    return create_app(settings, workers, file, accepted, local=local)


def _load(config: Path | None) -> "Settings":
    from .settings import SettingsError, default_settings, load

    try:
        return default_settings() if config is None else load(config)
    except SettingsError as error:
        for fault in error.faults:
            typer.echo(f"{config}: {fault}", err=True)
        raise typer.Exit(1) from None


def _run(settings: "Settings", config: Path | None, address: "ListenAddress", workers: int, *, local: bool) -> None:
    # The first process of a container ignores signals that have no handler.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    from .app import create_app
    from .catalog import save_accepted
    from .server import Supervisor, server
    from .settings import read_text

    _configure_process(settings)
    _make_metrics_directory()
    if workers == 1:
        app = create_app(settings, file=config, local=local)
        server.Server(server.ServerConfig(app, settings.limits, address)).run()
        return
    assert config is not None  # the default configuration allows a single process only
    with tempfile.TemporaryDirectory(prefix="tableside-") as folder:
        accepted = Path(folder) / "accepted.yaml"
        save_accepted(read_text(config), accepted)
        create = partial(create_worker_app, config, accepted, workers, local=local)
        raise typer.Exit(Supervisor(server.ServerConfig(create, settings.limits, address, workers)).serve())


def _make_metrics_directory() -> None:
    """Make the directory for the files of metrics, if the environment names one that does not exist."""
    from .telemetry import DIRECTORY_VARIABLE

    if (directory := os.environ.get(DIRECTORY_VARIABLE)) is None:
        return
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _usage_error(f"{DIRECTORY_VARIABLE}: {directory} is not a directory and cannot be made: {error.strerror}")
    if not os.access(directory, os.W_OK):
        _usage_error(f"{DIRECTORY_VARIABLE}: files in {directory} cannot be written")


def _configure_process(settings: "Settings") -> None:
    from .telemetry import logs

    logs.configure(settings.logs)
    gc.set_threshold(50_000, 20, 100)  # allocations: a batch allocates tens of thousands of objects
    sys.setswitchinterval(0.0005)  # seconds that the event loop waits for a thread that computes, by default 5 ms


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False  # a host name, which may resolve to any address


def _usage_error(message: str) -> NoReturn:
    typer.echo(f"tableside: {message}", err=True)
    raise typer.Exit(2)


TOKEN_PREFIX = "tableside_"  # noqa: S105  # a prefix, not a password
"""Makes it possible to recognize a leaked token, for example in a repository."""

PatternOption = Annotated[
    list[str] | None,
    _option("A pattern of table names, such as profile*. Can be repeated.", metavar="PATTERN"),
]

token = typer.Typer(no_args_is_help=True, help="Create bearer tokens, and show the permissions of a token.")
app.add_typer(token, name="token")


@token.command()
def new(
    name: Annotated[str, typer.Argument(help="The name of the caller.")],
    read: PatternOption = None,
    write: PatternOption = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="Grant access to endpoints that are restricted to admins.")
    ] = False,
) -> None:
    """Create a token. The first output line is the token, which is not stored. Add the second to `auth.tokens`."""
    from pydantic import ValidationError

    from .auth import TokenSettings

    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    digest = sha256(secret.encode()).hexdigest()
    entry = {"name": name, "sha256": digest, "read": read or [], "write": write or [], "admin": admin}
    try:
        TokenSettings.model_validate(entry)
    except ValidationError as error:
        [fault, *_] = error.errors(include_url=False, include_input=False)
        raise typer.BadParameter(f"{fault['loc'][0]}: {fault['msg']}") from None
    typer.echo(secret)
    typer.echo(f"- {json.dumps(entry)}")  # JSON is YAML


@token.command()
def explain(
    config: Annotated[Path, _option("The configuration file of the service.", envvar=CONFIG_VARIABLE)],
    token_file: Annotated[Path | None, _option("A file with the token. The default is standard input.")] = None,
) -> None:
    """Show the caller and permissions of a token, or why it is rejected, with exit code 1."""
    settings = _load(config).auth
    if settings is None:
        typer.echo("the configuration has no auth: every request is allowed", err=True)
        raise typer.Exit(1)
    from .auth import TokenRejected
    from .core import TableError

    try:
        caller = asyncio.run(_identify(settings, _read_token(token_file)))
    except (TokenRejected, TableError, OSError) as error:
        typer.echo(f"rejected: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"caller: {caller.name}")
    typer.echo(f"read:   {', '.join(caller.read) or 'nothing'}")
    typer.echo(f"write:  {', '.join(caller.write) or 'nothing'}")
    typer.echo(f"admin:  {'yes' if caller.admin else 'no'}")


def _read_token(file: Path | None) -> bytes:
    from .auth import TOKEN_BYTES_MAX

    with nullcontext(sys.stdin.buffer) if file is None else file.open("rb") as opened:
        return opened.read(4 * TOKEN_BYTES_MAX).strip()


async def _identify(settings: "AuthSettings", token: bytes) -> "Caller":
    """Return the caller of a token. Raise TokenRejected, or TableError if an issuer's keys cannot be fetched."""
    from prometheus_client import CollectorRegistry

    from .auth import Auth, KeysMissing

    auth = Auth(settings, CollectorRegistry())
    fetching = asyncio.create_task(auth.run())
    try:
        return auth.caller_of(token)
    except KeysMissing as missing:
        return await auth.caller_after_fetch(token, missing)
    finally:
        fetching.cancel()
