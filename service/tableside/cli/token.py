"""`tableside token`: creates a bearer token, or shows the caller and permissions of a token.

Needs no running service.
"""

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
    TokenRejected,
    TokenSettings,
    VerifiedToken,
)
from ..core import TableError
from ..settings import SettingsError, load

TOKEN_RANDOM_BYTES = 32

TOKEN_PREFIX = "tableside_"  # noqa: S105  # a prefix, not a password
"""Makes it possible to recognize a leaked token, for example in a repository."""

ConfigOption = Annotated[
    Path, typer.Option("--config", envvar="TABLESIDE_CONFIG", help="The configuration file of the service.")
]
FileOption = Annotated[
    Path | None, typer.Option("--token-file", help="A file with the token. The default is standard input.")
]

PatternOption = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="A pattern of table names, such as profile*. Can be repeated."),
]

Permissions = tuple[str, tuple[str, ...], tuple[str, ...], bool]
"""The caller's name, the patterns of tables to read and to write, and whether the caller is an admin."""


def install(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    token = typer.Typer(no_args_is_help=True)
    token.callback()(_token)
    token.command()(new)
    token.command()(explain)
    app.add_typer(token, name="token")


def _token() -> None:
    """Create bearer tokens, and show the permissions of a token."""


def new(
    name: Annotated[str, typer.Argument(help="The name of the caller.")],
    read: PatternOption = None,
    write: PatternOption = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="Grant access to endpoints that are restricted to admins.")
    ] = False,
) -> None:
    """Create a token. The first output line is the token, which is not stored. Add the second to `auth.tokens`."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_RANDOM_BYTES)
    digest = sha256(token.encode()).hexdigest()
    entry = {"name": name, "sha256": digest, "read": read or [], "write": write or [], "admin": admin}
    try:
        TokenSettings.model_validate(entry)
    except ValidationError as error:
        [fault, *_] = error.errors(include_url=False, include_input=False)
        raise typer.BadParameter(f"{fault['loc'][0]}: {fault['msg']}") from None
    typer.echo(token)
    typer.echo(f"- {json.dumps(entry)}")  # JSON is YAML


def explain(config: ConfigOption, token_file: FileOption = None) -> None:
    """Show the caller and permissions of a token, or why it is rejected, with exit code 1."""
    try:
        auth = load(config).auth
    except SettingsError as error:
        typer.echo(f"{error}", err=True)
        raise typer.Exit(1) from None
    if auth is None:
        typer.echo("the configuration has no auth: every request is allowed", err=True)
        raise typer.Exit(1)
    try:
        name, read, write, admin = asyncio.run(_identify(auth, _read_token(token_file)))
    except (TokenRejected, TableError, OSError) as error:
        reason = error.reason if isinstance(error, TokenRejected) else str(error)
        typer.echo(f"rejected: {reason}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"caller: {name}\nread:   {_format_patterns(read)}\nwrite:  {_format_patterns(write)}")
    typer.echo(f"admin:  {'yes' if admin else 'no'}")


def _read_token(file: Path | None) -> bytes:
    if file is None:
        return sys.stdin.buffer.read(4 * TOKEN_BYTES_MAX).strip()
    with file.open("rb") as opened:
        return opened.read(4 * TOKEN_BYTES_MAX).strip()


def _format_patterns(patterns: tuple[str, ...]) -> str:
    return ", ".join(patterns) or "nothing"


async def _identify(auth: AuthSettings, token: bytes) -> Permissions:
    """Return the permissions of a token. Raise TokenRejected, or TableError if keys cannot be fetched."""
    digest = sha256(token).hexdigest()
    for one in auth.tokens:
        if one.sha256.get_secret_value().lower() == digest:
            return one.name, one.read, one.write, one.admin
    found = await _verify_jwt(auth.issuers, token)
    if found is None:
        raise TokenRejected("unknown" if token else "missing")
    return found.name, found.read, found.write, found.admin


async def _verify_jwt(settings: tuple[IssuerSettings, ...], token: bytes) -> VerifiedToken | None:
    issuers = Issuers(lambda: None, IssuerMetrics(CollectorRegistry()))
    issuers.change(settings)
    task = asyncio.create_task(issuers.run())
    try:
        return issuers.verified(token)
    except KeysMissing as missing:
        return await _verify_with_fetched_keys(issuers, token, missing)
    finally:
        task.cancel()


async def _verify_with_fetched_keys(issuers: Issuers, token: bytes, missing: KeysMissing) -> VerifiedToken | None:
    """Verify the token once its issuer's keys are fetched. Raise TokenRejected if the key is still missing."""
    await missing.source.refreshed()
    try:
        return issuers.verified(token)
    except KeysMissing:
        raise TokenRejected("key") from None
