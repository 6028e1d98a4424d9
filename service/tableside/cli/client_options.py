"""The options that all commands with a client share: the service's URL, credential and TLS files."""

import functools
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeAlias

import typer

from tableside_client import Client, Retries, TablesideError
from tableside_client.credential import CredentialError
from tableside_client.tls import CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE, TlsFileError

from .advice import advice

DEFAULT_URL = "http://127.0.0.1:8080"

RETRIES = Retries(total_s=5.0)
"""Shorter than a program's: a person waits for the command, and a wrong address fails in the same way as a restart."""


Command: TypeAlias = Callable[..., None]


def client_command(retries: Retries = RETRIES) -> Callable[[Command], Command]:
    """Return a decorator for commands, which opens a client and passes it to the function as the first argument.

    The command has the options of the function, followed by the options for the client.
    """

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def command(**options: Any) -> None:
            connection = {name: options.pop(name) for name in _shared_parameters()}
            connection["token_file"] = connection["token_file"] and str(connection["token_file"])
            for name, option in options.items():
                _check_text(name, option)
            with _open_client(connection, retries) as client:
                function(client, **options)

        _, *own = inspect.signature(function).parameters.values()
        shared = _shared_parameters().values()
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *shared)]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def _check_text(name: str, option: object) -> None:
    """Raise BadParameter for text that is not in the terminal's encoding, which Python represents by surrogates."""
    try:
        str(option).encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{name} is not valid text in the encoding of the terminal") from None


def _shared_parameters() -> Mapping[str, inspect.Parameter]:
    return inspect.signature(_client_options).parameters


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


@contextmanager
def _open_client(options: Mapping[str, Any], retries: Retries) -> Iterator[Client]:
    """Open a client. An error ends the command with a one-line message and exit code 1."""
    try:
        client = Client(**options, retries=retries)
    except (CredentialError, TlsFileError) as error:
        _fail(error)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with client, _reported_waits():
        try:
            yield client
        except (TablesideError, CredentialError, TlsFileError) as error:
            _fail(error, advice(error, options["token_file"]))


def _fail(error: Exception, more: str = "") -> NoReturn:
    typer.echo(f"tableside: {error}{more}", err=True)
    raise typer.Exit(1) from None


@contextmanager
def _reported_waits() -> Iterator[None]:
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
        """Print a record."""
        typer.echo(f"tableside: {record.getMessage()}", err=True)
