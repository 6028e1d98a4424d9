"""Commands with a client: their common options are the service's URL, the credential and the TLS files."""

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from tableside_client import AccessDenied, Client, Retries, TablesideError
from tableside_client.credential import TOKEN_VARIABLE, Credential, CredentialError
from tableside_client.errors import UNREACHABLE
from tableside_client.tls import CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE, TlsFileError

RETRIES = Retries(total_s=5.0)
"""Shorter than a program's: a person waits for the command, and a wrong address fails in the same way as a restart."""


def client_command(function: Callable[..., None], retries: Retries = RETRIES) -> Callable[..., None]:
    """Return a command that opens a client for the function. Its options follow those of the function."""

    @functools.wraps(function)
    def command(**options: Any) -> None:
        for name, option in options.items():
            try:
                str(option).encode()
            except UnicodeEncodeError:  # Python represents text in another encoding by surrogates
                raise typer.BadParameter(f"{name} is not valid text in the encoding of the terminal") from None
        connection = {name: options.pop(name) for name in _CLIENT_OPTIONS}
        try:
            with _client(connection, retries) as client, _printed_warnings():
                function(client, **options)
        except (TablesideError, CredentialError, TlsFileError) as error:
            typer.echo(f"tableside: {error}{_advice(error, connection['token_file'])}", err=True)
            raise typer.Exit(1) from None

    _, *own = inspect.signature(function).parameters.values()
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *_CLIENT_OPTIONS.values())]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _client_options(
    url: Annotated[
        str, typer.Option("--url", envvar="TABLESIDE_URL", help="The URL of the service.")
    ] = "http://127.0.0.1:8080",
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
    """Declare the common options. Only the parameters are used."""


_CLIENT_OPTIONS = inspect.signature(_client_options).parameters


def _client(options: dict[str, Any], retries: Retries) -> Client:
    options["token_file"] = options["token_file"] and str(options["token_file"])
    try:
        return Client(**options, retries=retries)
    except (CredentialError, TlsFileError):
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _advice(error: Exception, token_file: str | None) -> str:
    if (
        isinstance(error, TablesideError)
        and error.code == UNREACHABLE
        and isinstance(error.__cause__, httpx.ConnectError)
    ):
        return "; start the service with tableside serve, or set --url or TABLESIDE_URL"
    if not isinstance(error, AccessDenied) or error.code != "unauthenticated":
        return ""
    if Credential(path=token_file).read() is None:
        return f"; no token was sent: set --token-file or {TOKEN_VARIABLE}"
    return f"; the token in {token_file or TOKEN_VARIABLE} was rejected"


@contextmanager
def _printed_warnings() -> Iterator[None]:
    """Print the client's warnings, that it waits for the service, to standard error."""
    log, handler = logging.getLogger("tableside_client"), _Echo(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Echo(logging.Handler):
    """Prints each record as one line, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(f"tableside: {record.getMessage()}", err=True)
