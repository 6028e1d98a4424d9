"""`tableside token`: makes a bearer token, or shows the caller and permissions of one. Works without a service."""

import asyncio
import json
import secrets
import sys
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from ..auth import (
    TOKEN_BYTES_MAX,
    AuthSettings,
    IssuerMetrics,
    Issuers,
    IssuerSettings,
    KeysMissing,
    Refused,
    TokenSettings,
    Verified,
)
from ..core import TableError
from ..settings import SettingsError, load

RANDOM_BYTES = 32

PREFIX = "tableside_"
"""By it a token that stands where it should not is recognised."""

ConfigOption = Annotated[
    Path, typer.Option("--config", envvar="TABLESIDE_CONFIG", help="The configuration of the service.")
]
FileOption = Annotated[Path | None, typer.Option("--token-file", help="Where the token is; else standard input.")]

PatternOption = Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Tables, as in profile*; repeatable.")]

Rights = tuple[str, tuple[str, ...], tuple[str, ...], bool]
"""Name, patterns of tables to read and to write, and whether the caller is an admin."""


def install(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    token = typer.Typer(no_args_is_help=True)
    token.callback()(_token)
    token.command()(new)
    token.command()(explain)
    app.add_typer(token, name="token")


def _token() -> None:
    """Make bearer tokens, and say what a token is good for."""


def new(
    name: Annotated[str, typer.Argument(help="Whose token it is.")],
    read: PatternOption = None,
    write: PatternOption = None,
    admin: Annotated[bool, typer.Option("--admin", help="It may see what is for admins.")] = False,
) -> None:
    """Make a token: the first line is the token, shown only now; the second goes under `auth.tokens`."""
    made = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    digest = sha256(made.encode()).hexdigest()
    entry = {"name": name, "sha256": digest, "read": read or [], "write": write or [], "admin": admin}
    try:
        TokenSettings.model_validate(entry)
    except ValidationError as error:
        [fault, *_] = error.errors(include_url=False, include_input=False)
        raise typer.BadParameter(f"{fault['loc'][0]}: {fault['msg']}") from None
    typer.echo(made)
    typer.echo(f"- {json.dumps(entry)}")  # JSON is YAML


def explain(config: ConfigOption, token_file: FileOption = None) -> None:
    """Say whose token it is, and what it gives a right to; or why it is not taken, with exit code 1."""
    try:
        auth = load(config).auth
    except SettingsError as error:
        typer.echo(f"{error}", err=True)
        raise typer.Exit(1) from None
    if auth is None:
        typer.echo("the configuration has no auth: anybody may do anything", err=True)
        raise typer.Exit(1)
    try:
        name, read, write, admin = asyncio.run(_found(auth, _read_token(token_file)))
    except (Refused, TableError, OSError) as error:
        why = error.reason if isinstance(error, Refused) else str(error)
        typer.echo(f"not taken: {why}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"caller: {name}\nread:   {_listed(read)}\nwrite:  {_listed(write)}\nadmin:  {'yes' if admin else 'no'}")


def _read_token(file: Path | None) -> bytes:
    if file is None:
        return sys.stdin.buffer.read(4 * TOKEN_BYTES_MAX).strip()
    with file.open("rb") as opened:
        return opened.read(4 * TOKEN_BYTES_MAX).strip()


def _listed(patterns: tuple[str, ...]) -> str:
    return ", ".join(patterns) or "nothing"


async def _found(auth: AuthSettings, token: bytes) -> Rights:
    """Return whose token it is, and the rights. Raise Refused, or TableError where keys cannot be fetched."""
    digest = sha256(token).hexdigest()
    for one in auth.tokens:
        if one.sha256.get_secret_value().lower() == digest:
            return one.name, one.read, one.write, one.admin
    found = await _verified(auth.issuers, token)
    if found is None:
        raise Refused("unknown" if token else "missing")
    return found.name, found.read, found.write, found.admin


async def _verified(settings: tuple[IssuerSettings, ...], token: bytes) -> Verified | None:
    issuers = Issuers(lambda: None, IssuerMetrics(CollectorRegistry()))
    issuers.change(settings)
    task = asyncio.create_task(issuers.run())
    try:
        return issuers.verified(token)
    except KeysMissing as missing:
        return await _once_more(issuers, token, missing)
    finally:
        task.cancel()


async def _once_more(issuers: Issuers, token: bytes, missing: KeysMissing) -> Verified | None:
    """Return the same with the keys, which are fetched meanwhile."""
    await missing.source.renewed()
    try:
        return issuers.verified(token)
    except KeysMissing:
        raise Refused("key") from None
