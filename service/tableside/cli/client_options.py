"""The options that all commands with a client share: the service's URL, credential and TLS files."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tableside_client.client import TableClient
from tableside_client.credential import Credential, CredentialError
from tableside_client.errors import TableError
from tableside_client.retries import Retries
from tableside_client.tls import CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE, Tls, TlsFileError

DEFAULT_URL = "http://127.0.0.1:8080"

RETRIES = Retries(total_s=5.0)
"""Shorter than a program's: a person waits for the command, and a wrong address fails in the same way as a restart."""


def client_command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command that opens a client and passes it to `function` as the first argument.

    The command has the options of `function`, followed by the options for the client.
    """

    @functools.wraps(function)
    def command(**options: Any) -> None:
        credential, tls = _credential(options.pop("token_file")), _tls(options)
        with _open_client(options.pop("url"), credential, tls) as client:
            function(client, **options)

    _, *own = inspect.signature(function).parameters.values()
    shared = inspect.signature(_client_options).parameters.values()
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *shared)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _client_options(
    url: Annotated[str, typer.Option("--url", envvar="TABLESIDE_URL", help="The URL of the service.")] = DEFAULT_URL,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="TABLESIDE_TOKEN_FILE",
            exists=True,
            dir_okay=False,
            help="A file with the bearer token. The default is the token in TABLESIDE_TOKEN.",
        ),
    ] = None,
    ca_file: Annotated[
        str | None,
        typer.Option(
            help=f"PEM file of certificate authorities for the service's certificate. The default is {CA_VARIABLE}."
        ),
    ] = None,
    certificate_file: Annotated[
        str | None, typer.Option(help=f"PEM file of the client certificate. The default is {CERTIFICATE_VARIABLE}.")
    ] = None,
    key_file: Annotated[
        str | None,
        typer.Option(help=f"PEM file of its private key, if not in the same file. The default is {KEY_VARIABLE}."),
    ] = None,
) -> None:
    """Declare the shared options. Only the parameters are used."""


def _credential(token_file: Path | None) -> Credential:
    return Credential(path=None if token_file is None else str(token_file))


def _tls(options: dict[str, Any]) -> Tls:
    files = [options.pop(name) for name in ("ca_file", "certificate_file", "key_file")]
    try:
        return Tls(*files)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@contextmanager
def _open_client(url: str, credential: Credential, tls: Tls) -> Iterator[TableClient]:
    """Open a client. An error ends the command with a one-line message and exit code 1."""
    try:
        tls.require_https(url)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from None
    try:
        with TableClient(url, credential=credential, tls=tls, retries=RETRIES) as client:
            yield client
    except (TableError, CredentialError, TlsFileError) as error:
        typer.echo(f"tableside: {error}", err=True)
        raise typer.Exit(1) from None
