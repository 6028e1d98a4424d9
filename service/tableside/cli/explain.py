"""`tableside token explain`: whose a token is by a configuration, and why it would be refused. Asks no service.

Callers are not told why, so this is for those who have the configuration. The token is never an argument, which others
on the machine could see.
"""

import asyncio
import sys
from hashlib import sha256
from pathlib import Path

import typer
from prometheus_client import CollectorRegistry

from ..auth import TOKEN_BYTES_MAX, AuthSettings, IssuerMetrics, Issuers, IssuerSettings, KeysMissing, Refused, Verified
from ..core import TableError
from ..settings import SettingsError, load

Rights = tuple[str, tuple[str, ...], tuple[str, ...], bool]


def explain(config: Path, token_file: Path | None) -> None:
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
        name, read, write, admin = asyncio.run(_found(auth, _token(token_file)))
    except (Refused, TableError, OSError) as error:
        why = error.reason if isinstance(error, Refused) else str(error)
        typer.echo(f"not taken: {why}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"caller: {name}\nread:   {_listed(read)}\nwrite:  {_listed(write)}\nadmin:  {'yes' if admin else 'no'}")


def _token(file: Path | None) -> bytes:
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
