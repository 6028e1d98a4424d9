"""`tableside token`: makes a bearer token, or says what one is good for by a configuration. Asks no service."""

import json
import secrets
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from ..auth import TokenSettings

RANDOM_BYTES = 32

PREFIX = "tableside_"
"""By it a token that stands where it should not is recognised."""

ConfigOption = Annotated[
    Path, typer.Option("--config", envvar="TABLESIDE_CONFIG", help="The configuration of the service.")
]
FileOption = Annotated[Path | None, typer.Option("--token-file", help="Where the token is; else standard input.")]

PatternOption = Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Tables, as in profile*; repeatable.")]


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
    from .explain import explain as explained  # it imports what verifies tokens, which `token new` does not need

    explained(config, token_file)
