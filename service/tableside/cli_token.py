"""`tableside token new`: a bearer token, and what the configuration has to say of it. Asks no service."""

import json
import secrets
from hashlib import sha256
from typing import Annotated

import typer
from pydantic import ValidationError

from .settings import TokenSettings

RANDOM_BYTES = 32

PREFIX = "tableside_"
"""By it a token that stands where it should not is recognised."""

PatternOption = Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Tables, as in profile*; repeatable.")]


def install(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    token = typer.Typer(no_args_is_help=True)
    token.callback()(_token)
    token.command()(new)
    app.add_typer(token, name="token")


def _token() -> None:
    """Make bearer tokens."""


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
